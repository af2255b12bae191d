// Arrow keys in a table: one stop for the Tab key, then from cell to cell; Enter follows the cell's link.
(function () {
  "use strict";
  const STEPS = {
    ArrowUp: [-1, 0],
    ArrowDown: [1, 0],
    ArrowLeft: [0, -1],
    ArrowRight: [0, 1],
    PageUp: [-15, 0],
    PageDown: [15, 0],
    Home: [0, -999],
    End: [0, 999],
  };

  function target(cell) {
    const inner = cell.querySelector("a, button");
    if (inner) return inner;
    cell.tabIndex = -1;
    return cell;
  }

  const cellsOf = (row) => [...row.querySelectorAll(".tabulator-cell")];

  Conformance.gridKeys = function (box, table) {
    function focus(row, place) {
      const cells = cellsOf(row.getElement());
      const cell = cells[Math.max(0, Math.min(place, cells.length - 1))];
      if (!cell) return;
      const found = target(cell);
      found.focus({ preventScroll: true });
      // Frozen columns would hide what the browser scrolls to.
      const holder = box.querySelector(".tabulator-tableholder");
      const frozen = box.querySelector(".tabulator-row .tabulator-frozen");
      const left =
        cell.offsetLeft - (frozen && !cell.classList.contains("tabulator-frozen") ? frozen.offsetWidth : 0);
      if (cell.classList.contains("tabulator-frozen")) return;
      if (left < holder.scrollLeft) holder.scrollLeft = left;
      const right = cell.offsetLeft + cell.offsetWidth - holder.clientWidth;
      if (right > holder.scrollLeft) holder.scrollLeft = right;
    }

    box.addEventListener("keydown", function (event) {
      const step = STEPS[event.key];
      if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.target.closest("input, select, textarea, .tabulator-header")) return;
      const rows = table.getRows("active");
      if (!rows.length) return;
      event.preventDefault();
      const cell = event.target.closest(".tabulator-cell");
      const rowElement = event.target.closest(".tabulator-row");
      if (!cell) {
        const visible = table.getRows("visible")[0] || rows[0];
        focus(visible, 0);
        return;
      }
      const place = cellsOf(rowElement).indexOf(cell);
      const at = rows.findIndex((row) => row.getElement() === rowElement);
      const next = rows[Math.max(0, Math.min(rows.length - 1, at + step[0]))];
      const column = Math.max(0, place + step[1]);
      if (!step[0]) {
        focus(next, column);
        return;
      }
      const holder = box.querySelector(".tabulator-tableholder").getBoundingClientRect();
      const seen = next.getElement().getBoundingClientRect();
      const inside =
        next.getElement().isConnected && seen.top >= holder.top && seen.bottom <= holder.bottom - 14;
      if (inside) focus(next, column);
      else
        table.scrollToRow(next, step[0] > 0 ? "bottom" : "top", true).then(
          () => focus(next, column),
          () => focus(next, column),
        );
    });
  };
})();
