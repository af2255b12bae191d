"""The options of a run."""

from __future__ import annotations

from dataclasses import dataclass

from harness.generate.sources.recorded import Replayed

#: Cases of each operator, without those that are drawn again; a run takes some twelve minutes on two cores.
OPERATOR_EXAMPLES = 256
#: The same for a pattern of programs; with both exporters a run takes some eight minutes. In a run that draws calls as
#: well, a pattern gets this share of an operator's cases.
PROGRAM_EXAMPLES = 112
#: The same for the mutants of a graph, of which each takes a millisecond or two.
GRAPH_EXAMPLES = 768


class UsageProblem(Exception):
    """Invalid options; the message is one line for people."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a run; the defaults are those of a plain ``pytest harness``.

    Attributes:
        ops: Overloads, packets or globs; empty means every operator case.
        converters: The converters; empty means the default ones.
        backends: Names, or ``all``; empty means the default ones that can run here.
        dtypes: The dtypes; empty means all.
        examples: Cases per operator or pattern, converter and shape mode; see `PROGRAM_EXAMPLES` for runs of both.
        values: Value draws per exported structure; None means the usual number.
        seed: The seed of the draws.
        shapes: ``static``, ``dynamic``, ``both``, or ``mixed``: static, and for operators some dynamic cases.
        opset: The opset to emit; None means the converter's default.
        opsets: Several opsets that replace `opset`: each converter runs with each, under the name ``dynamo@18``.
        batch_size: Structures per export.
        blame: Determine the component to blame for each failure.
        public_api: Use only public calls and cache nothing between exports.
        sources: Names from `harness.generate.sources`; empty means the default ones.
        replay: Recorded invocations to run instead of those of the sources; None uses the sources.
        rules: Files of conversion functions to try. Without `ops`, the operators that they convert are run; without
            `converters`, the converters that they extend.
        shard: ``3/8`` runs only the operators of that part; None runs all.
        parts: With `shard`, the units of every part, ``aten.celu.default dynamo``; None balances operators by their
            usual duration.
        models: Whole models to run instead of operators; empty runs operators.
        runs: Largest number of runs of a case with random results, in a search for a known failure.
        profile: File of what a runtime claims: nothing else is run; "" for everything.
        strict_device: A case of which the backend leaves a part to another device has not conformed.
    """

    ops: tuple[str, ...] = ()
    converters: tuple[str, ...] = ()
    backends: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    examples: int = OPERATOR_EXAMPLES
    values: int | None = None
    seed: int = 0
    shapes: str = "mixed"
    opset: int | None = None
    opsets: tuple[int, ...] = ()
    batch_size: int = 64
    public_api: bool = False
    blame: bool = True
    sources: tuple[str, ...] = ()
    replay: tuple[Replayed, ...] | None = None
    rules: tuple[str, ...] = ()
    shard: str | None = None
    parts: tuple[tuple[str, ...], ...] | None = None
    models: tuple[str, ...] = ()
    runs: int = 1
    profile: str = ""
    strict_device: bool = False
