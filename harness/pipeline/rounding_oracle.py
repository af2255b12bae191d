"""PyTorch's answer to a computation of several operators: its outputs, float64's, and how far roundings may move them.

Operators are composed, each of which may round. How much of its error that explains depends on how the
later operators amplify it, which no bound on a single operator tells. It is measured: the model runs in
float64, and the inputs and results of every operator that computes (rather than moves or selects) are multiplied by
1 + ru, r drawn from -1 … 1, u the unit roundoff of the model's dtype: Monte Carlo arithmetic (Parker, Pierce,
Eggert, Computing in Science & Engineering 2(4), 2000). The change of the inputs stands for the roundings within the
operator, which a stable algorithm makes no worse (Higham, Accuracy and Stability of Numerical Algorithms, §1.5). To a
sum of products ruS is added, S the sum of the magnitudes. The difference between such runs, element by element, is D of
rule 6 of `harness.compare.nearness`: operators that are all right by its rules 1 and 4 add up to an error of κ·D. An
element that such runs decide differently, an index or a comparison, is left open.

PyTorch fuses some operators in eager mode that exporters take one by one, as attention: these runs are made
without such kernels, so that roundings are counted as a graph makes them. The explained error is never less than
PyTorch's own: if its largest error in an output is larger than the largest D, D is scaled to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from harness.compare.judge import Judge, Mask
from harness.compare.nearness import KnownSensitivity
from harness.core.dtypes import PRECISION, Array
from harness.core.torch_arrays import to_numpy
from harness.core.torch_operators import OpOverload, TorchDispatchMode, pytree
from harness.generate.operator_case import OPERATOR_CASES
from harness.pipeline.torch_call import default_dtype, quiet_call

#: Runs with perturbed results; twice their root mean square is taken for the most that chance explains.
_RUNS = 6
_SPREAD = 2.0


#: Changes a float64 tensor by less than the roundoff.
Move: TypeAlias = Callable[[torch.Tensor], torch.Tensor]


def _move(roundoff: float, seed: int) -> Move:
    generator = torch.Generator().manual_seed(1000 + seed)

    def move(tensor: torch.Tensor) -> torch.Tensor:
        return tensor * factors(tensor, roundoff, generator) if seed else tensor

    return move


class RoundingOracle:
    """PyTorch's answer to a computation with the effect of roundings on it: a `nearness.Oracle`.

    Args:
        expected: Its results.
        dtypes: Dtypes of its arguments and results; the narrowest floating one is the one that it rounds to.
        wide: Makes the computation in float64, under whatever mode is active; called with a function that changes its
            arguments as little as roundings of them would.
        arguments: Arguments for rules of an operator's own judge; empty if it has none.
    """

    #: Facts that only a single operator has.
    magnitude = unscaled = marked = flushed = definition = None
    finite_terms = (None, None)

    def __init__(
        self,
        expected: tuple[Array, ...],
        dtypes: Iterable[str],
        wide: Callable[[], AbstractContextManager[Callable[[Move], Sequence[torch.Tensor]]]],
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        self.expected = expected
        self.dtypes = frozenset(dtypes)
        self.arguments: Mapping[str, Any] = arguments or {}
        self._make_wide = wide
        #: Called before each run in float64: a supervisor that hears nothing takes a slow one for a hang.
        self.alive: Callable[[], None] = lambda: None

    @cached_property
    def truth(self) -> tuple[Array | None, ...] | None:
        """Return the results in float64; None for those that are not floating, or if float64 cannot compute them."""
        wide = self._wide
        if wide is None:
            return None
        return tuple(
            o.astype(np.float64) if str(e.dtype) in PRECISION else None
            for o, e in zip(wide[0], self.expected, strict=True)
        )

    @cached_property
    def sensitivity(self) -> tuple[KnownSensitivity | None, ...] | None:
        """Return the effect of roundings, element by element."""
        wide = self._wide
        if wide is None:
            return None
        truth, *others = wide
        found: list[KnownSensitivity | None] = []
        for i, e in enumerate(self.expected):
            if str(e.dtype) not in PRECISION:
                found.append(None)
                continue
            with np.errstate(all="ignore"):
                squares = [np.square(o[i].astype(np.float64) - truth[i]) for o in others]
                moved = np.nan_to_num(_SPREAD * np.sqrt(np.mean(squares, axis=0)), posinf=0.0)
                own = np.nan_to_num(np.abs(e.astype(np.float64) - truth[i]), posinf=0.0)
            found.append(KnownSensitivity(moved * max(1.0, _ratio(own, moved)), own))
        return tuple(found)

    @cached_property
    def judge(self) -> Judge:
        """Accept close results, and any result that roundings decide."""
        return Judge(undefined=lambda arguments, expected: self._open)

    @property
    def _open(self) -> Sequence[Mask | None]:
        wide = self._wide
        if wide is None:
            return [None] * len(self.expected)
        return [
            None if str(e.dtype) in PRECISION else np.any([np.asarray(run[i]) != e for run in wide], axis=0)
            for i, e in enumerate(self.expected)
        ]

    @cached_property
    def _wide(self) -> list[tuple[Array, ...]] | None:
        """The results in float64, and those with perturbed results, of the expected shapes."""
        roundoff = 2.0 ** -min((PRECISION[d] for d in self.dtypes if d in PRECISION), default=24)
        runs = []
        with quiet_call(), default_dtype(torch.float64), _unfused_attention(), self._make_wide() as compute:
            for seed in range(1 + _RUNS):
                self.alive()
                try:
                    with Widened(roundoff if seed else 0.0, seed):
                        outputs = compute(_move(roundoff, seed))
                except Exception:
                    # It need not run in float64; it is judged by its own dtype's tolerance then.
                    return None
                runs.append(tuple(to_numpy(t) for t in outputs))
                if [a.shape for a in runs[-1]] != [a.shape for a in self.expected]:
                    return None
        return runs


def _ratio(own: Array, moved: Array) -> float:
    """Return the ratio of PyTorch's largest error to the largest effect of roundings."""
    most = float(moved.max(initial=0.0))
    return float(own.max(initial=0.0)) / most if most > 0 else 1.0


