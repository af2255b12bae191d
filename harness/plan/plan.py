"""Resolve a user's options to units of work, or to one clear line about what is wrong with them."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.convert.converter import CONVERTERS, find_converter
from harness.convert.rules.rule import Rule, RuleProblem, load_rules
from harness.convert.transform import find_transforms
from harness.core import overloads as schema
from harness.core.dtypes import ALL, COMPLEX, WIDE_UNSIGNED
from harness.core.invocation import GRAPH as GRAPH_PREFIX, MODEL, PROGRAM, is_exported
from harness.core.onnx_operators import UnknownOnnxOperator, is_onnx_operator, match_onnx
from harness.core.plugins import Unavailable, UnknownName
from harness.core.route import DYNAMIC, FILE, GRAPH, Route, is_onnx_file
from harness.generate.case_library import find_case, load_cases, load_onnx_cases
from harness.generate.cases_home import CaseFileError
from harness.generate.graph_windows import BadModel
from harness.generate.operator_case import OPERATOR_CASES, OperatorCase
from harness.generate.programs import load_patterns
from harness.generate.sources.forbidden import ForbiddenNodes
from harness.generate.sources.generated import Generated
from harness.generate.sources.onnx_graphs import OnnxGraphs
from harness.generate.sources.onnx_operators import OnnxOperators
from harness.generate.sources.recorded import FromRecord, Replayed
from harness.generate.sources.redrawn import Redrawn
from harness.generate.sources.registry import default_sources, find_source
from harness.generate.sources.source import SIZES_PER_EXPORT, Source
from harness.pipeline.model_loading import ModelProblem, check_word
from harness.pipeline.model_task import ModelSource, model_name
from harness.pipeline.task import Settings
from harness.plan.options import GRAPH_EXAMPLES, OPERATOR_EXAMPLES, PROGRAM_EXAMPLES, Options, UsageProblem
from harness.plan.profile import Profile, read_profile
from harness.plan.sharding import Shard, check_parts, distribute
from harness.plan.unit import Unit
from harness.record.layout import ResultsError
from harness.run.artefact import ONNX
from harness.run.backend import BACKENDS


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The units of a run.

    Attributes:
        units: The units, in a stable order.
        sources: The names of the sources; empty if a recorded run is replayed.
        converters: The names of the converters.
        backends: The names of the backends.
        unavailable: Kind, name and reason of every registered plug-in that cannot run here.
        rules: Labels of the rules that are tried.
        shard: The shard that `units` belong to; None for all.
        whole: Overload → units, separated by spaces; one mapping per shard, or one for a whole run.
    """

    units: tuple[Unit, ...]
    sources: tuple[str, ...]
    converters: tuple[str, ...]
    backends: tuple[str, ...]
    unavailable: tuple[tuple[str, str, Unavailable], ...]
    rules: tuple[str, ...] = ()
    shard: Shard | None = None
    whole: tuple[Mapping[str, str], ...] = ()

    @property
    def has_models(self) -> bool:
        """Whether whole models are run instead of operators."""
        return not all(unit.draws for unit in self.units)


#: Largest number of cases per operator, and of values per structure: all are drawn before the first is run.
_MOST = 100_000
_PROBLEMS = (
    UnknownName,
    schema.UnknownOperator,
    UnknownOnnxOperator,
    CaseFileError,
    RuleProblem,
    ResultsError,
    ModelProblem,
)


def make_plan(options: Options) -> Plan:
    """Resolve names, probe the plug-ins, and list the units.

    Raises:
        UsageProblem: A name is unknown (the message suggests similar ones), a plug-in that was asked for cannot run
            here (it says how to install it), a number is out of range, or nothing is left to run.
    """
    try:
        return _make_plan(options)
    except _PROBLEMS as error:
        raise UsageProblem(str(error)) from None


