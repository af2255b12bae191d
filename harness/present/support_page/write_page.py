"""The pages of what is supported, and the table in Markdown.

What the pages and the table of support show: answers by operator, with how much models use it.

What is supported in one dtype, with one converter and one backend, as a Markdown table to paste.

The pages: of each converter and backend, by ATen overload and by ONNX operator, and of each operator.

They are plain HTML, so that a link to a row or to an operator stays good wherever the directory is put.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

from harness.causes.priority import UseWeights, model_use
from harness.core.documents import count, listed
from harness.core.dtypes import ALL, COMPLEX, WIDE_UNSIGNED
from harness.present.dashboard.embed import compact, write_text
from harness.support.answer import SupportCell, SupportLevel, aten_cells, onnx_cells
from harness.support.record import Provenance, SupportRecord

#: Converter and backend.
Column = tuple[str, str]
_PACKAGES = ("torch", "onnx", "onnxscript", "onnxruntime", "openvino")
_DTYPES = (*ALL, *WIDE_UNSIGNED, *COMPLEX)


@dataclass(frozen=True)
class SupportCatalog:
    """The answers of one record.

    Attributes:
        aten: Overload → its cells.
        onnx: ONNX operator → its cells.
    """

    aten: Mapping[str, Sequence[SupportCell]]
    onnx: Mapping[str, Sequence[SupportCell]]
    provenance: Provenance
    use: UseWeights

    @cached_property
    def columns(self) -> list[Column]:
        """Sorted."""
        return sorted({(cell.converter, cell.backend) for cells in self.aten.values() for cell in cells})

    @property
    def recorded(self) -> str:
        """When, and with which versions, as a sentence."""
        about = self.provenance
        versions = (f"{name} {about.versions[name]}" for name in _PACKAGES if name in about.versions)
        return f"Recorded {about.recorded[:10]} with {', '.join(versions)}."

    def operators(self, domain: str) -> Mapping[str, Sequence[SupportCell]]:
        """Those of ``aten`` or ``onnx``."""
        return self.aten if domain == "aten" else self.onnx

    def callers(self, name: str) -> int:
        """How many models call an overload, or one of those whose cases are an ONNX operator's."""
        cells = self.onnx.get(name)
        overloads = {name} if cells is None else {overload for cell in cells for overload in cell.overloads}
        return len(frozenset[int]().union(*map(self.use.callers_of, overloads)))

    def to_data(self) -> dict[str, Any]:
        """As JSON."""
        about = self.provenance
        return {
            "record": {"run": about.run, "recorded": about.recorded, "versions": dict(about.versions)},
            "models": len(self.use.models),
            **{
                domain: {
                    name: {"callers": self.callers(name), "cells": [cell.to_data() for cell in cells]}
                    for name, cells in self.operators(domain).items()
                }
                for domain in ("aten", "onnx")
            },
        }


def support_catalog(record: SupportRecord) -> SupportCatalog:
    """The answers of a record."""
    return SupportCatalog(
        _by_name(aten_cells(record.kinds)), _by_name(onnx_cells(record.kinds)), record.provenance, model_use()
    )


def dtypes_of_cells(cells: Sequence[SupportCell]) -> list[str]:
    """The dtypes that occur, in the product's own order."""
    known = {name: place for place, name in enumerate(_DTYPES)}
    return sorted({cell.dtype for cell in cells}, key=lambda name: (known.get(name, len(known)), name))


def _by_name(cells: Sequence[SupportCell]) -> dict[str, list[SupportCell]]:
    found: defaultdict[str, list[SupportCell]] = defaultdict(list)
    for cell in cells:
        found[cell.name].append(cell)
    return dict(found)


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


