"""What a verdict depends on, and whether it is the same for two runs.

What verdicts rest on beside the versions of a run: `RunInfo.basis`, name → a short text or digest.

A change of what is not looked at goes unnoticed, so all that a worker process may load is taken in: the
harness's own source but for what only looks at a record, the files of operator cases, those of the user's
rules, further packages, and of the machine what kernels choose by.

What a verdict depends on, of all that two runs name: where it is the same, running again gives the same.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import os
import platform
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, TypeAlias

import harness
from harness.convert.converter import find_converter
from harness.generate.cases_home import cases_directory
from harness.generate.operator_case import OPERATOR_CASES
from harness.plan.unit import Unit
from harness.record.run_info import DISTRIBUTIONS, KERNELS, RULES, SOURCE, RunInfo
from harness.run.backend import BACKENDS, runtime_distributions

#: Rooms of the harness that read records or are asked beside a run: no verdict depends on them.
VIEWS = frozenset(
    {"app", "cluster", "present", "gate", "support", "explain", "reproduce", "locate", "models", "coverage", "causes"}
)

#: Names in the basis: an overload's name follows `CASE`, a converter's or a backend's `PLUGIN`.
CASE, PLUGIN, GRAPHICS = "case ", "source of ", "graphics card"
#: What decides on the cases that are drawn, and on no verdict.
DRAWING = ("seed", "examples", "values", "dtypes", "sources")

#: Packages of whose dependencies each may change a verdict.
_ROOTS = tuple(name for name in DISTRIBUTIONS if not name.startswith(("pytest", "pyarrow")))

#: Environment variables that kernels and libraries read begin like this; `BackendEntry.variables` has those
#: of runtimes. Those that only say where files are do not count.
_LIBRARIES = (
    *("ATEN", "CUBLAS", "CUDA", "CUDNN", "DNNL", "GOMP", "HYPOTHESIS", "KMP", "MKL", "NCCL", "NVIDIA", "OMP"),
    *("ONEDNN", "ONNX", "OPENBLAS", "PYTORCH", "TORCH", "TORCHINDUCTOR"),
)
_PLACES = re.compile(r"\w+_(HOME|PATH|DIR|CACHE)")

#: Of the processor's flags those that name instructions.
_INSTRUCTIONS = re.compile(
    r"(sse|ssse|avx|fma|f16c|bmi|amx|gfni|vaes|vpclmul|pclmul|popcnt|neon|asimd|sve|sme|fp|bf16|i8mm|dot)\w*"
)


def basis(units: Sequence[Unit], sources: Sequence[str], timeout: float, memory_limit: int) -> dict[str, str]:
    """What the verdicts of a run rest on.

    Args:
        units: Of the run; their settings are the same.
        sources: Words of the sources asked.
        timeout: Seconds per step.
        memory_limit: Bytes of memory.
    """
    found = {
        SOURCE: _source(),
        "further packages": _packages(),
        "environment variables": _variables(),
        "processor": _processor(),
        KERNELS: _kernels(),
        GRAPHICS: _graphics(),
        "sources": " ".join(sources),
        "timeout": f"{timeout:g}",
        "memory limit": str(memory_limit),
    }
    if units:
        first = units[0]
        found.update(
            {
                RULES: _rules(first.settings.rules),
                "seed": str(first.seed),
                "examples": str(first.examples),
                "values": str(first.values or "usual"),
                "dtypes": " ".join(first.dtypes or ("all",)),
                "opset": str(first.settings.opset or "default"),
                "batch size": str(first.settings.batch_size),
                "public API": str(first.settings.public_api),
                "blame": str(first.settings.blame),
            }
        )
    for overload in sorted({unit.overload for unit in units}):
        found[CASE + overload] = _case(overload)
    for name in sorted({unit.converter for unit in units}):
        found.update(_plugin(name, find_converter(name).create))
    for name in sorted({name for unit in units for name in unit.backends}):
        found.update(_plugin(name, BACKENDS.find(name)[0].create))
    return found


def _digest(parts: Iterable[bytes | str]) -> str:
    whole = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else part.encode()
        whole.update(len(data).to_bytes(8))
        whole.update(data)
    return whole.hexdigest()[:12]


def _source() -> str:
    root = Path(harness.__file__).parent
    files = [
        file
        for file in sorted(root.rglob("*"))
        if file.suffix in (".py", ".toml", ".json") and file.relative_to(root).parts[0] not in VIEWS
    ]
    return _digest(part for file in files for part in (str(file.relative_to(root)), file.read_bytes()))


@cache
def _file_of_cases(file: Path) -> tuple[bytes, ...]:
    """A file of operator cases and those of its package that it imports, directly or not."""
    root = file.parent
    while (root.parent / "__init__.py").is_file():
        root = root.parent
    files: dict[Path, bytes] = {}
    waiting = [file]
    while waiting:
        one = waiting.pop()
        if one in files or not one.is_file():
            continue
        files[one] = one.read_bytes()
        for name in _imported(one, files[one], root):
            place = root.parent.joinpath(*name.split("."))
            waiting += [place.with_suffix(".py"), place / "__init__.py"]
    return tuple(files[one] for one in sorted(files))


def _imported(file: Path, source: bytes, root: Path) -> Iterator[str]:
    """Dotted names in the package at `root` that a file may import: of modules, and of what is in them."""
    package = file.relative_to(root.parent).parent.parts
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*above, *filter(None, [node.module])))
            names = [module, *(f"{module}.{alias.name}" for alias in node.names)]
        yield from (name for name in names if name.split(".")[0] == root.name)


def _case(overload: str) -> str:
    case = OPERATOR_CASES.get(overload)
    if case is None:
        return "none"
    # A table of its own adds to what the file says.
    further = repr((case.dtypes, case.promotions, case.slow, case.share))
    return _digest([*_file_of_cases(Path(case.declared[0])), further, (cases_directory() / "__init__.py").read_bytes()])


def _plugin(name: str, create: Callable[..., Any]) -> dict[str, str]:
    """The source of a converter or a backend of another project: an edit need not change its version."""
    try:
        file = Path(inspect.getsourcefile(inspect.unwrap(create)) or "")
    except TypeError:
        return {}
    if not file.is_file() or file.resolve().is_relative_to(Path(harness.__file__).resolve().parent):
        return {}
    return {PLUGIN + name: _digest(one.read_bytes() for one in sorted(file.parent.glob("*.py")))}


def _rules(files: Sequence[str]) -> str:
    """Of files of rules, and of the modules beside them that they may have imported."""
    if not files:
        return ""
    own = [Path(harness.__file__).parent, cases_directory()]
    texts: dict[str, bytes] = {}
    for name in files:
        texts[Path(name).name] = Path(name).read_bytes()
        beside = Path(name).resolve().parent
        for module in list(sys.modules.values()):
            origin = getattr(module, "__file__", None)
            path = Path(origin).resolve() if isinstance(origin, str) else None
            if path is None or not path.is_relative_to(beside) or not path.is_file():
                continue
            if not any(path.is_relative_to(directory) for directory in own):
                texts[str(path.relative_to(beside))] = path.read_bytes()
    return _digest(part for name in sorted(texts) for part in (name, texts[name]))


@cache
def packages_behind() -> dict[str, str]:
    """Versions of the packages that may change a verdict: of those that a run names, and what they need."""
    versions: dict[str, str] = {}
    waiting = [*_ROOTS, *runtime_distributions()]
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in versions:
            continue
        try:
            found = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        versions[name] = found.version
        for requirement in found.requires or ():
            if "extra ==" not in requirement:
                waiting += re.findall(r"^[\w.-]+", requirement)
    return versions


def _packages() -> str:
    """Of the packages that those whose versions a run names depend on."""
    versions = packages_behind()
    named = {name.lower() for name in (*DISTRIBUTIONS, *runtime_distributions())}
    return _digest(f"{name} {versions[name]}" for name in sorted(versions) if name not in named)


def _variables() -> str:
    begin = tuple(f"{name}_" for name in (*_LIBRARIES, *(v for e in BACKENDS.entries() for v in e.variables)))
    chosen = {n: v for n, v in os.environ.items() if n.startswith(begin) and not _PLACES.fullmatch(n)}
    return _digest(f"{name}={chosen[name]}" for name in sorted(chosen))


def _processor() -> str:
    """System, its C library, architecture, maker, cores and instructions: kernels are chosen by these."""
    said = [platform.system(), *platform.libc_ver(), platform.machine(), str(os.cpu_count())]
    words: set[str] = set()
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        said.append(platform.processor())
    else:
        for line in text.splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("vendor_id", "CPU implementer", "CPU part"):
                words.add(value.strip())
            elif name.strip() in ("flags", "Features"):
                words.update(word for word in value.split() if _INSTRUCTIONS.fullmatch(word))
    return f"{platform.machine()} {_digest([*said, *sorted(words)])}"


#: Environment variables by which libraries choose kernels for a processor.
_CHOOSING = ("ATEN_CPU_CAPABILITY", "DNNL_MAX_CPU_ISA", "ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS", "MKL_CBWR")


def _kernels() -> str:
    """What decides which of several kernels of one version computes: instructions, and variables that forbid some.

    Another kernel sums in another order, and takes subnormal numbers for zeros or not.
    """
    return _digest([*sorted(_instructions()), *(f"{name}={os.environ.get(name, '')}" for name in _CHOOSING)])


def _instructions() -> set[str]:
    """The processor's instruction sets, as Linux names them."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {platform.machine(), platform.processor()}
    lines = (line.partition(":") for line in text.splitlines())
    words = {word for name, _, value in lines if name.strip() in ("flags", "Features") for word in value.split()}
    return {word for word in words if _INSTRUCTIONS.fullmatch(word)}


