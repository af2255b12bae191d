"""`pytest harness` as users start it: what runs, what is recorded, and how it ends."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from harness_runs import ROOT, environment, output, record_of, rows, run_harness, unary, vector

from harness.core.invocation import Invocation
from harness.record import store
from harness.record.run_info import read_run_info

pytestmark = pytest.mark.slowest(23)

#: avg_pool2d ignores its divisor in both exporters; the others are right.
FAILING, FINE = "aten.avg_pool2d.default", ("aten.neg.default", "aten.relu.default")
SELECTION = ("--op", "avg_pool2d", "--op", "aten::neg", "--op", "aten.relu", "--dtype", "float32")
FEW = (*SELECTION, "--examples", "24")
#: What a repetition of a run may not change.
VERDICT = (
    *("case_id", "overload", "dtype", "converter", "opset", "backend", "stage", "outcome", "blame"),
    *("signature", "max_abs_error", "max_rel_error", "max_ulp_error"),
    *("mismatched_elements", "total_elements", "invocation"),
)


class Run:
    """A finished session and its record."""

    def __init__(self, directory: Path, *options: str | Path, start: bool = False) -> None:
        self.directory = directory
        self.done = run_harness("--results-dir", directory, *options, start=start)

    @property
    def status(self) -> int:
        return self.done.returncode

    def rows(self, *columns: str) -> list[dict[str, Any]]:
        assert (self.directory / "run.json").exists(), output(self.done)
        return rows(self.directory, *columns)

    def verdicts(self) -> Counter[str]:
        return Counter(repr(row) for row in self.rows(*VERDICT))

    def overloads(self) -> set[str]:
        return {row["overload"] for row in self.rows("overload")}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache") / "pytest"


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Run:
    """Three operators with the default converter and backend, in one process.

    Projects that use pytest-timeout limit their tests; an item of the harness is not one of them.
    """
    settings = ("-o", f"cache_dir={cache}", "-o", "timeout=0.01")
    return Run(tmp_path_factory.mktemp("plain") / "run", *FEW, *settings)


def test_a_failing_operator_fails_its_item_and_the_session(plain: Run) -> None:
    assert plain.status == pytest.ExitCode.TESTS_FAILED, output(plain.done)
    assert "1 failed, 2 passed" in plain.done.stdout
    outcomes = Counter((row["overload"], row["outcome"]) for row in plain.rows("overload", "outcome"))
    assert outcomes[FAILING, "mismatch"] > 0
    assert {overload for overload, outcome in outcomes if outcome != "pass"} == {FAILING}


def test_every_drawn_case_has_a_row(plain: Run) -> None:
    counts = Counter(row["overload"] for row in plain.rows("overload"))
    assert counts == {FAILING: 24, FINE[0]: 24, FINE[1]: 24}
    assert all(Invocation.from_json(r["invocation"]).case_id == r["case_id"] for r in plain.rows())


def test_the_header_says_who_takes_part_and_who_cannot_and_why(plain: Run) -> None:
    assert re.search(r"converters: dynamo \(also here: .*torchscript", plain.done.stdout)
    assert re.search(r"backends: ort-cpu", plain.done.stdout)
    # One line names all of them; why, and what to install, is said to whoever asks for one.
    assert re.search(r"not here: .*ort-cuda", plain.done.stdout), output(plain.done)


def test_the_run_says_how_it_was_made(plain: Run) -> None:
    info = read_run_info(plain.directory)
    assert info.exit_status == 1
    assert info.seed == 0
    assert info.options["dtype"] == ["float32"]
    assert info.options["timeout"] == 60.0
    assert {"torch", "onnx", "onnxruntime", "harness", "converter dynamo"} <= set(info.versions)


@pytest.mark.thorough
def test_two_workers_run_the_same_cases_to_the_same_verdicts(plain: Run, tmp_path: Path) -> None:
    run = Run(tmp_path / "run", *FEW, "-n", "2", start=True)
    assert run.status == pytest.ExitCode.TESTS_FAILED, output(run.done)
    assert run.verdicts() == plain.verdicts()


@pytest.mark.thorough
def test_last_failed_runs_the_failing_operator_alone(plain: Run, cache: Path, tmp_path: Path) -> None:
    assert plain.status == pytest.ExitCode.TESTS_FAILED
    run = Run(tmp_path / "run", *FEW, "--lf", "-o", f"cache_dir={cache}")
    assert run.status == pytest.ExitCode.TESTS_FAILED, output(run.done)
    assert run.overloads() == {FAILING}


@pytest.mark.thorough
def test_x_stops_at_the_first_failing_operator(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", *FEW, "-x")
    assert run.status == pytest.ExitCode.TESTS_FAILED, output(run.done)
    # Operators run in the order of their names.
    assert run.overloads() == {FAILING}


def test_record_only_records_failures_and_is_green_and_k_selects(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", *FEW, "-k", "avg_pool2d or relu", "--record-only")
    assert run.status == pytest.ExitCode.OK, output(run.done)
    assert run.overloads() == {FAILING, "aten.relu.default"}
    assert "mismatch" in {row["outcome"] for row in run.rows("outcome")}


def test_collecting_runs_nothing_and_leaves_no_results(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", *FEW, "--converter", "torchscript", "--shapes", "both", "--co", "-q")
    assert run.status == pytest.ExitCode.OK, output(run.done)
    for overload in (FAILING, *FINE):
        for name in (f"{overload}-torchscript", f"{overload}-torchscript-dynamic"):
            assert f"test_conformance[{name}]" in run.done.stdout
    assert not run.directory.exists()


def test_a_default_run_has_dynamic_exports_of_what_converts(tmp_path: Path) -> None:
    # No converter has a conversion for cholesky_solve.
    asked = ("--op", "aten.relu.default", "--op", "aten.cholesky_solve.default", "--converter", "dynamo")
    usual = Run(tmp_path / "usual", *asked, "--co", "-q").done.stdout
    assert "[aten.relu.default-dynamo-dynamic]" in usual
    assert "aten.cholesky_solve.default-dynamo]" in usual
    assert "aten.cholesky_solve.default-dynamo-dynamic" not in usual
    few = Run(tmp_path / "few", *asked, "--examples", "100", "--co", "-q").done.stdout
    assert "aten.relu.default-dynamo]" in few
    assert "dynamic" not in few


def test_a_default_run_records_other_sizes_of_a_dynamic_export(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", "--op", "aten.relu.default", "--converter", "dynamo", "--record-only")
    assert "static shapes and some dynamic ones" in run.done.stdout
    dynamic = [row for row in run.rows("shape_mode", "exported_id", "case_id") if row["shape_mode"] == "dynamic"]
    exports = {row["exported_id"] for row in dynamic}
    assert len(exports) == 2
    assert len({row["case_id"] for row in dynamic}) > 3 * len(exports)


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two converters, two backends, both kinds of shapes, one dtype."""
    return Run(
        tmp_path_factory.mktemp("wide") / "run",
        *("--op", "aten.add.Tensor", "--op", "relu", "--examples", "16", "--dtype", "float16"),
        *("--converter", "dynamo", "--converter", "torchscript", "--shapes", "both"),
        *("--backend", "ort-cpu", "--backend", "onnx-reference"),
    )


