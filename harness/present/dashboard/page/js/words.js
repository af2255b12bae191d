// Numbers, dates and names as people read them.
(function () {
  "use strict";
  const whole = new Intl.NumberFormat("en");

  function count(number, noun) {
    return `${whole.format(number)} ${noun}${number === 1 ? "" : "s"}`;
  }

  function percent(part, total) {
    if (!total) return "–";
    const share = (100 * part) / total;
    // Only exactly all is 100%, and only exactly none is 0%.
    if (part === total) return "100%";
    if (part === 0) return "0%";
    return `${Math.min(99.9, Math.max(0.1, share)).toFixed(share >= 10 && share <= 99 ? 0 : 1)}%`;
  }

  function few(value) {
    if (value === null || value === undefined) return "";
    if (value === 0) return "0";
    if (!Number.isFinite(value)) return "∞";
    const size = Math.abs(value);
    if (size >= 1e5 || size < 1e-3) return value.toExponential(1).replace("+", "");
    return Number.isInteger(value) ? whole.format(value) : String(Number(value.toPrecision(3)));
  }

  // An error, of which −1 stands for an infinite one: JSON lacks infinities.
  const error = (value) => few(value === -1 ? Infinity : value);

  // The time tells runs of one day apart. All times are in UTC, as recorded.
  function when(iso) {
    const date = new Date(iso);
    if (Number.isNaN(date.getTime())) return String(iso);
    return date.toISOString().slice(0, 16).replace("T", " ");
  }

  // aten.add.Tensor → add.Tensor; aten.celu.default → celu
  function short(name) {
    return name.replace(/^aten\./, "").replace(/\.default$/, "");
  }

  const arrow = (column) => `${column[0]} → ${column[1]}`;

  Conformance.words = { number: (n) => whole.format(n), count, percent, few, error, when, short, arrow };
})();
