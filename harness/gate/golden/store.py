"""Goldens and their storage: calls with PyTorch's outputs, float64's, and converters' models.

manifest.json            versions and options, a SHA-256 of every file, and the calls
data/<family>.parquet    a row per golden of one family of `cases/`

Arrays are stored as ONNX's ``TensorProto``. Equal goldens have equal bytes.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import onnx
import pyarrow as pa
import pyarrow.parquet as pq
from onnx import numpy_helper

from harness.compare.judge import Judge
from harness.compare.nearness import KnownSensitivity
from harness.compare.verdict import Outcome, Stage
from harness.core.documents import parse_data, parse_json, to_json
from harness.core.dtypes import Array
from harness.core.invocation import Invocation
from harness.core.program import is_program
from harness.generate.operator_case import judge_of
from harness.pipeline.case import CaseOracle
from harness.pipeline.case_run import CaseRun
from harness.record.layout import ResultsError, reason, replacing

#: Case id, converter and backend; the backend is "" if the case ended before it took part.
GoldenKey: TypeAlias = tuple[str, str, str]


#: How a right golden ends.
PASSED = CaseRun(stage=Stage.COMPARE, outcome=Outcome.PASS)

#: One array per output; None for an output without one, or if no output has one.
Answers: TypeAlias = "tuple[Array | None, ...] | None"

#: The fields of a golden that are `Answers`, in the order of storage.
ANSWERS = ("truth", "magnitude", "unscaled", "marked", "condition", "own_error", "flushed")


@dataclass(frozen=True, kw_only=True, eq=False)
class Golden(CaseOracle):
    """A stored case, which is its own oracle and needs no PyTorch.

    What the judge does not need is not stored: there is a magnitude only for operators that accumulate, and an unscaled
    one only if scales are less than one. `marked` is 1 for a finite number, else NaN.

    Attributes:
        feeds: Its tensors as arrays before the call, row-major.
        expected: PyTorch's outputs; zeros if any answer is right (uninitialised memory).
        models: Converter → serialised ``ModelProto`` of this call alone, with graph inputs ``input_0`` … in the order
            of `feeds`, and outputs ``output_0`` ….
    """

    truth: Answers = None
    magnitude: Answers = None
    unscaled: Answers = None
    marked: Answers = None
    condition: Answers = None
    own_error: Answers = None
    flushed: Any = None
    models: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def overload(self) -> str:
        """The overload of the call."""
        return self.invocation.overload

    @property
    def case_id(self) -> str:
        """The case id of the call."""
        return self.invocation.case_id

    @property
    def name(self) -> str:
        """The name in messages: ``aten.celu.default 82129e6a1b2c``."""
        return f"{self.overload} {self.case_id}"

    @property
    def judge(self) -> Judge:
        """The current judge of its operator case; the default one if the overload has no case."""
        return judge_of(self.invocation).without_unsettled

    @cached_property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments by schema name, tensors as arrays; the inputs of a program by index."""
        if is_program(self.invocation):
            return {str(place): array for place, array in enumerate(self.feeds)}
        return self.invocation.arguments_with(self.feeds)

    @cached_property
    def sensitivity(self) -> tuple[KnownSensitivity | None, ...] | None:
        """See `harness.compare.nearness.Oracle`."""
        if self.condition is None or self.own_error is None:
            return None
        return tuple(
            None if c is None or e is None else KnownSensitivity(c, e)
            for c, e in zip(self.condition, self.own_error, strict=True)
        )


