# The names that other rooms import from here; `__init__.py` loads each at first use.

from .baseline.difference import (
    Comparison as Comparison,
    Told as Told,
    comparison as comparison,
    told as told,
)
from .baseline.file import (
    Baseline as Baseline,
    drawing as drawing,
    is_baseline as is_baseline,
    of_run as of_run,
    read_baseline as read_baseline,
    updated as updated,
    write_baseline as write_baseline,
)
from .baseline.gate import (
    Draws as Draws,
    Finding as Finding,
)
from .baseline.recheck import (
    Rechecked as Rechecked,
    rechecked as rechecked,
)
from .comparands import (
    Found as Found,
    Side as Side,
    compare_as_fits as compare_as_fits,
    find_side as find_side,
)
from .golden.check import (
    Checked as Checked,
    GoldenChange as GoldenChange,
    check as check,
)
from .golden.export import export as export
from .golden.golden import Golden as Golden
from .golden.manifest import (
    Manifest as Manifest,
    read_manifest as read_manifest,
)
from .golden.outcome import (
    Ending as Ending,
    Key as Key,
)
from .golden.record import record as record
from .golden.store import read_set as read_set
from .golden.verify import verify as verify
from .run_causes import (
    version_changes as version_changes,
    why as why,
)
from .run_diff import (
    DRIFT as DRIFT,
    MOVED as MOVED,
    ROUNDING as ROUNDING,
    CaseChange as CaseChange,
    Change as Change,
    Diff as Diff,
    OverloadChanges as OverloadChanges,
    compare_runs as compare_runs,
)
from .upgrade.goldens import (
    Goldens as Goldens,
    look as look,
)
from .upgrade.sweep import sweep as sweep
