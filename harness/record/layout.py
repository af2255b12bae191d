"""Where a run keeps its files, and where runs are kept.

RESULTS/run.json            what the run was: `harness.record.run_info`
RESULTS/verdicts.parquet    its rows, once it has finished
RESULTS/parts/*.parquet     its rows until then
RESULTS/parts/merged/       the same rows in fewer files, which are quicker to read: `part_files`
RESULTS/parts/pending/      failures whose blame is still open, after the part whose number they have
RESULTS/parts/*.units       which of its units are through: `harness.record.progress`
RESULTS/*.jsonl             shrunk failures, graphs, scripts, flaky cases: `harness.record.json_lines`
RESULTS/shards/             of a merged run: what else was in the directories of its shards
RESULTS/without-rules/      the same cases without the user's rules, a run of its own, where rules were tried
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

RUN_FILE = "run.json"
VERDICTS_FILE = "verdicts.parquet"
PARTS_DIRECTORY = "parts"
#: Below the parts. Whatever is missing here is in the parts themselves.
MERGED_DIRECTORY = "merged"
PENDING_DIRECTORY = "pending"
WITHOUT_RULES_DIRECTORY = "without-rules"
#: Where runs go by default, in the current directory.
DEFAULT_PARENT = "results"


class ResultsError(Exception):
    """A results directory that cannot be written or read; the message is one line that says what to do."""


def reason(error: BaseException) -> str:
    """The first line of an exception's words, for the end of a message of ours."""
    said = str(getattr(error, "strerror", None) or error).strip() or type(error).__name__
    return said.splitlines()[0]


def default_directory(run_id: str, parent: Path | None = None) -> Path:
    """Where a run is written by default: ``results/<run_id>`` below `parent` (the current directory)."""
    return (parent or Path.cwd()) / DEFAULT_PARENT / run_id


def holds_run(directory: Path) -> bool:
    """Whether anything of a run, damaged or not, is in `directory`."""
    return any(os.path.lexists(directory / name) for name in (RUN_FILE, VERDICTS_FILE, PARTS_DIRECTORY))


def refusal(directory: Path) -> ResultsError:
    """What is said of a directory that a run shall be written to and that holds one."""
    return ResultsError(
        f"{directory} already holds a run; nothing was overwritten: "
        "choose another place with --results-dir, or delete it"
    )


def part_file(directory: Path, worker: str, first: int, last: int) -> Path:
    """Where a run has one part of a worker, or those from `first` to `last` once they are merged."""
    parts = directory / PARTS_DIRECTORY
    if first == last:
        return parts / f"{worker}-{first:05d}.parquet"
    return parts / MERGED_DIRECTORY / f"{worker}-{first:05d}..{last:05d}.parquet"


def pending_file(directory: Path, worker: str, number: int) -> Path:
    """Where a worker keeps the rows that were still provisional when its part `number` was written."""
    return directory / PARTS_DIRECTORY / PENDING_DIRECTORY / f"{worker}-{number:05d}.parquet"


def part_files(directory: Path) -> list[Path]:
    """The fewest files that hold every row of a run once, by worker and number.

    A part stays where it is when it is merged. So each row that was written before the call is in one of the
    files, whatever is written or merged meanwhile. A worker's pending rows come after its newest part; the
    appearance of that part is what replaces the pending rows before it.
    """
    parts = directory / PARTS_DIRECTORY
    # In this order, or a file could be listed of which no part was.
    listed = [*(parts / MERGED_DIRECTORY).glob("*.parquet"), *parts.glob("*.parquet")]
    found: list[Path] = []
    covered: dict[str, int] = {}
    for worker, _, last, path in sorted(map(_numbers, listed), key=lambda n: (n[0], n[1], -n[2])):
        if last > covered.get(worker, -1):
            found.append(path)
            covered[worker] = last
    pending = (pending_file(directory, worker, last) for worker, last in covered.items())
    return found + [path for path in pending if path.exists()]


def _numbers(path: Path) -> tuple[str, int, int, Path]:
    """A file's worker, and the numbers of its first and its last part."""
    worker, _, numbers = path.stem.rpartition("-")
    first, _, last = numbers.partition("..")
    return (worker, int(first), int(last or first), path) if first.isdecimal() else (path.stem, 0, 0, path)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name to write to that becomes `path` at once when the block ends, and vanishes if it fails.

    Raises:
        ResultsError: the file system refuses.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    except OSError as error:
        raise ResultsError(f"cannot write {path}: {reason(error)}; what was written before is kept") from None
    finally:
        with suppress(OSError):
            temporary.unlink()


def run_command(cwd: Path | None = None) -> str:
    """What starts a run in a directory: ``pytest harness`` in a checkout, ``conformance run`` anywhere else."""
    here = (cwd or Path.cwd()) / "harness" / "test_conformance.py"
    return "pytest harness" if here.is_file() else "conformance run"
