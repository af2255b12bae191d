"""All that is known of one operator on its way to ONNX, put together.

The arguments of an ATen schema beside the inputs and attributes of an ONNX operator.

All that is found out about one operator, put together.
"""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from harness.compare.verdict import Verdict
from harness.convert.converter import CONVERTERS, find_converter
from harness.convert.rules.template import Parameter, Signature, TemplateRequest
from harness.convert.torch_private import PrivatePartMissing
from harness.core.documents import plain
from harness.core.invocation import Invocation
from harness.execute.supervisor import Supervisor
from harness.explain import onnx_operator, trials, trials as trial
from harness.explain.onnx_operator import Candidate, Meaning, OnnxOperator, Slot, same_name, synonyms
from harness.explain.operator import Operator, OperatorDecomposition, Overload, decompose, find_operator
from harness.explain.trials import Emitted
from harness.generate.case_library import load_cases
from harness.generate.operator_case import OPERATOR_CASES
from harness.record import store
from harness.record.run_info import read_run_info
from harness.run.artefact import ONNX
from harness.run.backend import BACKENDS


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One line of the comparison.

    Attributes:
        aten: Argument of the schema with its type and default; "" where ONNX alone has such a thing.
        onnx: Input or attribute; "" where PyTorch alone has it.
        kind: ``input`` or ``attribute``; "" without `onnx`.
        type: Of the ONNX side, with its default.
        why: Why they are beside each other, or what to do where one side is empty.
        emitted: Converter → what it gave the ONNX side in the tried call.
    """

    aten: str
    onnx: str
    kind: str
    type: str
    why: str
    emitted: dict[str, str]


def align(
    signature: Signature, operator: OnnxOperator, candidate: Candidate, emitted: Iterable[Emitted] = ()
) -> tuple[Pair, ...]:
    """Each argument with its counterpart, then what of the ONNX operator is left."""
    slots = {slot.name: slot for slot in operator.node_slots}
    given = {one.converter: _given(one, operator) for one in emitted}
    pairs: list[Pair] = []
    taken: set[str] = set()
    for place, parameter in enumerate(signature.parameters):
        meaning = candidate.arguments.get(parameter.name) or _meaning(parameter, place, slots.values(), taken)
        slot = slots.get(meaning.onnx)
        if slot is not None:
            taken.add(slot.name)
        pairs.append(_pair(_aten(parameter), slot, meaning.why, given))
    for slot in slots.values():
        if slot.name not in taken:
            pairs.append(_pair("", slot, candidate.others.get(slot.name, _left_over(slot)), given))
    return tuple(pairs)


def _pair(aten: str, slot: Slot | None, why: str, given: dict[str, dict[str, str]]) -> Pair:
    if slot is None:
        return Pair(aten=aten, onnx="", kind="", type="", why=why, emitted={})
    default = f" = {slot.default}" if slot.default else ""
    optional = "" if slot.required or default else ", optional"
    seen = {name: values[slot.name] for name, values in given.items() if slot.name in values}
    kind = f"{slot.type}{default}{optional}"
    return Pair(aten=aten, onnx=slot.name, kind=slot.kind, type=kind, why=why, emitted=seen)


def _aten(parameter: Parameter) -> str:
    default = "" if parameter.default is None else f"={parameter.default}"
    return f"{parameter.type} {parameter.name}{default}"


def _meaning(parameter: Parameter, place: int, slots: Iterable[Slot], taken: set[str]) -> Meaning:
    free = [slot for slot in slots if slot.name not in taken]
    for slot in free:
        if same_name(slot.name, parameter.name) and _fits(parameter, slot):
            return Meaning(onnx=slot.name, why="the same name")
    by_name = {slot.name: slot for slot in free}
    for meaning in synonyms(parameter.name):
        found = by_name.get(meaning.onnx)
        if found is not None and _fits(parameter, found):
            return meaning
    if place == 0 and parameter.kind in ("Tensor", "Tensor[]") and free and free[0].kind == "input":
        return Meaning(onnx=free[0].name, why="the first tensor")
    return Meaning(onnx="", why="no counterpart is known")


def _fits(parameter: Parameter, slot: Slot) -> bool:
    """A tensor is never an attribute."""
    return slot.kind == "input" or not parameter.kind.startswith("Tensor")


def _left_over(slot: Slot) -> str:
    if slot.required:
        return "required, and no argument is known to stand for it"
    return f"left at its default, {slot.default}" if slot.default else "may be left out"


def _given(one: Emitted, operator: OnnxOperator) -> dict[str, str]:
    """What the first node of that operator was given, by the names of the specification."""
    for node in one.nodes:
        if node.operator == operator.name and node.domain == operator.domain:
            inputs = [slot.name for slot in operator.slots if slot.kind == "input"]
            named = {name: text for name, text in zip(inputs, node.inputs, strict=False) if text}
            return {**named, **node.attributes}
    return {}


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """Whether and how a converter converts one overload.

    Attributes:
        how: ``own`` (a conversion function for it), ``decomposition`` (conversion functions for all that it
            is decomposed into), ``otherwise`` (a case got a model although it tells of neither), ``none``.
        functions: Its own conversion functions, in its words.
    """

    overload: str
    converter: str
    how: str
    functions: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class About:
    """One overload.

    Attributes:
        case: Family of its operator case; "" for none.
        decomposition: What it is made of; None where it is not functional.
        emitted: What converters made of one call.
        pairs: Its arguments beside ONNX's; none without ONNX operator.
    """

    overload: Overload
    case: str
    decomposition: OperatorDecomposition | None
    conversions: tuple[Conversion, ...]
    outcomes: tuple[trial.Outcomes, ...]
    emitted: tuple[trial.Emitted, ...]
    pairs: tuple[Pair, ...]


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """One operator.

    Attributes:
        overloads: Each of its functional overloads.
        onnx: ONNX's operator for it; None where none is known.
        candidate: What is known of the two.
        emits: Operators that converters emit for it, by converter.
        spec: How backends do in the specification's own tests of the ONNX operator.
        source: Where `About.outcomes` are from, in words.
        unavailable: Converter or backend → why it is not available.
        missing: Converters without a conversion of some overload → those overloads.
        skeleton: A file of rules to be filled in; "" for none.
    """

    operator: Operator
    overloads: tuple[About, ...]
    onnx: onnx_operator.OnnxOperator | None
    candidate: onnx_operator.Candidate | None
    emits: dict[str, tuple[str, ...]]
    spec: tuple[trials.SpecResult, ...]
    source: str
    unavailable: dict[str, str]
    missing: dict[str, tuple[str, ...]]
    skeleton: str

    def to_data(self) -> dict[str, Any]:
        """Plain JSON data."""
        data = dataclasses.asdict(self)
        for about, plain_about in zip(self.overloads, data["overloads"], strict=True):
            for one, plain_one in zip(about.emitted, plain_about["emitted"], strict=True):
                plain_one["invocation"] = one.invocation.to_data()
                plain_one["call"] = str(one.invocation)
            if about.decomposition is not None:
                plain_about["decomposition"]["reaches"] = about.decomposition.reaches
        if self.onnx is not None:
            data["onnx"]["first_opset"] = self.onnx.first_opset
        return data


def explain_operator(
    word: str,
    *,
    run: Path | None,
    examples: int = 8,
    backend_names: Sequence[str] = (),
    converter_names: Sequence[str] = (),
    skeleton: bool = False,
) -> Explanation:
    """Find out all about an operator.

    Args:
        word: As a user writes it.
        run: A recorded run to take outcomes from; what it has none of is tried.
        examples: Calls to try.
        backend_names: To try on; none for all that can run here.
        converter_names: To ask; none for all that can run here.
        skeleton: Also write a skeleton where nothing is missing.

    Raises:
        harness.core.overloads.UnknownOperator: PyTorch has no such operator.
        harness.record.layout.ResultsError: the run cannot be read.
        harness.execute.supervisor.WorkerFailed: no worker process can be started.
    """
    operator = find_operator(word)
    load_cases()
    unavailable = _unavailable()
    names, targets = _who_is_asked(converter_names, backend_names, unavailable)
    overloads = [o.name for o in operator.functional]
    recorded = _recorded(run, overloads)
    candidate = onnx_operator.candidate(operator.name)
    calls = {name: trial.drawn(name, examples) for name in overloads}
    tried, emitted = _tried(calls, names, targets, recorded, candidate.onnx if candidate else None)
    outcomes = trial.outcomes([*recorded, *tried])
    candidate = candidate or _only_emitted(emitted)
    standard = onnx_operator.find(candidate.onnx) if candidate else None
    abouts = tuple(
        _about(o, calls[o.name], names, outcomes, emitted[o.name], standard, candidate) for o in operator.functional
    )
    lacking = [c for about in abouts for c in about.conversions if c.how == "none"]
    missing = {
        name: tuple(c.overload for c in lacking if c.converter == name)
        for name in names
        if any(c.converter == name for c in lacking)
    }
    wanted = names if skeleton else list(missing)
    hints = _hint(standard, candidate.why if candidate else "", abouts[0].pairs if abouts else ())
    return Explanation(
        operator=operator,
        overloads=abouts,
        onnx=standard,
        candidate=candidate,
        emits=_emits(emitted),
        spec=tuple(trials.run_spec_tests(standard.name, targets)) if standard else (),
        source=_source(run, recorded, tried, examples),
        unavailable=unavailable,
        missing=missing,
        skeleton=_rules_file(operator, wanted, hints),
    )


def _tried(
    calls: Mapping[str, Sequence[Invocation]],
    converters: Sequence[str],
    backends: Sequence[str],
    recorded: Sequence[Verdict],
    counterpart: str | None,
) -> tuple[list[Verdict], dict[str, list[trial.Emitted]]]:
    """Verdicts on the calls of overloads that nothing is recorded of, and the nodes that converters emit for them."""
    tried: list[Verdict] = []
    emitted: dict[str, list[trial.Emitted]] = {name: [] for name in calls}
    with Supervisor() as supervisor:
        for name, drawn in calls.items():
            for converter in converters if drawn else ():
                verdicts = trial.try_calls(drawn, converter, backends, supervisor)
                if not any(v.overload == name and v.converter == converter for v in recorded):
                    tried += verdicts
                emission = trial.emit_one(trial.convertible(drawn, verdicts, converter), converter, counterpart)
                if emission is not None:
                    emitted[name].append(emission)
    return tried, emitted


def _about(
    overload: Overload,
    calls: Sequence[Any],
    names: Sequence[str],
    outcomes: Sequence[trial.Outcomes],
    emitted: Sequence[trial.Emitted],
    standard: onnx_operator.OnnxOperator | None,
    candidate: onnx_operator.Candidate | None,
) -> About:
    case = OPERATOR_CASES.get(overload.name)
    decomposition = decompose(overload.name, calls)
    own = [o for o in outcomes if o.overload == overload.name]
    return About(
        overload=overload,
        case=case.family if case else "",
        decomposition=decomposition,
        conversions=tuple(_conversion(overload.name, name, decomposition, own) for name in names),
        outcomes=tuple(own),
        emitted=tuple(emitted),
        pairs=align(overload.signature, standard, candidate, emitted) if standard and candidate else (),
    )


def _conversion(
    overload: str, converter: str, decomposition: OperatorDecomposition, outcomes: Sequence[trial.Outcomes]
) -> Conversion:
    entry = find_converter(converter)
    try:
        functions = entry.conversions(overload) if entry.conversions else ()
    except PrivatePartMissing:
        # What became of its cases says enough.
        functions = ()
    if functions:
        how = "own"
    elif entry.decomposes and decomposition.reaches:
        how = "decomposition"
    elif any(o.converter == converter and o.converted for o in outcomes):
        how = "otherwise"
    else:
        how = "none"
    return Conversion(overload=overload, converter=converter, how=how, functions=functions)


def _recorded(run: Path | None, overloads: Sequence[str]) -> list[Verdict]:
    """The run's verdicts; a finished run alone, as one that goes on may hold half of them."""
    if run is None or not overloads:
        return []
    return [v for v in store.verdicts(run, pc.field("overload").isin(overloads)) if not v.rule]


