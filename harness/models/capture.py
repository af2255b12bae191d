"""The operator calls that a model makes, as invocations and as corpus entries.

Every ATen call of a model's forward pass as an invocation, each kind once, with how often it is made.

Captured calls as corpus entries: one file of a model's, or the directories that every run reads.
"""

from __future__ import annotations

import contextlib
import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from harness.convert.torch_private import quiet
from harness.core.described_tensor import describe_tensor
from harness.core.dtypes import INT_RANGE
from harness.core.invocation import Argument, Invocation, Recipe, TensorSpec
from harness.core.overloads import NAMESPACES
from harness.core.text import first_line
from harness.core.torch_operators import HigherOrderOperator, OpOverload, TorchDispatchMode, pytree
from harness.generate.case_library import load_cases
from harness.generate.regressions.corpus_store import Corpus, CorpusEntry
from harness.pipeline.captured_calls import CannotKeep, invocation_of, module_path
from harness.pipeline.model_loading import LoadedModel, ModelProblem
from harness.record import layout
from harness.record.layout import ResultsError, reason


@dataclass
class CapturedCall:
    """One kind of call.

    Attributes:
        invocation: The first of its kind.
        calls: How many the model makes.
        places: Modules that make it, by path, the first few; "" for the model itself.
    """

    invocation: Invocation
    calls: int = 0
    places: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Capture:
    """What a model calls.

    Attributes:
        calls: Kinds of call, in the order of their first. Two are of one kind that differ in nothing but the
            numbers in large tensors.
        left_out: Why calls could not be kept → how many.
        foreign: Operators of other libraries that it calls.
        eager: Whether they are the calls of eager mode, since `torch.export` fails.
    """

    model: str
    calls: tuple[CapturedCall, ...]
    left_out: Mapping[str, int]
    eager: bool = False
    foreign: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """Calls in all, but for those left out."""
        return sum(call.calls for call in self.calls)


#: Storage elements up to which a call is run on the values that it has in the model: of integers and truth values,
#: whose values mean more, and of the rest.
_RUN_EXACTLY, _RUN_EXACTLY_FLOATING = 1 << 18, 1 << 14


def _describe_exactly(tensor: torch.Tensor, place: str) -> TensorSpec:
    floating = tensor.is_floating_point() or tensor.is_complex()
    return describe_tensor(tensor, place, exact=_RUN_EXACTLY_FLOATING if floating else _RUN_EXACTLY)


def capture_calls(model: LoadedModel, *, exact: bool = False) -> Capture:
    """Take note of the calls that exporters meet in a model: those of the program that `torch.export` captures.

    A composite operator, such as `linear`, is one call there, and what only eager mode calls is not: the parts of
    a composite, and fused kernels such as that of attention. The branches of `torch.cond` and other operators that
    take functions are left out, and counted. Where the model cannot be captured, its calls in eager mode are noted.

    Args:
        model: What is captured.
        exact: Keep the very values of all but large tensors, so that a failure which depends on them shows; else a
            recipe for values like them, which is short.

    Raises:
        ModelProblem: the model can neither be captured nor run.
    """
    notes = _Notes(_describe_exactly if exact else describe_tensor)
    try:
        module, inputs = captured_program(model)
    except Exception as error:
        notes.left_out[f"torch.export fails ({first_line(error)}): these are the calls of eager mode"] += 1
        _record_eager(model, notes)
        return Capture(
            model.name, tuple(notes.calls.values()), dict(notes.left_out), eager=True, foreign=tuple(notes.foreign)
        )
    with torch.no_grad():
        _Interpreted(module, notes).run(*inputs, enable_io_processing=False)
    return Capture(model.name, tuple(notes.calls.values()), dict(notes.left_out), foreign=tuple(notes.foreign))


@dataclass(frozen=True)
class ResizedCalls:
    """The calls of a model at other sizes, beside those at the example's.

    Attributes:
        pairs: A call there and the same call at the example's sizes, where only sizes of tensors differ.
        computed: Overload, argument, and its values in the example and there, where it follows from sizes.
    """

    pairs: tuple[tuple[Invocation, Invocation], ...] = ()
    computed: tuple[tuple[str, str, str, str], ...] = ()