def test_every_converter_meets_every_backend_on_the_same_cases(wide: Run) -> None:
    cases: dict[tuple[str, str, str], set[str]] = {}
    for row in wide.rows():
        cases.setdefault((row["shape_mode"], row["converter"], row["backend"]), set()).add(row["case_id"])
    for mode in ("static", "dynamic"):
        columns = [found for (m, *_), found in cases.items() if m == mode]
        assert len(columns) == 4, output(wide.done)
        assert all(found == columns[0] for found in columns)


def test_dtype_restricts_the_cases(wide: Run) -> None:
    # The other operand may be of another, to be promoted.
    for row in wide.rows("invocation"):
        assert "float16" in {spec.dtype for spec in Invocation.from_json(row["invocation"]).tensors()}


def test_a_dynamic_export_runs_at_sizes_that_it_was_not_exported_with(wide: Run) -> None:
    dynamic = [row for row in wide.rows() if row["shape_mode"] == "dynamic"]
    shapes: dict[str, set[tuple[tuple[int, ...], ...]]] = {}
    for row in dynamic:
        exported = Invocation.from_json(row["exported_invocation"])
        run = tuple(spec.shape for spec in Invocation.from_json(row["invocation"]).tensors())
        other = tuple(spec.shape for spec in exported.tensors())
        shapes.setdefault(exported.case_id, {other}).add(run)
        assert [len(a) for a in run] == [len(b) for b in other]
    assert shapes
    # The exported sizes and at least one other, each reaching the comparison.
    assert all(len(found) > 1 for found in shapes.values())
    varied = [row for row in dynamic if row["exported_invocation"] != row["invocation"]]
    assert sum(row["outcome"] == "pass" for row in varied) > len(varied) / 2
    assert all(not row["exported_invocation"] for row in wide.rows() if row["shape_mode"] == "static")


