"""Planted culprits of four kinds: blame names the node, the converter, the decomposition, the pass."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import onnx
import pytest
from failure_contexts import diagnosis_of, states, words_of
from onnxscript import rewriter
from planted_culprits import (
    SLIPS,
    WrongConversion,
    WrongDecomposition,
    WrongKernel,
    WrongRuntimePass,
    decompositions,
    may_end_the_process,
    rounded,
    slipped,
)

from harness.blame.failure_context import FailureContext
from harness.blame.testimony import Failure
from harness.blame.witnesses import decomposed_program
from harness.compare.comparison import compare
from harness.compare.diagnosis import Diagnosis
from harness.compare.drawn import draws
from harness.compare.verdict import Outcome, Stage
from harness.convert.converter import Converter, find_converter
from harness.convert.torch_private import decomposition_table
from harness.core.case_group import CaseGroup
from harness.core.dtypes import Array
from harness.core.invocation import Invocation
from harness.core.route import Route
from harness.core.tensors import build_tensors, output_tensors, overload
from harness.core.torch_arrays import to_numpy
from harness.core.torch_operators import decomposition
from harness.generate.case_library import load_cases
from harness.generate.draws import draw_invocations
from harness.generate.operator_case import OPERATOR_CASES, judge_of
from harness.pipeline.case_run import CaseRun
from harness.pipeline.program import CallStructure, export_alone
from harness.pipeline.reference import run_reference
from harness.pipeline.task import Settings
from harness.run.backend import BACKENDS, Backend

pytestmark = pytest.mark.slowest(14)

#: Of each kind; with ``--thorough`` all are planted, else a third.
ALL, THIRD = 30, 10


@cache
def _facts(decision: Diagnosis, statement: str) -> Mapping[str, Any]:
    """Return the facts of the first testimony with a statement."""
    return next(t.facts for t in decision.testimony if t.statement == statement)


def backend(name: str) -> Backend:
    entry, argument = BACKENDS.find(name)
    return entry.create(argument)


@cache
def converter(name: str) -> Converter:
    return find_converter(name).create(False)


@dataclass(frozen=True, eq=False)
class Honest:
    """A case that passes, and its graph."""

    call: Invocation
    converter: str
    model: onnx.ModelProto

    @property
    def structure(self) -> CallStructure:
        return CallStructure(self.call, outputs=len(run_reference(self.call).expected))

    def outcome(self, runtime: Backend, model: onnx.ModelProto) -> Outcome:
        """Return the outcome of the case with another model or runtime."""
        reference = run_reference(self.call)
        try:
            got = runtime.load(model, None).run(self.structure.feeds(model, reference.feeds))
        except Exception:
            return Outcome.ERROR
        return Outcome.MISMATCH if self.is_wrong(got) else Outcome.PASS

    def is_wrong(self, got: Sequence[Array]) -> bool:
        return compare(judge_of(self.call), run_reference(self.call), got).problem is not None

    def decomposed(self, definition: Callable[..., Any]) -> list[Array]:
        """Return PyTorch's results of the call by another definition."""
        call = self.structure.call.with_target(definition)
        return [to_numpy(t) for t in output_tensors(call(build_tensors(self.call)))]

    def captured(self, table: Mapping[Any, Callable[..., Any]]) -> list[Array]:
        """Return PyTorch's results of the call, captured and decomposed by a table."""
        request = self.structure.request(Route(converter="dynamo"))
        module = request.model_call.captured().run_decompositions(dict(table)).module()
        return [to_numpy(t) for t in module(*(t.clone() for t in build_tensors(self.call)))]

    def fails(self, runtime: Backend, model: onnx.ModelProto) -> bool:
        """Whether the result is wrong."""
        return self.outcome(runtime, model) is Outcome.MISMATCH

    def blamed(self, model: onnx.ModelProto, runtime: Backend | None = None, exporter: Any = None) -> Diagnosis:
        """Return the diagnosis of the failure."""
        result = CaseRun(
            case=(0, 0),
            backend="ort-cpu",
            stage=Stage.COMPARE,
            outcome=Outcome.MISMATCH,
            message="values: planted",
        )
        failure = Failure(
            index=0,
            result=result,
            route=Route(converter=self.converter, backend="ort-cpu"),
            group=CaseGroup.of(self.call),
        )

        def start(name: str) -> Backend:
            return runtime if runtime is not None and name == "ort-cpu" else backend(name)

        def find(name: str) -> Converter:
            return exporter if exporter is not None and name == self.converter else converter(name)

        settings = Settings(last_witnesses=())
        context = FailureContext(failure, settings, find, start, {}, model=model)
        return diagnosis_of(context)


