"""The same cases through the harness and through a loop of public exports; see `ci/benchmark.py`."""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import psutil
import torch

from harness.compare.comparison import compare
from harness.compare.output_comparison import OutputComparison
from harness.compare.verdict import Outcome, Stage, Verdict
from harness.convert.converter import Converter, UnsupportedOperator
from harness.core.invocation import Invocation
from harness.core.route import Route
from harness.generate.case_library import load_cases
from harness.generate.draws import draw_examples
from harness.generate.operator_case import judge_of
from harness.pipeline.program import CallStructure, export_request
from harness.pipeline.reference import run_reference
from harness.pipeline.stages import emitted_opset
from harness.pipeline.start import start_backend, start_converter
from harness.pipeline.supervisor import Death, Supervisor
from harness.pipeline.task import Task, WorkerTask
from harness.plan.unit import Unit, run_unit
from harness.record import store
from harness.record.run_info import RunInfo
from harness.record.writer import RunWriter
from harness.run.backend import Backend, UnsupportedModel

BACKEND = "ort-cpu"


@dataclass(frozen=True)
class Ending:
    """The facts to compare between the two: outcome, opset, and errors of a case."""

    stage: str
    outcome: str
    opset: int | None
    problem: str
    errors: tuple[float | None, float | None, float | None, int]


#: Outcomes that the plain loop cannot have: such a case would end its process.
_DEADLY = frozenset((Outcome.CRASH.value, Outcome.TIMEOUT.value))
#: Seconds after which rows are written while a unit goes on, as a session does it.
_FLUSH_INTERVAL = 2.0


class WaitingSupervisor(Supervisor):
    """Counts the seconds that workers cost that did not survive: their last step, and starting another."""

    def __init__(self) -> None:
        # As long as a session waits by default.
        super().__init__(timeout=60.0)
        self.waited = 0.0
        self._died = False

    def serve(self, task: WorkerTask, *, patience: float = 1.0) -> Iterator[Any]:
        """See `Supervisor`."""
        since = time.perf_counter()
        for message in super().serve(task, patience=patience):
            dead = isinstance(message, Death)
            # The first message of another kind of task comes when a part of its work is done.
            if dead or (self._died and isinstance(task, Task)):
                self.waited += time.perf_counter() - since
            self._died = dead
            yield message
            since = time.perf_counter()


def ending(verdict: Verdict) -> Ending:
    """Return the facts in a row of the record."""
    return Ending(
        verdict.stage.value,
        verdict.outcome.value,
        verdict.opset,
        verdict.signature if verdict.outcome is Outcome.MISMATCH else "",
        (verdict.max_abs_error, verdict.max_rel_error, verdict.max_ulp_error, verdict.mismatched_elements),
    )


def naive(invocation: Invocation, converter: Converter, backend: Backend) -> Ending:
    """One case by hand."""
    stage, opset = Stage.REFERENCE, None
    try:
        reference = run_reference(invocation)
        stage = Stage.CONVERT
        member = CallStructure(invocation, outputs=len(reference.expected))
        model = converter.convert(export_request([member], Route(converter=converter.name)))
        stage = Stage.CHECK
        if len(model.graph.output) != len(reference.expected):
            raise ValueError("another number of outputs")
        opset = emitted_opset(model)
        onnx.checker.check_model(model, full_check=True)
        stage = Stage.LOAD
        session = backend.load(model, None)
        stage = Stage.RUN
        present = {value.name for value in model.graph.input}
        feeds = {n: f for n, f in zip(member.input_names, reference.feeds, strict=True) if n in present}
        outputs = session.run(feeds)
    except Exception as error:
        outcome = Outcome.ERROR
        if isinstance(error, UnsupportedOperator | UnsupportedModel):
            outcome = Outcome.UNSUPPORTED
        if stage is Stage.REFERENCE:
            outcome = Outcome.SKIP
        if stage is Stage.CHECK:
            opset = emitted_opset(model)
        return Ending(stage.value, outcome.value, opset, "", (None, None, None, 0))
    comparison: OutputComparison = compare(judge_of(invocation), reference, outputs)
    return Ending(
        Stage.COMPARE.value,
        (Outcome.MISMATCH if comparison.problem else Outcome.PASS).value,
        opset,
        comparison.problem or "",
        (
            comparison.max_abs_error,
            comparison.max_rel_error,
            comparison.max_ulp_error,
            comparison.mismatched_elements,
        ),
    )


def choose(count: int, seed: int) -> list[str]:
    """`count` overloads, families in turn."""
    by_family: dict[str, list[str]] = {}
    for name, case in load_cases().items():
        by_family.setdefault(case.family, []).append(name)
    chooser = random.Random(seed)
    for names in by_family.values():
        chooser.shuffle(names)
    chosen: list[str] = []
    while len(chosen) < count and any(by_family.values()):
        for family in sorted(by_family):
            if by_family[family] and len(chosen) < count:
                chosen.append(by_family[family].pop())
    return chosen


def units(names: Sequence[str], converter: str, examples: int, values: int | None, seed: int) -> Iterator[Unit]:
    """Yield the units that `pytest harness` would make."""
    for name in names:
        yield Unit(
            overload=name,
            route=Route(converter=converter),
            backends=(BACKEND,),
            examples=examples,
            values=values,
            seed=seed,
        )


