"""A run that cannot go on ends well: a full disk, a rule that exits, an interruption while it loads."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from harness_runs import command, environment

from harness.app.lost_record import STATUS
from harness.convert.rules.rule import RuleBook

RULES = """
import sys
from harness.convert.rules import dynamo

@dynamo("aten::celu")
def celu(self, alpha=1.0):
    sys.exit(3)
"""


def test_a_rule_that_exits_is_named(tmp_path: Path) -> None:
    (tmp_path / "leaves.py").write_text(RULES)
    book = RuleBook.load([str(tmp_path / "leaves.py")], "dynamo")
    with pytest.raises(Exception, match=r"the rule leaves\.py:celu calls sys\.exit\(3\)"):
        book.functions()["aten.celu.default"](None)


@pytest.mark.slow
@pytest.mark.parametrize("processes", ["0", "2"])
def test_a_full_disk_ends_the_run_in_a_line_with_its_own_status(processes: str, tmp_path: Path) -> None:
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", place], capture_output=True)
    if mounted.returncode:
        pytest.skip("a file system of its own needs root")
    try:
        operators = [word for name in ("celu", "aten.sin", "aten.add", "aten.mul") for word in ("--op", name)]
        done = subprocess.run(
            command(*operators, "-n", processes, "--results-dir", place / "run"),
            env=environment(),
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == STATUS, done.stdout
        assert "Traceback" not in done.stdout + done.stderr
        assert sum(line.startswith("The run ended early: cannot write ") for line in done.stdout.splitlines()) == 1
        # What was written before is kept.
        assert list((place / "run" / "parts").glob("*.parquet"))
    finally:
        subprocess.run(["umount", place], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("library", ["libarrow", "libtorch_cpu"])
def test_an_interrupt_while_modules_load_has_no_traceback(library: str, tmp_path: Path) -> None:
    process = subprocess.Popen(
        command("--op", "celu", "--results-dir", tmp_path / "run"),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    # A library of ours: before that, pytest itself is interrupted.
    while process.poll() is None and not any(library in m.path for m in psutil.Process(process.pid).memory_maps()):
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert "Traceback" not in output
    assert process.returncode != 0
