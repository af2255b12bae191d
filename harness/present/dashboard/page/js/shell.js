// The frame: which view an address asks for, of which run, and the notices above it.
(function () {
  "use strict";
  const { el, fill, address, words, load, controls, views } = Conformance;
  const main = document.getElementById("main");
  let index = null;
  let shown = null; // {view, run, instance}

  async function start() {
    try {
      index = await load.get("index");
    } catch (error) {
      fill(main, el("p.notice", error.message));
      return;
    }
    document.querySelector(".skip").addEventListener("click", function (event) {
      // As a link it would be another address.
      event.preventDefault();
      main.focus();
    });
    window.addEventListener("hashchange", () => route(true));
    route(false);
  }

  function route(moved) {
    const asked = address.current();
    const view = views[asked.view] ? asked.view : "overview";
    if (!index.runs.length && view !== "data") {
      frame("data", asked, -1);
      return open("data", asked, -1, moved);
    }
    const wanted = asked.params.get("run");
    const found = index.runs.findIndex((run) => run.id === wanted);
    const run = found >= 0 ? found : index.runs.length - 1;
    frame(view, asked, run);
    open(view, asked, run, moved);
  }

  function open(view, asked, run, moved) {
    const key = [view, run, views[view].whole ? asked.parts.join("/") : ""].join("|");
    if (shown && shown.key === key && shown.instance && shown.instance.update) {
      shown.instance.update(asked);
      return;
    }
    Conformance.chart.stopAll();
    if (shown && shown.instance && shown.instance.leave) shown.instance.leave();
    main.replaceChildren();
    shown = { key, instance: null };
    const mine = shown;
    const box = el("div");
    main.append(box);
    Promise.resolve()
      .then(() => views[view].create(box, { index, run, asked }))
      .then(function (instance) {
        mine.instance = instance;
        main.dataset.view = view;
        if (shown === mine && instance && instance.update) instance.update(address.current());
      })
      .catch(function (error) {
        console.error(error);
        fill(box, el("p.notice", `This view could not be shown: ${error.message}`));
      });
    document.title = titleOf(view, asked);
    if (moved) {
      main.focus({ preventScroll: true });
      window.scrollTo(0, 0);
      Conformance.say(document.title);
    }
  }

  function titleOf(view, asked) {
    const words_ = view === "operator" && asked.parts[0] ? asked.parts[0] : views[view].title;
    return `${words_} · ATen → ONNX conformance`;
  }

  // In the order in which index.html loads them.
  const TABS = Object.keys(views).filter((name) => views[name].tab !== false);

  function frame(view, asked, run) {
    const kept = run >= 0 && run < index.runs.length - 1 ? { run: index.runs[run].id } : {};
    fill(
      document.getElementById("views"),
      TABS.map((name) =>
        el(
          "a",
          {
            href: address.format(name, [], ["overview", "matrix"].includes(name) ? kept : {}),
            "aria-current": view === name || (view === "operator" && name === "matrix") ? "page" : null,
          },
          views[name].title,
        ),
      ),
    );
    // On a phone the tabs scroll.
    const views_ = document.getElementById("views");
    const tab = views_.querySelector("[aria-current]");
    if (tab)
      views_.scrollLeft = tab.offsetLeft - views_.offsetLeft - (views_.clientWidth - tab.offsetWidth) / 2;
    tools(view, asked, run);
    notices(run, view);
    foot(run);
  }

  function tools(view, asked, run) {
    const runs = controls.runs(index);
    const choose = ({ target }) =>
      address.change({ run: target.value === index.runs.at(-1).id ? "" : target.value }, true);
    const field =
      runs.length > 1 &&
      ["overview", "matrix"].includes(view) &&
      el(
        "select",
        { "aria-label": "Run", onchange: choose },
        runs.map(([id, text]) => el("option", { value: id, selected: id === index.runs[run].id }, text)),
      );
    const dark = Conformance.theme.current() === "dark";
    const label = dark ? "Light colours" : "Dark colours";
    fill(
      document.getElementById("tools"),
      field,
      el(
        "button",
        {
          type: "button",
          "aria-label": label,
          title: label,
          onclick: () => {
            Conformance.theme.toggle();
            tools(view, asked, run);
          },
        },
        dark ? "☀" : "☾",
      ),
    );
  }

  function notices(run, view) {
    const said = [];
    if (run >= 0 && index.runs[run].state !== "complete") {
      said.push(
        el(
          "div.notice",
          { role: "note" },
          el("strong", "This run is partial. "),
          index.runs[run].notes.join(" "),
          " What is missing counts as missing, never as passing.",
        ),
      );
    }
    if (index.aside.length && ["overview", "compare", "data"].includes(view)) {
      said.push(
        el(
          "div.notice",
          { role: "note" },
          el(
            "strong",
            words.count(index.aside.length, "run"),
            index.aside.length === 1 ? " was" : " were",
            " set aside. ",
          ),
          index.aside.slice(0, 3).map((one) => `${one.name}: ${one.message}. `),
          index.aside.length > 3 ? el("a", { href: "#/data" }, "All of them") : null,
        ),
      );
    }
    fill(document.getElementById("notices"), said);
  }

  function foot(run) {
    if (run < 0) return;
    const one = index.runs[run];
    const key = ["torch", "onnx", "onnxscript", "onnxruntime", "openvino", "tensorrt"]
      .filter((name) => one.versions[name])
      .map((name) => `${name} ${one.versions[name]}`);
    fill(
      document.getElementById("foot"),
      `Run ${one.id} · ${words.when(one.started)} UTC · ${key.join(" · ")} · `,
      el("a", { href: "#/data" }, "All versions and downloads"),
    );
  }

  start();
})();
