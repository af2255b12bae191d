"""Goldens: one stored invocation, and a set of them in a directory.

One golden: an invocation, its inputs, what PyTorch and float64 said, its models, and how these ended.

A set of goldens in a directory.

manifest.json            what made them; a hash of every file and of every golden
data/<family>.parquet    the goldens of one family file of `cases/`, by overload
outcomes/<family>.tsv    what did not pass when they were recorded: how goldens ended by converter and backend

The same goldens are the same bytes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from harness.compare.judge import Judge
from harness.compare.nearness import Sensitivity
from harness.compare.verdict import Outcome, Stage
from harness.core.documents import as_json, of_data, of_json
from harness.core.dtypes import Array
from harness.core.invocation import Invocation
from harness.core.program import is_program
from harness.generate.operator_case import judge_of
from harness.record.layout import ResultsError, reason, replacing

#: (case id, converter, backend). The backend is "" for an end before any backend took part.
GoldenKey: TypeAlias = tuple[str, str, str]


@dataclass(frozen=True)
class Ending:
    """How a golden ended with one converter and one backend, when it was recorded or now.

    Attributes:
        signature: "" for a pass.
        message: The failure's own words; not stored, and no part of what endings are compared by.
    """

    stage: Stage
    outcome: Outcome
    signature: str = ""
    message: str = ""

    @property
    def words(self) -> tuple[Stage, Outcome, str]:
        """What makes two endings the same."""
        return self.stage, self.outcome, self.signature


PASSED = Ending(Stage.COMPARE, Outcome.PASS)

#: One array per output; None for an output that it says nothing of, or as a whole.
Answers: TypeAlias = "tuple[Array | None, ...] | None"

#: The fields of a golden that are `Answers`, in the order in which they are stored and hashed.
ANSWERS = ("truth", "magnitude", "unscaled", "marked", "condition", "own_error", "flushed")


@dataclass(frozen=True, kw_only=True, eq=False)
class Golden:
    """A stored case, an `harness.compare.nearness.Oracle` that needs no PyTorch.

    What the judge does not ask for is not stored: a magnitude only for operators that accumulate, unscaled
    where their scales are less than one; marked is 1 for a finite number, else NaN.

    Attributes:
        inputs: Its tensors as arrays, before the call; row-major.
        expected: PyTorch's outputs. Zeros where any answer is right (uninitialised memory).
        models: Converter → serialised ``ModelProto`` of this call alone, whose graph inputs are called
            ``input_0`` … by the place of the tensor in `inputs`, and its outputs ``output_0`` …
    """

    invocation: Invocation
    inputs: tuple[Array, ...]
    expected: tuple[Array, ...]
    truth: Answers = None
    magnitude: Answers = None
    unscaled: Answers = None
    marked: Answers = None
    condition: Answers = None
    own_error: Answers = None
    flushed: Any = None
    models: Mapping[str, bytes]

    @property
    def definition(self) -> None:
        """Not stored: PyTorch's own definition would have to be run."""

    @property
    def finite_terms(self) -> tuple[None, None]:
        """Not stored."""
        return None, None

    @property
    def overload(self) -> str:
        """Dotted name."""
        return self.invocation.overload

    @property
    def case_id(self) -> str:
        """Identity of the invocation."""
        return self.invocation.case_id

    @property
    def name(self) -> str:
        """For messages: ``aten.celu.default 82129e6a1b2c``."""
        return f"{self.overload} {self.case_id}"

    @property
    def judge(self) -> Judge:
        """The operator case's, as it is today; the default where none covers the overload."""
        return judge_of(self.invocation).without_unsettled

    @cached_property
    def arguments(self) -> Mapping[str, Any]:
        """Schema name → value, tensors as arrays; for rules. Of a program its inputs, by place."""
        if is_program(self.invocation):
            return {str(place): array for place, array in enumerate(self.inputs)}
        return self.invocation.arguments_with(self.inputs)

    @cached_property
    def sensitivity(self) -> tuple[Sensitivity | None, ...] | None:
        """See `harness.compare.nearness.Oracle`."""
        if self.condition is None or self.own_error is None:
            return None
        return tuple(
            None if c is None or e is None else Sensitivity(c, e)
            for c, e in zip(self.condition, self.own_error, strict=True)
        )

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 of everything in it, cut to 16 hexadecimal digits."""
        digest = hashlib.sha256()
        for part in self._content():
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
        return digest.hexdigest()[:16]

    def _content(self) -> Iterator[bytes]:
        yield self.invocation.json.encode()
        for name in ("inputs", "expected", *ANSWERS):
            for array in getattr(self, name) or ():
                yield name.encode()
                if array is not None:
                    yield f"{array.dtype}{array.shape}".encode()
                    yield np.ascontiguousarray(array).tobytes()
        for converter in sorted(self.models):
            yield converter.encode()
            yield self.models[converter]


MANIFEST_FILE = "manifest.json"
#: Of the files' layout.
FORMAT = 1


@dataclass(frozen=True)
class Listed:
    """The hash of one golden's content, and its invocation as a person writes it."""

    sha256: str
    call: str


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The manifest.

    Attributes:
        count: Goldens per overload, at most.
        versions: Distribution → version of what takes part.
        cpu: The vector instructions that PyTorch's kernels were chosen for: their last places depend on it.
        backends: Name → version, of those whose outcomes were recorded.
        goldens: Overload → case id → what it is.
    """

    harness: str
    seed: int
    count: int
    versions: Mapping[str, str]
    cpu: str
    converters: Mapping[str, str]
    backends: Mapping[str, str]
    files: Mapping[str, str] = field(default_factory=dict)
    goldens: Mapping[str, Mapping[str, Listed]] = field(default_factory=dict)
    format: int = FORMAT

    @property
    def json(self) -> str:
        """As the file holds it: a line per golden, so that a difference shows which changed."""
        head = {name: value for name, value in vars(self).items() if name != "goldens"}
        lines = json.dumps(head, indent=1).removesuffix("\n}")
        entries = [
            f"  {json.dumps(overload)}: {{\n"
            + ",\n".join(f"   {json.dumps(case_id)}: {as_json(listed)}" for case_id, listed in held.items())
            + "\n  }"
            for overload, held in self.goldens.items()
        ]
        return lines + ',\n "goldens": {\n' + ",\n".join(entries) + "\n }\n}\n"


def read_manifest(directory: Path) -> Manifest:
    """The manifest of the set in `directory`.

    Raises:
        ResultsError: there is none, or it is damaged.
    """
    path = directory / MANIFEST_FILE
    try:
        data = of_json(dict[str, Any], path.read_text(encoding="utf-8"))
        if data.get("format") != FORMAT:
            raise ValueError(f"format {data.get('format')}, this harness reads {FORMAT}")
        return of_data(Manifest, data)
    except FileNotFoundError:
        raise ResultsError(
            f"{directory} holds no goldens: it has no {MANIFEST_FILE}; make them with `conformance golden record`"
        ) from None
    except (OSError, ValueError) as error:
        raise ResultsError(f"{path} is damaged ({reason(error)}); restore it from version control") from None


_ARRAYS = ("inputs", "expected", *ANSWERS)
#: An array as its dtype, its shape and its row-major bytes, little-endian as PyTorch's machines are.
_TENSOR = pa.struct([("dtype", pa.string()), ("shape", pa.list_(pa.int64())), ("data", pa.binary())])
_MODEL = pa.struct([("converter", pa.string()), ("model", pa.binary())])
SCHEMA = pa.schema(
    [
        ("case_id", pa.string()),
        ("overload", pa.string()),
        ("dtype", pa.string()),
        ("invocation", pa.string()),
        *((name, pa.list_(_TENSOR)) for name in _ARRAYS),
        ("models", pa.list_(_MODEL)),
    ]
)
_OUTCOME_COLUMNS = ("overload", "case_id", "converter", "backend", "stage", "outcome", "signature")


class DamagedGolden(ResultsError):
    """A file of a set is not what was recorded; the message is one line that names it and what it holds."""


def write_set(
    directory: Path,
    goldens: Mapping[str, Sequence[Golden]],
    endings: Mapping[GoldenKey, Ending],
    families: Mapping[str, str],
    manifest: Manifest,
) -> Manifest:
    """Put a set in place of what was there.

    Args:
        goldens: Overload → its goldens.
        endings: Of all of them; passes need not be among them.
        families: Overload → family.
        manifest: Without `files` and `goldens`, which are filled in here.

    Raises:
        ResultsError: the directory cannot be written.
    """
    listed: dict[str, dict[str, Listed]] = {}
    files: dict[str, str] = {}
    try:
        for sub in ("data", "outcomes"):
            (directory / sub).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResultsError(f"cannot write {directory}: {reason(error)}") from None
    for family in sorted({families[name] for name in goldens}):
        chosen = [g for name in sorted(goldens) if families[name] == family for g in goldens[name]]
        with replacing(directory / "data" / f"{family}.parquet") as temporary:
            _write_data(temporary, chosen)
            files[f"data/{family}.parquet"] = _hash(temporary)
        with replacing(directory / "outcomes" / f"{family}.tsv") as temporary:
            temporary.write_text(_outcomes(chosen, endings), encoding="utf-8", newline="\n")
            files[f"outcomes/{family}.tsv"] = _hash(temporary)
        for golden in chosen:
            listed.setdefault(golden.overload, {})[golden.case_id] = Listed(golden.content_hash, str(golden.invocation))
    for stale in (*directory.glob("data/*.parquet"), *directory.glob("outcomes/*.tsv")):
        if stale.relative_to(directory).as_posix() not in files:
            stale.unlink()
    manifest = dataclasses.replace(manifest, files=dict(sorted(files.items())), goldens=dict(sorted(listed.items())))
    with replacing(directory / MANIFEST_FILE) as temporary:
        temporary.write_text(manifest.json, encoding="utf-8", newline="\n")
    return manifest


def read_set(
    directory: Path, overloads: Iterable[str] | None = None
) -> tuple[Manifest, list[Golden], dict[GoldenKey, Ending]]:
    """A set, checked against its hashes.

    Args:
        overloads: Those wanted; None for all.

    Returns:
        The manifest; the goldens by overload; how those ended that did not pass.

    Raises:
        ResultsError: there is no set.
        DamagedGolden: a file is missing or not the one that was recorded.
    """
    manifest = read_manifest(directory)
    wanted = None if overloads is None else set(overloads)
    goldens: list[Golden] = []
    endings: dict[GoldenKey, Ending] = {}
    for name, digest in manifest.files.items():
        path = directory / name
        if not path.is_file():
            raise DamagedGolden(f"{path} is missing; {_ADVICE}")
        damaged = _hash(path) != digest
        if name.startswith("data/"):
            for golden in _read_data(path, damaged=damaged):
                known = manifest.goldens.get(golden.overload, {}).get(golden.case_id)
                if known is None or known.sha256 != golden.content_hash:
                    raise DamagedGolden(f"{path}: golden {golden.name} is not what was recorded; {_ADVICE}")
                if wanted is None or golden.overload in wanted:
                    goldens.append(golden)
        elif not damaged:
            endings.update(_read_outcomes(path, wanted))
        if damaged:
            raise DamagedGolden(f"{path} is not what was recorded: its SHA-256 differs; {_ADVICE}")
    found = {(g.overload, g.case_id) for g in goldens}
    for overload, listed in manifest.goldens.items():
        for case_id in listed:
            if (wanted is None or overload in wanted) and (overload, case_id) not in found:
                raise DamagedGolden(f"{directory}: golden {overload} {case_id} is missing; {_ADVICE}")
    return manifest, sorted(goldens, key=lambda g: g.overload), endings


_ADVICE = "restore it from version control, or record the goldens again"


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _write_data(path: Path, goldens: Sequence[Golden]) -> None:
    rows: list[dict[str, Any]] = []
    for golden in goldens:
        row: dict[str, Any] = {
            "case_id": golden.case_id,
            "overload": golden.overload,
            "dtype": golden.invocation.dtype,
            "invocation": golden.invocation.json,
            "models": [{"converter": c, "model": golden.models[c]} for c in sorted(golden.models)],
        }
        for name in _ARRAYS:
            held = getattr(golden, name)
            row[name] = None if held is None else [_to_row(a) for a in held]
        rows.append(row)
    table = pa.Table.from_pylist(rows, SCHEMA)
    pq.write_table(table, path, compression="zstd", compression_level=19, use_dictionary=["overload", "dtype"])


def _read_data(path: Path, *, damaged: bool) -> Iterable[Golden]:
    try:
        rows = pq.read_table(path, schema=SCHEMA, partitioning=None).to_pylist()
        for row in rows:
            yield _golden(row)
    except (OSError, pa.ArrowException, ValueError, KeyError, TypeError):
        # What the hash says is said by the caller; a file whose hash is right is readable.
        if not damaged:
            raise


def _golden(row: Mapping[str, Any]) -> Golden:
    held = {name: None if row[name] is None else tuple(map(_from_row, row[name])) for name in _ARRAYS}
    return Golden(
        invocation=Invocation.from_json(row["invocation"]),
        models={m["converter"]: m["model"] for m in row["models"]},
        **held,  # type: ignore[arg-type]
    )


def _to_row(array: Array | None) -> dict[str, Any] | None:
    if array is None:
        return None
    return {"dtype": str(array.dtype), "shape": list(array.shape), "data": array.tobytes()}


def _from_row(row: dict[str, Any] | None) -> Array | None:
    if row is None:
        return None
    dtype = np.dtype(getattr(ml_dtypes, row["dtype"], row["dtype"]))
    return np.frombuffer(row["data"], dtype).reshape(row["shape"])


def _outcomes(goldens: Sequence[Golden], endings: Mapping[GoldenKey, Ending]) -> str:
    overloads = {golden.case_id: golden.overload for golden in goldens}
    lines = ["\t".join(_OUTCOME_COLUMNS)]
    for key in sorted(endings):
        ending = endings[key]
        if key[0] in overloads and ending.words != PASSED.words:
            words = (ending.stage.value, ending.outcome.value, ending.signature.replace("\t", " "))
            lines.append("\t".join((overloads[key[0]], *key, *words)))
    return "\n".join([lines[0], *sorted(lines[1:])]) + "\n"


def _read_outcomes(path: Path, wanted: set[str] | None) -> dict[GoldenKey, Ending]:
    found: dict[GoldenKey, Ending] = {}
    for line in path.read_text(encoding="utf-8").splitlines()[1:]:
        overload, case_id, converter, backend, stage, outcome, signature = line.split("\t")
        if wanted is None or overload in wanted:
            found[case_id, converter, backend] = Ending(Stage(stage), Outcome(outcome), signature)
    return found
