// Fields, chips, and code with a button that copies it.
(function () {
  "use strict";
  const { el, say } = Conformance;

  function select(label, value, options, change) {
    const field = el(
      "select",
      { onchange: (event) => change(event.target.value), "data-field": label },
      options.map(([option, words]) =>
        el("option", { value: option, selected: String(option) === String(value) }, words),
      ),
    );
    return el("label.field", label, field);
  }

  function search(label, value, change) {
    let waiting = 0;
    const field = el("input", {
      type: "search",
      value,
      placeholder: label,
      "aria-label": label,
      autocomplete: "off",
      spellcheck: "false",
      oninput() {
        clearTimeout(waiting);
        waiting = setTimeout(() => change(field.value), 120);
      },
    });
    return el("div.field.search", field);
  }

  function check(label, value, change, title) {
    const box = el("input", { type: "checkbox", checked: value, onchange: () => change(box.checked) });
    return el("label.check", { title }, box, label);
  }

  // `wrap` folds long lines: for words rather than for code.
  function code(text, label, wrap) {
    const button = el(
      "button",
      { type: "button", onclick: () => copy(text, button), "aria-label": `Copy ${label}` },
      "Copy",
    );
    return el(
      `div.code${wrap ? ".wrap" : ""}`,
      el("pre", { tabindex: "0", "aria-label": label }, text),
      button,
    );
  }

  async function copy(text, button) {
    const done = (await byClipboard(text)) || bySelection(text);
    button.textContent = done ? "Copied" : "Press Ctrl+C";
    say(done ? "Copied" : "It could not be copied");
    setTimeout(() => (button.textContent = button.dataset.words || "Copy"), 1500);
  }

  async function byClipboard(text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      return false; // Pages without HTTPS have no clipboard of this kind.
    }
  }

  function bySelection(text) {
    const area = el("textarea.unseen", { value: text });
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }

  function copyButton(words, text) {
    const button = el(
      "button",
      { type: "button", "data-words": words, onclick: () => copy(text(), button) },
      words,
    );
    return button;
  }

  const BLAMES = {
    converter: "the converter's defect",
    backend: "the backend's defect",
    pytorch: "PyTorch's defect",
    spec: "allowed by the specification (not counted)",
    unknown: "not decided",
    "": "not decided",
  };

  function blame(group) {
    return el("span.chip", { title: BLAMES[group.blame] || "" }, `blame: ${group.owner || "unknown"}`);
  }

  const GLYPHS = {
    pass: "✓",
    mismatch: "≠",
    error: "✕",
    crash: "✕✕",
    timeout: "◷",
    unsupported: "∅",
    built: "◇",
    narrowed: "◇",
    inaccurate: "≈",
    skip: "–",
  };

  function outcome(word, stage) {
    const at = stage && word !== "pass" && word !== "mismatch" ? `${word} at ${stage}` : word;
    const kind = word === "pass" ? "good" : ["built", "narrowed", "inaccurate", "skip"].includes(word) ? "quiet" : "bad";
    return el(
      "span.chip.strong",
      el(`span.glyph.${kind}`, { "aria-hidden": "true" }, GLYPHS[word] || "•"),
      at,
    );
  }

  function tableRow(row) {
    if (row instanceof Node) return row;
    const cells = row.flat();
    return el(
      "tr",
      cells.map((cell) => (/^T[DH]$/.test(cell?.tagName) ? cell : el("td", cell))),
    );
  }

  // A table to be read as it stands. `titles`: words, or th elements with what those need; `rows`: tr elements,
  // or their cells, of which all but th and td elements are put into a td.
  function table(titles, rows) {
    const head = titles
      .flat()
      .map((title) => (typeof title === "string" ? el("th", { scope: "col" }, title) : title));
    return el(
      "div.scroll",
      el("table.plain", head.length ? el("thead", el("tr", head)) : null, el("tbody", rows.map(tableRow))),
    );
  }

  // `parts(one)` are the children of the line of one of `all`.
  const list = (all, parts) =>
    el(
      "ul.list",
      all.map((one, i) => el("li", parts(one, i))),
    );

  // The top of a view: its title, words about it, and what can be done with it.
  const heading = (title, about, ...tools) =>
    el("div.head", el("div", el("h1", title), el("p.about", about)), tools);

  // A link to an operator's page; `kind`: classes of the link.
  const operator = (kind, name, text, place, more) =>
    el(`a.${kind}`, { href: Conformance.address.format("operator", [name], place), ...more }, text);

  // The fields above a list.
  const filters = (...fields) => el("div.filters", { role: "search", "aria-label": "Filters" }, fields);

  // Fields that are folded away until they are used, or were unfolded.
  const more = (used, open, ...fields) =>
    el(
      "details.more",
      { open: Boolean(used || open) },
      el("summary", used ? `Filters (${used})` : "Filters"),
      el("div", fields),
    );

  const typing = (box) => box.contains(document.activeElement) && document.activeElement.type === "search";

  // After the fields in `box` were made anew, the one of this label gets the focus.
  function refocus(box, label) {
    if (label)
      [...box.querySelectorAll("[data-field]")].find((field) => field.dataset.field === label)?.focus();
  }

  // New fields for those in `box`; the focus stays.
  function renew(box, fields) {
    const label = box.contains(document.activeElement) ? document.activeElement.dataset.field : null;
    Conformance.fill(box, fields);
    refocus(box, label);
  }

  Object.assign(Conformance, {
    controls: {
      select,
      search,
      check,
      code,
      copyButton,
      blame,
      outcome,
      table,
      list,
      heading,
      operator,
      filters,
      more,
      typing,
      refocus,
      renew,
    },
  });
})();
