"""Make the README's pictures from a real run: the terminal summary as SVG, the page as PNG.

    python ci/pictures.py                   # runs a few operators first
    python ci/pictures.py --run results/RUN # takes a run that is there

Needs Playwright's Python package and a Chromium for the page.
"""

from __future__ import annotations

import argparse
import io
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from harness.present.dashboard.site import write_site
from harness.present.terminal_summary import print_summary

PLACE = Path(__file__).parent / "pictures"
#: Some that fail in different ways, and some that pass.
OPERATORS = (
    *("add.Tensor", "cat", "celu", "cumprod", "fmod", "logaddexp", "maximum", "neg", "permute", "relu"),
    *("round", "softplus", "sqrt", "tanh", "topk", "upsample_bicubic2d", "where.self"),
)
COLUMNS, PAGE = 100, (1440, 900)


def make_run(directory: Path) -> Path:
    """Run `OPERATORS` through both converters in ONNX Runtime."""
    words = [sys.executable, "-m", "pytest", "harness", "-p", "no:cacheprovider", "--source", "generated"]
    words += ["--converter", "dynamo", "--converter", "torchscript", "--examples", "60", "--shrink", "30"]
    words += ["--dtype", "float32", "--dtype", "float16", "--dtype", "int64"]
    for name in OPERATORS:
        words += ["--op", name]
    run = directory / "results" / "RUN"
    subprocess.run([*words, "--results-dir", str(run)], cwd=Path(__file__).parents[1], check=False)
    return run


def terminal(run: Path, to: Path) -> None:
    """Draw the end of `pytest harness` as a terminal shows it."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    print_summary(console, run, operators=9, groups=4, cwd=run.parents[1])
    drawn = console.export_svg(title="pytest harness", unique_id="terminal")
    # A picture must not load a font from somewhere else; the reader's own monospace one does.
    to.write_text(re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL), encoding="utf-8")


def page(run: Path, to: Path) -> None:
    """Photograph the matrix on the page of `conformance dashboard`."""
    from playwright.sync_api import sync_playwright

    browser_path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        write_site([run], Path(directory) / "site")
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        opened = browser.new_page(viewport={"width": PAGE[0], "height": PAGE[1]})
        opened.goto((Path(directory) / "site" / "index.html").as_uri() + "#/matrix")
        opened.wait_for_selector("main[data-view]")
        opened.wait_for_timeout(500)
        opened.screenshot(path=to)
        browser.close()


def main() -> None:
    """Make both pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, help="a run to draw; by default a few operators are run")
    parser.add_argument("--out", type=Path, default=PLACE, help="where the pictures go")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        run = given.run or make_run(Path(directory))
        terminal(run, given.out / "terminal.svg")
        page(run, given.out / "page.png")


if __name__ == "__main__":
    main()
