"""From a user's options to units of work, or to one clear line about what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import cases
from harness import backends, converters, schema, sources
from harness.availability import Unavailable, UnknownName
from harness.changed.git import RevisionProblem
from harness.changed.selection import Changed, changed_since
from harness.dtypes import ALL, COMPLEX, WIDE_UNSIGNED
from harness.generate.operator_case import REGISTRY
from harness.models.load import ModelProblem
from harness.models.names import PREFIX
from harness.models.plan import model_units
from harness.models.unit import ModelUnit
from harness.pipeline.task import Settings
from harness.pipeline.unit import Unit
from harness.record.errors import ResultsError
from harness.replay import Replayed
from harness.rules.load import load_rules
from harness.rules.rule import Rule, RuleProblem
from harness.sharding import Shard, distribute
from harness.sources import Source


class UsageProblem(Exception):
    """Options that cannot be carried out; the message is one line for a person."""


class NothingChanged(Exception):
    """Nothing of what was chosen changed since the revision; the message is one line for a person."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a user may choose; every default is that of a plain ``pytest harness``.

    Attributes:
        ops: Overloads, packets or globs; empty for every operator case.
        converters: Names; empty for the defaults.
        backends: Names, or ``all``; empty for the defaults that can run here.
        dtypes: Names; empty for all.
        examples: Cases per operator, converter and shape mode.
        values: Value draws per exported structure.
        seed: Of the draws.
        shapes: ``static``, ``dynamic`` or ``both``.
        opset: To emit, None for the converter's default.
        batch_size: Structures per export.
        blame: Find out whose defect each failure is.
        public_api: Plain public calls with nothing kept between exports.
        sources: Words of `harness.sources`; empty for the defaults.
        replay: Recorded invocations to run in place of what sources have; None to ask these.
        rules: Files of conversion functions to try; without `ops` the operators that they are for are run,
            without `converters` those that they are for.
        changed_since: A git revision: only what changed since then; None for all.
        shard: ``3/8``: only the operators of that part; None for all.
        models: Whole models to run in place of operators; none for operators.
        reuses: Whether verdicts of earlier runs are taken over.
    """

    ops: tuple[str, ...] = ()
    converters: tuple[str, ...] = ()
    backends: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    examples: int = 128
    values: int = 4
    seed: int = 0
    shapes: str = "static"
    opset: int | None = None
    batch_size: int = 64
    public_api: bool = False
    blame: bool = True
    sources: tuple[str, ...] = ()
    replay: tuple[Replayed, ...] | None = None
    rules: tuple[str, ...] = ()
    changed_since: str | None = None
    shard: str | None = None
    models: tuple[str, ...] = ()
    reuses: bool = False


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What will be run.

    Attributes:
        units: In a stable order.
        sources: Words of the sources asked; none where a recorded run is replayed.
        converters: Names taken part.
        backends: Names taken part.
        unavailable: (kind, name, why) of what is registered and cannot run here.
        rules: Labels of the rules that are tried.
        changed: What changed since the revision that was asked for, in lines for a person.
        shard: The part that `units` are; None for all.
        whole: Per shard, one for a whole run, overload → its units' words, with blanks between.
        models: Units of whole models, in place of `units`.
    """

    units: tuple[Unit, ...]
    sources: tuple[str, ...]
    converters: tuple[str, ...]
    backends: tuple[str, ...]
    unavailable: tuple[tuple[str, str, Unavailable], ...]
    rules: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    shard: Shard | None = None
    whole: tuple[Mapping[str, str], ...] = ()
    models: tuple[ModelUnit, ...] = ()


def make_plan(options: Options) -> Plan:
    """Resolve names, probe what they name, and list the units.

    Raises:
        UsageProblem: an unknown name (with near ones), something asked for by name that cannot
            run here (with how to install it), numbers out of range, or nothing left to run.
        NothingChanged: nothing to run changed since the revision asked for.
    """
    try:
        return _make_plan(options)
    except (
        UnknownName,
        schema.UnknownOperator,
        cases.CaseFileError,
        RuleProblem,
        RevisionProblem,
        ResultsError,
        ModelProblem,
    ) as error:
        raise UsageProblem(str(error)) from None


