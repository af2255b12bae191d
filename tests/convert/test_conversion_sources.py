"""The conversion functions that are read from source are those that the exporters register."""

from __future__ import annotations

from onnx.defs import onnx_opset_version

from harness.convert.conversion_sources import conversion_functions, default_opset, later_conversions
from harness.convert.torch_private import part, registered, script_registry, torchlib_functions


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


def test_functions_for_later_opsets_are_those_that_torchlib_registers() -> None:
    def functions(opset: int) -> dict[str, int]:
        known = part("from_torchlib")(opset_version=opset).functions
        return {str(target): metas[0].opset_introduced for target, metas in known.items() if metas}

    def dotted(name: str) -> str:
        return f"{name.replace('::', '.')}{'' if '.' in name else '.default'}"

    usual, newest = functions(default_opset()), functions(onnx_opset_version())
    later = {dotted(name): newest[name] for name in newest if newest[name] != usual.get(name)}
    assert later_conversions("dynamo") == later
    assert "aten.scaled_dot_product_attention.default" in later_conversions("dynamo")


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
