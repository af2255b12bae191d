"""Render an explanation for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from harness.compare.verdict import Outcome
from harness.convert.converter import find_converter
from harness.core.text import plain, shown
from harness.explain.explanation import About, Emitted, Explanation, Outcomes
from harness.explain.onnx_operator import OnnxOperator

_HOW = {
    "own": "own conversion",
    "decomposition": "by decomposition",
    "otherwise": "yes: a tried call was converted",
    "none": "no",
}


def render(found: Explanation) -> Iterator[RenderableType]:
    """Yield all parts, separated by blank lines."""
    operator = found.operator
    yield Text.assemble((operator.name, "bold"), "  is an ATen operator")
    yield from _overloads(found)
    for about in found.overloads:
        yield from _decomposition(about)
    for part in (_onnx, _converters, _backends):
        yield Text()
        yield from part(found)
    if found.missing:
        yield Text()
        for converter, overloads in found.missing.items():
            yield shown(f"missing: {converter} has no conversion of {', '.join(overloads)}", style="bold red")
    for name, why in found.unavailable.items():
        yield shown(f"not available: {name}: {why}", style="dim")


def _indented(words: Text, by: int) -> Padding:
    return Padding(words, (0, 0, 0, by))


def _overloads(found: Explanation) -> Iterator[RenderableType]:
    cases = {about.overload.name: about.case for about in found.overloads}
    for overload in found.operator.overloads:
        words = ["functional" if overload.functional else "in-place or out variant; exporters skip these"]
        if overload.composite:
            words.append("CompositeImplicit")
        words += [f"tag {tag}" for tag in overload.tags]
        if overload.functional:
            case = cases.get(overload.name)
            words.append(f"operator case in cases/{case}.py" if case else "no operator case draws it")
        yield _indented(shown(overload.signature.schema, style="cyan"), 2)
        yield _indented(shown(", ".join(words)), 4)
    if not found.overloads:
        message = "no overload of it is functional: exporters first replace it by functional operators"
        yield _indented(Text(message), 2)
    if found.operator.others:
        yield _indented(shown(f"not shown: {', '.join(found.operator.others)}"), 2)


def _decomposition(about: About) -> Iterator[RenderableType]:
    decomposition = about.decomposition
    if decomposition is None:
        return
    yield Text()
    yield shown(f"Decomposition of {about.overload.name}", style="bold")
    if decomposition.source == "none":
        yield Text("  PyTorch has none")
        return
    where = {"table": "a function in PyTorch's decomposition tables", "composite": "its kernel is composite"}
    if decomposition.source in where:
        yield _indented(shown(f"{where[decomposition.source]}; {decomposition.tried} calls decomposed"), 2)
    if decomposition.problem:
        yield _indented(shown(f"could not be decomposed: {decomposition.problem}", limit=300), 2)
    for operator, converted in decomposition.operators.items():
        mark = "converted by torchlib" if converted else "not converted"
        yield Text(f"    {operator:<32} {mark}", style="" if converted else "red")
    if decomposition.operators:
        reaches = decomposition.reaches
        summary = "all of them are converted" if reaches else "some operators in it have no conversion"
        for conversion in about.conversions:
            if conversion.how == "own" and find_converter(conversion.converter).decomposes:
                summary += f"; {conversion.converter} does not decompose it, since it has its own conversion"
        yield _indented(shown(summary), 2)


def _onnx(found: Explanation) -> Iterator[RenderableType]:
    yield Text("In ONNX", style="bold")
    operator, candidate = found.onnx, found.candidate
    if operator is None or candidate is None:
        yield Text("  no corresponding operator is known")
        for converter, operators in found.emits.items():
            yield _indented(shown(f"{converter} composes it of {', '.join(operators)}"), 2)
        return
    since = f"{operator.domain}.{operator.name}, since opset {operator.first_opset}"
    yield _indented(shown(f"{since}: {candidate.why}"), 2)
    yield from _versions(operator)
    if operator.composed:
        yield Text("  a function: the specification also defines it by other operators")
    yield _indented(shown(operator.doc, style="dim", limit=300), 2)
    for about in found.overloads:
        yield Text()
        yield shown(f"{about.overload.name} and {operator.name}", style="bold")
        yield _pairs(about)


def _versions(operator: OnnxOperator) -> Iterator[RenderableType]:
    for version in operator.versions:
        types = ", ".join(f"{name}: {' '.join(allowed)}" for name, allowed in version.types)
        text = types if version is operator.versions[0] else "; ".join(version.changes)
        text = text or "same inputs, attributes and types; its text changed"
        yield _indented(shown(f"opset {version.opset}: {text}"), 4)


def _pairs(about: About) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    for name, ratio in (("ATen", 3), ("ONNX", 3), ("how", 5)):
        table.add_column(name, ratio=ratio, overflow="fold")
    for pair in about.pairs:
        onnx = f"{pair.onnx} ({pair.kind}: {pair.type})" if pair.onnx else "–"
        table.add_row(shown(pair.aten or "–"), shown(onnx), shown(pair.why))
    return table


def _converters(found: Explanation) -> Iterator[RenderableType]:
    yield Text("Converters", style="bold")
    for about in found.overloads:
        yield Text(f"  {about.overload.name}")
        for conversion in about.conversions:
            functions = f": {', '.join(conversion.functions)}" if conversion.functions else ""
            tried = [o for o in about.outcomes if o.converter == conversion.converter]
            share = f"; {tried[0].converted} of {tried[0].cases} cases converted" if tried else ""
            style = "red" if conversion.how == "none" else ""
            words = f"{conversion.converter}: {_HOW[conversion.how]}{functions}{share}"
            yield _indented(Text(plain(words), style=style), 4)
        for emitted in about.emitted:
            yield from _emitted(emitted)


def _emitted(emitted: Emitted) -> Iterator[RenderableType]:
    call = f"{emitted.converter}, opset {emitted.opset}, {emitted.call}"
    yield _indented(shown(call, style="cyan", limit=240), 4)
    for node in emitted.nodes[:12]:
        domain = "" if node.domain == "ai.onnx" else f"{node.domain}."
        yield _indented(Text.assemble(f"{domain}{node.operator}  ", (plain(node.line), "dim")), 6)
    if len(emitted.nodes) > 12:
        yield Text(f"      and {len(emitted.nodes) - 12} more nodes")


def _backends(found: Explanation) -> Iterator[RenderableType]:
    yield Text("Backends", style="bold")
    if not any(about.outcomes for about in found.overloads):
        yield Text("  no call of the operator was tried: no operator case draws it")
    for about in found.overloads:
        for converter in dict.fromkeys(outcome.converter for outcome in about.outcomes):
            yield Text(f"  {about.overload.name} → {converter}")
            shown_last = ""
            for outcomes in (o for o in about.outcomes if o.converter == converter):
                yield Text("    ").append(f"{outcomes.backend:<16} ").append(_counts(outcomes))
                if outcomes.refusal and outcomes.refusal != shown_last:
                    yield _indented(shown(outcomes.refusal, style="dim"), 6)
                shown_last = outcomes.refusal


def _counts(outcomes: Outcomes) -> Text:
    order = [str(o) for o in Outcome]
    parts = sorted(outcomes.counts.items(), key=lambda item: order.index(item[0]))
    passed = set(outcomes.counts) <= {Outcome.PASS, Outcome.BUILT, Outcome.NARROWED, Outcome.INACCURATE, Outcome.SKIP}
    return Text(", ".join(f"{n} {outcome}" for outcome, n in parts), style="green" if passed else "red")
