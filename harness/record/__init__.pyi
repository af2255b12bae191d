# The names that other rooms import from here; `__init__.py` loads each at first use.

from . import layout as layout, progress as progress, store as store
from .archive.archive import Addition as Addition, Dataset as Dataset, require_run as require_run
from .archive.contents import (
    ArchiveContents as ArchiveContents,
    ArchivedRun as ArchivedRun,
    Aside as Aside,
    DamagedRun as DamagedRun,
)
from .archive.place import Location as Location
from .joining import join_backends as join_backends
from .json_lines import (
    Graph as Graph,
    LocatedFailure as LocatedFailure,
    Minimal as Minimal,
    Script as Script,
    append_line as append_line,
    read_flaky as read_flaky,
    read_graphs as read_graphs,
    read_located as read_located,
    read_minimal as read_minimal,
    read_scripts as read_scripts,
    write_flaky as write_flaky,
)
from .layout import ResultsError as ResultsError, reason as reason, replacing as replacing
from .merging import merge as merge
from .numbered import (
    Numbers as Numbers,
    Vocabulary as Vocabulary,
    column_numbers as column_numbers,
    combined_numbers as combined_numbers,
    numbered_column as numbered_column,
    ordered_numbers as ordered_numbers,
)
from .progress import Completeness as Completeness, completeness as completeness
from .run_info import (
    DISTRIBUTIONS as DISTRIBUTIONS,
    JSON as JSON,
    OPTION as OPTION,
    RULES as RULES,
    SOURCE as SOURCE,
    MergedPart as MergedPart,
    RunInfo as RunInfo,
    ShardState as ShardState,
    installed_versions as installed_versions,
    newest as newest,
    read_run_info as read_run_info,
    recorded as recorded,
    rule_files as rule_files,
    write_run_info as write_run_info,
)
from .schema import to_table as to_table, to_verdicts as to_verdicts
from .store import Selection as Selection, resolve_case as resolve_case
from .writer import RunWriter as RunWriter
