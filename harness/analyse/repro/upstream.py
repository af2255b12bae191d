"""A failure as a report that the maintainers of the guilty project can run as it stands."""

from __future__ import annotations

from harness.analyse.places.suspect import Suspect
from harness.analyse.repro.failure import ReproducibleFailure
from harness.analyse.repro.failure_title import title_for
from harness.analyse.repro.issue import Report, model_of, tracker_of
from harness.analyse.repro.model_script import write_model_script
from harness.analyse.repro.script import NoScript, ScriptResult, run_text, write_graph_script, write_script
from harness.compare import Stage
from harness.run import BACKENDS


def write_report(failure: ReproducibleFailure, *, check: bool = True, lines: tuple[Suspect, ...] = ()) -> Report:
    """The report for a failure.

    A runtime's defect is shown by a script without PyTorch, where there is one that shows it.

    Args:
        check: Whether to run the script.
        lines: Of the converter's source, those that the failure may come of.

    Raises:
        NoScript: there is no script for the failure.
    """
    graph = ""
    if failure.stage is not Stage.CONVERT:
        printed = run_text(write_graph_script(failure))
        graph = printed.output if printed.exit_status == 0 else ""
    tracker, model = tracker_of(failure), model_of(graph)
    heading = title_for(failure, tracker, model)
    if model is not None and tracker == BACKENDS.find(failure.backend)[0].tracker:
        try:
            script = write_model_script(failure, model, heading)
        except NoScript:
            pass
        else:
            checked = run_text(script) if check else None
            if checked is None or checked.reproduces:
                return Report(failure, script, checked, graph)
    script = write_script(failure, heading)
    return Report(failure, script, _checked(script, check), graph, lines)


def _checked(script: str, check: bool) -> ScriptResult | None:
    return run_text(script) if check else None
