"""The plan of the house, as far as no linter checks it: facades, and what a command imports."""

from __future__ import annotations

import ast
import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from harness_runs import ROOT, environment, output, row_of, unary

from harness.compare import Outcome, Stage
from harness.record import RunInfo, RunWriter, store

HOUSE = ROOT / "harness"
ROOMS = sorted(path.parent.name for path in HOUSE.glob("*/__init__.pyi"))
#: Commands that read nothing but the record.
READING = (
    ("failures",),
    ("show", "CASE"),
    ("tolerance",),
    ("diff", "RUN", "RUN"),
    ("summary", "RUN"),
    ("summary", "RUN", "--against", "RUN"),
    ("catalogue", "RUN"),
    ("baseline", "--out", "OUT"),
    ("dataset", "list", "."),
)


def code(*packages: str) -> Iterator[tuple[Path, ast.Module]]:
    """The files of some packages; not pytest's entry point, which is a package of its own once installed."""
    for package in packages:
        for file in sorted((ROOT / package).rglob("*.py")):
            if "entry_point" not in file.parts:
                yield file, ast.parse(file.read_text(encoding="utf-8"))


def exported(room: str) -> dict[str, str]:
    """Name → module, relative to the room, of what a facade exports; "" for a module of the room itself."""
    stub = ast.parse((HOUSE / room / "__init__.pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {name.asname or name.name: node.module or "" for node in imports for name in node.names}


def test_every_room_has_a_facade() -> None:
    folders = {path.name for path in HOUSE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == set(ROOMS)
    assert {path.name for path in HOUSE.glob("*.py")} == {"__init__.py", "test_conformance.py"}


def test_other_rooms_are_imported_through_their_facades() -> None:
    around = []
    for file, tree in code("harness", "cases"):
        own = file.relative_to(ROOT).parts[:2]
        for node in ast.walk(tree):
            names = [name.name for name in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [f"{node.module}.{name.name}" for name in node.names]
            for name in names:
                assert isinstance(node, ast.Import | ast.ImportFrom)
                package, *rest = name.split(".")
                if package != "harness" or len(rest) < 2 or own == ("harness", rest[0]):
                    continue
                if len(rest) > 2 or rest[1] not in exported(rest[0]):
                    around.append(f"{file.relative_to(ROOT)}:{node.lineno}: {name}")
    assert around == []


@pytest.mark.parametrize("room", ROOMS)
def test_every_name_of_a_facade_is_there_and_hides_no_module(room: str) -> None:
    facade = importlib.import_module(f"harness.{room}")
    names = exported(room)
    assert sorted(names) == sorted(facade.__all__)
    modules = {path.stem for path in (HOUSE / room).iterdir()} - {"__init__", "__pycache__"}
    for name, module in names.items():
        found = getattr(facade, name)
        # What is imported last would decide which of the two `harness.ROOM.NAME` is.
        assert name not in modules or (not module and isinstance(found, ModuleType)), name


#: What takes seconds to import, and what reading a record has no use for.
HEAVY = {"torch", "onnx", "onnxscript", "onnxruntime", "hypothesis", "cases"}


@pytest.fixture(scope="module")
def imported_by(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, ...], set[str]]:
    """Command → the packages that a process has imported which ran it after those before it."""
    place = tmp_path_factory.mktemp("reading")
    call = unary("aten.celu.default", [1.0])
    failing = row_of(call, stage=Stage.COMPARE, outcome=Outcome.MISMATCH, blame="backend", message="wrong")
    run = place / "results" / "run"
    with RunWriter(run, RunInfo.begin(seed=0, options={})) as writer:
        writer.write([row_of(unary("aten.celu.default", [2.0])), failing])
    store.finish(run, 1)
    meant = {"CASE": call.case_id, "RUN": str(run), "OUT": str(place / "out")}
    program = (
        "import json, sys\n"
        "from harness.app.cli._group import conformance\n"
        f"for words in {[[meant.get(word, word) for word in words] for words in READING]!r}:\n"
        "    conformance(words, standalone_mode=False)\n"
        "    print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=place,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, output(done)
    said = [set(json.loads(line)) for line in done.stderr.splitlines() if line.startswith("[")]
    return dict(zip(READING, said, strict=True))


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_a_command_that_only_reads_does_not_wait_for_pytorch(
    words: tuple[str, ...], imported_by: dict[tuple[str, ...], set[str]]
) -> None:
    assert "pyarrow" in imported_by[words]
    assert not imported_by[words] & HEAVY