def _make_plan(options: Options) -> Plan:
    _check_numbers(options)
    options = _set_route_of_files(options)
    shard = _shard(options.shard)
    _check_dtypes(options)
    unavailable = _unavailable()
    rules = _rules(options)
    converter_names = _converter_names(options, rules)
    if rules and not options.ops and not options.models and options.replay is None:
        options = replace(options, ops=tuple(sorted({rule.overload for rule in rules} & set(load_cases()))))
    converter_names = _expand_opsets(options, converter_names)
    backends_of = _choose_backends(options.backends, converter_names)
    backend_names = tuple(dict.fromkeys(name for names in backends_of.values() for name in names))
    if options.models:
        return Plan(
            units=_model_units(options, backends_of),
            sources=(),
            converters=converter_names,
            backends=backend_names,
            unavailable=unavailable,
            rules=_labels(rules, converter_names),
        )
    converter_names, later = _later_exports(options, converter_names)
    words = _choose_sources(options)
    asked = _ask_sources(words)
    profile = read_profile(Path(options.profile), tuple(load_onnx_cases())) if options.profile else None
    units = tuple(
        unit
        for overload in _choose_operators(options, asked)
        if profile is None or overload in profile.dtypes
        for converter in converter_names
        if is_exported(overload) == (Route.parse(converter).converter == GRAPH)
        for export in (converter, *later.get((converter, overload), ()))
        for unit in _units(_claimed(options, profile, overload), asked, overload, export, backends_of[converter])
    )
    if not units:
        why = f"no selected operator takes {' or '.join(options.dtypes)}" if options.dtypes else "no operator"
        raise UsageProblem(f"nothing to run: {why}")
    whole = _whole(units, shard, options.parts)
    if shard is not None:
        part = whole[shard.index - 1]
        units = tuple(unit for unit in units if unit.word in part.get(unit.overload, "").split())
        # Other rules may not be called in this shard.
        rules = [rule for rule in rules if rule.overload in part]
    if options.replay is not None:
        rules = [rule for rule in rules if rule.overload in {unit.overload for unit in units}]
    return Plan(
        units=units,
        sources=words,
        converters=tuple(dict.fromkeys((*converter_names, *(unit.route.export for unit in units)))),
        backends=backend_names,
        unavailable=unavailable,
        rules=_labels(rules, converter_names),
        shard=shard,
        whole=whole,
    )


def _ask_sources(words: Sequence[str]) -> tuple[Source, ...]:
    """Return the sources of some words; their files are read before anything runs."""
    try:
        return tuple(entry.create(argument) for entry, argument in map(find_source, words))
    except BadModel as problem:
        raise UsageProblem(f"--around {problem}") from None


def _check_dtypes(options: Options) -> None:
    known = (*ALL, *WIDE_UNSIGNED, *COMPLEX)
    for dtype in options.dtypes:
        if dtype not in known:
            raise UnknownName("dtype", dtype, known)


def _rules(options: Options) -> list[Rule]:
    rules = [rule for file in options.rules for rule in load_rules(file)]
    for rule in rules:
        if find_converter(rule.converter).create_with_rules is None:
            raise UsageProblem(f"{rule.label}: the converter {rule.converter} takes no rules")
    return rules


def _converter_names(options: Options, rules: Sequence[Rule]) -> tuple[str, ...]:
    named = options.converters or tuple(rule.converter for rule in rules)
    drawn = {word.partition(":")[0] for word in options.sources} - {Redrawn.name}
    if drawn and drawn <= {OnnxOperators.name, ForbiddenNodes.name, OnnxGraphs.name}:
        named = _graph_routes(options)
    names = tuple(dict.fromkeys(named or _default_converters(options.backends)))
    for name in names:
        problem = find_converter(name).probe()
        if problem:
            raise UsageProblem(f"--converter {name}: {problem.reason}; to get it: {problem.install}")
        _check_transforms(name)
    return names


def _claimed(options: Options, profile: Profile | None, overload: str) -> Options:
    """Return the options with the dtypes and the operator set in which a runtime claims an operator."""
    if profile is None:
        return options
    claimed = profile.dtypes[overload]
    dtypes = tuple(d for d in options.dtypes if d in claimed) if options.dtypes and claimed else claimed
    opset = options.opset if options.opset is not None else profile.opset(overload)
    return replace(options, dtypes=dtypes or options.dtypes, opset=opset)


def _graph_routes(options: Options) -> tuple[str, ...]:
    """Return the exports of a run of drawn graphs, which no converter makes."""
    for name in options.converters:
        if Route.parse(name).converter != GRAPH:
            raise UsageProblem(f"--converter {name}: no converter makes the graphs of --onnx; {GRAPH}+TRANSFORM does")
    if options.rules:
        raise UsageProblem("--rules has no effect on the graphs of --onnx, which no converter makes")
    return options.converters or (GRAPH,)


