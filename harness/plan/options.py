"""What a user may choose of a run."""

from __future__ import annotations

from dataclasses import dataclass

from harness.generate.sources.recorded import Replayed

#: Cases of each pattern of programs, which a run of them draws in some five minutes on two cores.
PROGRAM_EXAMPLES = 352


class UsageProblem(Exception):
    """Invalid options; the message is one line for a person."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a user may choose; every default is that of a plain ``pytest harness``.

    Attributes:
        ops: Overloads, packets or globs; empty for every operator case.
        converters: Empty for the defaults.
        backends: Names, or ``all``; empty for the defaults that can run here.
        dtypes: Empty for all.
        examples: Cases per operator, converter and shape mode.
        values: Value draws per exported structure; None for the usual number.
        seed: Of the draws.
        shapes: ``static``, ``dynamic``, ``both``, or ``mixed``: static, and for operators some dynamic cases.
        opset: To emit, None for the converter's default.
        opsets: Several to emit, in place of `opset`: each converter is run with each, under the name ``dynamo@18``.
        batch_size: Structures per export.
        blame: Find out whose defect each failure is.
        public_api: Plain public calls with nothing kept between exports.
        sources: Words of `harness.generate.sources`; empty for the defaults.
        replay: Recorded invocations to run in place of what sources have; None to ask these.
        rules: Files of conversion functions to try; without `ops` the operators that they are for are run,
            without `converters` those that they are for.
        shard: ``3/8``: only the operators of that part; None for all.
        parts: With `shard`: the units of every part, ``aten.celu.default dynamo``; None to balance operators
            by how long they usually take.
        models: Whole models to run in place of operators; none for operators.
        runs: How often a case that draws at random is run at most, to find a failure that is known of.
    """

    ops: tuple[str, ...] = ()
    converters: tuple[str, ...] = ()
    backends: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    examples: int = 256
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