_TITLES = {"aten": "ATen operators", "onnx": "ONNX operators"}
_SIGNS = {
    SupportLevel.SUPPORTED: "✓",
    SupportLevel.PARTLY: "◐",
    SupportLevel.UNSUPPORTED: "✗",
    SupportLevel.UNKNOWN: "–",
}
_LEGEND = (
    "<p>✓ supported: all of so many cases pass, which is evidence, not proof. ◐ partly: so many of "
    "so many cases fail. ✗ unsupported: all of so many fail. Cases of everyday values decide, and edge cases "
    "only where there are no others. The dtype is that of the first tensor. An empty cell has no case.</p>"
)
_ONNX_LEGEND = (
    "<p>An ONNX operator is judged by the cases of the ATen operators of that meaning. Left out is what "
    "fails before it gets to the backend or is not the backend's defect. A case that the backend refuses for "
    "want of a kernel counts against the operator that it names.</p>"
)
_FILTER = """<p><input id="filter" type="search" placeholder="filter operators" aria-label="filter operators">
</p><script>
document.getElementById("filter").addEventListener("input", function () {
  for (const row of document.querySelectorAll("tbody tr")) {
    row.hidden = !row.id.toLowerCase().includes(this.value.trim().toLowerCase());
  }
});
</script>"""


def write_support_page(record: SupportRecord, out: Path) -> int:
    """Write the pages of a record, and ``support.json`` with all that they say.

    Returns:
        How many files were written.

    Raises:
        ResultsError: a file cannot be written.
    """
    catalog = support_catalog(record)
    files = dict(_files(catalog))
    for name, text in files.items():
        write_text(out / name, text)
    return len(files)


def _files(catalog: SupportCatalog) -> Iterator[tuple[str, str]]:
    yield "support.json", compact(catalog.to_data()) + "\n"
    yield "page.css", Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    yield "index.html", _html(catalog, "What is supported", "".join(_index(catalog)))
    for domain in _TITLES:
        for column in catalog.columns:
            yield table_file(domain, column), _overview(catalog, domain, column)
        for name, cells in catalog.operators(domain).items():
            body = "".join(_operator(catalog, name, cells))
            yield f"operators/{operator_file(domain, name)}", _html(catalog, name, body, up="../")


def table_file(domain: str, column: Column) -> str:
    """The name of the page of one converter and backend: ``aten--dynamo--ort-cpu.html``."""
    return f"{domain}--{_slug(column)}.html"


def operator_file(domain: str, name: str) -> str:
    """The name of an operator's page: ``aten.celu.default.html``, ``onnx.Celu.html``."""
    return f"{name}.html" if domain == "aten" else f"onnx.{name}.html"


def _slug(column: Column) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in "--".join(column))


def _arrow(column: Column) -> str:
    return f"{column[0]} → {column[1]}"


def _html(catalog: SupportCatalog, title: str, body: str, up: str = "") -> str:
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{escape(title)}</title><link rel="stylesheet" href="{up}page.css"></head>\n<body>'
        f'<nav><a href="{up}index.html">What is supported</a><a href="{up}support.json">JSON</a></nav>'
        f"<h1>{escape(title)}</h1>\n{body}\n"
        f'<p class="quiet">{escape(catalog.recorded)}</p>'
        "</body></html>\n"
    )


def _index(catalog: SupportCatalog) -> Iterator[str]:
    for domain, title in _TITLES.items():
        head = "".join(f"<th>{level}</th>" for level in _SIGNS)
        yield f"<h2>{title}</h2><table><thead><tr><th>converter → backend</th>{head}</tr></thead><tbody>"
        for column in catalog.columns:
            levels = Counter(
                min((cell.standing for cell in mine), key=list(SupportLevel).index)
                for cells in catalog.operators(domain).values()
                if (mine := _of_column(cells, column))
            )
            numbers = "".join(f'<td class="number">{levels[level]:,}</td>' for level in _SIGNS)
            link = f'<a href="{table_file(domain, column)}">{escape(_arrow(column))}</a>'
            yield f"<tr><th>{link}</th>{numbers}</tr>"
        yield "</tbody></table><p>Operators, each by the worst of its dtypes.</p>"


def _of_column(cells: Iterable[SupportCell], column: Column) -> list[SupportCell]:
    return [cell for cell in cells if (cell.converter, cell.backend) == column]


