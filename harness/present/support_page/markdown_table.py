"""What is supported in one dtype, with one converter and one backend, as a Markdown table to paste."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from harness.analyse import SupportCell, SupportLevel
from harness.core import count
from harness.present.support_page.catalog import SupportCatalog

_HOW = 90


def support_table(
    catalog: SupportCatalog,
    *,
    converter: str,
    backend: str,
    dtype: str,
    opset: int | None = None,
    overloads: Collection[str] | None = None,
) -> str:
    """Operators that fail, those first that most models call, and then the names of the others.

    ONNX operators come before ATen overloads; they are left out if some overloads are asked for.

    Args:
        catalog: The answers of a record.
        converter: That exports.
        backend: That runs the models.
        dtype: Of the first tensor.
        opset: Of the models; None for whichever was recorded.
        overloads: Only these; None for all.
    """
    lines = [f"# {dtype} with {converter} → {backend}", ""]
    lines += [
        f"{catalog.recorded} Cases of everyday values decide.",
        "",
    ]
    domains = {"ONNX operators": catalog.onnx, "ATen operators": catalog.aten}
    for title, operators in domains.items():
        if overloads is not None and operators is catalog.onnx:
            continue
        cells = [
            cell
            for name, found in operators.items()
            for cell in found
            if (cell.converter, cell.backend, cell.dtype) == (converter, backend, dtype)
            and (not opset or cell.opset in (0, opset))
            and (overloads is None or name in overloads)
        ]
        lines += [*_section(title, cells, catalog), ""]
    return "\n".join(lines)


def _section(title: str, cells: Sequence[SupportCell], catalog: SupportCatalog) -> Iterator[str]:
    callers = {cell.name: catalog.callers(cell.name) for cell in cells}
    cells = sorted(cells, key=lambda cell: (-callers[cell.name], cell.name, cell.opset))
    worse = [cell for cell in cells if cell.standing in (SupportLevel.UNSUPPORTED, SupportLevel.PARTLY)]
    sound = [cell for cell in cells if cell.standing is SupportLevel.SUPPORTED]
    whole = [cell for cell in worse if cell.standing is SupportLevel.UNSUPPORTED]
    yield f"## {title}: {len(sound)} supported, {len(worse) - len(whole)} partly, {len(whole)} unsupported"
    yield ""
    if worse:
        yield "| operator | opset | answer | cases that fail | edge cases that fail | models | how | case |"
        yield "| --- | ---: | --- | ---: | ---: | ---: | --- | --- |"
    for cell in worse:
        how = " ".join(cell.how.split()).replace("|", "\\|")
        yield (
            f"| {cell.name} | {cell.opset or '–'} | {cell.standing} | {cell.failures:,} of {cell.cases:,} "
            f"| {cell.edge_failures:,} of {cell.edge_cases:,} | {callers[cell.name]} "
            f"| {how[:_HOW]}{'…' if len(how) > _HOW else ''} | {cell.case_id} |"
        )
    if worse:
        yield ""
    if sound:
        cases = count(sum(cell.cases for cell in sound), "case")
        names = ", ".join(dict.fromkeys(cell.name for cell in sound))
        yield f"No failure found in {cases} of {count(len(sound), 'operator')}: {names}"