def recorded(found: Iterable[list[Verdict]], writer: RunWriter) -> Iterator[tuple[str, Ending]]:
    """The verdicts of a unit, written as a session writes them."""
    flushed = time.monotonic()
    for verdicts in found:
        writer.write(verdicts)
        if time.monotonic() - flushed > _FLUSH_INTERVAL:
            writer.flush()
            flushed = time.monotonic()
        yield from ((verdict.case_id, ending(verdict)) for verdict in verdicts)
    writer.flush()


def compare_speed(options: argparse.Namespace) -> int:
    """Run the same cases both ways; 0 if they agree."""
    names = choose(options.overloads, options.seed)
    started = time.perf_counter()
    drawn = [
        invocation
        for name in names
        for group in draw_examples(
            load_cases()[name], seed=options.seed, examples=options.examples, values=options.values
        )
        for invocation in group.invocations
    ]
    generation = time.perf_counter() - started
    structures = len({i.structure_id for i in drawn})
    print(f"{len(drawn)} cases of {structures} structures, {len(names)} overloads, {options.converter} → {BACKEND}")
    print(f"generation   {1e3 * generation / len(drawn):8.2f} ms a case")

    with tempfile.TemporaryDirectory() as directory, WaitingSupervisor() as supervisor:
        # Imports and a first export are paid once a session, by both.
        for _ in run_unit(next(units(names, options.converter, 1, 1, options.seed)), supervisor):
            pass
        info = RunInfo.begin(seed=options.seed, options={})
        ours: dict[str, Ending] = {}
        supervisor.waited = 0.0
        started = time.perf_counter()
        with RunWriter(Path(directory) / "run", info) as writer:
            for unit in units(names, options.converter, options.examples, options.values, options.seed):
                ours.update(recorded(run_unit(unit, supervisor), writer))
        store.finish(Path(directory) / "run")
        # `run_unit` draws again what was drawn above.
        harness_time = time.perf_counter() - started - generation
    deadly = sum(said.outcome in _DEADLY for said in ours.values())
    both = len(drawn) - deadly
    print(f"harness      {1e3 * harness_time / len(drawn):8.2f} ms a case (without generation)")
    print(f"  waiting    {supervisor.waited:8.2f} s in all for {deadly} cases that hang or crash")
    working = (harness_time - supervisor.waited) / both
    print(f"  working    {1e3 * working:8.2f} ms a case, over the {both} cases that the plain loop can do")
    whole = harness_time + generation
    print(f"structure    {1e3 * whole / structures:8.2f} ms with all of its cases, generation included")

    torch.set_num_threads(1)
    converter = start_converter(Route(converter=options.converter, public_api=True))
    backend = start_backend(BACKEND)
    naive(drawn[0], converter, backend)
    times, differences = [], []
    count = len(drawn)
    sample = random.Random(options.seed).sample(drawn, min(options.sample or count, count))
    for i, invocation in enumerate(sample):
        if ours[invocation.case_id].outcome in _DEADLY:
            # By hand it would end this process, which is what the harness is for.
            continue
        started = time.perf_counter()
        said = naive(invocation, converter, backend)
        times.append(time.perf_counter() - started)
        # By text, since NaN differs from itself.
        if repr(said) != repr(ours[invocation.case_id]):
            differences.append((invocation, said, ours[invocation.case_id]))
        if sys.stderr.isatty():
            print(f"\rplain loop {i + 1}/{len(sample)}", end="", file=sys.stderr)
    plain = statistics.fmean(times)
    print(f"plain loop   {1e3 * plain:8.2f} ms a case ({1e3 * statistics.median(times):.2f} median)")
    print(f"ratio        {plain / working:8.1f} × over the cases that both do")
    print(f"  all in     {plain / (harness_time / count):8.1f} × with the waiting, over all cases")
    print(f"outcomes     {dict(Counter(said.outcome for said in ours.values()))}")
    print(f"same verdict {len(times) - len(differences)} of {len(times)}")
    for invocation, alone, batched in differences[:20]:
        print(f"  {invocation}\n    alone:   {alone}\n    batched: {batched}")
    return 1 if differences else 0


def watch_memory(options: argparse.Namespace) -> int:
    """Run `options.memory` cases and print the worker's resident memory as it goes."""
    names = choose(10**6, options.seed)
    done, mark, seed, peak = 0, 0, options.seed, 0.0
    print(f"{'cases':>8} {'worker MiB':>11}")
    with Supervisor() as supervisor:
        while done < options.memory:
            for unit in units(names, options.converter, options.examples, options.values, seed):
                for verdicts in run_unit(unit, supervisor):
                    done += len(verdicts)
                    if supervisor.worker_pid is not None and done >= mark:
                        resident = psutil.Process(supervisor.worker_pid).memory_info().rss / 2**20
                        peak = max(peak, resident)
                        print(f"{done:8} {resident:11.0f}", flush=True)
                        mark += max(options.memory // 20, 1)
                if done >= options.memory:
                    break
            seed += 1
    print(f"peak {peak:.0f} MiB")
    return 0 if peak < 2048 else 1


def main(description: str | None) -> int:
    """Parse the command line, of which `description` is the help, and run."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--converter", default="dynamo")
    parser.add_argument("--overloads", type=int, default=14, help="how many operators (%(default)s)")
    parser.add_argument("--examples", type=int, default=24, help="cases per operator (%(default)s)")
    parser.add_argument("--values", type=int, help="value draws per structure (those of a run)")
    parser.add_argument(
        "--sample", type=int, default=0, metavar="CASES", help="how many the plain loop does (default: all)"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--memory", type=int, default=0, metavar="CASES", help="watch memory instead")
    options = parser.parse_args()
    return watch_memory(options) if options.memory else compare_speed(options)
