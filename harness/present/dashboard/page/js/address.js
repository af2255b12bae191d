// Every state of the page is an address: #/view/part?name=value. Views read it, and change it rather than themselves.
(function () {
  "use strict";

  function parse(hash) {
    const [path, query] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
    const parts = path.split("/").filter(Boolean).map(decode);
    return { view: parts[0] || "overview", parts: parts.slice(1), params: new URLSearchParams(query || "") };
  }

  function decode(part) {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  }

  // Names and their values in a fixed order, without the empty ones, so that one state has one address. The run
  // that was chosen stays chosen.
  function format(view, parts, params) {
    const words = Object.entries({ run: current().params.get("run"), ...params }).filter(
      ([, value]) => value !== "" && value !== null && value !== undefined,
    );
    words.sort(([a], [b]) => (a < b ? -1 : 1));
    const query = words.map(([name, value]) => `${encodeURIComponent(name)}=${soft(value)}`).join("&");
    const path = [view === "overview" ? "" : view, ...(parts || [])].map(encodeURIComponent).join("/");
    return `#/${path}${query ? `?${query}` : ""}`;
  }

  // What an address may hold as it is stays readable.
  function soft(value) {
    return encodeURIComponent(value).replace(/%2C/g, ",").replace(/%3A/g, ":").replace(/%2F/g, "/");
  }

  const current = () => parse(window.location.hash);

  // Change some values of the address that is there; `step` makes it one to come back to.
  function change(values, step) {
    const { view, parts, params } = current();
    const next = format(view, parts, { ...Object.fromEntries(params), ...values });
    if (next === window.location.hash) return;
    if (step) window.location.hash = next;
    else window.location.replace(next);
  }

  Conformance.address = { parse, format, current, change };
})();