@pytest.mark.slow
def test_several_opsets_are_run_and_compared(tmp_path: Path) -> None:
    words = ("--op", "aten.group_norm", "--op", "aten.relu", "--examples", "24", "--dtype", "float32", "-n", "2")
    run = Run(tmp_path / "run", *words, "--opset", "18", "--opset", "23", "--record-only")
    assert run.status == pytest.ExitCode.OK, output(run.done)
    found = run.rows()
    assert {(row["converter"], row["opset"]) for row in found if row["opset"]} == {("dynamo@18", 18), ("dynamo@23", 23)}
    at = {name: {r["case_id"] for r in found if r["converter"] == name} for name in ("dynamo@18", "dynamo@23")}
    assert at["dynamo@18"] == at["dynamo@23"]
    assert {row["component"] for row in found if row["blame"] == "converter"} == {"torchlib"}
    assert "dynamo → ort-cpu at opsets 18 and 23: " in output(run.done)
    # Some cases of group_norm are right at 18 and not at 23.
    ends = {(row["case_id"], row["converter"]): row["outcome"] for row in found}
    differing = [
        case for case in at["dynamo@18"] if (ends[case, "dynamo@18"] == "pass") != (ends[case, "dynamo@23"] == "pass")
    ]
    assert differing
    again = Run(tmp_path / "again", "--replay", run.directory, "--case", differing[0])
    assert {(row["converter"], row["outcome"]) for row in again.rows()} == {
        (name, ends[differing[0], name]) for name in ("dynamo@18", "dynamo@23")
    }
    only = Run(tmp_path / "only", "--op", "aten.relu", "--examples", "4", "--converter", "dynamo@20")
    assert {(row["converter"], row["opset"]) for row in only.rows()} == {("dynamo@20", 20)}


def test_an_operator_with_another_conversion_at_a_later_opset_is_run_there_too(tmp_path: Path) -> None:
    words = ("--op", "aten.group_norm", "--op", "aten.relu", "--examples", "4", "--dtype", "float32", "--no-blame")
    run = Run(tmp_path / "run", *words, "--source", "generated", "--record-only")
    assert run.status == pytest.ExitCode.OK, output(run.done)
    group_norm, relu = "aten.group_norm.default", "aten.relu.default"
    made = {(row["overload"], row["converter"], row["opset"]) for row in run.rows() if row["opset"]}
    assert made == {(relu, "dynamo", 20), (group_norm, "dynamo", 20), (group_norm, "dynamo@23", 23)}
    again = Run(tmp_path / "again", "--replay", tmp_path / "run", "--no-blame", "--record-only")
    assert {(row["overload"], row["converter"], row["opset"]) for row in again.rows() if row["opset"]} == made