def _has_form(case: OperatorCase, options: Options, export: str) -> bool:
    """Whether an operator case is of an operator's form at the opset of an export."""
    named = Route.parse(export).opset
    opset = options.opset if named is None else named
    if case.schema is None or case.schema.domain or opset is None:
        return True
    return case.schema.is_current_at(opset)


def _check_transforms(export: str) -> None:
    for transform in find_transforms(Route.parse(export).transforms):
        if find_converter(export).makes != ONNX:
            raise UsageProblem(f"--converter {export}: the transform {transform.name} takes ONNX models only")
        problem = transform.probe()
        if problem:
            raise UsageProblem(f"--converter {export}: {problem.reason}; to get it: {problem.install}")


def _default_converters(backends: Sequence[str]) -> tuple[str, ...]:
    """Return the default converters, and the first available one for each backend that cannot run their artefacts."""
    defaults = CONVERTERS.defaults()
    made = {entry.makes for entry in defaults}
    asked = [set(BACKENDS.find(word)[0].takes) for word in backends if word != "all"]
    chosen = [entry for entry in defaults if not asked or any(entry.makes in taken for taken in asked)]
    for taken in asked:
        makers = [e for e in CONVERTERS.entries() if e.makes in taken]
        if not taken & made and makers and makers[0] not in chosen:
            chosen.append(next((e for e in makers if e.probe() is None), makers[0]))
    return tuple(dict.fromkeys(entry.name for entry in chosen))


def _shard(text: str | None) -> Shard | None:
    try:
        return None if text is None else Shard.parse(text)
    except ValueError as error:
        raise UsageProblem(f"--shard {error}") from None


def _whole(
    units: Sequence[Unit], shard: Shard | None, parts: Sequence[Sequence[str]] | None
) -> tuple[Mapping[str, str], ...]:
    """Return the units of every shard in the form of `Plan.whole`."""
    if parts is not None:
        check_parts(parts, shard, [unit.name for unit in units])
        return tuple(_words(part) for part in parts)
    words = _words([unit.name for unit in units])
    # Patterns take a second to load, and a run without programs needs none.
    patterns = load_patterns() if any(name.startswith(PROGRAM) for name in words) else ()
    chosen = distribute(words, shard.count if shard else 1, {*OPERATOR_CASES, *patterns})
    return tuple({overload: words[overload] for overload in part} for part in chosen)


def _words(names: Sequence[str]) -> dict[str, str]:
    """Return overload → units, separated by spaces."""
    words: dict[str, str] = {}
    for name in names:
        overload, _, word = name.partition(" ")
        words[overload] = f"{words.get(overload, '')} {word}".strip()
    return words


def _labels(rules: Sequence[Rule], names: Sequence[str]) -> tuple[str, ...]:
    """Return the labels of the rules that extend one of the converters."""
    converters = {Route.parse(name).converter for name in names}
    return tuple(dict.fromkeys(rule.label for rule in rules if rule.converter in converters))


def _check_numbers(options: Options) -> None:
    for name in ("examples", "values", "batch_size"):
        if getattr(options, name) is not None and getattr(options, name) < 1:
            raise UsageProblem(f"--{name.replace('_', '-')} {getattr(options, name)}: must be at least 1")
    for name in ("examples", "values"):
        if (getattr(options, name) or 0) > _MOST:
            raise UsageProblem(
                f"--{name} {getattr(options, name)}: must be at most {_MOST:,}; --seed N draws other cases"
            )


def _expand_opsets(options: Options, converters: Sequence[str]) -> tuple[str, ...]:
    """Return each converter with each opset, if the user gives several opsets."""
    for name in converters:
        named = Route.parse(name)
        emitted = find_converter(name).opsets()
        asked = (*options.opsets, *(n for n in (named.opset, options.opset) if n is not None))
        for opset in asked:
            problem = f"--opset {opset}: the converter {named.converter}"
            if not emitted:
                raise UsageProblem(f"{problem} makes no ONNX model: leave out --opset")
            if opset not in emitted:
                raise UsageProblem(f"{problem} emits opsets {emitted.start} to {emitted.stop - 1}")
        if named.opset is not None and len(set(asked)) > 1:
            raise UsageProblem(f"--converter {name} names an opset: leave out --opset")
    if not options.opsets:
        return tuple(converters)
    if options.models:
        raise UsageProblem("--model runs one opset at a time: give --opset once")
    return tuple(Route.parse(name).named_at(opset).export for name in converters for opset in options.opsets)


