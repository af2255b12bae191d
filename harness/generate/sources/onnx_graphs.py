"""Graphs of several ONNX operators: the seeds in `cases/onnx/graphs/`, or parts of a user's file, and their mutants."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random

import onnx

from harness.core.case_group import CaseGroup
from harness.generate.graph_mutations import mutate, write_in_opsets
from harness.generate.graph_seeds import NotWritable, graph_invocation, load_seeds
from harness.generate.graph_windows import cut_windows
from harness.generate.sources.source import Request, SourceFinding

#: Mutants that others are made of, besides the seed; the first ones are replaced.
_KEPT = 64
#: How often a mutant is made of a mutant, and the numbers of changes.
_AGAIN, _CHANGES = 0.4, (1, 1, 1, 2, 2, 3)
#: Attempts for each graph that is wanted: some changes make a graph invalid.
_TRIES = 3


def create(argument: str) -> OnnxGraphs:
    """Create the source of ``graphs`` or ``graphs:FILE``.

    Raises:
        BadModel: the file cannot be cut into seeds.
    """
    path = Path(argument).absolute() if argument else None
    _seeds(path)
    return OnnxGraphs(path)


@cache
def _seeds(path: Path | None) -> Mapping[str, list[onnx.ModelProto]]:
    """Return the seeds by overload: one, or all of a file that has several."""
    found: dict[str, list[onnx.ModelProto]] = {}
    for name, model in (load_seeds() if path is None else cut_windows(path)).items():
        found.setdefault(name.partition("/")[0], []).append(model)
    return found


@cache
def _forms(path: Path | None, overload: str) -> Sequence[onnx.ModelProto]:
    """Return a seed in other operator sets; of an overload with many seeds there are enough graphs without."""
    seeds = _seeds(path)[overload]
    return write_in_opsets(seeds[0]) if len(seeds) == 1 else []


@dataclass(frozen=True)
class OnnxGraphs:
    """Mutates a seed, or the seeds of a file, if the name is theirs.

    Attributes:
        path: The file whose parts are the seeds; None for the seeds of `cases/onnx/graphs/`.
    """

    path: Path | None = None
    name = "graphs"

    def overloads(self) -> Collection[str]:
        """See `harness.generate.sources.source.Source`."""
        return _seeds(self.path)

    def find(self, request: Request) -> SourceFinding:
        """See `harness.generate.sources.source.Source`."""
        seeds = _seeds(self.path).get(request.overload)
        if seeds is None:
            return SourceFinding()
        draws = f"{request.seed}/{request.overload}{'/dynamic' if request.dynamic else ''}"
        random, found = Random(draws), dict[bytes, CaseGroup]()
        for seed in seeds[: request.examples]:
            self._add(seed, request, found)
        pool: list[onnx.ModelProto] = []
        others = _forms(self.path, request.overload)
        bases = [*others, *seeds * max(len(others), 1)]
        for _ in range(_TRIES * request.examples):
            if len(found) >= request.examples:
                break
            base = random.choice(pool if pool and random.random() < _AGAIN else bases)
            mutant = mutate(base, random, random.choice(_CHANGES))
            if mutant is None or not self._add(mutant, request, found):
                continue
            pool.append(mutant)
            if len(pool) > _KEPT:
                del pool[random.randrange(_KEPT)]
        return SourceFinding(tuple(found.values()))

    def _add(self, model: onnx.ModelProto, request: Request, found: dict[bytes, CaseGroup]) -> bool:
        """Add a graph with its values to those that are found; return whether it is a new one."""
        content = model.SerializeToString(deterministic=True)
        if content in found:
            return False
        try:
            invocation = graph_invocation(model, request.overload, f"{request.seed}/{len(found)}")
        except NotWritable:
            return False
        if request.dtypes is not None and invocation.dtype not in request.dtypes:
            return False
        found[content] = CaseGroup.of(invocation)
        return True
