"""Make what the documents show from real runs: the README's pictures, and the guide's worked example.

    python ci/documents.py           # writes them; half a minute for the example, two for the pictures
    python ci/documents.py --check   # writes nothing; exit status 1 if one of them has drifted

The example is the block of `harness/app/README.md` that begins with its first command: each command is run in an empty
directory, and of its output the lines are shown that the example is about. A picture of the page has drifted if more
than one pixel in a hundred differs. Needs Playwright's Python package and a Chromium for the page.
"""

from __future__ import annotations

import argparse
import base64
import difflib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from harness.present.dashboard.site import write_site
from harness.present.terminal_summary import print_summary

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "ci" / "pictures"
GUIDE = ROOT / "harness" / "app" / "README.md"
#: Some that fail in different ways, and some that pass.
OPERATORS = (
    *("add.Tensor", "cat", "celu", "cumprod", "fmod", "logaddexp", "maximum", "neg", "permute", "relu"),
    *("round", "softplus", "sqrt", "tanh", "topk", "upsample_bicubic2d", "where.self"),
)
COLUMNS, PAGE = 100, (1440, 900)
#: The share of pixels in which a picture may differ: times and the names of runs.
DRIFT = 0.01


@dataclass(frozen=True)
class Command:
    """A command of the example.

    Attributes:
        words: The command; ``{case}`` is the case that an earlier one has named.
        shown: Patterns of the lines of its output that are shown, each for its first line that matches.
        case: A pattern whose group is the case that later commands are about; "" for none.
        note: A comment behind the command.
    """

    words: str
    shown: tuple[str, ...] = ()
    case: str = ""
    note: str = ""


EXAMPLE = (
    Command("pytest harness --op celu --baseline my_baseline --update-baseline", ("wrote .*",)),
    Command(
        "pytest harness --rules my_rules.py --baseline my_baseline",
        (r"Compared with .*", r"  regression: \d+", r"    aten\.celu.*\(values\).*", r"      \[rule: .*"),
        case=r"\(values\).*; case (\w+)",
    ),
    Command("conformance show {case}", (r"  blame: .*", r"    rule: .*", r"    The graph that .*?\.")),
    Command("conformance shrink --case {case}", (r"    \w+ aten\.celu.*", r"    values: .*", r"    fails .*")),
    Command("conformance repro {case}", ("the script fails as recorded",), note="a script without the harness"),
)
_RULES = re.compile(r"```python\n(from onnxscript import opset18 as op\n.*?wrong: alpha is dropped\n)```", re.DOTALL)
_BLOCK = re.compile(rf"(?<=```console\n)\$ {re.escape(EXAMPLE[0].words)}\n.*?(?=```)", re.DOTALL)


def run_example(guide: str) -> str:
    """Return the example's block as it is today; `guide` has the rule that it is about."""
    rules = _RULES.search(guide)
    block, case = "", ""
    if rules is None:
        raise SystemExit(f"{GUIDE} has no rule of celu that drops alpha")
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "my_rules.py").write_text(rules[1], encoding="utf-8")
        for command in EXAMPLE:
            words = command.words.format(case=case)
            output = run(words, directory)
            if command.case and (found := re.search(command.case, output)):
                case = found[1]
            matches = (re.search(f"^{pattern}(?= *$|(?<=\\.))", output, re.MULTILINE) for pattern in command.shown)
            lines = [match[0].rstrip() for match in matches if match is not None]
            note = f"   # {command.note}" if command.note else ""
            block += "".join(f"{line}\n" for line in (f"$ {words}{note}", *lines))
    return block


