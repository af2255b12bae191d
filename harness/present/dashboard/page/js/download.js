// What a view shows as a file, made in the page; and links to the files that were built with the site.
(function () {
  "use strict";
  const { el, say } = Conformance;

  function csv(rows) {
    if (!rows.length) return "";
    const names = Object.keys(rows[0]);
    return `${[names, ...rows.map((row) => names.map((name) => row[name]))]
      .map((line) => line.map(cell).join(","))
      .join("\r\n")}\r\n`;
  }

  function cell(value) {
    let text = value === null || value === undefined ? "" : String(value);
    // A spreadsheet takes such text for a formula.
    if (typeof value === "string" && /^[=+\-@\t]/.test(text)) text = `'${text}`;
    return /[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
  }

  function save(name, type, text) {
    const url = URL.createObjectURL(new Blob([text], { type }));
    const link = el("a", { href: url, download: name });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
    say(`${name} was saved`);
  }

  // A menu: this view's rows, which may come later, as CSV and JSON, and the whole as files of the site.
  function menu(name, rows, files) {
    return el(
      "details.download",
      el("summary", "Download"),
      el(
        "div.chips",
        el(
          "button.chip",
          { type: "button", onclick: async () => save(`${name}.csv`, "text/csv", csv(await rows())) },
          "What is shown: CSV",
        ),
        el(
          "button.chip",
          {
            type: "button",
            onclick: async () =>
              save(`${name}.json`, "application/json", JSON.stringify(await rows(), null, 1)),
          },
          "JSON",
        ),
        (files || []).map(([words, path]) => el("a.chip", { href: `download/${path}`, download: "" }, words)),
      ),
    );
  }

  function all(name) {
    return ["json", "csv", "parquet"].map((end, i) => [
      (i ? "" : "All: ") + { json: "JSON", csv: "CSV", parquet: "Parquet" }[end],
      `${name}.${end}`,
    ]);
  }

  Conformance.download = { menu, all };
})();