MANIFEST_FILE = "manifest.json"
#: Version of the files' layout.
FORMAT = 2


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The contents of ``manifest.json``.

    Attributes:
        harness: The harness's version.
        seed: The seed of the draws.
        count: Largest number of goldens per overload.
        versions: Distribution → version.
        cpu: The vector instructions for which PyTorch's kernels were chosen, which affect the last places.
        converters: Converter → version.
        backends: Backend whose endings were recorded → version.
        files: File → SHA-256.
        goldens: Overload → its calls as a person writes them.
    """

    harness: str
    seed: int
    count: int
    versions: Mapping[str, str]
    cpu: str
    converters: Mapping[str, str]
    backends: Mapping[str, str]
    files: Mapping[str, str] = field(default_factory=dict)
    goldens: Mapping[str, Sequence[str]] = field(default_factory=dict)
    format: int = FORMAT


def read_manifest(directory: Path) -> Manifest:
    """Return the manifest of the set in `directory`.

    Raises:
        ResultsError: There is none, or it is damaged.
    """
    path = directory / MANIFEST_FILE
    try:
        data = parse_json(dict[str, Any], path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ResultsError(
            f"{directory} holds no goldens: it has no {MANIFEST_FILE}; make them with `conformance golden record`"
        ) from None
    except (OSError, ValueError) as error:
        raise ResultsError(f"{path} is damaged ({reason(error)}); restore it from version control") from None
    if data.get("format") != FORMAT:
        raise ResultsError(
            f"{path} has format {data.get('format')}, and this harness reads {FORMAT}: "
            f"record the goldens again with `conformance golden record --out {directory}`"
        )
    try:
        return parse_data(Manifest, data)
    except ValueError as error:
        raise ResultsError(f"{path} is damaged ({reason(error)}); restore it from version control") from None


#: Column → field of `Golden`.
_ARRAYS = {"inputs": "feeds", "expected": "expected", **{name: name for name in ANSWERS}}
_ENDING = ("converter", "backend", "stage", "outcome", "signature")
SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("case_id", "overload", "dtype", "invocation")),
        *((name, pa.list_(pa.binary())) for name in _ARRAYS),
        ("models", pa.list_(pa.struct([("converter", pa.string()), ("model", pa.binary())]))),
        ("failures", pa.list_(pa.struct([(name, pa.string()) for name in _ENDING]))),
    ]
)


class DamagedGolden(ResultsError):
    """A file of a set differs from what was recorded; the message names it."""


def write_set(
    directory: Path,
    goldens: Mapping[str, Sequence[Golden]],
    endings: Mapping[GoldenKey, CaseRun],
    families: Mapping[str, str],
    manifest: Manifest,
) -> Manifest:
    """Write a set, replacing an existing one.

    Args:
        directory: The directory of the set.
        goldens: Overload → its goldens.
        endings: Their endings; passes may be omitted.
        families: Overload → family.
        manifest: The manifest without `files` and `goldens`, which are filled in here.

    Raises:
        ResultsError: The directory cannot be written.
    """
    files: dict[str, str] = {}
    try:
        (directory / "data").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResultsError(f"cannot write {directory}: {reason(error)}") from None
    failures: dict[str, list[dict[str, str]]] = {}
    for (case_id, converter, backend), ending in sorted(endings.items()):
        if ending.ending != PASSED.ending:
            row = dict(zip(_ENDING, (converter, backend, *map(str, ending.ending)), strict=True))
            failures.setdefault(case_id, []).append(row)
    for family in sorted({families[name] for name in goldens}):
        chosen = [g for name in sorted(goldens) if families[name] == family for g in goldens[name]]
        table = pa.Table.from_pylist([_to_row(g, failures.get(g.case_id, [])) for g in chosen], SCHEMA)
        name = f"data/{family}.parquet"
        with replacing(directory / name) as temporary:
            pq.write_table(table, temporary, compression="zstd", compression_level=19)
            files[name] = _hash(temporary)
    for stale in directory.glob("data/*.parquet"):
        if stale.relative_to(directory).as_posix() not in files:
            stale.unlink()
    calls = {name: [str(golden.invocation) for golden in goldens[name]] for name in sorted(goldens)}
    manifest = dataclasses.replace(manifest, files=files, goldens=calls)
    with replacing(directory / MANIFEST_FILE) as temporary:
        temporary.write_text(to_json(manifest, indent=1) + "\n", encoding="utf-8", newline="\n")
    return manifest


def read_set(
    directory: Path, overloads: Iterable[str] | None = None
) -> tuple[Manifest, list[Golden], dict[GoldenKey, CaseRun]]:
    """Read a set and check it against its hashes.

    Args:
        directory: The directory of the set.
        overloads: The operators to read; None means all.

    Returns:
        The manifest, the goldens sorted by overload, and the endings of those that did not pass.

    Raises:
        ResultsError: The directory has no set.
        DamagedGolden: A file is missing or differs from what was recorded.
    """
    manifest = read_manifest(directory)
    wanted = set(manifest.goldens if overloads is None else overloads)
    goldens: list[Golden] = []
    endings: dict[GoldenKey, CaseRun] = {}
    for name, digest in manifest.files.items():
        path = directory / name
        problem = "is missing" if not path.is_file() else "is not what was recorded: its SHA-256 differs"
        if not path.is_file() or _hash(path) != digest:
            advice = "restore it from version control, or record the goldens again"
            raise DamagedGolden(f"{path} {problem}; {advice}")
        for row in pq.read_table(path, schema=SCHEMA, partitioning=None).to_pylist():
            if row["overload"] in wanted:
                goldens.append(_from_row(row))
                for f in row["failures"]:
                    # Of its message a set has the signature alone.
                    ending = CaseRun(stage=Stage(f["stage"]), outcome=Outcome(f["outcome"]), message=f["signature"])
                    endings[row["case_id"], f["converter"], f["backend"]] = ending
    return manifest, sorted(goldens, key=lambda g: g.overload), endings


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _to_row(golden: Golden, failures: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    arrays = {column: getattr(golden, field) for column, field in _ARRAYS.items()}
    return {
        "case_id": golden.case_id,
        "overload": golden.overload,
        "dtype": golden.invocation.dtype,
        "invocation": golden.invocation.json,
        **{n: None if held is None else [_to_bytes(array) for array in held] for n, held in arrays.items()},
        "models": [{"converter": name, "model": golden.models[name]} for name in sorted(golden.models)],
        "failures": failures,
    }


def _to_bytes(array: Array | None) -> bytes | None:
    return None if array is None else numpy_helper.from_array(array).SerializeToString(deterministic=True)


def _from_row(row: Mapping[str, Any]) -> Golden:
    arrays = {f: None if row[c] is None else tuple(map(_from_bytes, row[c])) for c, f in _ARRAYS.items()}
    return Golden(
        invocation=Invocation.from_json(row["invocation"]),
        models={m["converter"]: m["model"] for m in row["models"]},
        **arrays,  # type: ignore[arg-type]
    )


def _from_bytes(content: bytes | None) -> Array | None:
    return None if content is None else numpy_helper.to_array(onnx.TensorProto.FromString(content))