@pytest.mark.slow
def test_a_second_opset_has_the_verdicts_of_a_run_of_its_own(tmp_path: Path) -> None:
    """The cases, answers and captured programs that the opsets of a run share change nothing."""
    operators = ("aten.sub.Scalar", "aten.celu", "aten.nonzero")
    words = (*(word for name in operators for word in ("--op", name)), "--examples", "24", "--record-only")
    together = Run(tmp_path / "together", *words, "--opset", "20", "--opset", "23")
    alone = Run(tmp_path / "alone", *words, "--opset", "23")

    def found(run: Run) -> set[tuple[object, ...]]:
        kept = [row for row in run.rows() if row["opset"] in (None, 23) and row["converter"] in ("dynamo", "dynamo@23")]
        names = ("case_id", "exported_invocation", "stage", "outcome", "message", "blame", "place", "onnx_operators")
        return {tuple(row[name] for name in names) for row in kept}

    assert len(found(alone)) > 50
    assert found(together) == found(alone)


@pytest.mark.slow
def test_the_opset_asked_for_is_emitted_or_an_error(tmp_path: Path) -> None:
    run = Run(
        tmp_path / "run",
        *("--op", "aten.split.Tensor", "--op", "aten.relu", "--op", "aten.grid_sampler", "--examples", "8"),
        *("--converter", "dynamo", "--converter", "torchscript", "--opset", "15", "--dtype", "float32"),
    )
    assert run.status == pytest.ExitCode.TESTS_FAILED, output(run.done)
    endings = Counter(
        (row["overload"], row["converter"], row["opset"], row["stage"], row["outcome"]) for row in run.rows()
    )
    assert endings["aten.relu.default", "dynamo", 15, "compare", "pass"] == 8
    assert endings["aten.relu.default", "torchscript", 15, "compare", "pass"] == 8
    # Opsets below 16 have no GridSample: dynamo silently stays at 18, TorchScript raises.
    assert endings["aten.grid_sampler.default", "dynamo", 18, "check", "error"] == 8
    assert endings["aten.grid_sampler.default", "torchscript", None, "convert", "unsupported"] == 8
    assert all(opset in (15, None) or outcome == "error" for _, _, opset, _, outcome in endings)


@pytest.mark.thorough
def test_replaying_one_case_reproduces_its_verdict(plain: Run, tmp_path: Path) -> None:
    case = next(row["case_id"] for row in plain.rows() if row["outcome"] == "mismatch")
    # The summary names a command that does it.
    assert f"pytest harness --replay {plain.directory} --case" in plain.done.stdout
    run = Run(tmp_path / "run", "--replay", plain.directory, "--case", case[:10], "--converter", "dynamo")
    assert run.status == pytest.ExitCode.TESTS_FAILED, output(run.done)
    again = [{name: row[name] for name in VERDICT} for row in run.rows()]
    assert again == [{n: row[n] for n in VERDICT} for row in plain.rows() if row["case_id"] == case]
    assert {row["source"] for row in run.rows("source")} == {"replay"}


def test_a_random_operators_case_that_is_named_is_run_until_it_fails(tmp_path: Path) -> None:
    # A 1 is never right here, and one run of a hundred draws it.
    call = Invocation("aten.rand_like.default", (("self", vector([0.0] * 40, "float16")),))
    replay = record_of(tmp_path / "record", [call])
    run = Run(tmp_path / "run", "--replay", replay, "--case", call.case_id, "--converter", "dynamo")
    [row] = [row for row in run.rows("backend", "message") if row["backend"] == "ort-cpu"]
    assert "1.0 cannot be drawn there" in row["message"], output(run.done)


def test_a_run_that_drew_no_case_is_not_green(tmp_path: Path) -> None:
    # Without a tensor there is nothing whose size a dynamic export could vary.
    run = Run(tmp_path / "run", "--op", "aten.linspace", "--shapes", "dynamic", "--examples", "4")
    assert run.status == pytest.ExitCode.NO_TESTS_COLLECTED, output(run.done)
    assert run.rows() == []


