// Light or dark: as the reader chose here, else as the system says. Set before anything is drawn.
(function () {
  "use strict";
  window.Conformance = { views: {} };
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const KEY = "conformance-theme";

  function chosen() {
    try {
      return window.localStorage.getItem(KEY);
    } catch {
      return null; // Storage is closed to some pages that come from files.
    }
  }

  function apply() {
    const theme = chosen() || (system.matches ? "dark" : "light");
    if (document.documentElement.dataset.theme === theme) return;
    document.documentElement.dataset.theme = theme;
    document.dispatchEvent(new Event("themechange"));
  }

  function toggle() {
    const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    try {
      window.localStorage.setItem(KEY, next);
    } catch {
      // It holds until the page is left.
    }
    document.documentElement.dataset.theme = next;
    document.dispatchEvent(new Event("themechange"));
  }

  system.addEventListener("change", apply);
  apply();
  window.Conformance.theme = { toggle, current: () => document.documentElement.dataset.theme };
})();