def _make_plan(options: Options) -> Plan:
    _check_numbers(options)
    shard = _shard(options.shard)
    for dtype in options.dtypes:
        if dtype not in (*ALL, *WIDE_UNSIGNED, *COMPLEX):
            raise UnknownName("dtype", dtype, (*ALL, *WIDE_UNSIGNED, *COMPLEX))
    unavailable = _unavailable()
    rules = [rule for file in options.rules for rule in load_rules(file)]
    _check_rules(rules)
    changed = changed_since(options.changed_since, rules) if options.changed_since is not None else None
    converter_names = options.converters or _converters_of(rules) or converters.defaults()
    if changed is not None and not options.converters and not rules:
        converter_names = (*converter_names, *(n for n in changed.converters if _can_run(n)))
    if rules and not options.ops and not options.models and options.replay is None:
        options = replace(options, ops=tuple(sorted({rule.overload for rule in rules} & set(cases.load()))))
    for name in converter_names:
        problem = converters.find(name).probe()
        if problem:
            raise UsageProblem(f"--converter {name}: {problem.reason}; to get it: {problem.install}")
    backend_names = _choose_backends(options.backends)
    if options.models:
        return Plan(
            units=(),
            sources=(),
            converters=tuple(dict.fromkeys(converter_names)),
            backends=backend_names,
            unavailable=unavailable,
            rules=_labels(rules, converter_names, None),
            models=model_units(options, tuple(dict.fromkeys(converter_names)), backend_names),
        )
    words = _choose_sources(options)
    # A file is read here, so that one that cannot be is said at once.
    asked = tuple(entry.create(argument) for entry, argument in map(sources.find, words))
    units = tuple(
        unit
        for overload in _choose_operators(options, asked)
        for converter in dict.fromkeys(converter_names)
        if changed is None or changed.takes(overload, converter)
        for unit in _units(options, asked, overload, converter, backend_names)
    )
    if not units and changed is not None:
        raise NothingChanged(
            f"nothing to run: no case, rule or converter of the chosen operators changed since "
            f"{options.changed_since}"
        )
    if not units:
        why = f"no selected operator takes {' or '.join(options.dtypes)}" if options.dtypes else "no operator"
        raise UsageProblem(f"nothing to run: {why}")
    whole = _whole(units, shard)
    if shard is not None:
        units = tuple(unit for unit in units if unit.overload in whole[shard.index - 1])
    return Plan(
        units=units,
        sources=words,
        converters=tuple(dict.fromkeys(converter_names)),
        backends=backend_names,
        unavailable=unavailable,
        rules=_labels(_own(rules, whole, shard), converter_names, changed),
        changed=tuple(changed.lines(str(options.changed_since))) if changed is not None else (),
        shard=shard,
        whole=whole,
    )


def _shard(text: str | None) -> Shard | None:
    try:
        return None if text is None else Shard.parse(text)
    except ValueError as error:
        raise UsageProblem(f"--shard {error}") from None


def _whole(units: Sequence[Unit], shard: Shard | None) -> tuple[Mapping[str, str], ...]:
    """The units of every shard as `Plan.whole` has them."""
    words: dict[str, str] = {}
    for unit in units:
        words[unit.overload] = f"{words.get(unit.overload, '')} {unit.word}".strip()
    parts = distribute(words, shard.count if shard else 1, REGISTRY)
    return tuple({overload: words[overload] for overload in part} for part in parts)


def _own(rules: Sequence[Rule], whole: Sequence[Mapping[str, str]], shard: Shard | None) -> list[Rule]:
    """Of a shard's rules those that are for an operator of it: only these are sure to be called."""
    return [rule for rule in rules if shard is None or rule.overload in whole[shard.index - 1]]


def _labels(rules: Sequence[Rule], names: Sequence[str], changed: Changed | None) -> tuple[str, ...]:
    """Of the rules that a case is to use: one whose operator is not run again is not."""
    return tuple(
        dict.fromkeys(
            rule.label
            for rule in rules
            if rule.converter in names and (changed is None or changed.takes(rule.overload, rule.converter))
        )
    )


def _can_run(name: str) -> bool:
    return converters.find(name).probe() is None


def _converters_of(rules: Sequence[Rule]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(rule.converter for rule in rules))


def _check_rules(rules: Sequence[Rule]) -> None:
    for rule in rules:
        if converters.find(rule.converter).create_with_rules is None:
            raise UsageProblem(f"{rule.label}: the converter {rule.converter} takes no rules")


