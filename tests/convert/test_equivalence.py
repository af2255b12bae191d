"""Batching never changes a verdict: a case in a batch ends as it does alone with the public exporter."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from unittest.mock import patch

import onnx
import pytest
from exporter_sources import read_once
from sampling import sampled

from harness.compare.signatures import normalise
from harness.compare.verdict import Outcome, Stage
from harness.convert.converter import (
    CONVERTERS,
    Converter,
    ExportRequest,
    PartialResult,
    find_converter,
    supports_partial,
)
from harness.convert.graph_lines import graph_lines
from harness.core.case_group import CaseGroup, MemberKey
from harness.core.invocation import Invocation, Literal, Recipe, TensorSpec, contiguous_strides
from harness.core.isolation import IsolatedCalls
from harness.core.route import Route
from harness.core.text import describe_error, error_chain
from harness.generate.case_library import load_cases
from harness.generate.draws import draw_cases
from harness.pipeline.batch_export import BatchExport, Converted, Member, NotConverted
from harness.pipeline.case_run import CaseRun
from harness.pipeline.program import CallStructure, export_request
from harness.pipeline.reference import run_reference
from harness.pipeline.submodel import extract
from harness.pipeline.supervisor import Supervisor
from harness.pipeline.task import Finished, Settings, Task
from harness.pipeline.worker import WorkerProcess

pytestmark = pytest.mark.slowest(6)

#: Converter → cases. The naive export of dynamo takes most of a second each, TorchScript's a few
#: milliseconds.
CASES = {"dynamo": 60, "torchscript": 240}


@cache
def random_groups(count: int) -> tuple[CaseGroup, ...]:
    """Cases of random operators, families taking turns, in random order: what one batch never holds."""
    choose = random.Random(20261121)
    families: dict[str, list[str]] = defaultdict(list)
    for overload, case in load_cases().items():
        families[case.family].append(overload)
    chosen: list[Invocation] = []
    while len(chosen) < count:
        for family in sorted(families):
            overload = choose.choice(families[family])
            drawn = draw_cases(
                load_cases()[overload], seed=choose.randrange(1000), structures=choose.randint(1, 6), values=1
            )
            chosen.append(drawn[-1].invocations[0])
    chosen = chosen[:count]
    assert {load_cases()[invocation.overload].family for invocation in chosen} == set(families)
    choose.shuffle(chosen)
    return tuple(CaseGroup.of(invocation, index=i) for i, invocation in enumerate(chosen))


@cache
def results_of(route: Route, settings: Settings) -> dict[MemberKey, CaseRun]:
    groups = random_groups(CASES[route.converter])
    with Supervisor() as supervisor:
        ran = supervisor.run(Task(groups, route, ("ort-cpu",), settings))
        return by_case([result for results in ran for result in results], groups)


def by_case(found: Sequence[CaseRun], groups: Sequence[CaseGroup]) -> dict[MemberKey, CaseRun]:
    assert len(found) == len({result.case for result in found}) == len(groups)
    return {result.case: result for result in found}


#: Of a case by itself.
ALONE = Settings(batch_size=1)


def publicly(converter: str) -> Route:
    return Route(converter=converter, public_api=True)


@dataclass(frozen=True)
class Alone:
    """The results of the plain public call of PyTorch's exporters for each case.

    Attributes:
        models: Index of the group → its graph, where it was kept.
    """

    results: Mapping[MemberKey, CaseRun]
    models: Mapping[int, onnx.ModelProto]


@cache
def alone(converter: str) -> Alone:
    if converter == "torchscript":
        # Some of its cases kill the process, and the graph of another is soon made again.
        return Alone(results_of(publicly(converter), ALONE), {})
    with IsolatedCalls(timeout=600, fork=True) as process:
        found, models = process.call(export_each, publicly(converter), random_groups(CASES[converter]))
    loaded = {index: onnx.ModelProto.FromString(model) for index, model in models.items()}
    return Alone(by_case(found, random_groups(CASES[converter])), loaded)


def export_each(route: Route, groups: tuple[CaseGroup, ...]) -> tuple[list[CaseRun], dict[int, bytes]]:
    """Carry out the cases as a worker process does it, and keep the graphs."""
    entry = find_converter(route.converter)
    models: dict[int, bytes] = {}

    def create(public_api: bool) -> Converter:
        started = entry.create(public_api)
        convert = started.convert

        def kept(request: ExportRequest) -> onnx.ModelProto:
            model = convert(request)
            # Its first: a witness may ask for another one.
            models.setdefault(_group(request), model.SerializeToString())
            return model

        started.convert = kept  # type: ignore[method-assign]
        return started

    said: list[object] = []
    task = Task(groups, route, ("ort-cpu",), ALONE)
    with patch.dict(CONVERTERS, {route.converter: replace(entry, create=create)}), read_once():
        WorkerProcess(said.append).serve(task)
    assert said[-1] == Finished()
    return [result for results in said if isinstance(results, list) for result in results], models


def _group(request: ExportRequest) -> int:
    (index,) = {int(name[1:].partition("_")[0]) for name in request.output_names}
    return index


@pytest.mark.parametrize("converter", sampled(CASES, named={"torchscript"}))
def test_random_cases_of_all_families_end_in_a_batch_as_they_do_alone(converter: str) -> None:
    batched = results_of(Route(converter=converter), Settings())
    one_by_one = alone(converter).results
    groups = random_groups(CASES[converter])
    different = {
        str(groups[index].exported): (batched[index, case], one_by_one[index, case])
        for index, case in one_by_one
        if ending(batched[index, case]) != ending(one_by_one[index, case])
        and not by_chance(groups[index], converter, ending(batched[index, case]))
    }
    assert not different
    # A comparison of failures alone would prove nothing.
    assert sum(result.stage is Stage.COMPARE for result in one_by_one.values()) > len(groups) / 4


@pytest.mark.slow
def test_a_case_that_stays_at_another_opset_does_not_keep_its_batch_there() -> None:
    # dynamo converts back from opset 18 and, where it cannot, silently leaves the whole model there.
    stuck, free = "aten.grid_sampler.default", ("aten.neg.default", "aten.relu.default", "aten.mul.Tensor")
    drawn = [
        structure.invocations[0]
        for overload in (*free, stuck)
        for structure in draw_cases(load_cases()[overload], seed=0, structures=2, values=1, dtypes=["float32"])
    ]
    groups = tuple(CaseGroup.of(invocation, index=i) for i, invocation in enumerate(drawn))
    with Supervisor() as supervisor:
        ran = supervisor.run(Task(groups, Route(converter="dynamo", opset=14), ("ort-cpu",)))
        batched = {result.case: ending(result) for results in ran for result in results}
    with IsolatedCalls(timeout=600, fork=True) as process:
        one_by_one, _ = process.call(export_each, replace(publicly("dynamo"), opset=14), groups)
    assert batched == {result.case: ending(result) for result in one_by_one}
    by_overload = {groups[index].exported.overload: batched[index, case] for index, case in batched}
    assert by_overload[stuck][:2] == (Stage.CHECK, Outcome.ERROR)
    assert all(by_overload[overload][:2] == (Stage.COMPARE, Outcome.PASS) for overload in free)


@pytest.mark.slow
def test_an_operator_that_only_torchscript_has_is_left_to_pytorch() -> None:
    # kron asks for sizes by TorchScript's aten::size, of which the dispatcher knows nothing.
    def spec(*shape: int) -> TensorSpec:
        return TensorSpec(shape, "float32", contiguous_strides(shape), 0, Recipe(("any",), "plain", 0))

    exported, other = (Invocation("aten.kron.default", (("self", spec(n, 2)), ("other", spec(3, n)))) for n in (3, 4))
    structure = CallStructure(exported, (exported, other), outputs=1)
    raised = []
    for public in (False, True):
        with pytest.raises(Exception, match="export") as caught:
            find_converter("dynamo").create(public).convert(
                export_request([structure], Route(converter="dynamo", dynamic=True))
            )
        raised.append(describe_error(caught.value))
    assert "conflicts between user-specified ranges and inferred ranges" in raised[0]
    assert normalise(raised[0]) == normalise(raised[1])


#: How often a case is repeated to see whether its ending is chance.
_REPEATS = 20
#: Excuses for elements whose values are chance. How many of them happen to be PyTorch's differs from run to
#: run, even of the same model.
BY_CHANCE = {"drawn at random", "uninitialised or not asked for"}


def ending(result: CaseRun) -> tuple[object, ...]:
    """Return the facts of a verdict; of an error's words those that group it with others, since they may name
    values of the batch."""
    comparison = result.comparison
    if comparison is not None:
        excused = tuple((why, number) for why, number in comparison.excused if why not in BY_CHANCE)
        comparison = replace(comparison, excused=excused)
    further = tuple(ending(other) for other in result.further)
    # Behind the first line is what the process printed last, of this case or of one before.
    died = result.outcome in (Outcome.CRASH, Outcome.TIMEOUT)
    message = result.message.partition("\n")[0] if died else result.message
    # As text, in which NaN equals NaN.
    words = (repr(comparison), normalise(message), result.placement, result.outputs, further)
    return result.stage, result.outcome, result.blame, result.opset, *words


def by_chance(group: CaseGroup, converter: str, other: tuple[object, ...]) -> bool:
    """Whether a case that is exported alone comes to another ending, too, after other exports.

    TorchScript's shape inference divides by what it has not set, for a tensor of no elements: one export in
    three dies of it. Processes that are forked alike do so alike, until they have exported something else.
    """
    others = [one for one in random_groups(CASES[converter]) if one != group]
    for count in range(_REPEATS):
        with Supervisor() as supervisor:
            ran = supervisor.run(Task((*others[:count], group), publicly(converter), ("ort-cpu",), ALONE))
            endings = [ending(result) for results in ran for result in results if result.case[0] == group.index]
        if other in endings:
            return True
    return False


def exportable(index: int, invocation: Invocation) -> CallStructure:
    return CallStructure(invocation, outputs=len(run_reference(invocation).expected), index=index)


@pytest.mark.parametrize(
    ("converter", "count"), [pytest.param("dynamo", 20, marks=pytest.mark.slow), ("torchscript", 60)]
)
def test_the_graph_of_a_case_in_a_batch_is_the_one_that_the_public_api_gives_it_alone(
    converter: str, count: int
) -> None:
    groups = random_groups(CASES[converter])
    result = results_of(Route(converter=converter), Settings())
    members = [
        exportable(group.index, group.exported)
        for group in groups
        # One case that cannot be exported takes its batch with it, which the test above is about. TorchScript makes a
        # constant of uninitialised memory.
        if "empty" not in group.exported.overload
        and result[group.index, 0].stage in (Stage.LOAD, Stage.RUN, Stage.COMPARE)
    ][:count]
    assert len(members) == count
    entry = find_converter(converter)
    batched = cut_models(entry.create(False), members)
    kept, public = alone(converter).models, entry.create(True)
    for member in members:
        invocation = groups[member.index].exported
        # The first is exported again, by an exporter that remembers nothing.
        model = (kept.get(member.index) if member is not members[0] else None) or public.convert(
            export_request([exportable(0, invocation)], Route(converter="dynamo"))
        )
        assert graph_lines(batched[member.index]) == graph_lines(model), str(invocation)


#: A decomposition that mutates, one that says what it casts from, one with a composite operator within, and
#: two operators whose results have a size that values decide.
DECOMPOSED = (
    "aten.cosine_similarity.default",
    "aten.rms_norm.default",
    "aten.nll_loss2d_forward.default",
    "aten.argwhere.default",
    "aten.nonzero.default",
)


@pytest.mark.slow
def test_what_is_taken_apart_is_the_same_graph_in_a_batch_and_alone() -> None:
    drawn = [
        structure.invocations[0]
        for overload in DECOMPOSED
        for structure in draw_cases(load_cases()[overload], seed=3, structures=2, values=1)
    ]
    entry = find_converter("dynamo")
    quick, public = entry.create(False), entry.create(True)
    # Twice: what is learnt of an operator the first time is used the second time.
    for _ in range(2):
        batched = cut_models(quick, [exportable(i, invocation) for i, invocation in enumerate(drawn)])
    requests = [export_request([exportable(0, invocation)], Route(converter="dynamo")) for invocation in drawn]
    with read_once():
        alone = [public.convert(request) for request in requests]
    for i, invocation in enumerate(drawn):
        assert graph_lines(batched[i]) == graph_lines(alone[i]), str(invocation)


#: One with results that are alike, one that fails in several stages, one whose calls are decomposed.
SIZED_BY_VALUES = ("aten.unique_dim.default", "aten.repeat_interleave.self_Tensor", "aten.where.default")


@pytest.mark.slow
def test_results_whose_sizes_values_decide_end_as_they_do_alone() -> None:
    drawn = [
        structure.invocations[0]
        for overload in SIZED_BY_VALUES
        for structure in draw_cases(load_cases()[overload], seed=5, structures=4, values=1)
    ]
    accepted = [Member.of(CallStructure(call, index=i), CaseGroup.of(call, index=i)) for i, call in enumerate(drawn)]
    entry = find_converter("dynamo")
    found = list(BatchExport(Route(converter="dynamo"), entry.create(False)).export(accepted))
    batched: dict[int, object] = {}
    for result in found:
        converted = result if isinstance(result, Converted) else result.converted
        for member in result.members:
            if converted is not None:
                model = onnx.ModelProto.FromString(converted.alone(member))
                batched[member.group.index] = graph_lines(model)
            elif isinstance(result, NotConverted):
                batched[member.group.index] = normalise(describe_error(result.failure.error))
    assert {NotConverted, Converted} == {type(result) for result in found}
    assert any(len(result.members) > 2 for result in found)
    public = entry.create(True)
    with read_once():
        for i, call in enumerate(drawn):
            try:
                alone: object = graph_lines(public.convert(request_of(call)))
            except Exception as error:
                alone = normalise(describe_error(error))
            assert batched[i] == alone, str(call)


def request_of(call: Invocation) -> ExportRequest:
    return export_request([exportable(0, call)], Route(converter="dynamo"))


@pytest.mark.slow
def test_a_failure_known_from_another_call_names_this_call() -> None:
    # A transform of odd length fails without values: "Expected input.size(2) == n_fft, got 4 != 5".
    calls = [
        Invocation(
            "aten.istft.default",
            (
                ("self", TensorSpec((bins, 3), "complex64", (3, 1), 0, Literal((1.0,) * (3 * bins)))),
                ("n_fft", 2 * bins - 1),
            ),
        )
        for bins in (3, 4, 5)
    ]
    entry = find_converter("dynamo")
    quick, public = entry.create(False), entry.create(True)
    said = []
    for call in calls:
        with pytest.raises(Exception, match="Expected input") as raised:
            public.convert(export_request([exportable(0, call)], Route(converter="dynamo")))
        said.append(describe_error(raised.value))
    request = export_request([exportable(i, call) for i, call in enumerate(calls)], Route(converter="dynamo"))
    converter = supports_partial(quick)
    assert converter is not None
    asked, failures = [], {}
    for part in converter.convert_parts(request, lambda indices: None) or ():
        (i,) = part.calls
        failures[i] = part.failure
        if part.failure is None:
            asked.append(i)
            with pytest.raises(Exception, match="Expected input") as raised:
                quick.convert(export_request([exportable(0, calls[i])], Route(converter="dynamo")))
            failures[i] = raised.value
    assert asked == [0]
    ends = (failures[i] for i in range(len(calls)))
    assert [describe_error(end) for end in ends if end is not None] == said
    assert len(set(said)) == len(said)


@pytest.mark.slow
def test_calls_that_cannot_be_decomposed_are_all_found_at_once() -> None:
    # The decomposition for grids of some sizes leaves a mutation, which PyTorch refuses.
    drawn = draw_cases(load_cases()["aten.affine_grid_generator.default"], seed=7, structures=6, values=1)
    members = [exportable(i, structure.invocations[0]) for i, structure in enumerate(drawn)]
    entry = find_converter("dynamo")
    quick, public = supports_partial(entry.create(False)), entry.create(True)
    assert quick is not None
    begun: list[Sequence[int]] = []
    parts = quick.convert_parts(export_request(members, Route(converter="dynamo")), begun.append) or ()
    failures: dict[int, Exception] = {}
    for part in parts:
        if part.failure is not None:
            failures.update(dict.fromkeys(part.calls, part.failure))
    assert 0 < len(failures) < len(members)
    failing = min(failures)
    with pytest.raises(Exception, match="functional graph") as raised:
        public.convert(export_request([members[failing]], Route(converter="dynamo")))
    assert normalise(describe_error(failures[failing])) == normalise(describe_error(raised.value))
    # All calls are decomposed together, then those that can be are, and are translated together.
    assert sum(len(calls) > 1 for calls in begun) <= 3


def test_a_call_that_no_code_can_be_written_of_fails_as_it_does_alone() -> None:
    # PyTorch writes the graph as Python code, in which ``from`` is not a name.
    (structure,) = draw_cases(load_cases()["aten.random.from"], seed=3, structures=1, values=1)
    request = export_request([exportable(0, structure.invocations[0])], Route(converter="dynamo"))
    entry = find_converter("dynamo")
    for converter in (entry.create(False), entry.create(True)):
        with pytest.raises(Exception, match="invalid syntax") as raised:
            converter.convert(request)
        assert isinstance(list(error_chain(raised.value))[-1], SyntaxError)


def cut_models(converter: Converter, members: Sequence[CallStructure]) -> dict[int, onnx.ModelProto]:
    """Return index → graph of members that are exported together, as the harness does it."""
    request = export_request(members, Route(converter="dynamo"))
    persistent = supports_partial(converter)
    parts = persistent.convert_parts(request, lambda calls: None) if persistent else None
    models = {}
    for part in parts or (PartialResult(tuple(range(len(members)))),):
        some = [members[i] for i in part.calls]
        assert part.failure is None
        model = part.model or converter.convert(export_request(some, Route(converter="dynamo")))
        models.update({m.index: extract(model, m.input_names, m.output_names) for m in some})
    assert models.keys() == {m.index for m in members}
    return models