def test_a_selection_that_selects_nothing_is_not_green(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", *FEW, "-k", "no_such_operator")
    assert run.status == pytest.ExitCode.NO_TESTS_COLLECTED, output(run.done)


REFUSED: dict[str, tuple[str, ...]] = {
    "--op celluu": ("celluu", "aten.celu.default"),
    "--op aten.zzz_*": ("aten.zzz_*", "matches none"),
    "--op celu --dtype int64": ("nothing to run", "int64"),
    "--converter dynamoo": ("dynamoo", "dynamo?"),
    "--backend ort-cpuu": ("ort-cpuu", "ort-cpu"),
    "--backend onnx-api:no_such_module": ("no_such_module", "onnx-api:onnxruntime.backend"),
    "--backend ort-cuda": ("ort-cuda", "to get it: pip "),
    "--dtype float23": ("float23", "float32"),
    "--examples 0": ("--examples 0", "at least 1"),
    "--examples 1000000000": ("--examples 1000000000", "at most 100,000", "--seed"),
    "--opset 3": ("--opset 3: the converter dynamo emits opsets 7 to ",),
    "--opset 99": ("--opset 99: the converter dynamo emits opsets 7 to ",),
    "--opset 24 --converter dynamo --converter torchscript": (
        "--opset 24: the converter torchscript emits opsets 7 to 23",
    ),
    "--opset twenty": ("--opset twenty: give a number, or `all` alone",),
    "--opset 18 --opset 20 --model resnet18": ("--model runs one opset at a time",),
    "--opset 18 --opset 20 --converter dynamo@18": ("--converter dynamo@18 names an opset: leave out --opset",),
    "--converter dynamo@99": ("--opset 99: the converter dynamo emits opsets 7 to ",),
    "--converter dynamoo@18": ("dynamoo", "dynamo?"),
    "--converter torch-compile --backend ort-cpu": (
        "--converter torch-compile makes an artefact of kind callable, which ort-cpu does not take",
        "--backend aot-eager",
    ),
    "--converter dynamo --backend ort-cpu --backend aot-eager": (
        "--backend aot-eager takes artefacts of kind callable, which dynamo does not make",
        "--converter torch-compile does",
    ),
    "--converter torch-compile --opset 18": ("torch-compile makes no ONNX model: leave out --opset",),
    "--case 0123456789ab": ("--case", "--replay"),
}


@pytest.mark.parametrize("options", REFUSED)
def test_what_cannot_be_carried_out_is_refused_in_one_line(options: str, tmp_path: Path) -> None:
    run = Run(tmp_path / "run", *options.split())
    assert_refused(run.done, *REFUSED[options])
    assert not run.directory.exists()


def test_a_requested_backend_that_is_missing_ends_the_session_with_how_to_install_it(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", "--backend", "ort-cuda", "-n", "2")
    assert_refused(run.done, "ort-cuda", "to get it: pip ")
    assert not run.directory.exists()


#: For each list of options, whether the fork server runs when the plug-in proper is there.
_SERVERS = """
import contextlib, io, json, pytest, sys
from multiprocessing.forkserver import _forkserver

class Watch:
    def pytest_plugin_registered(self, plugin):
        if getattr(plugin, "__name__", "") == "harness.app.plugin":
            runs.append(_forkserver._forkserver_pid is not None)

runs = []
for options in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        pytest.main(["harness", "-p", "no:cacheprovider", *options], plugins=[Watch()])
print(json.dumps(runs))
"""


@pytest.mark.slow
def test_workers_import_while_the_session_does_and_only_where_there_will_be_workers() -> None:
    refused = ("--op", "celluu")
    sessions = [("--help",), ("--co", *refused), ("-n", "2", *refused), refused]
    done = subprocess.run(
        [sys.executable, "-c", _SERVERS, json.dumps(sessions)],
        cwd=ROOT,
        env=environment(PYTEST_XDIST_WORKER=""),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert json.loads(done.stdout) == [False, False, False, True], output(done)


def assert_refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, output(done)
    said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    assert len(said) == 1, output(done)
    assert said[0].startswith("ERROR: ")
    for word in words:
        assert word in said[0]


def contents(directory: Path) -> dict[str, bytes]:
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


def test_a_directory_that_holds_a_run_is_left_as_it_is(tmp_path: Path) -> None:
    directory = record_of(tmp_path / "run", [unary("aten.relu.default", [1.0])])
    before = contents(directory)
    assert_refused(Run(directory, "--op", "relu").done, str(directory), "already holds a run", "--results-dir")
    assert contents(directory) == before


@pytest.mark.slow
def test_a_directory_that_holds_a_run_is_refused_at_once(tmp_path: Path) -> None:
    directory = record_of(tmp_path / "run", [unary("aten.relu.default", [1.0])])
    words = ["harness", "--op", "relu", "-p", "no:cacheprovider", f"--results-dir={directory}"]
    code = f"import pytest; print(int(pytest.main({words!r})))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout.split() == [str(int(pytest.ExitCode.USAGE_ERROR))], output(done)
    assert "already holds a run" in done.stderr


def test_a_results_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    assert_refused(Run(tmp_path / "file", "--op", "relu").done, "cannot write results", "--results-dir")
    assert contents(tmp_path) == {"file": b"precious"}


@pytest.mark.parametrize("harm", ["truncated", "scribbled"])
def test_a_damaged_record_is_refused_and_kept(harm: str, tmp_path: Path) -> None:
    replay = record_of(tmp_path / "record", [unary("aten.relu.default", [float(n)]) for n in range(50)])
    file = replay / "verdicts.parquet"
    content = bytearray(file.read_bytes())
    if harm == "truncated":
        del content[len(content) // 2 :]
    else:
        content[len(content) // 8 : len(content) // 4] = b"\x5a" * (len(content) // 4 - len(content) // 8)
    file.write_bytes(content)
    run = Run(tmp_path / "run", "--replay", replay)
    assert_refused(run.done, str(file), "damaged")
    assert file.read_bytes() == content
    assert not run.directory.exists()


def test_a_case_that_the_record_lacks_is_refused_with_near_ones(tmp_path: Path) -> None:
    replay = record_of(tmp_path / "record", [unary("aten.relu.default", [1.0])])
    known = store.read(replay, ["case_id"])["case_id"][0].as_py()
    wrong = known[:-1] + ("0" if known[-1] != "0" else "1")
    assert_refused(run_harness("--replay", replay, "--case", wrong), wrong, known)


def test_limited_time_goes_to_what_models_call_most(tmp_path: Path) -> None:
    words = ("--op", "celu", "--op", "acosh", "--op", "aten::relu", "--op", "aten::add.Tensor", "--shapes", "static")
    listed = run_harness(*words, "--minutes", "5", "--collect-only", "-q").stdout.splitlines()
    order = [line.partition("[aten.")[2].partition(".")[0] for line in listed if "[aten." in line]
    assert set(order[:2]) == {"add", "relu"}
    assert order[2:] == ["acosh", "celu"]
    late = Run(tmp_path / "run", *words, "--minutes", "0.00001")
    assert late.status == pytest.ExitCode.NO_TESTS_COLLECTED, output(late.done)
    said = "not reached within --minutes 1e-05: 4 operators; models call 2 of them: aten.add.Tensor, aten.relu.default"
    assert said in late.done.stdout
    # No letter for each of them.
    assert "ssss" not in late.done.stdout


def test_no_time_is_an_invalid_option(tmp_path: Path) -> None:
    done = Run(tmp_path / "run", "--minutes", "0").done
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "--minutes 0: must be more than 0" in output(done)