def _check_numbers(options: Options) -> None:
    for name in ("examples", "values", "batch_size"):
        if getattr(options, name) < 1:
            raise UsageProblem(f"--{name.replace('_', '-')} {getattr(options, name)}: must be at least 1")
    if options.opset is not None and not 7 <= options.opset <= 99:
        raise UsageProblem(f"--opset {options.opset}: not an ONNX opset that an exporter emits (7 or more)")


def _unavailable() -> tuple[tuple[str, str, Unavailable], ...]:
    found = [("converter", e.name, e.probe()) for e in converters.entries()]
    # An entry that takes an argument (onnx-api:MODULE) can be asked only with one.
    found += [("backend", e.name, e.probe("")) for e in backends.entries() if not e.name.endswith(":")]
    return tuple((kind, name, why) for kind, name, why in found if why is not None)


def _choose_backends(asked: Sequence[str]) -> tuple[str, ...]:
    if not asked:
        names = [e.name for e in backends.defaults() if e.probe("") is None]
        if not names:
            missing = [f"{e.name}: {why.install}" for e in backends.defaults() if (why := e.probe(""))]
            raise UsageProblem(f"no default backend can run here; {'; '.join(missing)}")
        return tuple(names)
    chosen: list[str] = []
    for word in asked:
        if word == "all":
            chosen += [e.name for e in backends.entries() if not e.name.endswith(":") and e.probe("") is None]
            continue
        entry, argument = backends.find(word)
        problem = entry.probe(argument)
        if problem:
            raise UsageProblem(f"--backend {word}: {problem.reason}; to get it: {problem.install}")
        chosen.append(word)
    return tuple(dict.fromkeys(chosen))


def _choose_sources(options: Options) -> tuple[str, ...]:
    if options.replay is not None:
        if options.sources:
            raise UsageProblem("--replay and --source both say where cases come from: give one of them")
        return ()
    for word in options.sources:
        entry, _ = sources.find(word)
        problem = entry.probe()
        if problem:
            raise UsageProblem(f"--source {word}: {problem.reason}; to get it: {problem.install}")
    return sources.in_order(options.sources or sources.defaults())


def _choose_operators(options: Options, asked: Sequence[Source]) -> list[str]:
    cases.load()
    if options.replay is not None:
        known = sorted({r.invocation.overload for r in options.replay})
        for name in known:
            if name.startswith(PREFIX):
                raise UsageProblem(
                    f"{name} is a whole model: run it again with --model {name.removeprefix(PREFIX)}"
                )
    else:
        known = sorted({overload for source in asked for overload in source.overloads()})
        if not known:
            raise UsageProblem(
                f"nothing to run: --source {' and '.join(options.sources)} holds no invocation"
            )
    if not options.ops:
        return known
    return sorted({name for pattern in options.ops for name in schema.match(pattern, known)})


def _units(
    options: Options,
    asked: Sequence[Source],
    overload: str,
    converter: str,
    backend_names: tuple[str, ...],
) -> list[Unit]:
    modes = ("static", "dynamic") if options.shapes == "both" else (options.shapes,)
    if options.replay is not None:
        modes = ("static", "dynamic")
    case = REGISTRY.get(overload)
    units = []
    for mode in modes:
        replay = None
        if options.replay is not None:
            replay = tuple(r for r in options.replay if _is_replayed(r, options, overload, mode))
            if not replay:
                continue
        elif options.dtypes and case is not None and not set(options.dtypes) & set(case.dtypes):
            continue
        units.append(
            Unit(
                overload=overload,
                converter=converter,
                backends=backend_names,
                shape_mode=mode,
                seed=options.seed,
                examples=options.examples,
                values=options.values,
                dtypes=options.dtypes or None,
                sources=tuple(asked),
                replay=replay,
                settings=Settings(
                    opset=options.opset,
                    batch_size=options.batch_size,
                    public_api=options.public_api,
                    dynamic=mode == "dynamic",
                    rules=options.rules,
                    blame=options.blame,
                ),
            )
        )
    return units


def _is_replayed(recorded: Replayed, options: Options, overload: str, mode: str) -> bool:
    invocation = recorded.invocation
    return (
        invocation.overload == overload
        and (recorded.exported is None) == (mode == "static")
        and (not options.dtypes or invocation.dtype in options.dtypes)
    )
