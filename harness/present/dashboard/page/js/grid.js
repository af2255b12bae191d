// Tables of the library: only the rows in sight are in the document, and cells are made of elements, never of HTML.
(function () {
  "use strict";
  const { el } = Conformance;

  // A column: {title, field, width, number, cell(row) → node or text, sort(row) → value, class}; `stop: false`
  // where the Tab key passes its head by.
  function column(given) {
    const { title, field, cell, number, sort, hint, stop, class: kind, ...rest } = given;
    return {
      field,
      title: " ",
      headerSort: Boolean(sort),
      sorter: sort ? (a, b, rowA, rowB) => order(sort(rowA.getData()), sort(rowB.getData())) : undefined,
      cssClass: [number ? "number" : "", kind || ""].join(" ").trim(),
      // A button, so that the keyboard reaches it; the click goes up to the header.
      titleFormatter: () =>
        sort || given.headerClick
          ? el(
              "button.sorter",
              { type: "button", title: hint, tabindex: stop === false ? "-1" : null },
              title,
            )
          : el("span", { title: hint }, title),
      formatter(one) {
        const made = cell ? cell(one.getRow().getData(), one) : one.getRow().getData()[field];
        return made instanceof Node ? made : el("span", made);
      },
      ...rest,
    };
  }

  function order(a, b) {
    if (a === b) return 0;
    if (a === null || a === undefined || a === "") return -1;
    if (b === null || b === undefined || b === "") return 1;
    return a < b ? -1 : 1;
  }

  function group(title, columns, hint) {
    return { title: " ", columns, titleFormatter: () => el("span", { title: hint || title }, title) };
  }

  // Places a table in `box`; it can be talked to when its promise `built` is kept.
  function grid(box, options) {
    const table = new window.Tabulator(box, {
      layout: "fitColumns",
      rowHeight: 28,
      keybindings: false, // The keys are those of grid_keys.js.
      nestedFieldSeparator: false,
      headerSortElement: (column, direction) => (direction === "asc" ? "▲" : direction === "desc" ? "▼" : ""),
      columnHeaderVertAlign: "bottom",
      columnDefaults: { tooltip: false, headerTooltip: false, resizable: false },
      placeholder: "Nothing matches. Remove a filter.",
      ...options,
    });
    table.built = new Promise((resolve) => table.on("tableBuilt", resolve));
    Conformance.gridKeys(box, table);
    return table;
  }

  // Gives the rows that are meant a class.
  const marking = (name, meant) => (row) => row.getElement().classList.toggle(name, meant(row.getData()));

  // The height that is left below what is above the table, so that the page itself need not scroll.
  function height(box, least) {
    const top = box.getBoundingClientRect().top + window.scrollY;
    return Math.max(least || 320, window.innerHeight - Math.min(top, window.innerHeight * 0.55) - 24);
  }

  Conformance.grid = { grid, column, group, marking, height };
})();