def honest_cases(seed: int, names: Sequence[str], converters: Sequence[str]) -> Iterator[Honest]:
    """Cases of many operators that pass, without end."""
    chance = random.Random(seed)
    while True:
        name = chance.choice(names)
        drawn = draw_invocations(OPERATOR_CASES[name], seed=chance.randrange(10**6), count=6)
        for call in drawn[1:]:
            case = _honest(call, chance.choice(converters))
            if case is not None:
                yield case
                break


def _honest(call: Invocation, name: str) -> Honest | None:
    if not all(spec.numel for spec in call.tensors()):
        # TorchScript's exporter divides by the number of elements, and the process ends (`take`).
        return None
    try:
        reference = run_reference(call)
        if draws(judge_of(call)) or sum(e.size for e in reference.expected) > 2000:
            return None
        structure = CallStructure(call, outputs=len(reference.expected))
        model = export_alone(converter(name), structure, Route(converter=name))
    except Exception:
        return None
    case = Honest(call, name, model)
    sizes = [e.size for e in reference.expected]
    is_right = min(sizes, default=0) and case.outcome(backend("ort-cpu"), model) is Outcome.PASS
    return case if is_right and not may_end_the_process(model) else None


def operators(case: Honest) -> list[str]:
    """Types of the nodes of a graph, in an order that depends on nothing."""
    return sorted({n.op_type for n in case.model.graph.node} - {"Constant", "Shape", "Identity"})


@pytest.fixture(scope="module")
def plants(request: pytest.FixtureRequest) -> int:
    """Return the number of planted defects."""
    return ALL if request.config.getoption("--thorough") else THIRD


@pytest.fixture(scope="module")
def names() -> list[str]:
    load_cases()
    # PyTorch's ctc_loss ends the process now and then, and the cases are run in this one.
    return sorted(name for name in OPERATOR_CASES if "ctc_loss" not in name)


@dataclass
class Score:
    """The plants of a kind, and those that are not named."""

    planted: int = 0
    missed: list[str] = field(default_factory=list)

    def add(self, what: str, decision: Diagnosis, named: bool) -> None:
        self.planted += 1
        if not named:
            self.missed.append(f"{what}: {decision.blame}: {words_of(decision)[:500]}")

    def __str__(self) -> str:
        return "\n\n".join(self.missed)


def planted_in_graphs(seed: int, names: Sequence[str], converters: Sequence[str]) -> Iterator[Any]:
    """A case, the type of a node and a slip that the case shows."""
    chance = random.Random(seed)
    for case in honest_cases(seed, names, converters):
        slips = list(SLIPS)
        chance.shuffle(slips)
        kinds = operators(case)
        chance.shuffle(kinds)
        if "MatMul" in kinds:
            # ONNX Runtime dies of a Cast between a Transpose and a MatMul.
            slips = [slip for slip in slips if slip is not rounded]
        for kind in kinds[:2]:
            for slip in slips:
                model = slipped(case.model, kind, slip)
                if model is not None and case.fails(backend("ort-cpu"), model):
                    yield case, kind, slip, model
                    break
            else:
                continue
            break


def test_wrong_kernels_are_named(names: list[str], plants: int) -> None:
    found = Score()
    for case, kind, slip, _ in planted_in_graphs(1, names, ("torchscript", "dynamo")):
        runtime = WrongKernel(backend("ort-cpu"), kind, slip)
        if not case.fails(runtime, case.model):
            continue
        decision = case.blamed(case.model, runtime)
        named = decision.blame == "backend" and _facts(decision, "wrong-node")["node"]["operator"] == kind
        found.add(f"{case.call.overload} {case.converter} {kind} {slip.__name__}", decision, named)
        if found.planted == plants:
            break
    # 29 of 30 are to be named.
    assert len(found.missed) <= plants // ALL, str(found)


def test_wrong_conversions_are_named(names: list[str], plants: int) -> None:
    found = Score()
    for case, kind, slip, model in planted_in_graphs(2, names, ("torchscript", "dynamo")):
        decision = case.blamed(model, exporter=WrongConversion(converter(case.converter), kind, slip))
        named = decision.blame == "converter"
        found.add(f"{case.call.overload} {case.converter} {kind} {slip.__name__}", decision, named)
        if found.planted == plants:
            break
    # 29 of 30 are to be named.
    assert len(found.missed) <= plants // ALL, str(found)


