"""The conversion functions that are read from source are those that the exporters register."""

from __future__ import annotations

from harness.convert.conversion_sources import conversion_functions
from harness.convert.torch_private import registered, script_registry, torchlib_functions


def test_torchlib_registers_what_is_read_from_its_source() -> None:
    read = conversion_functions("dynamo")
    overloads = [name for name in registered() if name.startswith("aten.")]
    assert len(overloads) > 300
    # The first one is that of the lowest opset.
    unlike = {
        name: torchlib_functions(name)
        for name in overloads
        if name not in read or read[name].name not in " ".join(torchlib_functions(name)).split()
    }
    # One operator is registered in a way of its own, and one has a function from opset 20 on.
    assert len(unlike) <= 2, unlike


def test_torchscript_registers_what_is_read_from_its_source() -> None:
    registry = script_registry()
    read = conversion_functions("torchscript")
    assert len(read) > 300
    # A comment stands between the decorators of that one.
    assert read["aten.tanh"].name == "tanh"

    def registered_name(name: str) -> str:
        name = name.replace(".", "::", 1)
        # The operators in place, and those such as `__and__`, are registered without the last underscore.
        group = registry.get_function_group(name) or registry.get_function_group(name.removesuffix("_"))
        found = group.get(20) if group else None
        return "" if found is None else found.__name__

    names = {name: registered_name(name) for name in read}
    # What a function makes and returns is registered under that name.
    made = ("symbolic_fn", "symbolic", "reduce", "feature_dropout")
    assert [name for name, said in names.items() if said != read[name].name and said not in made] == []
