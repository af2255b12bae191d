// The frame: which view an address asks for, of which run, and the notices above it.
(function () {
  "use strict";
  const { el, fill, address, words, load, runs, views } = Conformance;
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
    const run = runs.chosen(index, asked.params);
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
    const words_ = ["operator", "case"].includes(view) && asked.parts[0] ? asked.parts[0] : views[view].title;
    return `${words_} · ATen → ONNX conformance`;
  }

  // The tab that a view without one belongs to.
  const OWNERS = { operator: "matrix", case: "failures" };

  // In the order in which index.html loads them.
  const TABS = Object.keys(views).filter((name) => views[name].tab !== false);

  function frame(view, asked, run) {
    fill(
      document.getElementById("views"),
      TABS.map((name) =>
        el(
          "a",
          {
            href: address.format(name, [], { run: runs.param(index, run) }),
            "aria-current": view === name || OWNERS[view] === name ? "page" : null,
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
    notices(asked, run, view);
    const compared = view === "compare" ? runs.place(index, asked.params.get("b")) : -1;
    foot(compared >= 0 ? compared : run);
  }

  function tools(view, asked, run) {
    const choose = ({ target }) =>
      address.change({ run: runs.param(index, runs.place(index, target.value)) }, true);
    const field =
      index.runs.length > 1 &&
      view !== "compare" &&
      el(
        "select.run",
        { "aria-label": "Run", title: runs.title(index, run), onchange: choose },
        runs
          .options(index)
          .map(([id, text]) => el("option", { value: id, selected: id === index.runs[run].id }, text)),
      );
    const search = el(
      "form.everywhere",
      {
        role: "search",
        onsubmit(event) {
          event.preventDefault();
          window.location.hash = address.format("find", [], { q: event.target.elements.q.value.trim() });
        },
      },
      el("input", {
        type: "search",
        name: "q",
        value: view === "find" ? asked.params.get("q") || "" : "",
        placeholder: "Operator, failure, case id",
        "aria-label": "Search all views",
        autocomplete: "off",
        spellcheck: "false",
      }),
    );
    const dark = Conformance.theme.current() === "dark";
    const label = dark ? "Light colours" : "Dark colours";
    fill(
      document.getElementById("tools"),
      search,
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

  function notices(asked, run, view) {
    const said = runs.unknown(index, asked.params);
    // A comparison says itself what is missing in either run.
    if (run >= 0 && index.runs[run].state !== "complete" && view !== "compare") {
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
          index.aside.length > 3 ? el("a", { href: address.format("data") }, "All of them") : null,
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
      el("a", { href: address.format("data") }, "All versions and downloads"),
    );
  }

  start();
})();