def run(words: str, directory: str) -> str:
    """Return what a command prints in a wide terminal; failures are what the example is about."""
    program, *rest = words.split()
    # `pytest harness` is written for a clone; the example is run elsewhere.
    argument = ["run", *rest[1:]] if program == "pytest" else rest
    done = subprocess.run(
        [sys.executable, "-m", "harness.app.cli", *argument],
        cwd=directory,
        env={**environment(), "COLUMNS": "240"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.stdout


def environment() -> dict[str, str]:
    """Return this process's environment, with the clone on Python's path."""
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def make_run(directory: Path) -> Path:
    """Run `OPERATORS` through both converters in ONNX Runtime."""
    words = [sys.executable, "-m", "pytest", "harness", "-p", "no:cacheprovider", "--source", "generated"]
    words += ["--converter", "dynamo", "--converter", "torchscript", "--examples", "60"]
    words += ["--dtype", "float32", "--dtype", "float16", "--dtype", "int64"]
    for name in OPERATORS:
        words += ["--op", name]
    made = directory / "results" / "RUN"
    subprocess.run([*words, "--results-dir", str(made)], cwd=ROOT, check=False, stdout=subprocess.DEVNULL)
    return made


def terminal(run_directory: Path) -> str:
    """Return the end of `pytest harness` as a terminal shows it, as SVG."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    print_summary(console, run_directory, operators=9, groups=4, cwd=run_directory.parents[1])
    drawn = console.export_svg(title="pytest harness", unique_id="terminal")
    # A picture must not load a font from somewhere else; the reader's own monospace one does.
    return re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)


@contextmanager
def browser_page() -> Iterator[Any]:
    """A page of a headless Chromium."""
    from playwright.sync_api import sync_playwright

    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser.new_page(viewport={"width": PAGE[0], "height": PAGE[1]})
        browser.close()


def photograph(run_directory: Path) -> bytes:
    """Return a picture of the matrix on the page of `conformance dashboard`."""
    with tempfile.TemporaryDirectory() as directory, browser_page() as page:
        write_site([run_directory], Path(directory) / "site")
        page.goto((Path(directory) / "site" / "index.html").as_uri() + "#/matrix")
        page.wait_for_selector("main[data-view]")
        page.wait_for_timeout(500)
        return bytes(page.screenshot())


#: Counts the pixels in which two pictures differ, as the browser decodes them.
_DIFFERENCE = """async ([a, b]) => {
    const pixels = async (data) => {
        const image = await createImageBitmap(await (await fetch("data:image/png;base64," + data)).blob());
        const canvas = new OffscreenCanvas(image.width, image.height);
        canvas.getContext("2d").drawImage(image, 0, 0);
        return canvas.getContext("2d").getImageData(0, 0, image.width, image.height).data;
    };
    const [x, y] = [await pixels(a), await pixels(b)];
    if (x.length !== y.length) return 1;
    let unlike = 0;
    for (let i = 0; i < x.length; i += 4)
        if (Math.abs(x[i] - y[i]) + Math.abs(x[i + 1] - y[i + 1]) + Math.abs(x[i + 2] - y[i + 2]) > 30) unlike++;
    return unlike / (x.length / 4);
}"""


def difference(before: bytes, after: bytes) -> float:
    """Return the share of pixels in which two pictures differ; 1 for pictures of different sizes."""
    with browser_page() as page:
        return float(page.evaluate(_DIFFERENCE, [base64.b64encode(one).decode() for one in (before, after)]))


#: What differs from run to run: ids and times.
_OF_RUN = re.compile(r"\d{8}T\d{6}-\d+-\w+|\d+(?:\.\d+)? s\b")


def drifted(name: str, before: str, after: str) -> bool:
    """Print how a text differs from the one in the document, if it does."""
    one, other = (_OF_RUN.sub("…", text).splitlines() for text in (before, after))
    lines = list(difflib.unified_diff(one, other, f"{name}, as it is", f"{name}, made again", lineterm="", n=1))
    print(*lines[:60], sep="\n")
    return bool(lines)


def main() -> int:
    """Make the example and the pictures, or compare them with those in the documents."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit status 1 if something has drifted")
    parser.add_argument("--only", choices=("example", "pictures"), help="one of the two")
    given = parser.parse_args()
    stale = False
    guide = GUIDE.read_text(encoding="utf-8")
    if given.only != "pictures":
        block = run_example(guide)
        if given.check:
            stale |= drifted(GUIDE.name, (_BLOCK.search(guide) or [""])[0], block)
        else:
            GUIDE.write_text(_BLOCK.sub(lambda _: block, guide), encoding="utf-8")
    if given.only != "example":
        with tempfile.TemporaryDirectory() as directory:
            made = make_run(Path(directory))
            svg, png = terminal(made), photograph(made)
        if given.check:
            stale |= drifted("terminal.svg", (PICTURES / "terminal.svg").read_text(encoding="utf-8"), svg)
            share = difference((PICTURES / "page.png").read_bytes(), png)
            print(f"page.png: {share:.2%} of the pixels differ")
            stale |= share > DRIFT
        else:
            (PICTURES / "terminal.svg").write_text(svg, encoding="utf-8")
            (PICTURES / "page.png").write_bytes(png)
    return int(stale)


if __name__ == "__main__":
    sys.exit(main())