def _graphics() -> str:
    """Driver and models of NVIDIA's cards, as their kernel module tells them; "none" without one."""
    root = Path("/proc/driver/nvidia")
    texts = []
    for file in sorted([root / "version", *root.glob("gpus/*/information")]):
        try:
            lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        texts += [line for line in lines if line.startswith(("NVRM", "Model", "GPU Firmware"))]
    return _digest(texts) if texts else "none"


#: Name → (what it was, what it is); None for what is not known.
Differences: TypeAlias = Mapping[str, tuple[str | None, str | None]]

#: Versions that every verdict depends on.
_COMMON = ("python", "torch", "numpy", "ml-dtypes", "onnx", "onnxscript", "onnx-ir", "harness")

#: What a version is called that is unknown.
_UNKNOWN = (None, "", "unknown")


@dataclass(frozen=True)
class VerdictScope:
    """What verdicts are of; `rules` says whether the user's take part."""

    overload: str
    converter: str
    backend: str
    rules: bool = False


def differences(then: RunInfo, now: RunInfo, place: VerdictScope, then_rules: str | None = None) -> Differences:
    """All that differs of what a verdict depends on; whose defect a failure is depends on `witnesses` too.

    `then_rules` is of the earlier run's rules, where it is not its basis that says which took part.
    """
    backend = BACKENDS.find(place.backend)[0]
    runtimes = runtime_distributions() if backend.distributions is None else backend.distributions
    found = _differing(then.versions, now.versions, [*_COMMON, *runtimes])
    for name in (f"converter {place.converter}", f"backend {place.backend}"):
        a, b = then.versions.get(name), now.versions.get(name)
        if a != b or b in _UNKNOWN:
            found[name] = a, b
    apart = (CASE, PLUGIN)
    unread = {*DRAWING, RULES, *([GRAPHICS] if backend.on_cpu else [])}
    names = [n for n in now.basis if not n.startswith(apart) and n not in unread]
    names += [CASE + place.overload, PLUGIN + place.converter, PLUGIN + place.backend]
    found.update(_differing(then.basis, now.basis, [SOURCE, *names]))
    rules = (then.basis.get(RULES) if then_rules is None else then_rules) or ""
    wanted = now.basis.get(RULES, "") if place.rules else ""
    if rules != wanted:
        found[RULES] = rules, wanted
    return found


