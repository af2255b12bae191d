# The public names of the harness; `__init__.py` loads each at first use.

from .app.checking import CheckAnswer as CheckAnswer
from .app.session import Session as Session
from .app.survival import DoesNotSurvive as DoesNotSurvive, assert_survives as assert_survives, check as check
from .compare.verdict import Verdict as Verdict
from .core.route import Route as Route
from .generate.case_library import load_cases as load_cases
from .pipeline.supervisor import Supervisor as Supervisor
from .plan.options import Options as Options
from .plan.plan import make_plan as make_plan
from .plan.unit import Unit as Unit, run_unit as run_unit
from .present.frames import read_failures as read_failures, read_verdicts as read_verdicts
from .support.running import is_supported as is_supported

__version__: str
