# The names that other rooms import from here; `__init__.py` loads each at first use.

from .after_upgrade import Goldens as Goldens, look as look, sweep as sweep
from .baseline.file import (
    Baseline as Baseline,
    drawing as drawing,
    is_baseline as is_baseline,
    of_run as of_run,
    read_baseline as read_baseline,
    updated as updated,
    write_baseline as write_baseline,
)
from .baseline.gate import BaselineFinding as BaselineFinding, Draws as Draws
from .baseline.recheck import Rechecked as Rechecked, rechecked as rechecked
from .case_changes import (
    CHANGES as CHANGES,
    DRIFT as DRIFT,
    KEY_COLUMNS as KEY_COLUMNS,
    MOVED as MOVED,
    ROUNDING as ROUNDING,
    CaseState as CaseState,
    ChangeKind as ChangeKind,
    Changes as Changes,
    EndedCases as EndedCases,
    case_keys as case_keys,
    compare_cases as compare_cases,
    paired as paired,
)
from .comparands import (
    NOTHING_COMPARED as NOTHING_COMPARED,
    BaselineComparison as BaselineComparison,
    Found as Found,
    ReportedDifference as ReportedDifference,
    Side as Side,
    compare_as_fits as compare_as_fits,
    comparison as comparison,
    find_side as find_side,
    find_sides as find_sides,
    reported as reported,
)
from .golden.golden import Ending as Ending, Golden as Golden, GoldenKey as GoldenKey
from .golden.golden_check import CheckedGolden as CheckedGolden, GoldenChange as GoldenChange, check as check
from .golden.golden_recording import record as record
from .golden.golden_store import Manifest as Manifest, read_manifest as read_manifest, read_set as read_set
from .golden.onnx_layout import export as export
from .golden.verify import verify as verify
from .run_diff import (
    CaseChange as CaseChange,
    Diff as Diff,
    OverloadChanges as OverloadChanges,
    compare_runs as compare_runs,
    version_changes as version_changes,
    why as why,
)
from .run_request import (
    RunRequest as RunRequest,
    last_alike as last_alike,
    requested as requested,
    shown_first as shown_first,
)