def witnesses(then: RunInfo, now: RunInfo) -> Differences:
    """What differs of those that are asked whose defect a failure is."""
    both = [n for n in then.versions if n.startswith(("converter ", "backend ")) and n in now.versions]
    return _differing(then.versions, now.versions, [*runtime_distributions(), *both])


def drawing(then: RunInfo, now: RunInfo) -> Differences:
    """What differs of that which decides on the cases, beside the operator's own."""
    found = _differing(then.versions, now.versions, ["hypothesis"])
    return {**found, **_differing(then.basis, now.basis, DRAWING)}


def _differing(
    then: Mapping[str, str], now: Mapping[str, str], names: Iterable[str]
) -> dict[str, tuple[str | None, str | None]]:
    return {name: (then.get(name), now.get(name)) for name in names if then.get(name) != now.get(name)}


def said(then: RunInfo, now: RunInfo, places: Collection[VerdictScope]) -> list[str]:
    """What keeps verdicts of an earlier run from being reused in `places`, all of this run; a line each."""
    if SOURCE not in then.basis:
        return [f"{then.run_id} is a record of an older harness, which does not say what it rests on"]
    affected: dict[tuple[str, str | None, str | None], set[VerdictScope]] = {}
    cases: dict[str, None] = {}
    rules = False
    for place in places:
        for name, (a, b) in differences(then, now, place).items():
            if name.startswith(CASE):
                if a is not None:
                    cases[place.overload] = None
            elif name == RULES:
                rules = True
            else:
                affected.setdefault((name, a, b), set()).add(place)
    lines = []
    for (name, a, b), some in affected.items():
        who = "nothing reused" if some == set(places) else f"nothing of {_who(name, some)} reused"
        lines.append(f"{_change(then.run_id, name, a, b)}: {who}")
    if cases:
        names = list(cases)
        more = f" and {len(names) - 4} more" if len(names) > 4 else ""
        lines.append(f"operator cases changed: nothing of {', '.join(names[:4])}{more} reused")
    if rules:
        lines.append("rules changed: nothing that was run with them reused")
    again = "operators with failures are run again, since whose defect these are may differ"
    anew = "other cases are drawn: nothing reused"
    changes = [(item, again) for item in witnesses(then, now).items() if not affected]
    changes += [(item, anew) for item in drawing(then, now).items()]
    return [*lines, *(f"{_change(then.run_id, name, a, b)}: {what}" for (name, (a, b)), what in changes)]


def _who(name: str, places: Collection[VerdictScope]) -> str:
    if name.startswith("converter ") or name in {PLUGIN + place.converter for place in places}:
        return ", ".join(sorted({place.converter for place in places}))
    return ", ".join(sorted({place.backend for place in places}))


def _change(run_id: str, name: str, a: str | None, b: str | None) -> str:
    if name.startswith(("converter ", "backend ")) and b in _UNKNOWN:
        return f"{name} has no version"
    if name.startswith(("converter ", "backend ")) and a is None:
        return f"{name} took no part in {run_id}"
    if a is not None and b is not None and all(len(word) < 40 for word in (a, b)) and not _is_digest(name):
        return f"{name} {a or 'none'} → {b or 'none'}"
    return f"{name} changed"


def _is_digest(name: str) -> bool:
    digests = (SOURCE, RULES, GRAPHICS, KERNELS, "further packages", "environment variables", "processor")
    return name.startswith(PLUGIN) or name in digests