def _source(run: Path | None, recorded: Sequence[Verdict], tried: Sequence[Verdict], examples: int) -> str:
    parts = []
    if run is not None and recorded:
        parts.append((f"the run {read_run_info(run).run_id}", recorded))
    if tried:
        parts.append((f"up to {examples} drawn calls tried now", tried))
    return " and ".join(f"{what} ({', '.join(sorted({v.converter for v in of}))})" for what, of in parts)


def _who_is_asked(
    converters: Sequence[str], backends: Sequence[str], unavailable: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """The converters and backends that a user names, or all of ONNX that can run here."""
    makers = [e.name for e in CONVERTERS.entries() if e.makes == ONNX]
    takers = [e.name for e in BACKENDS.entries() if ONNX in e.takes and not e.name.endswith(":")]
    makers, takers = ([name for name in known if name not in unavailable] for known in (makers, takers))
    return list(converters) or makers, list(backends) or takers


def _unavailable() -> dict[str, str]:
    found = {e.name: why.reason for e in CONVERTERS.entries() if (why := e.probe())}
    found |= {e.name: why.reason for e in BACKENDS.entries() if not e.name.endswith(":") and (why := e.probe(""))}
    return {name: plain(reason) for name, reason in found.items()}


def _emits(emitted: dict[str, list[trial.Emitted]]) -> dict[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}
    for one in chain.from_iterable(emitted.values()):
        found.setdefault(one.converter, {}).update(dict.fromkeys(n.operator for n in one.nodes))
    return {converter: tuple(operators) for converter, operators in found.items()}


#: What converters put around the operator that does the work.
_GLUE = frozenset(
    {"Cast", "CastLike", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Concat", "Shape", "Gather", "Slice"}
)


def _only_emitted(emitted: dict[str, list[trial.Emitted]]) -> onnx_operator.Candidate | None:
    """Where no name tells, the one ONNX operator that a converter needs beside glue."""
    for one in chain.from_iterable(emitted.values()):
        found = {n.operator for n in one.nodes if n.domain == "ai.onnx"} - _GLUE
        if len(found) == 1:
            return onnx_operator.Candidate(onnx=found.pop(), why=f"what {one.converter} emits for it")
    return None


def _hint(operator: onnx_operator.OnnxOperator | None, why: str, pairs: Sequence[Pair]) -> tuple[str, ...]:
    """Comments on the ONNX operator that may serve."""
    if operator is None:
        return ()
    lines = [f"ONNX {operator.name}, since opset {operator.first_opset}: {why}"]
    for pair in pairs:
        one = pair.aten or "(no argument)"
        other = f"{pair.onnx} ({pair.kind})" if pair.onnx else "(no counterpart)"
        lines.append(f"  {one} -> {other}: {pair.why}")
    return tuple(part for line in lines for part in textwrap.wrap(line, 100, subsequent_indent="      "))


def _rules_file(operator: Operator, names: Sequence[str], hints: Sequence[str]) -> str:
    """A file for ``--rules`` to be filled in, of converters' skeletons; "" where nothing is functional."""
    signatures = tuple(o.signature for o in operator.functional)
    imports: dict[str, None] = {}
    functions: list[str] = []
    for name in names if signatures else ():
        entry = find_converter(name)
        if entry.skeleton is None:
            continue
        # A hint once is enough.
        wanted = TemplateRequest(signatures=signatures, hint=tuple(hints) if not functions else ())
        skeleton = entry.skeleton(wanted)
        imports.update(dict.fromkeys(skeleton.imports))
        functions.append(skeleton.code.rstrip())
    if not functions:
        return ""
    title = f'"""Rules for {operator.name}: fill in, then `pytest harness --rules THIS_FILE`."""'
    return "\n\n".join([title, _imports(tuple(imports))]) + "\n\n\n" + "\n\n\n".join(functions) + "\n"


def _imports(lines: Sequence[str]) -> str:
    """Other packages first; what is imported from one module on one line."""
    together: dict[str, list[str]] = {}
    for line in lines:
        module, _, names = line.removeprefix("from ").partition(" import ")
        together.setdefault(module, []).append(names)
    texts = [f"from {module} import {', '.join(sorted(names))}" for module, names in together.items()]
    theirs = sorted(text for text in texts if not text.startswith("from harness"))
    ours = sorted(text for text in texts if text.startswith("from harness"))
    return "\n\n".join("\n".join(part) for part in (theirs, ours) if part)