def _later_exports(
    options: Options, converters: tuple[str, ...]
) -> tuple[tuple[str, ...], dict[tuple[str, str], tuple[str, ...]]]:
    """Return the converters of all operators, and the further exports of those with another function at a later opset.

    All further exports of a converter are at one opset, the newest, so that a record has one further converter and not
    several. A recorded run lists it among its converters; its replay has it for the same operators.

    Returns:
        The converters, and converter and overload → the names of the further exports: ``dynamo@23``.
    """
    if options.opset is not None or options.opsets or options.rules:
        return converters, {}
    exports: dict[tuple[str, str], tuple[str, ...]] = {}
    for name in converters:
        named, later = Route.parse(name), find_converter(name).later_conversions()
        newest = named.named_at(max(later.values(), default=0)).export
        is_listed, is_replay = newest in converters, options.replay is not None
        if named.opset is None and is_listed == is_replay:
            exports |= {(name, overload): (newest,) for overload in later}
    further = {export for names in exports.values() for export in names}
    return tuple(name for name in converters if name not in further), exports


def _unavailable() -> tuple[tuple[str, str, Unavailable], ...]:
    probes = [("converter", e.name, e.probe()) for e in CONVERTERS.entries()]
    # An entry that takes an argument (onnx-api:MODULE) can be probed only with one.
    probes += [("backend", e.name, e.probe("")) for e in BACKENDS.entries() if not e.name.endswith(":")]
    return tuple((kind, name, why) for kind, name, why in probes if why is not None)