@contextmanager
def _unfused_attention() -> Iterator[None]:
    """Compute attention by its component operators, as exporters see it."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


class Widened(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Runs everything in float64, and changes the results of operators by up to `roundoff` of them."""

    def __init__(self, roundoff: float, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._roundoff = roundoff
        self._generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args = pytree.tree_map(_widened, args)
        kwargs = pytree.tree_map(_widened, kwargs or {})
        if not self._roundoff or not computes(func):
            return func(*args, **kwargs)
        if not func._schema.is_mutable:
            args = pytree.tree_map(self._moved, args)
        result = func(*args, **kwargs)
        magnitude = None if func._schema.is_mutable else _magnitude_of_terms(func, args, kwargs, result)
        for i, tensor in enumerate(result if isinstance(result, tuple | list) else (result,)):
            if isinstance(tensor, torch.Tensor) and tensor.dtype is torch.complex128:
                # Its parts are rounded as numbers of its own size: IEEE 754 has no complex arithmetic.
                size = tensor.abs().unsqueeze(-1) if magnitude is None or i else magnitude
                size = size if size.dim() > tensor.dim() else size.unsqueeze(-1)
                parts = size.expand(*tensor.shape, 2)
                moved = (self._factors(parts) - 1.0) * parts
                torch.view_as_real(tensor).add_(torch.where(moved.isfinite(), moved, 0.0))
            elif isinstance(tensor, torch.Tensor) and tensor.dtype is torch.float64:
                moved = tensor * self._factors(tensor)
                if magnitude is not None and i == 0:
                    moved += (self._factors(tensor) - 1.0) * magnitude
                # A mask's lowest number has none below it.
                tensor.copy_(torch.where(moved.isfinite(), moved, tensor))
        return result

    def _moved(self, argument: Any) -> Any:
        is_wide = isinstance(argument, torch.Tensor) and argument.dtype is torch.float64
        return argument * self._factors(argument) if is_wide else argument

    def _factors(self, tensor: torch.Tensor) -> torch.Tensor:
        return factors(tensor, self._roundoff, self._generator)


def factors(tensor: torch.Tensor, roundoff: float, generator: torch.Generator) -> torch.Tensor:
    """Draw numbers from 1 - roundoff to 1 + roundoff, of the shape of `tensor`."""
    r = torch.rand(tensor.shape, generator=generator, dtype=torch.float64)
    return r.mul_(2.0 * roundoff).add_(1.0 - roundoff)


def computes(target: OpOverload) -> bool:
    """Whether an operator rounds: neither a view, nor one that moves or selects elements."""
    if target.is_view or any(a.alias_info and not a.alias_info.is_write for a in target._schema.arguments):
        return False
    name = str(target)
    if name in _MOVES:
        return False
    case = OPERATOR_CASES.get(name.replace("_.", "."))
    if case is None:
        return True
    # A rule in place of a tolerance accepts several choices of elements, none of them computed.
    exact = case.judge.tolerances.get("float32")
    return not (case.judge.exact or case.judge.rules or (exact is not None and exact.rtol == 0.0))


#: Operators without a case that move or set elements.
_MOVES = frozenset({"aten.copy_.default", "aten.fill_.Scalar", "aten.fill_.Tensor", "aten.zero_.default"})


def _magnitude_of_terms(
    func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any
) -> torch.Tensor | None:
    """Return the sum of the terms' magnitudes in the first result; None for an operator that sums nothing.

    Terms that a case states are asked of transforms alone, from or to complex numbers: their symmetries leave exact
    zeros, which moved inputs do not move. Elsewhere the moved inputs stand for the roundings of the terms.
    """
    case = OPERATOR_CASES.get(str(func))
    if case is None or not (case.judge.accumulates or case.judge.terms is not None):
        return None
    if case.judge.terms is not None and not any(map(_is_complex, pytree.tree_leaves((args, kwargs, result)))):
        return None
    if case.judge.terms is None:
        magnitudes = func(*pytree.tree_map(_magnitude, args), **kwargs)
        first: torch.Tensor = magnitudes[0] if isinstance(magnitudes, tuple | list) else magnitudes
        return first
    named = {a.name: v for a, v in zip(func._schema.arguments, args, strict=False)} | dict(kwargs)
    arrays = {
        name: v.detach().resolve_conj().numpy() if isinstance(v, torch.Tensor) else v for name, v in named.items()
    }
    try:
        terms = case.judge.terms(arrays)
    except Exception:
        # A rule of single calls may ask for arguments that are left to their defaults here.
        return None
    of_first = terms[0] if isinstance(terms, tuple) else terms
    return None if of_first is None else torch.from_numpy(np.abs(np.asarray(of_first, dtype=np.float64)))


def _is_complex(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_complex()


def _magnitude(argument: Any) -> Any:
    is_wide = isinstance(argument, torch.Tensor) and argument.dtype is torch.float64
    return argument.abs() if is_wide else argument


def _widened(argument: Any) -> Any:
    if isinstance(argument, torch.Tensor):
        return argument.double() if argument.dtype in _NARROW else argument
    if isinstance(argument, torch.dtype):
        return torch.float64 if argument in _NARROW else argument
    return argument


_NARROW = (torch.float32, torch.float16, torch.bfloat16)
