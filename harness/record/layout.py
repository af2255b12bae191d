"""The files of a run.

RESULTS/run.json            versions, options, seed, host: `harness.record.run_info`
RESULTS/verdicts.parquet    its rows, once it has finished
RESULTS/parts/*.parquet     its rows until then
RESULTS/parts/merged/       the same rows in fewer files, for faster reading: `part_files`
RESULTS/parts/pending/      failures whose blame is still open, numbered like the part that they follow
RESULTS/parts/*.units       which of its units are finished: `harness.record.progress`
RESULTS/*.jsonl             shrunk failures, graphs, scripts, flaky cases: `harness.record.json_lines`
RESULTS/shards/             other files of a merged run's shards
RESULTS/without-rules/      a separate run of the same cases without the user's rules, if rules were tried
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

RUN_FILE = "run.json"
VERDICTS_FILE = "verdicts.parquet"
PARTS_DIRECTORY = "parts"
#: A folder below the parts. It may lack any rows, since the parts have them too.
MERGED_DIRECTORY = "merged"
PENDING_DIRECTORY = "pending"
WITHOUT_RULES_DIRECTORY = "without-rules"
#: The default parent of runs, in the current directory.
DEFAULT_PARENT = "results"


class ResultsError(Exception):
    """A results directory cannot be written or read; the message is one line that says what to do."""


def reason(error: BaseException) -> str:
    """Return the first line of an exception's message, for the end of one of ours."""
    message = str(getattr(error, "strerror", None) or error).strip() or type(error).__name__
    return message.splitlines()[0]


def default_directory(run_id: str, parent: Path | None = None) -> Path:
    """Return the default directory of a run: ``results/<run_id>`` below `parent` or the current directory."""
    return (parent or Path.cwd()) / DEFAULT_PARENT / run_id


def holds_run(directory: Path) -> bool:
    """Whether `directory` contains a run or part of one, damaged or not."""
    return any(os.path.lexists(directory / name) for name in (RUN_FILE, VERDICTS_FILE, PARTS_DIRECTORY))


def already_exists(directory: Path) -> ResultsError:
    """Return the error for a run that would be written to a directory that contains one."""
    return ResultsError(
        f"{directory} already holds a run; nothing was overwritten: "
        "choose another place with --results-dir, or delete it"
    )


def part_file(directory: Path, worker: str, first: int, last: int) -> Path:
    """Return the path of one part of a worker, or of the merged parts from `first` to `last`."""
    parts = directory / PARTS_DIRECTORY
    if first == last:
        return parts / f"{worker}-{first:05d}.parquet"
    return parts / MERGED_DIRECTORY / f"{worker}-{first:05d}..{last:05d}.parquet"


def pending_file(directory: Path, worker: str, number: int) -> Path:
    """Return the path of the rows that were still provisional when a worker's part `number` was written."""
    return directory / PARTS_DIRECTORY / PENDING_DIRECTORY / f"{worker}-{number:05d}.parquet"


def part_files(directory: Path) -> list[Path]:
    """Return the smallest list of files that holds every row of a run once, by worker and number.

    Parts are kept when they are merged. So every row that was written before the call is in one of the files, whatever
    is written or merged in the meantime. A worker's pending rows follow its newest part; the next part replaces them.
    """
    parts = directory / PARTS_DIRECTORY
    # Merged files are listed first: otherwise parts could be merged in between, and their file would be missed.
    listed = [*(parts / MERGED_DIRECTORY).glob("*.parquet"), *parts.glob("*.parquet")]
    selected: list[Path] = []
    covered: dict[str, int] = {}
    for worker, _, last, path in sorted(map(_numbers, listed), key=lambda n: (n[0], n[1], -n[2])):
        if last > covered.get(worker, -1):
            selected.append(path)
            covered[worker] = last
    pending = (pending_file(directory, worker, last) for worker, last in covered.items())
    return selected + [path for path in pending if path.exists()]


def _numbers(path: Path) -> tuple[str, int, int, Path]:
    """Return a file's worker, and the numbers of its first and last part."""
    worker, _, numbers = path.stem.rpartition("-")
    first, _, last = numbers.partition("..")
    return (worker, int(first), int(last or first), path) if first.isdecimal() else (path.stem, 0, 0, path)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces `path` atomically when the block ends and is deleted if it fails.

    Raises:
        ResultsError: The file system refuses.
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
    """Return the command that starts a run: ``pytest harness`` in a checkout, ``conformance run`` elsewhere."""
    here = (cwd or Path.cwd()) / "harness" / "test_conformance.py"
    return "pytest harness" if here.is_file() else "conformance run"
