"""The pages: of each converter and backend, by ATen overload and by ONNX operator, and of each operator.

They are plain HTML, so that a link to a row or to an operator stays good wherever the directory is put.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path

from harness.analyse import SupportCell, SupportLevel, SupportRecord
from harness.core import count, listed
from harness.present.dashboard.embed import compact, write_text
from harness.present.support_page.catalog import Column, SupportCatalog, dtypes_of_cells, support_catalog

_TITLES = {"aten": "ATen operators", "onnx": "ONNX operators"}
_SIGNS = {
    SupportLevel.SUPPORTED: "✓",
    SupportLevel.PARTLY: "◐",
    SupportLevel.UNSUPPORTED: "✗",
    SupportLevel.UNKNOWN: "–",
}
_LEGEND = (
    "<p>✓ supported: no failure found in so many cases, which is evidence and no proof. ◐ partly: so many of "
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
    overloads = sorted({one for cell in cells for one in cell.overloads})
    if overloads:
        links = (f'<a href="{operator_file("aten", one)}">{escape(one)}</a>' for one in overloads)
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
    said = "; ".join(usual)
    return f"{callers} of {models} call it{f', with {said}' if said else ''}."
