"""The text that all stand-alone scripts have in common, and how a script is run.

A script exits with 1 while the defect is there and with 0 once it is gone; anything else that goes wrong in it ends in
a traceback.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.reproduce.call_source import WIDTH

#: The last line of a script's output.
THERE = "The defect is there."
GONE = "The defect is gone."
#: How the import lines of the standard library begin.
_STANDARD = ("import io", "import subprocess", "import sys", "from importlib")


class NoScript(Exception):
    """No stand-alone code can show a failure; the message says why in a line."""


def caught(steps: Iterable[str], kind: str, message: str) -> list[str]:
    """Return code that does `steps` and prints `message`, an expression, if they raise a `kind` of exception."""
    return [
        "try:",
        *(f"    {line}" for step in steps for line in step.split("\n")),
        f"except {kind} as error:",
        f'    print({message}, "\\n{THERE}")',
        "    raise SystemExit(1)",
        f'print("{GONE}")',
    ]


def refused(steps: Iterable[str], expected: str) -> list[str]:
    """Return code that does `steps` and names the expectation, such as ``the model to load``, if they raise."""
    return caught(steps, "Exception", f'"expected {expected}\\ngot", type(error).__name__, error')


def left_to_child(steps: Sequence[str], seconds: int) -> list[str]:
    """Return code that has a child process take steps that end it, or last longer than `seconds`."""
    return [
        'if sys.argv[1:] == ["child"]:',
        *(f"    {line}" for step in steps for line in step.split("\n")),
        "    sys.exit()",
        'print("expected: a child process that ends by itself", flush=True)',
        "try:",
        f"    code = subprocess.run([sys.executable, __file__, 'child'], timeout={seconds}).returncode",
        "except subprocess.TimeoutExpired:",
        f'    code = "no answer within {seconds} seconds"',
        "if code not in (0, 1):",
        f'    print(f"got: {{code}}\\n{THERE}")',
        "    raise SystemExit(1)",
        f'print("{GONE}" if code == 0 else "The child failed in another way.")',
        "sys.exit(3 if code else 0)",
    ]


def import_lines(wanted: Iterable[str], code: str) -> list[str]:
    """Return import lines as a person orders them, the standard library first.

    Args:
        wanted: Import lines; ``import onnx`` and ``import numpy as np`` are left out if `code` uses neither.
        code: The code that needs them.
    """
    lines = list(dict.fromkeys(wanted))
    for line, name in (("import onnx", "onnx"), ("import numpy as np", "np")):
        if line in lines and not re.search(rf"(?<![\w.]){name}\.", code):
            lines.remove(line)
    lines.sort(key=lambda line: (line.startswith("from"), line))
    first = [line for line in lines if line.startswith(_STANDARD)]
    return [*first, *([""] if first else []), *(line for line in lines if line not in first)]


def assemble(
    heading: str, note: str, *, imports: Iterable[str], packages: Iterable[str], parts: Sequence[Sequence[str]]
) -> str:
    """Return a whole script.

    Args:
        heading: The first line of its docstring, a description of the failure.
        note: The text before the sentence on the exit status; "" for none.
        imports: Import lines that its parts may need.
        packages: Packages whose versions it prints.
        parts: Pieces of code, two empty lines apart.
    """
    code = [line for part in parts if part for line in ("", "", *part)]
    first, *others = textwrap.wrap(heading, WIDTH - 3)
    return "\n".join(
        [
            f'"""{first}',
            *others,
            "",
            f'{note}Exits 1 while the defect is there and 0 once it is gone."""',
            "",
            *import_lines(["from importlib.metadata import version", *imports], "\n".join(code)),
            "",
            f"print({{p: version(p) for p in {json.dumps(list(dict.fromkeys(packages)))}}})",
            *code,
            "",
        ]
    )


@dataclass(frozen=True)
class ScriptResult:
    """The end of a script.

    Attributes:
        exit_status: The exit status; negative for a signal, None if it did not end in time.
        output: The standard output.
        errors: The standard error: warnings, tracebacks.
    """

    exit_status: int | None
    output: str
    errors: str = ""

    @property
    def reproduces(self) -> bool:
        """Whether it found the defect, rather than failing in another way."""
        return self.exit_status == 1 and THERE in self.output


def run_text(script: str, *, timeout: float = 300.0, attached: Sequence[Path] = ()) -> ScriptResult:
    """Run a script in a directory with nothing but copies of the attached files, for at most `timeout` seconds."""
    with tempfile.TemporaryDirectory() as directory:
        for file in attached:
            shutil.copy(file, directory)
        path = Path(directory) / "repro.py"
        path.write_text(script, encoding="utf-8")
        try:
            done = subprocess.run(
                [sys.executable, str(path)],
                cwd=directory,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return ScriptResult(None, "", f"no end within {timeout:g} seconds")
    return ScriptResult(done.returncode, done.stdout, done.stderr)