@pytest.mark.slow
def test_wrong_decompositions_are_named(names: list[str], plants: int, monkeypatch: pytest.MonkeyPatch) -> None:
    defined = [name for name in names if decomposition(overload(name)) is not None]
    chance = random.Random(3)
    found = Score()
    for case in honest_cases(3, defined, ("dynamo",)):
        kernel = overload(case.call.overload)
        definition = decomposition(kernel)
        assert definition is not None
        for wrong in decompositions(definition, chance):
            exporter = WrongDecomposition(converter("dynamo"), wrong)
            try:
                if not case.is_wrong(case.decomposed(wrong)):
                    continue
                model = export_alone(exporter, case.structure, Route(converter="dynamo"))
            except Exception:
                continue
            if not case.fails(backend("ort-cpu"), model):
                continue
            # PyTorch's own table has it, which the exporter is not to blame for.
            table = {**decomposition_table(), kernel: wrong}
            if not case.is_wrong(case.captured(table)):
                continue
            monkeypatch.setattr(
                decomposed_program, "quick_decompositions", lambda table=table: nullcontext(dict(table))
            )
            decision = case.blamed(model, exporter=exporter)
            monkeypatch.undo()
            decomposed = any(
                states(decision, f"program/{finding}") for finding in ("contradicts", "refuses", "invalid")
            )
            named = decision.blame == "pytorch" and decomposed
            found.add(f"{case.call.overload} {wrong.__name__}", decision, named)
            break
        if found.planted == plants:
            break
    # 29 of 30 are to be named.
    assert len(found.missed) <= plants // ALL, str(found)


PASSES = ("FoldSums", "DropCasts", "MergeShapes", "SinkScales", "HoistSlices", "FuseGates", "ShareWeights")


def test_wrong_passes_of_a_runtime_are_named(names: list[str], plants: int) -> None:
    chance = random.Random(6)
    found = Score()
    for case, kind, slip, _ in planted_in_graphs(6, names, ("torchscript", "dynamo")):
        guilty = chance.choice(PASSES)
        runtime = WrongRuntimePass(backend("ort-cpu"), guilty, PASSES, kind, slip)
        decision = case.blamed(case.model, runtime)
        named = decision.blame == "backend" and _facts(decision, "runtime-passes")["passes"] == guilty.split(", ")
        found.add(f"{case.call.overload} {guilty} {kind} {slip.__name__}", decision, named)
        if found.planted == plants // 2:
            break
    # 29 of 30 are to be named.
    assert len(found.missed) <= plants // ALL, str(found)


#: What a rule of the exporter's rewriter makes of an operator.
REWRITES = {
    "Exp": "Sigmoid",
    "Sin": "Cos",
    "Cos": "Sin",
    "Tanh": "Erf",
    "Abs": "Neg",
    "Neg": "Abs",
    "Floor": "Ceil",
    "Ceil": "Floor",
    "Round": "Floor",
    "Sqrt": "Abs",
    "Sigmoid": "Tanh",
    "Erf": "Tanh",
    "Relu": "Abs",
    "Softsign": "Tanh",
    "Sign": "Abs",
    "Log": "Abs",
    "Not": "Identity",
}


def rule(operator: str, other: str, name: str | None) -> rewriter.RewriteRule:
    def before(op: Any, x: Any) -> Any:
        return getattr(op, operator)(x)

    def after(op: Any, x: Any) -> Any:
        return getattr(op, other)(x)

    return rewriter.RewriteRule(before, after, name=name)


def test_wrong_passes_of_an_exporter_are_named(names: list[str], plants: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Score()
    rules = [*rewriter._DEFAULT_REWRITE_RULES]
    for case in honest_cases(5, names, ("dynamo",)):
        for kind in operators(case):
            if kind not in REWRITES:
                continue
            # Half of the exporter's rules have no name.
            name = f"Wrong{kind}" if found.planted % 2 else None
            wrong, called = rule(kind, REWRITES[kind], name), name or f"after of {kind}"
            monkeypatch.setattr(rewriter, "_DEFAULT_REWRITE_RULES", [*rules, wrong])
            model = export_alone(converter("dynamo"), case.structure, Route(converter="dynamo"))
            if case.fails(backend("ort-cpu"), model):
                decision = case.blamed(model)
                named = decision.blame == "converter" and states(decision, "exporter-passes/right", passes=[called])
                found.add(f"{case.call.overload} {called}", decision, named)
            monkeypatch.undo()
            break
        if found.planted == plants // 2:
            break
    # 29 of 30 are to be named.
    assert len(found.missed) <= plants // ALL, str(found)
