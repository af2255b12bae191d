// Data come as scripts, since a page that was opened from a file may load nothing else. Each is loaded once, when
// it is needed, and is parsed as JSON: whatever it says, it is data.
(function () {
  "use strict";
  const promises = new Map();
  const arrived = new Map();

  window.conformanceData = function (name, text) {
    arrived.set(name, text);
  };

  function get(name) {
    if (!promises.has(name)) promises.set(name, fetchScript(name));
    return promises.get(name);
  }

  function fetchScript(name) {
    return new Promise(function (resolve, reject) {
      const script = document.createElement("script");
      script.src = `data/${name}.js`;
      script.onload = function () {
        script.remove();
        const text = arrived.get(name);
        arrived.delete(name);
        try {
          resolve(JSON.parse(text));
        } catch {
          reject(new Error(`data/${name}.js is damaged: build the site again`));
        }
      };
      script.onerror = function () {
        script.remove();
        promises.delete(name);
        reject(new Error(`data/${name}.js is missing; copy the whole site, or build it again`));
      };
      document.head.append(script);
    });
  }

  Conformance.load = { get, all: (names) => Promise.all(names.map(get)) };
})();