def _choose_backends(asked: Sequence[str], converters: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return for each converter the backends that run its artefact, out of those asked for or the default ones.

    If no default backend runs it, all CPU backends that do are used.
    """
    if not asked:
        return {name: _default_backends(name) for name in converters}
    chosen = _asked_backends(asked)
    by_converter: dict[str, tuple[str, ...]] = {}
    for name in converters:
        makes = find_converter(name).makes
        by_converter[name] = tuple(backend for backend in chosen if makes in BACKENDS.find(backend)[0].takes)
        if not by_converter[name]:
            takers = [e.name for e in BACKENDS.entries() if makes in e.takes]
            raise UsageProblem(
                f"--converter {name} makes an artefact of kind {makes}, which {' and '.join(chosen)} "
                f"{'do' if len(chosen) > 1 else 'does'} not take; --backend {' or '.join(takers)} does"
            )
    taken = {backend for names in by_converter.values() for backend in names}
    for word in asked:
        if word != "all" and word not in taken:
            kinds = BACKENDS.find(word)[0].takes
            makers = [e.name for e in CONVERTERS.entries() if e.makes in kinds]
            raise UsageProblem(
                f"--backend {word} takes artefacts of kind {' and '.join(kinds)}, which {' and '.join(converters)} "
                f"{'do' if len(converters) > 1 else 'does'} not make; --converter {' or '.join(makers)} does"
            )
    return by_converter


def _default_backends(converter: str) -> tuple[str, ...]:
    """Return the backends that run a converter's artefact if the user names none."""
    makes = find_converter(converter).makes
    takers = [e for e in BACKENDS.entries() if makes in e.takes and not e.name.endswith(":")]
    usual = [e for e in takers if e.default] or [e for e in takers if e.on_cpu]
    names = [e.name for e in usual if e.probe("") is None]
    if not names:
        missing = [f"{e.name}: {why.install}" for e in usual if (why := e.probe(""))]
        raise UsageProblem(f"no backend that runs {converter}'s models is installed; {'; '.join(missing)}")
    return tuple(names)


def first_backend(converter: str) -> str:
    """Return the first of a converter's default backends, for uses that need only one.

    Raises:
        UsageProblem: None of them can run here.
        UnknownName: No converter has that name.
    """
    return _default_backends(converter)[0]


def _asked_backends(asked: Sequence[str]) -> tuple[str, ...]:
    chosen: list[str] = []
    for word in asked:
        if word == "all":
            chosen += [e.name for e in BACKENDS.entries() if not e.name.endswith(":") and e.probe("") is None]
            continue
        entry, argument = BACKENDS.find(word)
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
        entry, _ = find_source(word)
        problem = entry.probe()
        if problem:
            raise UsageProblem(f"--source {word}: {problem.reason}; to get it: {problem.install}")
    return tuple(dict.fromkeys(options.sources)) or default_sources()


def _choose_operators(options: Options, asked: Sequence[Source]) -> list[str]:
    load_cases()
    if options.replay is not None:
        known = sorted({r.invocation.overload for r in options.replay})
        for name in known:
            if name.startswith(MODEL):
                raise UsageProblem(f"{name} is a whole model: run it again with --model {name.removeprefix(MODEL)}")
    else:
        known = sorted({overload for source in asked for overload in source.overloads()})
        if not known:
            raise UsageProblem(f"nothing to run: --source {' and '.join(options.sources)} holds no invocation")
    if not options.ops:
        return known
    return sorted({name for word in options.ops for name in _named_by(word, known)})


def _named_by(word: str, known: Sequence[str]) -> list[str]:
    """Return the operators, or the patterns of programs, that a name or a glob matches."""
    if word.startswith(GRAPH_PREFIX):
        seeds = [name for name in known if name.startswith(GRAPH_PREFIX)]
        if matches := fnmatch.filter(seeds, word):
            return matches
        names = tuple(name.removeprefix(GRAPH_PREFIX) for name in seeds)
        raise UnknownName("graph", word.removeprefix(GRAPH_PREFIX), names)
    if not word.startswith(PROGRAM):
        drawn = [name for name in known if is_onnx_operator(name)]
        return match_onnx(word, drawn) if drawn else schema.match(word, known)
    patterns = [name for name in known if name.startswith(PROGRAM)]
    if matches := fnmatch.filter(patterns, word):
        return matches
    raise UnknownName("pattern", word.removeprefix(PROGRAM), tuple(name.removeprefix(PROGRAM) for name in patterns))


def _units(
    options: Options,
    asked: Sequence[Source],
    overload: str,
    converter: str,
    backend_names: tuple[str, ...],
) -> list[Unit]:
    case = find_case(overload)
    if case is not None and not _has_form(case, options, converter):
        return []
    batch_size = min(options.batch_size, find_converter(converter).max_batch or options.batch_size)
    units = []
    for mode in ("static", "dynamic") if options.replay is not None else _modes(options):
        replay = None
        if options.replay is not None:
            replay = tuple(r for r in options.replay if _is_replayed(r, options, overload, mode))
            if not replay:
                continue
        elif options.dtypes and case is not None and not set(options.dtypes) & set(case.dtypes):
            continue
        examples = _examples(options, asked, mode, overload, case)
        if not examples:
            continue
        # Each runtime computes its own reference for a graph of several nodes.
        is_graph = overload.startswith(GRAPH_PREFIX)
        units += [
            Unit(
                overload=overload,
                route=_route(options, mode, converter, case),
                backends=backends,
                seed=options.seed,
                examples=examples,
                values=options.values,
                dtypes=options.dtypes or None,
                sources=tuple(asked) if replay is None else (FromRecord(replay),),
                settings=replace(_settings(options), batch_size=batch_size),
            )
            for backends in ([(name,) for name in backend_names] if is_graph else [backend_names])
        ]
    return units


def _route(options: Options, mode: str, export: str, case: OperatorCase | None = None) -> Route:
    """Return the route without a backend.

    Its opset is the one in the export's name, else the user's, else the one that introduced the operator.
    """
    named = Route.parse(export)
    opset = named.opset if named.opset is not None else options.opset
    if opset is None and case is not None and case.opset in find_converter(export).opsets():
        opset = case.opset
    return replace(named, opset=opset, dynamic=mode == DYNAMIC, rules=options.rules, public_api=options.public_api)


def _modes(options: Options) -> tuple[str, ...]:
    return ("static", "dynamic") if options.shapes in ("both", "mixed") else (options.shapes,)


#: Cases of an operator per dynamic export in a mixed run. A dynamic export costs ten times as much as a static one: two
#: per operator found 43 root causes that a static sweep does not find, seven found 82.
_CASES_PER_DYNAMIC_EXPORT = 128


#: The same for a pattern of programs, in which shapes also flow between calls.
_CASES_PER_DYNAMIC_PROGRAM = 32
#: The same for a pattern that is only interesting with dynamic sizes.
_CASES_OF_SIZES = 8
#: The same for graphs, whose sizes are also part of what is changed.
_GRAPHS_PER_OPEN_GRAPH = 6


def _examples(options: Options, asked: Sequence[Source], mode: str, overload: str, case: OperatorCase | None) -> int:
    """Return the number of cases that a unit draws; 0 means that the unit does not exist."""
    examples = options.examples
    if overload.startswith(PROGRAM) and any(source.name == Generated.name for source in asked):
        examples = -(-examples * PROGRAM_EXAMPLES // OPERATOR_EXAMPLES)
    if overload.startswith(GRAPH_PREFIX):
        examples = examples * GRAPH_EXAMPLES // OPERATOR_EXAMPLES
        return examples // _GRAPHS_PER_OPEN_GRAPH if options.shapes == "mixed" and mode == DYNAMIC else examples
    if options.shapes != "mixed" or mode == "static" or options.replay is not None:
        return examples
    if overload.startswith(PROGRAM):
        pattern = load_patterns().get(overload)
        per_export = _CASES_OF_SIZES if pattern is not None and pattern.dynamic else _CASES_PER_DYNAMIC_PROGRAM
        return examples // per_export * (1 + SIZES_PER_EXPORT)
    if case is None or not case.converted:
        return 0
    exports = int(examples * case.share) // _CASES_PER_DYNAMIC_EXPORT
    return exports * (1 + SIZES_PER_EXPORT)


def _settings(options: Options) -> Settings:
    """Return the settings that all tasks of a run share."""
    return Settings(blame=options.blame, runs=options.runs, strict_device=options.strict_device)


def _is_replayed(recorded: Replayed, options: Options, overload: str, mode: str) -> bool:
    invocation = recorded.invocation
    return (
        invocation.overload == overload
        and (recorded.exported is None) == (mode == "static")
        and (not options.dtypes or invocation.dtype in options.dtypes)
    )


# Whole models.

#: Options that select operators or their cases and do not apply to models: attribute → option.
_OPERATOR_OPTIONS = {
    "ops": "--op",
    "sources": "--source",
    "dtypes": "--dtype",
    "replay": "--replay",
    "shard": "--shard",
}


def _set_route_of_files(options: Options) -> Options:
    """Return the options with the route of ONNX files if the models are such; raises `ModelProblem` for a mixture."""
    files = [word for word in options.models if is_onnx_file(word)]
    if not files:
        return options
    if len(files) < len(options.models):
        raise ModelProblem(f"{files[0]} is exported already: run it apart from models that are not")
    given = {
        "--converter": [name for name in options.converters if Route.parse(name).converter != FILE],
        "--opset": options.opset or options.opsets,
        "--rules": options.rules,
        "--shapes": options.shapes in ("static", "dynamic"),
    }
    for option, value in given.items():
        if value:
            raise ModelProblem(f"{option} has no effect on an .onnx file, which is exported already")
    return options if options.converters else replace(options, converters=(FILE,))


def _model_units(options: Options, backends_of: Mapping[str, tuple[str, ...]]) -> tuple[Unit, ...]:
    """Return one unit per model, converter and shape mode, in a stable order."""
    for name, option in _OPERATOR_OPTIONS.items():
        if getattr(options, name):
            raise ModelProblem(f"{option} is for operators, and whole models are to be run: leave one of them out")
    names: dict[str, str] = {}
    for word in options.models:
        check_word(word)
        if names.setdefault(model_name(word), word) != word:
            raise ModelProblem(f"{names[model_name(word)]} and {word} have one name: run one after the other")
    modes = ("static",) if options.shapes == "mixed" else _modes(options)
    units = []
    for word in dict.fromkeys(options.models):
        source = ModelSource(word)
        for converter, backends in backends_of.items():
            if source.is_graph:
                # Each runtime computes its own reference for a file.
                route = _route(options, "static", converter)
                units += [Unit.for_model(source, route, (backend,), _settings(options)) for backend in backends]
                continue
            units += [
                Unit.for_model(source, _route(options, mode, converter), backends, _settings(options)) for mode in modes
            ]
    return tuple(units)
