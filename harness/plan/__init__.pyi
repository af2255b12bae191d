# The names that other rooms import from here; `__init__.py` loads each at first use.

from . import reexecute as reexecute
from .model_unit import (
    ModelUnit as ModelUnit,
    run_model_unit as run_model_unit,
    write_details as write_details,
)
from .options import Options as Options, UsageProblem as UsageProblem
from .plan import Plan as Plan, make_plan as make_plan
from .reexecute import Again as Again, Outputs as Outputs
from .reuse.basis import basis as basis, packages_behind as packages_behind
from .reuse.carry_out import run_reusing as run_reusing
from .reuse.library import Library as Library, conclude as conclude, notes as notes
from .sharding import usual_seconds as usual_seconds
from .unit import Unit as Unit, run_unit as run_unit
