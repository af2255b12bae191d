"""A dataset of runs: list, add, fetch, check and remove them."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from harness.record import layout, parquet
from harness.record.archive.place import Location
from harness.record.json_lines import read_flaky, read_minimal
from harness.record.layout import ResultsError, reason
from harness.record.run_info import RunInfo, read_run_info


@dataclass(frozen=True)
class ArchivedRun:
    """A readable run of a dataset.

    Attributes:
        info: Its ``run.json``, which also names missing verdicts, such as the operators of a lost shard.
        rows: The number of its rows.
        files: File name → size in bytes.
    """

    info: RunInfo
    rows: int
    files: dict[str, int]

    @property
    def bytes(self) -> int:
        """The total size of its files."""
        return sum(self.files.values())


@dataclass(frozen=True)
class DamagedRun:
    """A run of a dataset that cannot be read, with the reason."""

    run_id: str
    reason: str


@dataclass(frozen=True)
class Quarantined:
    """A run that was set aside.

    Attributes:
        name: The name of its folder.
        reason: Why it was set aside.
        since: When it was set aside; None if unknown.
    """

    name: str
    reason: str
    since: datetime | None


@dataclass(frozen=True)
class ArchiveContents:
    """The contents of a dataset: readable runs, oldest first; damaged runs; and those that were set aside."""

    runs: tuple[ArchivedRun, ...]
    damaged: tuple[DamagedRun, ...]
    aside: tuple[Quarantined, ...]

    def select(self, names: Sequence[str] = (), last: int | None = None) -> list[ArchivedRun]:
        """Return runs, oldest first: by id or unambiguous prefix of it, or all; of these the newest `last`.

        Raises:
            ResultsError: A name matches no run or several.
        """
        selected = [self._named(name) for name in names] if names else list(self.runs)
        selected.sort(key=age)
        return selected if last is None else selected[-last:]

    def ids_to_keep(self, last: int, months: int) -> set[str]:
        """Return the ids of the newest `last` runs and of the newest run of each of the last `months` that have one.

        The newest run is always included, since the next one is compared with it. An incomplete run represents a month
        only if no complete one does.
        """
        newest_first = [run.info for run in reversed(self.runs)]
        best: dict[str, str] = {}
        for info in sorted(newest_first, key=lambda info: bool(info.unfinished)):
            best.setdefault(f"{datetime.fromisoformat(info.started).astimezone(UTC):%Y-%m}", info.run_id)
        monthly = [best[month] for month in sorted(best, reverse=True)[:months]]
        return {*(info.run_id for info in newest_first[: max(last, 1)]), *monthly}

    def _named(self, name: str) -> ArchivedRun:
        exact = [run for run in self.runs if run.info.run_id == name]
        matches = exact or [run for run in self.runs if name and run.info.run_id.startswith(name)]
        if len(matches) == 1:
            return matches[0]
        if matches:
            ids = ", ".join(run.info.run_id for run in matches[:3])
            raise ResultsError(f"{name!r} is a prefix of {len(matches)} runs: {ids}")
        for bad in self.damaged:
            if bad.run_id == name:
                raise ResultsError(f"run {name} is damaged ({bad.reason})")
        newest = ", ".join(run.info.run_id for run in self.runs[-3:])
        raise ResultsError(f"the dataset has no run {name!r}" + (f"; newest: {newest}" if newest else ""))


def age(entry: ArchivedRun) -> tuple[str, str]:
    """The sort key that orders runs by age, oldest first."""
    return entry.info.started, entry.info.run_id


def find_defect(run: Path) -> str | None:
    """Return why the run in a local directory must be set aside; None if it is sound. Reads all of it."""
    try:
        info = read_run_info(run)
        if not re.fullmatch(r"[\w.-]+", info.run_id):
            return f"its run id {info.run_id!r} cannot name a directory"
        if not is_time(info.started):
            return f"its `started` is not a time: {info.started}"
        if info.shard is not None:
            part = f"{info.shard.get('index')}/{info.shard.get('count')}"
            return f"it is shard {part} of a run: put them together with `conformance merge`"
        verdicts = run / layout.VERDICTS_FILE
        if info.finished is None or not verdicts.exists():
            return "it did not finish: it was killed or is still running"
        # Reading every row verifies every checksum.
        if not sum(table.num_rows for table in parquet.tables([verdicts])):
            return "it holds no case"
        read_flaky(run)
        read_minimal(run)
    except ResultsError as error:
        return str(error)
    return None


def is_time(text: str) -> bool:
    """Whether `text` is a time that runs can be ordered by: ISO 8601 with a time zone."""
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


PARTITION = "run_id="
SET_ASIDE = "set-aside"
REASON_FILE = "reason.json"

#: Two files of the same size are considered equal if they agree in this many final bytes: a Parquet file ends with the
#: position, size and statistics of all of its data.
_TAIL = 65_536
#: Number of runs that are read concurrently; most of the time is spent waiting for a remote file system.
_THREADS = 16


class AddResult(StrEnum):
    """The result of adding a run."""

    ADDED = "added"
    UPDATED = "updated"
    UNCHANGED = "already there"
    SET_ASIDE = "set aside"
    REFUSED = "refused"

    @property
    def is_there(self) -> bool:
        """Whether the dataset now has the run."""
        return self not in (AddResult.SET_ASIDE, AddResult.REFUSED)


@dataclass(frozen=True)
class Addition:
    """The result of adding one run.

    Attributes:
        run: The local directory.
        run_id: The run's id, or the directory's name if the id cannot be read.
        result: The action taken.
        why: Why the dataset does not have it; "" if it does.
    """

    run: Path
    run_id: str
    result: AddResult
    why: str = ""


class Dataset:
    """Runs in one place, which several processes may change and read at the same time.

    Args:
        url: A local path or any URL of fsspec; it need not exist until it is read.

    Raises:
        ResultsError: As for `Location`. All methods raise it if the file system refuses.
    """

    def __init__(self, url: str | Path) -> None:
        self.place = Location(url)

    def contents(self) -> ArchiveContents:
        """Return the contents; a run that cannot be read is reported as damaged and does not affect the others.

        Raises:
            ResultsError: The dataset does not exist.
        """
        if not self.place.exists():
            raise ResultsError(
                f"there is no dataset at {self.place.url}; `conformance dataset add RUN --to {self.place.url}` makes it"
            )
        files = self.place.files()
        partitions: dict[str, dict[str, int]] = {}
        for name, size in files.items():
            top, _, rest = name.partition("/")
            if top.startswith(PARTITION) and rest:
                partitions.setdefault(top.removeprefix(PARTITION), {})[rest] = size
        # A partition without rows is being added or removed.
        present = {run_id: has for run_id, has in partitions.items() if layout.VERDICTS_FILE in has}
        with ThreadPoolExecutor(_THREADS) as pool:
            entries = list(pool.map(self._entry, present.keys(), present.values()))
        return ArchiveContents(
            runs=tuple(sorted((run for run in entries if isinstance(run, ArchivedRun)), key=age)),
            damaged=tuple(run for run in entries if isinstance(run, DamagedRun)),
            aside=tuple(self._aside(list(files))),
        )

    def add(self, run: Path, *, replace: bool = False) -> Addition:
        """Add a run to the dataset, or set it aside if it is incomplete or damaged.

        If the dataset has the run already, only files that were added since, such as shrunk cases, are updated.

        Args:
            run: The local directory.
            replace: Replace a run that has the same id but other rows.

        Raises:
            ResultsError: The directory holds no run.
        """
        require_run(run)
        why = find_defect(run)
        if why is not None:
            return self._put_aside(run, why)
        run_id = read_run_info(run).run_id
        partition = f"{PARTITION}{run_id}"
        there = self.place.files(partition)
        rows = f"{partition}/{layout.VERDICTS_FILE}"
        same = rows in there and self._same(run / layout.VERDICTS_FILE, rows, there[rows])
        if rows in there and not same and not replace and self._readable(rows):
            return Addition(run, run_id, AddResult.REFUSED, "the dataset has other rows of that run; see --replace")
        changed = False
        for file in _files(run):
            name = f"{partition}/{file.relative_to(run).as_posix()}"
            if name == rows or (name in there and file.read_bytes() == self.place.read(name)):
                continue
            self.place.upload(file, name)
            changed = True
        if not same:
            self.place.upload(run / layout.VERDICTS_FILE, rows)
        # It may have been set aside before it finished.
        aside = f"{SET_ASIDE}/{run_id}"
        self.place.remove(list(self.place.files(aside)), aside)
        if rows not in there:
            return Addition(run, run_id, AddResult.ADDED)
        return Addition(run, run_id, AddResult.UPDATED if changed or not same else AddResult.UNCHANGED)

    def fetch(self, entry: ArchivedRun, out: Path) -> Path:
        """Copy a run to the local directory ``out/RUN_ID`` and check it; an existing copy is kept.

        Raises:
            ResultsError: The run is damaged or cannot be written.
        """
        run_id = entry.info.run_id
        target = out / run_id
        if target.is_dir() and {
            file.relative_to(target).as_posix(): file.stat().st_size for file in _files(target)
        } == dict(entry.files):
            return target
        try:
            out.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=f".{run_id}.", dir=out) as temporary:
                fresh = Path(temporary) / run_id
                why = self._downloaded(run_id, list(entry.files), fresh)
                if why is not None:
                    raise ResultsError(f"run {run_id} is damaged: {why}")
                if target.exists():
                    target.rename(Path(temporary) / "before")
                fresh.rename(target)
        except OSError as error:
            raise ResultsError(f"cannot write {target}: {reason(error)}") from None
        return target

    def remove(self, entry: ArchivedRun) -> None:
        """Remove a run, its rows first, so that no reader sees half of it."""
        partition = f"{PARTITION}{entry.info.run_id}"
        names = sorted(entry.files, key=lambda name: name != layout.VERDICTS_FILE)
        self.place.remove([f"{partition}/{name}" for name in names], partition)

    def set_aside(self, damaged: DamagedRun) -> str | None:
        """Move a run that cannot be read out of the way.

        All of it is read first, since an unreachable file system does not count as damage.

        Returns:
            Its new location; None if it proves sound.
        """
        partition, aside = f"{PARTITION}{damaged.run_id}", f"{SET_ASIDE}/{damaged.run_id}"
        why = self._find_defect(damaged.run_id)
        if why is None:
            return None
        names = sorted(self.place.files(partition), key=lambda name: not name.endswith(layout.VERDICTS_FILE))
        for name in names:
            self.place.move(name, f"{aside}/{name.removeprefix(partition + '/')}")
        self.place.remove(names, partition)
        self.place.write(_reason(why), f"{aside}/{REASON_FILE}")
        return self.place.named(aside)

    def check(self) -> list[DamagedRun]:
        """Read every run completely and return the damaged ones."""
        contents = self.contents()
        damaged = {bad.run_id: bad for bad in contents.damaged}
        for entry in contents.runs:
            why = self._find_defect(entry.info.run_id)
            if why is not None:
                damaged[entry.info.run_id] = DamagedRun(entry.info.run_id, why)
        return list(damaged.values())

    def _find_defect(self, run_id: str) -> str | None:
        """Read all of a run and return what is wrong with it; None if it is sound."""
        partition = f"{PARTITION}{run_id}/"
        names = [name.removeprefix(partition) for name in self.place.files(partition.rstrip("/"))]
        with tempfile.TemporaryDirectory() as temporary:
            return self._downloaded(run_id, names, Path(temporary) / run_id)

    def _downloaded(self, run_id: str, names: Sequence[str], directory: Path) -> str | None:
        """Copy a run's files and return what is wrong with them; None if nothing is."""
        for name in names:
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            self.place.download(f"{PARTITION}{run_id}/{name}", directory / name)
        why = find_defect(directory)
        if why is not None:
            return why.replace(f"{directory}/", "")
        actual_id = read_run_info(directory).run_id
        return f"{layout.RUN_FILE} is of the run {actual_id}" if actual_id != run_id else None

    def _entry(self, run_id: str, files: dict[str, int]) -> ArchivedRun | DamagedRun:
        partition = f"{PARTITION}{run_id}"
        if layout.RUN_FILE not in files:
            return DamagedRun(run_id, f"it has no {layout.RUN_FILE}")
        try:
            info = RunInfo.from_json(self.place.read(f"{partition}/{layout.RUN_FILE}").decode())
        except (ValueError, TypeError, ResultsError) as error:
            return DamagedRun(run_id, f"{layout.RUN_FILE}: {reason(error)}")
        if info.run_id != run_id:
            return DamagedRun(run_id, f"{layout.RUN_FILE} is of the run {info.run_id}")
        if not is_time(info.started):
            return DamagedRun(run_id, f"its `started` is not a time: {info.started}")
        try:
            with self.place.open(f"{partition}/{layout.VERDICTS_FILE}") as file:
                rows = parquet.count_rows(file)
        except (ValueError, OSError, ResultsError) as error:
            return DamagedRun(run_id, f"{layout.VERDICTS_FILE}: {reason(error)}")
        return ArchivedRun(info, rows, files)

    def _aside(self, files: Sequence[str]) -> list[Quarantined]:
        quarantined = []
        for name in sorted({name.split("/")[1] for name in files if name.startswith(f"{SET_ASIDE}/")}):
            try:
                entry = json.loads(self.place.read(f"{SET_ASIDE}/{name}/{REASON_FILE}"))
                quarantined.append(Quarantined(name, str(entry["reason"]), datetime.fromisoformat(entry["since"])))
            except (ValueError, KeyError, TypeError, ResultsError):
                quarantined.append(Quarantined(name, f"no {REASON_FILE} says why", None))
        return quarantined

    def _same(self, file: Path, name: str, size: int) -> bool:
        if file.stat().st_size != size:
            return False
        with file.open("rb") as opened:
            opened.seek(max(0, size - _TAIL))
            return opened.read() == self.place.read(name, last=_TAIL)

    def _readable(self, name: str) -> bool:
        try:
            with self.place.open(name) as file:
                parquet.count_rows(file)
        except (ValueError, OSError, ResultsError):
            return False
        return True

    def _put_aside(self, run: Path, why: str) -> Addition:
        why = why.replace(f"{run}/", "")
        try:
            run_id = read_run_info(run).run_id
        except ResultsError:
            run_id = run.absolute().name
        aside = f"{SET_ASIDE}/{run_id}"
        for file in _files(run):
            self.place.upload(file, f"{aside}/{file.relative_to(run).as_posix()}")
        self.place.write(_reason(why), f"{aside}/{REASON_FILE}")
        return Addition(run, run_id, AddResult.SET_ASIDE, why)


def require_run(run: Path) -> None:
    """Raise a `ResultsError` if a local directory holds no run, not even a part of one."""
    if not layout.holds_run(run):
        raise ResultsError(f"{run} holds no run; give the directory that holds its {layout.RUN_FILE}")


def _files(run: Path) -> list[Path]:
    """Return a run's files, without those that a killed writer left and without parts of a finished run."""
    return sorted(
        file
        for file in run.rglob("*")
        if file.is_file() and not any(part.startswith(".") for part in file.relative_to(run).parts)
    )


def _reason(why: str) -> str:
    return json.dumps({"reason": why, "since": datetime.now(UTC).isoformat(timespec="seconds")}) + "\n"
