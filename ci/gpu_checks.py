"""The checks of `ci/gpu_check`, in the order of its table."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import gpu_faults
import gpu_judging
from gpu_judging import COMPANION, DEPENDENT, NotRun, Rows

from harness.core.invocation import Invocation, Literal, TensorSpec
from harness.core.isolation import IsolatedCalls, ProcessDied
from harness.core.route import Route
from harness.generate.sources.recorded import FromRecord
from harness.pipeline.supervisor import Supervisor
from harness.pipeline.task import Settings
from harness.plan.unit import Unit, run_unit
from harness.record.progress import completeness
from harness.run.backend import BACKENDS
from harness.run.cuda import missing_gpu

ROOT = Path(__file__).resolve().parents[1]
PYTHON = sys.executable
#: Bytes that all sessions together may leave behind.
LEAK = 64 * 2**20
#: Seconds that a process of its own may take: a runtime's first start on a GPU is slow.
LONG = 1200
#: Operators of the sweep that two processes run once more.
TWICE = 12


class GpuChecks:
    """Makes the checks and keeps their results.

    Args:
        out: Directory for records and logs.
        backends: The backends to check.
        operators: The operators to sweep.
        quick: Whether to use fewer cases and sessions.

    Attributes:
        rows: Rows of the table: check, result (passed, failed or not run), seconds, note.
    """

    def __init__(self, out: Path, *, backends: Sequence[str], operators: Sequence[str], quick: bool) -> None:
        self._out = out
        self._backends = backends
        self._operators = operators
        self._quick = quick
        self.rows: list[dict[str, Any]] = []
        self._verdicts: Rows = ()
        #: Backend → why it cannot run here, "" where it can; without those that are not here at all.
        self._started: dict[str, str] = {}

    def make_all(self) -> None:
        """Every check; an interruption is a failure of the rest."""
        try:
            self._check_machine()
            for name in self._backends:
                self._check_backend(name)
            if "" not in self._started.values():
                self._check("a simulated fault, and what follows", partial(self._fault, COMPANION))
        except KeyboardInterrupt:
            self._keep("the rest", "failed", 0.0, "it was interrupted")

    def _check_machine(self) -> None:
        self._check("driver and devices", _devices)
        self._check("packages", _packages)
        self._check("providers of ONNX Runtime", _providers)
        for name in self._backends:
            self._check(f"{name}: start", partial(self._start, name))
        self._check("tests marked gpu", self._marked_tests)
        self._check(f"sweep of {len(self._operators)} operators", self._sweep)
        self._check("two processes at once", self._together)

    def _check_backend(self, name: str) -> None:
        if name not in self._started:
            words = "it did not start: no shapes, data, blame, placement, times, faults, indices or memory"
            self._keep(f"{name}: all else", "not run", 0.0, words)
            return
        for mode in ("static", "dynamic"):
            self._check(f"{name}: {mode} shapes", partial(self._right, name, mode=mode))
        self._check(f"{name}: outputs that depend on data", partial(self._right, name, only=DEPENDENT))
        self._check(f"{name}: whose the failures are", partial(gpu_judging.blamed, self._verdicts, name))
        self._check(f"{name}: what fell back to the CPU", partial(self._placed, name))
        self._check(f"{name}: times", partial(gpu_judging.times, self._verdicts, name))
        self._check(f"{name}: a fault, and what follows", partial(self._fault, name))
        self._check(f"{name}: indices out of range", partial(self._indices, name))
        self._check(f"{name}: memory after sessions", partial(self._memory, name))

    def _check(self, name: str, made: Callable[[], str]) -> None:
        """Make one check; whatever it raises is its result."""
        began = time.monotonic()
        try:
            result, note = "passed", made()
        except NotRun as reason:
            result, note = "not run", str(reason)
        except Exception as error:
            result, note = "failed", f"{type(error).__name__}: {error}"
        self._keep(name, result, time.monotonic() - began, note)

    def _keep(self, name: str, result: str, seconds: float, note: str) -> None:
        self.rows.append({"check": name, "result": result, "seconds": round(seconds, 1), "note": note})
        print(f"{result:8}{seconds:7.1f} s  {name}: {note.splitlines()[0] if note else ''}", flush=True)

    # Checks

    def _start(self, name: str) -> str:
        """Whether a backend starts, and negates a number."""
        entry, argument = BACKENDS.find(name)
        if missing := entry.probe(argument):
            raise NotRun(f"{missing.reason}; it needs: {missing.install}")
        with IsolatedCalls(timeout=LONG) as process:
            version, why = process.call(gpu_faults.start, name)
        self._started[name] = why
        return f"{version}, builds engines and does not run them: {why}" if why else version

    def _marked_tests(self) -> str:
        """The tests of the backends that need a GPU."""
        _need_gpu()
        pytest = [PYTHON, "-m", "pytest", "tests/run", "-m", "gpu", "-q", "-p", "no:cacheprovider"]
        status, text = self._logged("tests", pytest)
        if status != 0:
            raise RuntimeError(f"exit status {status}: {_last_line(text)}")
        return _last_line(text)

    def _sweep(self) -> str:
        """The operators on all backends that started, static and dynamic."""
        self._verdicts = self._swept("run", self._operators)
        return f"{len(self._verdicts):,} verdicts of {', '.join([*self._started, COMPANION])}"

    def _together(self) -> str:
        """Two worker processes on one device: they find what one found."""
        if self._quick:
            raise NotRun("left out by --quick")
        operators = self._operators[:TWICE]
        alone = gpu_judging.endings(self._verdicts, operators)
        both = gpu_judging.endings(self._swept("together", operators, "-n", "2"), operators)
        others = [one for one in alone.keys() | both.keys() if alone.get(one) != both.get(one)]
        if others:
            case, *_, backend = one = others[0]
            words = f"{case} on {backend} ended as {alone.get(one)}, then as {both.get(one)}"
            raise RuntimeError(f"{len(others)} of {len(alone)} verdicts differ: {words}")
        return f"{len(both):,} verdicts, all as in one process"

    def _right(self, name: str, mode: str = "", only: Collection[str] = ()) -> str:
        builds = bool(self._started[name])
        return gpu_judging.right(self._verdicts, name, builds=builds, mode=mode, only=only)

    def _placed(self, name: str) -> str:
        self._need_running(name)
        return gpu_judging.placed(self._verdicts, name)

    def _fault(self, name: str) -> str:
        """One case takes the device with it: it alone crashes, and the others pass in new processes."""
        values = [(float(k), *[0.5] * size) for size in range(1, 7) for k in range(2)]
        values.insert(len(values) // 2, (1.0, gpu_faults.GUILTY, 2.0))
        tensors = [TensorSpec((len(v),), "float32", (1,), 0, Literal(v)) for v in values]
        calls = [Invocation("aten.neg.default", (("self", tensor),)) for tensor in tensors]
        faulty, why = gpu_faults.NAME + name, self._started.get(name, "")
        due = {(call.case_id, faulty): "built" if why else "pass" for call in calls}
        due |= {(call.case_id, COMPANION): "pass" for call in calls}
        guilty = (calls[len(values) // 2].case_id, faulty)
        if not why:
            due[guilty] = "crash"
        unit = Unit(
            overload="aten.neg.default",
            route=Route(converter="dynamo"),
            backends=(faulty, COMPANION),
            sources=(FromRecord.of_calls(calls),),
            settings=Settings(blame=False),
        )
        with Supervisor(timeout=LONG) as supervisor:
            found = [row for rows in run_unit(unit, supervisor) for row in rows]
        ended = {(row.case_id, row.backend): row for row in found}
        if len(found) != len(due) or ended.keys() != due.keys():
            raise RuntimeError(f"{len(due)} verdicts were due, {len(found)} came")
        said = ended[guilty].message
        wrong = [key for key, outcome in due.items() if ended[key].outcome != outcome]
        if wrong:
            words = ", ".join(f"{case} on {on} ended as {ended[case, on].outcome}" for case, on in wrong[:3])
            raise RuntimeError(f"{words}; the guilty case: {said or ended[guilty].outcome}")
        if why:
            raise NotRun(f"its engines do not run here; all {len(calls)} were built")
        return f"1 of {len(calls)} cases crashed, all others passed; it said: {said}"

    def _indices(self, name: str) -> str:
        """Describe the results of indices that are out of range, and whether a new process works afterwards."""
        self._need_running(name)
        told = []
        for operator in ("Gather", "GatherElements", "GatherND"):
            try:
                with IsolatedCalls(timeout=LONG) as process:
                    what = process.call(gpu_faults.wrong_indices, name, operator)
            except ProcessDied as died:
                what = f"the process ended: {died}"
            told.append(f"{operator}: {what.splitlines()[0][:120]}")
        with IsolatedCalls(timeout=LONG) as process:
            process.call(gpu_faults.start, name)
        return "; ".join(told)

    def _memory(self, name: str) -> str:
        """Whether what a session takes is given back."""
        count = 40 if self._quick else 200
        with IsolatedCalls(timeout=LONG) as process:
            device, host = process.call(gpu_faults.sessions, name, count)
        mebibytes = f"{device / 2**20:.0f} MiB on the device and {host / 2**20:.0f} MiB on the host"
        note = f"{count} sessions leave {mebibytes}"
        if max(device, host) > LEAK:
            raise RuntimeError(note)
        return note

    # Helpers

    def _need_running(self, name: str) -> None:
        if self._started[name]:
            raise NotRun(f"it does not run here: {self._started[name]}")

    def _swept(self, name: str, operators: Sequence[str], *more: str) -> Rows:
        """Run operators into a folder, and read the record."""
        where = self._out / name
        words = [part for operator in operators for part in ("--op", operator)]
        words += [part for backend in (*self._started, COMPANION) for part in ("--backend", backend)]
        words += ["--converter", "dynamo", "--converter", "torchscript", "--source", "generated"]
        words += ["--shapes", "both", "--examples", "8" if self._quick else "24", "--shrink", "0"]
        # The libraries of CUDA alone take more than a worker is usually given.
        words += ["--timeout", "300", "--memory-limit", "16", "--results-dir", str(where), *more]
        status, text = self._logged(name, [PYTHON, "-m", "harness.app.cli", "run", *words])
        # pytest fails for every operator with a defect, which is what a sweep is for.
        if status not in (0, 1):
            raise RuntimeError(f"exit status {status}: {_last_line(text)}")
        if not (there := completeness(where)).complete:
            raise RuntimeError(there.summary)
        return gpu_judging.verdicts(where)

    def _logged(self, name: str, command: Sequence[str]) -> tuple[int, str]:
        """Run a command into a file of its own: its exit status and what it said."""
        log = self._out / "logs" / f"{name}.txt"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as file:
            done = subprocess.run(command, stdout=file, stderr=file, cwd=ROOT)
        return done.returncode, log.read_text(encoding="utf-8", errors="replace")


def _devices() -> str:
    """The driver's own words."""
    _need_gpu()
    asked = "--query-gpu=name,driver_version,memory.total,compute_cap"
    return _run(["nvidia-smi", asked, "--format=csv,noheader"]).replace("\n", "; ")


def _packages() -> str:
    """Versions of what takes part."""
    import torch

    wanted = ("onnx", "tensorrt", "nvidia-c")
    found = {d.metadata["Name"].lower(): d.version for d in distributions() if d.metadata["Name"]}
    listed = [f"{name} {version}" for name, version in sorted(found.items()) if name.startswith(wanted)]
    return ", ".join([f"torch {torch.__version__} (CUDA: {torch.version.cuda or 'none'})", *listed])


def _providers() -> str:
    """Return the providers that the installed ONNX Runtime was built with."""
    return _run([PYTHON, "-c", "import onnxruntime; print(*onnxruntime.get_available_providers())"])


def _need_gpu() -> None:
    if why := missing_gpu():
        raise NotRun(why)


def _run(command: Sequence[str]) -> str:
    """Return the output of a command."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG)
    if done.returncode:
        raise RuntimeError(_last_line(done.stdout + done.stderr))
    return done.stdout.strip()


def _last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "it said nothing")