def resized_calls(model: LoadedModel, other_inputs: tuple[torch.Tensor, ...]) -> ResizedCalls:
    """The calls that differ from the example's; none where the model makes others, or cannot be captured."""
    sequences = []
    for inputs in (model.inputs, other_inputs):
        notes = _Notes()
        try:
            module, given = captured_program(replace(model, inputs=inputs))
            with torch.no_grad():
                _Interpreted(module, notes).run(*given, enable_io_processing=False)
        except Exception:
            return ResizedCalls()
        sequences.append(notes.sequence)
    example, other = sequences
    if len(example) != len(other):
        return ResizedCalls()
    pairs: dict[tuple[str, str], tuple[Invocation, Invocation]] = {}
    computed: dict[tuple[str, str, str, str], None] = {}
    for ours, theirs in zip(example, other, strict=True):
        if ours is None or theirs is None or ours.overload != theirs.overload:
            continue
        differing = list(_other_numbers(ours, theirs))
        computed.update(dict.fromkeys((ours.overload, *found) for found in differing))
        if not differing and ours.structure_id != theirs.structure_id:
            pairs.setdefault((ours.structure_id, theirs.structure_id), (theirs, ours))
    return ResizedCalls(tuple(pairs.values()), tuple(computed))


def _other_numbers(ours: Invocation, theirs: Invocation) -> Iterator[tuple[str, str, str]]:
    """Arguments without tensors that differ: name and both values."""
    other = dict(theirs.arguments)
    for name, value in ours.arguments:
        if not isinstance(value, TensorSpec) and not _has_tensors(value) and other.get(name) != value:
            yield name, str(value), str(other.get(name))


def _has_tensors(value: Argument) -> bool:
    return isinstance(value, tuple) and any(isinstance(element, TensorSpec) for element in value)


