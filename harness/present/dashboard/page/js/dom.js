// Elements, made without HTML: what a run says is only ever text.
(function () {
  "use strict";

  // el("a.chip.strong", {href: "#/"}, "text", child, …), or without attributes: el("p", "text")
  function el(kind, ...rest) {
    const attributes = rest[0] && rest[0].constructor === Object ? rest.shift() : {};
    const [tag, ...classes] = kind.split(".").filter(Boolean);
    const element = document.createElement(tag);
    if (classes.length) element.className = classes.join(" ");
    for (const [name, value] of Object.entries(attributes)) {
      if (value === null || value === undefined || value === false) continue;
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (name in PROPERTIES) element[name] = value;
      else element.setAttribute(name, value === true ? "" : String(value));
    }
    append(element, rest);
    return element;
  }

  const PROPERTIES = { value: 1, checked: 1, disabled: 1, selected: 1, hidden: 1 };

  function append(element, children) {
    for (const child of children.flat(Infinity)) {
      if (child === null || child === undefined || child === false || child === "") continue;
      element.append(child instanceof Node ? child : String(child));
    }
  }

  function fill(element, ...children) {
    element.replaceChildren();
    append(element, children);
    return element;
  }

  // A link to somewhere else: only where it is one that a browser opens as a page.
  function outside(link, words) {
    return /^https:\/\//.test(link)
      ? el("a", { href: link, rel: "noreferrer noopener", target: "_blank" }, words)
      : el("span", words);
  }

  function say(words) {
    document.getElementById("said").textContent = words;
  }

  Object.assign(Conformance, { el, fill, outside, say });
})();
