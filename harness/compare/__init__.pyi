# The names that other rooms import from here; `__init__.py` loads each at first use.

from . import factor_rules as factor_rules, random_rules as random_rules
from .comparison import OutputComparison as OutputComparison, compare as compare
from .factor_rules import householder as householder, transposed as transposed, wide as wide
from .gamma_rules import dirichlet as dirichlet, gamma as gamma
from .judge import (
    ACCUMULATES as ACCUMULATES,
    CLOSE as CLOSE,
    EQUAL as EQUAL,
    EXACT as EXACT,
    IEEE as IEEE,
    Evidence as Evidence,
    Judge as Judge,
    Mask as Mask,
    OutputRule as OutputRule,
)
from .nearness import SCALES as SCALES, Sensitivity as Sensitivity, tolerance_of as tolerance_of, ulp as ulp
from .output_rules import (
    any_order as any_order,
    anything as anything,
    conversion_undefined as conversion_undefined,
    equal as equal,
    index_along as index_along,
    indices_along as indices_along,
    infinite_mean as infinite_mean,
    overflow_undefined as overflow_undefined,
    running_index as running_index,
    unique_counts as unique_counts,
    unique_inverse as unique_inverse,
)
from .pooling import (
    Windows as Windows,
    adaptive as adaptive,
    fractional as fractional,
    index_of as index_of,
    maximum_of as maximum_of,
    sliding as sliding,
    unpooled as unpooled,
)
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
