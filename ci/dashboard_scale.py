"""Measure the dashboard at size: synthetic runs are written, built into a site, and opened in a browser.

    python ci/dashboard_scale.py --work /tmp/scale             # 1,000 operators × 12 columns × 30 runs
    python ci/dashboard_scale.py --work /tmp/scale --runs 5 --operators 200

Prints seconds to build, the site's size, and of the opened page milliseconds to the first view and to the
matrix, and how long frames take while the matrix scrolls. Needs Playwright's Python package and a Chromium.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from harness.generate.case_library import load_cases
from harness.present.dashboard.site import write_site
from harness.record import layout, parquet
from harness.record.parquet import SCHEMA
from harness.record.run_info import RunInfo, write_run_info

CONVERTERS, BACKENDS, DTYPES = ("dynamo", "torchscript"), ("ort-cpu", "trt"), ("float32", "float16", "int64")
CASES = 10
_FLAGS = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
#: Seven ways of ending: outcome, stage, blame, signature.
ENDS = (
    ("pass", "compare", "", ""),
    ("mismatch", "compare", "converter", "values"),
    ("mismatch", "compare", "backend", "values"),
    ("unsupported", "convert", "converter", "No ONNX function found for the operator"),
    ("unsupported", "load", "backend", "Could not find an implementation for the node"),
    ("error", "run", "backend", "Non-zero status code returned while running the node"),
    ("crash", "run", "backend", "killed by SIGSEGV"),
)


def write_runs(work: Path, operators: int, runs: int) -> list[Path]:
    """Write nightly runs of one seed: most of a night is as the night before, and versions change on some."""
    known = list(load_cases().values())[:operators]
    random = np.random.default_rng(0)
    table = _drawn(known)
    ends = _first_night(random, len(table["case_id"]))
    ulps = np.where(random.random(len(ends)) < 0.5, 0.0, np.exp(random.normal(1, 2, len(ends))))
    directories = []
    for number in range(runs):
        moved = random.random(len(ends)) < (0.02 if number % 7 == 6 else 0.0005)
        ends = np.where(
            moved, random.choice(len(ENDS), size=len(ends), p=(0.8, 0.06, 0.04, 0.03, 0.03, 0.03, 0.01)), ends
        )
        ulps = np.where(moved, ulps * 3, ulps)
        directories.append(_write(work / "runs" / f"night-{number:02d}", table, ends, ulps, number, runs))
    return directories


def _first_night(random: np.random.Generator, size: int) -> Any:
    """Ends of all cases: of most operators all pass with a converter and a backend, of some all fail."""
    columns = len(CONVERTERS) * len(BACKENDS)
    per_operator = len(DTYPES) * CASES
    shape = size // columns // per_operator, columns
    fails = random.choice((0.0, 0.05, 0.4, 1.0), size=shape, p=(0.6, 0.15, 0.15, 0.1))
    end = random.integers(1, len(ENDS), size=shape)
    # Rows are in the order of operators, then dtypes and cases, then columns.
    chance = np.repeat(fails[:, None, :], per_operator, axis=1).ravel()
    return np.where(random.random(size) < chance, np.repeat(end[:, None, :], per_operator, axis=1).ravel(), 0)


def _drawn(known: list[Any]) -> dict[str, list[Any]]:
    table: dict[str, list[Any]] = {
        name: [] for name in ("case_id", "overload", "family", "dtype", "converter", "backend", "invocation")
    }
    for case in known:
        for dtype in DTYPES:
            for number in range(CASES):
                invocation = _invocation(case.overload, dtype, number)
                case_id = hashlib.blake2b(invocation.encode(), digest_size=6).hexdigest()
                for converter in CONVERTERS:
                    for backend in BACKENDS:
                        row = (case_id, case.overload, case.family, dtype, converter, backend, invocation)
                        for name, value in zip(table, row, strict=True):
                            table[name].append(value)
    return table


def _invocation(overload: str, dtype: str, number: int) -> str:
    shape = [1 + number % 4, 3]
    tensor = {
        "shape": shape,
        "dtype": dtype,
        "strides": [3, 1],
        "offset": 0,
        "values": [number] * (3 * shape[0]),
    }
    arguments = {"self": {"tensor": tensor}, "ceil_mode": number % 2 == 0}
    return json.dumps({"overload": overload, "arguments": arguments}, separators=(",", ":"))


def _write(directory: Path, table: dict[str, list[Any]], ends: Any, ulps: Any, number: int, runs: int) -> Path:
    directory.mkdir(parents=True)
    started = datetime(2026, 1, 1, 3, tzinfo=UTC) + timedelta(days=number)
    versions = {
        "python": "3.11.7",
        "torch": f"2.{10 + number // 7}.0",
        "onnxruntime": f"1.{30 + number // 14}.0",
    }
    partial = number == runs - 3
    info = RunInfo(
        run_id=f"{started:%Y%m%dT%H%M%S}-000-{number:06x}",
        started=started.isoformat(),
        finished=None if partial else (started + timedelta(minutes=40)).isoformat(),
        seed=0,
        versions=versions,
        options={"examples": CASES * len(DTYPES)},
        exit_status=1,
    )
    write_run_info(directory, info)
    size = len(ends)
    passed = ends == 0
    fill: dict[str, Any] = {
        "run_id": [info.run_id] * size,
        "shape_mode": ["static"] * size,
        "source": ["generated"] * size,
        "opset": [20] * size,
        "device": ["cpu"] * size,
        **{
            name: [ENDS[end][place] for end in ends.tolist()]
            for place, name in enumerate(("outcome", "stage", "blame", "signature"))
        },
        "max_ulp_error": pa.array(np.where(passed, ulps, np.nan), from_pandas=True),
        **table,
    }
    fill["message"] = fill["signature"]
    rows = parquet.completed(pa.table(fill)).cast(SCHEMA)
    # A run that was killed has the rows of the operators that it got to.
    rows = rows.slice(0, int(size * 0.6)) if partial else rows
    with parquet.open_writer(directory / layout.VERDICTS_FILE) as file:
        file.write_table(rows, row_group_size=10_000)
    return directory


def measure(site: Path, chromium: str) -> dict[str, float]:
    """Open the site and scroll its matrix; milliseconds."""
    from playwright.sync_api import sync_playwright

    found: dict[str, float] = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=_FLAGS.split())
        for name, path in (
            ("overview", ""),
            ("matrix", "#/matrix?rows=open"),
            ("operator", None),
            ("compare", "#/compare"),
        ):
            if path is None:
                rows = json.loads((site / "download/matrix.json").read_text(encoding="utf-8"))
                path = f"#/operator/{rows[0]['overload']}"
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            page.goto(f"{(site / 'index.html').as_uri()}{path}", wait_until="commit")
            page.wait_for_selector("main[data-view]", state="attached", timeout=60_000)
            if name == "matrix":
                page.wait_for_selector(".tabulator-row .state")
            found[f"{name}_ms"] = page.evaluate("performance.now()")
            if name == "matrix":
                frames = page.evaluate(_SCROLL)
                found |= {
                    "frame_median_ms": float(np.median(frames)),
                    "frame_p95_ms": float(np.percentile(frames, 95)),
                    "frame_max_ms": max(frames),
                }
            page.close()
        browser.close()
    return {name: round(value, 1) for name, value in found.items()}


#: Scrolls as a fast wheel does, 60 pixels a frame, and gives the milliseconds between frames.
_SCROLL = """() => new Promise((resolve) => {
  const holder = document.querySelector(".tabulator-tableholder");
  const frames = [];
  let last = performance.now();
  const step = (now) => {
    frames.push(now - last);
    last = now;
    holder.scrollTop += 60;
    const more = holder.scrollTop + holder.clientHeight < holder.scrollHeight;
    if (frames.length < 150 && more) requestAnimationFrame(step);
    else resolve(frames.slice(1));
  };
  requestAnimationFrame(step);
})"""


def main() -> None:
    """Run as a script."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="where runs and site are written; made again")
    parser.add_argument("--operators", type=int, default=1_000)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--keep-runs", action="store_true", help="build from the runs that are there")
    given = parser.parse_args()
    if given.keep_runs:
        directories = sorted((given.work / "runs").iterdir())
    else:
        shutil.rmtree(given.work, ignore_errors=True)
        directories = write_runs(given.work, given.operators, given.runs)
    started = time.perf_counter()
    site = write_site(directories, given.work / "site")
    found: dict[str, Any] = {"runs": site.runs, "build_s": round(time.perf_counter() - started, 1)}
    files = [path for path in site.directory.rglob("*") if path.is_file()]
    found |= {"files": len(files), "site_mb": round(sum(path.stat().st_size for path in files) / 1e6, 1)}
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        print("no Chromium on PATH: the page is not measured")
    else:
        found |= measure(site.directory, chromium)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
