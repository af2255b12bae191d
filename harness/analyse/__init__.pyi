# The names that other rooms import from here; `__init__.py` loads each at first use.

from .argument_coverage.asker import Asker as Asker
from .argument_coverage.pair_survey import (
    TIMES as TIMES,
    PairShare as PairShare,
    PairSurvey as PairSurvey,
    survey_pairs as survey_pairs,
)
from .argument_coverage.survey import ACCEPTED as ACCEPTED, DRAWS as DRAWS, Survey as Survey, survey as survey
from .argument_coverage.unreachable import Excuse as Excuse, excuses as excuses
from .bisect.releases import (
    NoReleases as NoReleases,
    install_release as install_release,
    releases_of as releases_of,
)
from .bisect.rerun import Rerun as Rerun
from .bisect.search import Change as Change, Verdicts as Verdicts, search_releases as search_releases
from .capture.call_capture import capture_calls as capture_calls
from .capture.save import entries_of as entries_of, save_directory as save_directory, save_file as save_file
from .capture.use import (
    capture_data as capture_data,
    operator_uses as operator_uses,
    render_capture as render_capture,
)
from .divergence.divergence_account import (
    Divergence as Divergence,
    divergence_entries as divergence_entries,
    divergence_lines as divergence_lines,
)
from .divergence.divergence_task import DivergeTask as DivergeTask
from .divergence.first_divergence import find_divergence as find_divergence
from .exhibits.failure_lines import locate_failures as locate_failures
from .exhibits.write import write_evidence as write_evidence
from .explain.explanation import explain_operator as explain_operator
from .explain.render import render as render
from .operator_coverage.report import coverage_report as coverage_report
from .operator_coverage.tried_report import tried_report as tried_report
from .places.of_failure import (
    can_be_placed as can_be_placed,
    places_of as places_of,
    places_of_case as places_of_case,
)
from .places.repair import Limits as Limits
from .places.source_code import SourceCode as SourceCode, short_path as short_path
from .places.suspect import Suspect as Suspect
from .repro.failure import ReproducibleFailure as ReproducibleFailure, find_failure as find_failure
from .repro.issue import write_issue as write_issue
from .repro.script import (
    NoScript as NoScript,
    ScriptResult as ScriptResult,
    run_text as run_text,
    write_script as write_script,
)
from .repro.upstream import write_report as write_report
from .seen_pairs import (
    SeenPairs as SeenPairs,
    Tried as Tried,
    TriedPairs as TriedPairs,
    read_seen_pairs as read_seen_pairs,
    read_tried_pairs as read_tried_pairs,
    recorded_ends as recorded_ends,
    tried_pairs as tried_pairs,
)
from .shrink.recorded_failures import RecordedFailure as RecordedFailure, failures as failures
from .shrink.shrink_session import (
    PER_FAILURE as PER_FAILURE,
    default_seconds as default_seconds,
    shrink_after_run as shrink_after_run,
    shrink_run as shrink_run,
)
from .support.is_supported import is_supported as is_supported
from .support.of_model import ModelError as ModelError, operators_of as operators_of
from .support.support_answer import Support as Support, SupportLevel as SupportLevel
from .support.support_cells import (
    SupportCell as SupportCell,
    aten_cells as aten_cells,
    onnx_cells as onnx_cells,
)
from .support.support_record import (
    SHIPPED as SHIPPED,
    Provenance as Provenance,
    SupportRecord as SupportRecord,
    read_support as read_support,
    write_support as write_support,
)