def captured_program(model: LoadedModel) -> tuple[torch.nn.Module, tuple[Any, ...]]:
    """The program that exporters translate, as a module, and a value for each placeholder of its graph."""
    inputs = tuple(tensor.clone() for tensor in model.inputs)
    # A capture that fails prints the graph so far.
    with quiet(), torch.no_grad(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        exported = model.call(inputs, dynamic=False).captured()
        # Checks of sizes compute nothing.
        module = exported.module(check_guards=False)
    return module, tuple(pytree.tree_leaves(model.program.arguments(inputs)))


def _record_eager(model: LoadedModel, notes: _Notes) -> None:
    inputs = [tensor.clone() for tensor in model.inputs]
    try:
        with _places(model.module, notes), torch.inference_mode(), _Recorder(notes):
            model.program(*inputs)
    except Exception as error:
        raise ModelProblem(f"--model {model.name}: its calls cannot be captured: {first_line(error)}") from error


class _Notes:
    """What has been called so far."""

    def __init__(self, describe: Callable[[torch.Tensor, str], TensorSpec] = describe_tensor) -> None:
        self._describe = describe
        self.calls: dict[tuple[Any, ...], CapturedCall] = {}
        self.left_out: Counter[str] = Counter()
        self.foreign: dict[str, None] = {}
        self.stack: list[str] = []
        #: Every call in its order; None for one that cannot be kept.
        self.sequence: list[Invocation | None] = []

    def add(self, target: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        if str(target) in BOOKKEEPING:
            return
        if target.namespace not in NAMESPACES:
            self.foreign[str(target)] = None
        try:
            invocation = invocation_of(target, args, kwargs, self._describe)
        except CannotKeep as reason:
            self.left_out[str(reason)] += 1
            self.sequence.append(None)
            return
        self.sequence.append(invocation)
        call = self.calls.setdefault(kind(invocation), CapturedCall(invocation))
        call.calls += 1
        place = self.stack[-1] if self.stack else ""
        if place not in call.places and len(call.places) < 4:
            call.places.append(place)


#: Calls that no exporter sees: they compute nothing, or `torch.export` makes a guard of them.
BOOKKEEPING = frozenset(
    {
        *("aten.detach.default", "aten.lift_fresh.default", "aten.lift_fresh_copy.default", "aten.alias.default"),
        "aten.is_nonzero.default",
    }
)


def kind(invocation: Invocation) -> tuple[Any, ...]:
    """Equal for calls that one invocation stands for."""
    return invocation.structure_id, tuple(map(_kind_of_values, invocation.tensors()))


def _kind_of_values(spec: TensorSpec) -> Any:
    # Drawn values differ in their statistics from layer to layer, and no conversion depends on these.
    if isinstance(spec.values, Recipe):
        return spec.values.domain if spec.values.domain[0] in ("constant", "steps", "triangular") else "drawn"
    return spec.values if spec.dtype in INT_RANGE or spec.dtype == "bool" else "few"


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes what is dispatched; of a composite the call itself, and not those that it is composed of."""

    def __init__(self, notes: _Notes) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._notes = notes

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self._notes.add(func, args, kwargs)
        return func(*args, **kwargs)


class _Interpreted(torch.fx.Interpreter):
    """Runs an exported program's graph and notes its calls."""

    def __init__(self, module: torch.nn.Module, notes: _Notes) -> None:
        super().__init__(module)
        self._notes = notes

    def run_node(self, n: torch.fx.Node) -> Any:
        """Notes the call of one node."""
        self._notes.stack[:] = [module_path(n)]
        return super().run_node(n)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Notes an operator before it is called."""
        if isinstance(target, OpOverload):
            self._notes.add(target, args, kwargs)
        elif isinstance(target, HigherOrderOperator):
            self._notes.left_out[f"calls within torch.{target}"] += 1
        return super().call_function(target, args, kwargs)


@contextlib.contextmanager
def _places(module: torch.nn.Module, notes: _Notes) -> Iterator[None]:
    """While it lasts, `notes` knows which module is running."""
    handles = []
    for path, part in module.named_modules():

        def enter(_: Any, __: Any, path: str = path) -> None:
            notes.stack.append(path)

        def leave(_: Any, __: Any, ___: Any) -> None:
            notes.stack.pop()

        handles += [part.register_forward_pre_hook(enter), part.register_forward_hook(leave)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


#: Models and modules named in a note.
_NAMED = 4


def entries_of(captures: Sequence[Capture]) -> list[CorpusEntry]:
    """What is worth running again of `captures`: each kind of call once, sorted by operator."""
    found: dict[tuple[Any, ...], CorpusEntry] = {}
    models: dict[tuple[Any, ...], list[str]] = {}
    for captured in captures:
        for call in captured.calls:
            key = kind(call.invocation)
            found.setdefault(key, CorpusEntry(invocation=call.invocation, origin="captured"))
            places = [place for place in call.places if place][:1]
            where = f" ({places[0]})" if places and len(captures) == 1 else ""
            models.setdefault(key, []).append(f"{captured.model} ×{call.calls}{where}")
    noted = [replace(entry, note=_note(models[key])) for key, entry in found.items()]
    return sorted(noted, key=lambda entry: entry.overload)


def _note(models: Sequence[str]) -> str:
    return ", ".join(models[:_NAMED]) + (f" and {len(models) - _NAMED} more" if len(models) > _NAMED else "")


def save_file(path: Path, entries: Iterable[CorpusEntry]) -> None:
    """Write one file, for ``--source corpus:FILE``.

    Raises:
        ResultsError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResultsError(f"cannot write {path}: {reason(error)}") from None
    with layout.replacing(path) as temporary:
        temporary.write_text("".join(f"{entry.line}\n" for entry in entries), encoding="utf-8")


def save_directory(directory: Path, entries: Sequence[CorpusEntry]) -> None:
    """Put `entries` in place of all captured ones in a corpus directory; others stay.

    Every run reads such a directory. It gets calls of operators that have a case: the others are a kernel's
    own, below the composite that an exporter sees.

    Raises:
        ResultsError: it cannot be read or written.
    """
    corpus = Corpus([directory])
    by_overload: dict[str, list[CorpusEntry]] = {name: [] for name in corpus.overloads()}
    known = load_cases()
    for entry in (entry for entry in entries if entry.overload in known):
        by_overload.setdefault(entry.overload, []).append(entry)
    for overload, captured in by_overload.items():
        corpus.update(overload, partial(_replaced, captured))


def _replaced(captured: list[CorpusEntry], kept: tuple[CorpusEntry, ...]) -> list[CorpusEntry]:
    return [*(entry for entry in kept if entry.origin != "captured"), *captured]
