# The public names of the harness; `__init__.py` loads each at first use.

from .analyse import is_supported as is_supported
from .app import Session as Session
from .compare import Verdict as Verdict
from .execute import Supervisor as Supervisor
from .generate import load_cases as load_cases
from .plan import Options as Options, Unit as Unit, make_plan as make_plan, run_unit as run_unit

__version__: str
