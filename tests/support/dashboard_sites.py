"""Sites that the tests of the dashboard look at: of real runs, and of a run with hostile strings."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from commands import typed
from harness_runs import output, recorded, row_of, run_harness, unary
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from harness.compare.verdict import Outcome, Stage
from harness.present.dashboard.site import write_site
from harness.record.run_info import RunInfo

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
OPERATORS = ("celu", "avg_pool2d", "erf")
#: Drops alpha.
RULE = """
from onnxscript import opset18 as op

from harness.convert.rules import dynamo


@dynamo("aten::celu")
def celu(self, alpha=1.0):
    return op.CastLike(op.Celu(op.Cast(self, to=1)), self)
"""
#: What a run must never get to do. Each name has a word of its own that a test can look for.
SCRIPT = "</script><script>window.hacked='{0}'</script><img src=x onerror=\"window.hacked='{0}'\">"
HOSTILE = SCRIPT + "'\"`\u2028\u2029\\\x00\x1b[31m${{window.hacked='{0}'}}" + "W" * 400


@dataclass
class Sites:
    """The sites that the tests of the page open.

    Attributes:
        before: A run without, and
        after: the same with `RULE`.
        site: Both, and a damaged one.
        hostile: A run of which every string is hostile.
    """

    before: Path
    after: Path
    site: Path
    hostile: Path


def make_sites(directory: Path) -> Sites:
    """Two real runs, and what is built of them."""
    rules = directory / "rules.py"
    rules.write_text(RULE, encoding="utf-8")
    before, after = directory / "before", directory / "after"
    what = [word for name in OPERATORS for word in ("--op", name)]
    what += ["--dtype", "float32", "--dtype", "int64", "--examples", "40", "--values", "1", "--record-only"]
    # With failures in ordinary use, and others in edge cases alone.
    what += ["--seed", "4"]
    what += ["--converter", "dynamo", "--converter", "torchscript"]
    what += ["--backend", "ort-cpu"]
    done = run_harness(*what, "--results-dir", after, "--rules", rules)
    assert done.returncode == 0, output(done)
    # Trying rules is two runs of the same cases. The one without stands for the night before.
    shutil.copytree(after / "without-rules", before)
    info = json.loads((before / "run.json").read_text())
    info |= {"run_id": "before", "started": "2026-01-01T03:00:00+00:00"}
    (before / "run.json").write_text(json.dumps(info))
    typed("graphs", after, "--op", "avg_pool2d")
    damaged = directory / "damaged"
    shutil.copytree(before, damaged)
    (damaged / "verdicts.parquet").write_bytes(b"PAR1 not a table PAR1")
    (damaged / "run.json").write_text((before / "run.json").read_text().replace('"run_id": "', '"run_id": "x'))
    built = typed("dashboard", after, damaged, before, "--out", directory / "site")
    assert "set aside: damaged: " in built.stderr
    hostile = directory / "hostile-site"
    write_site([hostile_run(directory)], hostile)
    return Sites(before, after, directory / "site", hostile)


def hostile_run(parent: Path) -> Path:
    """A run whose every word tries to become code."""
    directory = parent / "results-<b>hostile&amp;'run"
    info = RunInfo.begin(
        seed=0,
        options={"op": [HOSTILE.format("option")]},
        versions={HOSTILE.format("name"): HOSTILE.format("version")},
    )
    rows = []
    for number, overload in enumerate(("aten.celu.default", f"aten.{SCRIPT.format('overload')}.default")):
        words: dict[str, Any] = {
            name: HOSTILE.format(name)
            for name in (
                "family",
                "dtype",
                "converter_version",
                "backend_version",
                "signature",
                "message",
                "evidence",
            )
        }
        words["rule"] = HOSTILE.format("rule") if number else ""
        invocation = unary("aten.celu.default", [float(number)])
        rows.append(
            row_of(
                invocation,
                **words,
                overload=overload,
                converter=HOSTILE.format("converter"),
                backend=HOSTILE.format("backend"),
                stage=Stage.COMPARE,
                outcome=Outcome.MISMATCH,
                blame="converter",
                max_ulp_error=float("inf"),
            )
        )
        rows.append(
            row_of(
                unary("aten.celu.default", [number + 7.0]),
                family="__proto__",
                dtype="__proto__",
                overload=overload,
                max_ulp_error=3.0,
            )
        )
    recorded(directory, rows, info)
    lines = [
        {
            "overload": "aten.celu.default",
            "converter": "dynamo",
            "case_id": rows[0].case_id,
            "text": HOSTILE.format("graph"),
        },
        {"overload": "aten.celu.default", "converter": "dynamo", "case_id": 5, "text": ["no text"]},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (directory / "graphs.jsonl").write_text(text + '{"cut short', encoding="utf-8")
    script = {"case_id": rows[0].case_id, "converter": rows[0].converter, "backend": rows[0].backend}
    (directory / "scripts.jsonl").write_text(json.dumps({**script, "text": HOSTILE.format("script")}) + "\n")
    return directory


@contextmanager
def chromium() -> Iterator[Browser]:
    """A headless Chromium from PATH."""
    found = [shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome", "chrome")]
    path = next(filter(None, found), None)
    if path is None:
        pytest.fail("no Chromium on PATH: install one (Debian, Ubuntu: apt-get install chromium)", pytrace=False)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@dataclass
class Visit:
    """A reader of a site, who notes what must not happen.

    Attributes:
        context: Its browser window.
        base: Address of the site.
        wrong: Messages on the console, errors, and requests for what the site does not have.
    """

    context: BrowserContext
    base: str
    wrong: list[str] = field(default_factory=list)

    def open(self, address: str = "#/") -> Page:
        """A page at an address of the site, once its view is there."""
        page = self.context.new_page()
        page.set_default_timeout(15_000)
        page.on("console", lambda message: self.wrong.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        page.on("requestfailed", lambda request: self.wrong.append(f"failed: {request.url}"))
        page.on("dialog", lambda dialog: self.wrong.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: self._seen(request.url))
        page.goto(f"{self.base}/index.html{address}")
        page.wait_for_selector("main[data-view]", state="attached")
        return page

    def _seen(self, url: str) -> None:
        if not url.startswith((self.base, "blob:")):
            self.wrong.append(f"request off the site: {url}")


@contextmanager
def visiting(browser: Browser, base: str | Path, **options: Any) -> Iterator[Visit]:
    """A visit in which nothing goes wrong that a browser notices.

    Args:
        browser: From `chromium`.
        base: Directory or address of the site.
        options: Of the browser window: ``viewport``, ``color_scheme``.
    """
    base = base.as_uri() if isinstance(base, Path) else base
    context = browser.new_context(**{"viewport": {"width": 1360, "height": 900}, **options})
    visit = Visit(context, base)
    yield visit
    context.close()
    assert visit.wrong == []
