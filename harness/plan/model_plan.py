"""From a user's options to units of whole models."""

from __future__ import annotations

from harness.execute import ModelProblem, Settings, check_word, model_name
from harness.plan.model_unit import ModelUnit
from harness.plan.options import Options

#: Options that choose operators or their cases, and so say nothing of a model: attribute → option.
_OF_OPERATORS = {
    "ops": "--op",
    "sources": "--source",
    "dtypes": "--dtype",
    "replay": "--replay",
    "shard": "--shard",
    "reuses": "--reuse",
}


def model_units(
    options: Options, converters: tuple[str, ...], backends: tuple[str, ...]
) -> tuple[ModelUnit, ...]:
    """One unit per model, converter and kind of export, in a stable order.

    Raises:
        UnknownName: no registered model has such a name.
        ModelProblem: a file is not there, or an option does not go with models.
    """
    for name, option in _OF_OPERATORS.items():
        if getattr(options, name):
            raise ModelProblem(
                f"{option} is for operators, and whole models are to be run: leave one of them out"
            )
    names: dict[str, str] = {}
    for word in options.models:
        check_word(word)
        if names.setdefault(model_name(word), word) != word:
            raise ModelProblem(f"{names[model_name(word)]} and {word} have one name: run one after the other")
    modes = ("static", "dynamic") if options.shapes == "both" else (options.shapes,)
    return tuple(
        ModelUnit(
            word=word,
            converter=converter,
            backends=backends,
            shape_mode=mode,
            settings=Settings(
                opset=options.opset,
                public_api=options.public_api,
                dynamic=mode == "dynamic",
                rules=options.rules,
                blame=options.blame,
            ),
        )
        for word in dict.fromkeys(options.models)
        for converter in converters
        for mode in modes
    )
