# The names that other rooms import from here; `__init__.py` loads each at first use.

from . import layout as layout, progress as progress, store as store
from .archive.archive import Addition as Addition, Dataset as Dataset, require_run as require_run
from .archive.contents import (
    ArchiveContents as ArchiveContents,
    ArchivedRun as ArchivedRun,
    Aside as Aside,
    DamagedRun as DamagedRun,
)
from .archive.retention import Rules as Rules, keeping as keeping
from .errors import ResultsError as ResultsError, reason as reason
from .exhibits import (
    Graph as Graph,
    Script as Script,
    add_graph as add_graph,
    add_script as add_script,
    read_graphs as read_graphs,
    read_scripts as read_scripts,
)
from .flaky import read_flaky as read_flaky, write_flaky as write_flaky
from .layout import replacing as replacing
from .merging import merge as merge
from .minimal import Minimal as Minimal, add_minimal as add_minimal, read_minimal as read_minimal
from .missing import Completeness as Completeness, ShardState as ShardState, completeness as completeness
from .rules_used import OPTION as OPTION, recorded as recorded, rule_files as rule_files
from .run_info import (
    DISTRIBUTIONS as DISTRIBUTIONS,
    JSON as JSON,
    RULES as RULES,
    SOURCE as SOURCE,
    RunInfo as RunInfo,
    installed_versions as installed_versions,
    newest as newest,
    read_run_info as read_run_info,
    write_run_info as write_run_info,
)
from .schema import to_verdicts as to_verdicts
from .select import Selection as Selection
from .store import resolve_case as resolve_case
from .writer import RunWriter as RunWriter