def _overview(catalog: SupportCatalog, domain: str, column: Column) -> str:
    rows = {name: _of_column(cells, column) for name, cells in catalog.operators(domain).items()}
    dtypes = dtypes_of_cells([cell for cells in rows.values() for cell in cells])
    head = "".join(f"<th>{escape(dtype) or 'no tensors'}</th>" for dtype in dtypes)
    parts = [
        _LEGEND + (_ONNX_LEGEND if domain == "onnx" else "") + _FILTER,
        '<div class="wide"><table><thead><tr><th>operator</th><th>opset</th>',
        f"<th>models</th>{head}</tr></thead><tbody>\n",
    ]
    # What models call comes first.
    callers = {name: catalog.callers(name) for name in rows}
    for name in sorted(rows, key=lambda name: (-callers[name], name)):
        opsets = sorted({cell.opset for cell in rows[name]})
        for opset in opsets:
            of_dtype = {cell.dtype: cell for cell in rows[name] if cell.opset == opset}
            # The first row of an operator is what a link to it shows.
            place = name if opset == opsets[0] else f"{name}-{opset}"
            link = f'<a href="operators/{operator_file(domain, name)}">{escape(name)}</a>'
            found = "".join(_short(of_dtype.get(dtype)) for dtype in dtypes)
            parts.append(
                f'<tr id="{escape(place)}"><th>{link}</th><td class="number">{opset or "–"}</td>'
                f'<td class="number">{callers[name] or ""}</td>{found}</tr>\n'
            )
    parts.append("</tbody></table></div>")
    return _html(catalog, f"{_TITLES[domain]}: {_arrow(column)}", "".join(parts))


def _short(cell: SupportCell | None) -> str:
    if cell is None or cell.standing is SupportLevel.UNKNOWN:
        return "<td></td>"
    cases = f"{cell.failures}/{cell.cases}" if cell.standing is SupportLevel.PARTLY else str(cell.cases)
    return f'<td class="{cell.standing}" title="{escape(cell.said)}">{_SIGNS[cell.standing]} {cases}</td>'


def _operator(catalog: SupportCatalog, name: str, cells: Sequence[SupportCell]) -> Iterator[str]:
    yield f"<p>{escape(_use(catalog, name))}</p>"
    overloads = sorted({overload for cell in cells for overload in cell.overloads})
    if overloads:
        links = (f'<a href="{operator_file("aten", overload)}">{escape(overload)}</a>' for overload in overloads)
        yield f"<p>Judged by the cases of {', '.join(links)}.</p>"
    for column in catalog.columns:
        mine = _of_column(cells, column)
        if not mine:
            continue
        yield f'<h2 id="{_slug(column)}">{escape(_arrow(column))}</h2><div class="wide"><table><thead><tr>'
        yield "<th>dtype</th><th>opset</th><th>answer</th><th>evidence</th></tr></thead><tbody>\n"
        for dtype in dtypes_of_cells(mine):
            for cell in mine:
                if cell.dtype == dtype:
                    place = f"{_slug(column)}-{dtype}-{cell.opset}"
                    whose = f", blame: {cell.blame}" if cell.blame else ""
                    yield (
                        f'<tr id="{escape(place)}"><th>{escape(dtype) or "no tensors"}</th>'
                        f'<td class="number">{cell.opset or "–"}</td>'
                        f'<td class="{cell.standing}">{_SIGNS[cell.standing]} {cell.standing}</td>'
                        f'<td class="evidence">{escape(cell.said + whose)}</td></tr>\n'
                    )
        yield "</tbody></table></div>"


def _use(catalog: SupportCatalog, name: str) -> str:
    models = count(len(catalog.use.models), "model")
    callers = catalog.callers(name)
    if not callers:
        return f"None of {models} calls it."
    usual = (
        f"{argument} {listed(list(values), 3)}" for argument, values in catalog.use.attributes.get(name, {}).items()
    )
    message = "; ".join(usual)
    return f"{callers} of {models} call it{f', with {message}' if message else ''}."
