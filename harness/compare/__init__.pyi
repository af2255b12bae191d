# The names that other rooms import from here; `__init__.py` loads each at first use.

from . import elements as elements, faults as faults
from .case_problems import (
    CaseProblem as CaseProblem,
    problems_of as problems_of,
    problems_text as problems_text,
)
from .comparison import (
    compare as compare,
    wrong_elements as wrong_elements,
)
from .diagnosis import (
    Detail as Detail,
    Diagnosis as Diagnosis,
    Finding as Finding,
    Role as Role,
    Testimony as Testimony,
    testimony_of as testimony_of,
)
from .drawn import (
    FALSE_ALARM as FALSE_ALARM,
    Drawn as Drawn,
    Placing as Placing,
    draws as draws,
    same_kind as same_kind,
)
from .judge import (
    ACCUMULATES as ACCUMULATES,
    CLOSE as CLOSE,
    EQUAL as EQUAL,
    EXACT as EXACT,
    IEEE as IEEE,
    Allowance as Allowance,
    Evidence as Evidence,
    Judge as Judge,
    Mask as Mask,
    OutputRule as OutputRule,
    anything as anything,
)
from .nearness import (
    SCALES as SCALES,
    Sensitivity as Sensitivity,
    allowances as allowances,
    largest_finite as largest_finite,
    paired as paired,
    term_magnitudes as term_magnitudes,
    tolerance_of as tolerance_of,
    ulp as ulp,
)
from .output_comparison import (
    OutputComparison as OutputComparison,
    OutputProblem as OutputProblem,
    excuses_of as excuses_of,
    excuses_text as excuses_text,
)
from .problem_kinds import (
    ELEMENTWISE as ELEMENTWISE,
    FLUSHED as FLUSHED,
    NAN_POSITIONS as NAN_POSITIONS,
    OVERFLOW as OVERFLOW,
    kind_of as kind_of,
    showing as showing,
)
from .repeated import RUNS as RUNS, Again as Again, first_wrong as first_wrong
from .signatures import normalise as normalise
from .tolerances import (
    DEFAULT as DEFAULT,
    MIN_EXPONENT as MIN_EXPONENT,
    ROUNDINGS as ROUNDINGS,
    Tolerance as Tolerance,
)
from .verdict import (
    BACKEND as BACKEND,
    CONVERTER as CONVERTER,
    PYTORCH as PYTORCH,
    RUNS_AT as RUNS_AT,
    SPEC as SPEC,
    UNKNOWN as UNKNOWN,
    CaseKey as CaseKey,
    Outcome as Outcome,
    Stage as Stage,
    Verdict as Verdict,
)
