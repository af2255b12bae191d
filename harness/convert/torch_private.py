"""The private parts of PyTorch's exporters that the harness touches, each with the form that it must have.

No other module of the harness names them, except `harness.core.torch_operators` for the dispatcher's private names.
`changes` lists the names that this PyTorch lacks or has in another form. `harness.convert.fast.exporter_check` asks for
them, and leaves the private parts alone if anything differs.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import logging
import pkgutil
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any
from unittest.mock import patch

import torch

from harness.core.tensors import overload
from harness.core.text import describe_error
from harness.core.torch_operators import OpOverload, is_composite, register_all_operators

_EXPORTER = "torch.onnx._internal.exporter"
_SCRIPTING = "torch.onnx._internal.torchscript_exporter"


#: How the names of modules begin that hold decompositions; some of these also run to find shapes of results.
DECOMPOSITION_MODULES = ("torch._decomp.", "torch._refs")
#: The same of those that hold conversion functions, and decompositions.
CONVERSION_MODULES = (
    "onnxscript.function_libs.torch_lib.ops.",
    f"{_EXPORTER}._torchlib.ops.",
    f"{_SCRIPTING}.symbolic_",
    *DECOMPOSITION_MODULES,
)
#: The same for operators that change graphs.
PASS_MODULES = ("onnxscript.rewriter.rules.", "onnxscript.optimizer.", "onnxscript.version_converter.")
#: The module that translates the nodes of PyTorch's graph one after another; each is `node` there.
TRANSLATING_MODULE = f"{_EXPORTER}._core"


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence exporters, which warn and log on every call, about themselves and about missing packages."""
    previous = logging.root.manager.disable
    # To disable it makes every logger forget for which levels it is enabled.
    silent = previous >= logging.CRITICAL
    if not silent:
        logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if not silent:
            logging.disable(previous)


@contextlib.contextmanager
def hide_gpus() -> Iterator[None]:
    """Hide GPUs from PyTorch, which would start CUDA's driver to look for them."""
    no_gpu = patch.multiple(torch.cuda, is_available=lambda: False, device_count=lambda: 0)
    # Without a GPU, a fake mode still looks for devices by itself.
    with no_gpu, patch.object(torch._C, "_ensureCUDADeviceGuardSet", lambda: None, create=True):
        yield


class PrivatePartMissing(LookupError):
    """This PyTorch has no such private part; the message says which."""


@dataclass(frozen=True)
class PrivatePart:
    """An object in a private module.

    Attributes:
        module: Name of the module.
        path: Its name there, with dots for an attribute of a class.
        form: Parameters of a function, as `_parameters` writes them; else the name of a type.
    """

    module: str
    path: str
    form: str

    def find(self) -> Any:
        """Return the object itself; raises `PrivatePartMissing` if it does not exist."""
        try:
            found: Any = importlib.import_module(self.module)
            for name in self.path.split("."):
                found = getattr(found, name)
        except (ImportError, AttributeError) as error:
            raise PrivatePartMissing(f"{self.module}.{self.path} is missing") from error
        return found

    def change(self) -> str:
        """Return how it differs from the form that the harness knows; "" if it does not."""
        try:
            found = self.find()
        except PrivatePartMissing as missing:
            return str(missing)
        if self.form.startswith("("):
            form, verb = _parameters(found), "takes"
        else:
            form, verb = (found.__mro__[-2] if isinstance(found, type) else type(found)).__name__, "is a"
        return "" if form == self.form else f"{self.module}.{self.path} {verb} {form}, not {self.form}"


def _parameters(function: Any) -> str:
    """Return the names and kinds of parameters, without annotations and values of defaults."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return "unknown parameters"
    bare = [
        p.replace(annotation=p.empty, default=p.empty if p.default is p.empty else ...)
        for p in signature.parameters.values()
    ]
    return str(signature.replace(parameters=bare, return_annotation=signature.empty))


_FAKE = "torch._subclasses.fake_tensor"
_REGISTRY = f"{_EXPORTER}._registration"
_PROMOTION = "torch.onnx._internal.fx.passes.type_promotion"
PARTS = {
    "registry": PrivatePart(_REGISTRY, "ONNXRegistry", "()"),
    "from_torchlib": PrivatePart(_REGISTRY, "ONNXRegistry.from_torchlib", "(opset_version=Ellipsis)"),
    "for_opset": PrivatePart(_REGISTRY, "ONNXRegistry._cleanup_registry_based_on_opset_version", "(self)"),
    "get_decomps": PrivatePart(_REGISTRY, "ONNXRegistry.get_decomps", "(self, target)"),
    "dispatch": PrivatePart(f"{_EXPORTER}._dispatching", "dispatch", "(node, registry)"),
    "implemented": PrivatePart(f"{_EXPORTER}._decomp", "get_onnx_implemented_overloads", "(registry)"),
    "decompositions": PrivatePart(
        f"{_EXPORTER}._decomp", "create_onnx_friendly_decomposition_table", "(onnx_registered_ops)"
    ),
    "decompose": PrivatePart(f"{_EXPORTER}._fx_passes", "decompose_with_registry", "(exported_program, registry)"),
    "strategies": PrivatePart(f"{_EXPORTER}._capture_strategies", "CAPTURE_STRATEGIES", "tuple"),
    "no_conversion": PrivatePart(f"{_EXPORTER}._errors", "DispatchError", "BaseException"),
    "conversion_failed": PrivatePart(f"{_EXPORTER}._errors", "GraphConstructionError", "BaseException"),
    "not_captured": PrivatePart(f"{_EXPORTER}._errors", "TorchExportError", "BaseException"),
    "composites": PrivatePart("torch.export.exported_program", "_collect_all_valid_cia_ops", "()"),
    "overrides": PrivatePart(
        "torch.export.exported_program", "_override_composite_implicit_decomp", "(cia_ops_to_callable)"
    ),
    "op_signature": PrivatePart("onnx_ir.schemas", "OpSignature.from_op_schema", "(op_schema)"),
    "promotion_rule": PrivatePart(_PROMOTION, "get_type_promotion_rule", "(node, type_promotion_table)"),
    "promotion_table": PrivatePart(_PROMOTION, "TypePromotionTable", "TypePromotionTable"),
    "promote_node": PrivatePart(_PROMOTION, "_TypePromotionInterpreter.run_node", "(self, n)"),
    "try_rule": PrivatePart(
        "onnxscript.rewriter._rewrite_rule",
        "RewriteRule.try_rewrite",
        "(self, model, graph_or_function, node, *, verbose=Ellipsis, tracer=Ellipsis)",
    ),
    "match_pattern": PrivatePart(
        "onnxscript.rewriter._matcher",
        "SimplePatternMatcher.match",
        "(self, model, graph_or_function, node, *, verbose=Ellipsis, remove_nodes=Ellipsis, tracer=Ellipsis)",
    ),
    "infer_node": PrivatePart(
        "onnxscript.optimizer._constant_folding", "FoldConstantsPass._do_inference", "(self, node)"
    ),
    "evaluate": PrivatePart(
        "onnxscript.optimizer._constant_folding",
        "ReferenceEvaluator.evaluate",
        "(self, domain, op, version, *args, **kwargs)",
    ),
    "fake_mode": PrivatePart(
        _FAKE,
        "FakeTensorMode",
        "(*, allow_fallback_kernels=Ellipsis, allow_non_fake_inputs=Ellipsis, shape_env=Ellipsis, "
        "static_shapes=Ellipsis, export=Ellipsis)",
    ),
    "tracing_settings": PrivatePart("torch._dynamo.config", "patch", "method"),
    "capture_settings": PrivatePart("torch._functorch.config", "patch", "method"),
    "shape_environment": PrivatePart("torch.fx.experimental.symbolic_shapes", "ShapeEnv", "ShapeEnv"),
    "symbol_bindings": PrivatePart(
        "torch.fx.experimental.symbolic_shapes",
        "compute_unbacked_bindings",
        "(shape_env, example_value, old_example_value=Ellipsis, peek=Ellipsis)",
    ),
    "module_call": PrivatePart("torch.export.exported_program", "ModuleCallEntry", "(fqn, signature=Ellipsis)"),
    "module_call_signature": PrivatePart(
        "torch.export.exported_program",
        "ModuleCallSignature",
        "(inputs, outputs, in_spec, out_spec, forward_arg_names=Ellipsis)",
    ),
    "training_verifier": PrivatePart("torch._export.verifier", "TrainingIRVerifier", "Verifier"),
    "split_table": PrivatePart(
        "torch.export.exported_program",
        "_split_decomp_table_to_cia_and_python_decomp",
        "(decomp_table)",
    ),
    "recompile": PrivatePart("torch.fx.graph_module", "GraphModule.recompile", "(self)"),
    "patch_method": PrivatePart(
        "torch.fx._symbolic_trace",
        "_Patcher.patch_method",
        "(self, cls, name, new_fn, deduplicate=Ellipsis)",
    ),
    "functional_mode": PrivatePart(
        "torch._subclasses.functional_tensor",
        "FunctionalTensorMode",
        "(pre_dispatch=Ellipsis, export=Ellipsis, _allow_token_discovery=Ellipsis)",
    ),
    "functionalise": PrivatePart(
        "torch._subclasses.functional_tensor", "dispatch_functionalize", "(func, mode=Ellipsis)"
    ),
    "fake_rules": PrivatePart("torch._subclasses.fake_impls", "op_implementations_dict", "dict"),
    "fake_checks": PrivatePart("torch._subclasses.fake_impls", "op_implementations_checks", "list"),
    "fake_tensor": PrivatePart(_FAKE, "FakeTensor", "TensorBase"),
    "fake_dispatch": PrivatePart(
        _FAKE, "FakeTensorMode.dispatch", "(self, func, types, args=Ellipsis, kwargs=Ellipsis)"
    ),
    "in_kernel": PrivatePart(_FAKE, "in_kernel_invocation_manager", "(fake_mode)"),
    "has_meta": PrivatePart(_FAKE, "has_meta", "(func)"),
    "is_torch_decomposition": PrivatePart(_FAKE, "torch_decomp_decompositions", "(func)"),
    "mode_key": PrivatePart("torch._C", "_TorchDispatchModeKey", "pybind11_object"),
    "would_decompose": PrivatePart(
        "torch.utils._python_dispatch", "autograd_would_have_decomposed", "(func, flat_args)"
    ),
    "meta_table": PrivatePart("torch._decomp", "meta_table", "dict"),
    "python_decompositions": PrivatePart("torch._decomp", "decomposition_table", "dict"),
}
if sys.version_info < (3, 12):
    # Later Pythons cache these facts about a class.
    PARTS["protocol_attributes"] = PrivatePart("typing", "_get_protocol_attrs", "(cls)")


@dataclass(frozen=True)
class PrivateFields:
    """Attributes of an object of PyTorch or onnxscript that the harness reads, calls or replaces.

    Attributes:
        sample: Makes such an object.
        names: The attributes, with dots for those of an attribute.
    """

    sample: Callable[[], Any]
    names: tuple[str, ...]

    def missing(self) -> Iterator[str]:
        """Yield a clause for each attribute that a new object lacks."""
        sample = self.sample()
        for name in self.names:
            try:
                attrgetter(name)(sample)
            except AttributeError:
                kind = sample if isinstance(sample, type) else type(sample)
                yield f"{kind.__module__}.{kind.__name__}.{name} is missing"


def _fake_mode() -> Any:
    return part("fake_mode")(shape_env=part("shape_environment")(), allow_non_fake_inputs=True, export=True)


def _rewrite_rule() -> Any:
    rule = importlib.import_module(PARTS["try_rule"].module).RewriteRule
    return rule(lambda op, x: op.Relu(x), lambda op, x: op.Relu(x))


def _promotion() -> Any:
    return importlib.import_module(_PROMOTION)._TypePromotionInterpreter


def _folding() -> Any:
    folding = importlib.import_module(PARTS["infer_node"].module).FoldConstantsPass
    return folding(shape_inference=True, input_size_limit=1, output_size_limit=1)


FIELDS = (
    PrivateFields(lambda: part("registry")(), ("_opset_version", "functions.items")),
    PrivateFields(
        lambda: torch.ops.aten.relu.default,
        ("py_kernels.keys", "_dispatch_cache.clear", "_schema.is_mutable", "_schema.returns", "_schema.arguments"),
    ),
    PrivateFields(lambda: torch.ops.aten.relu.default, ("_overloadname", "decompose", "overloadpacket")),
    PrivateFields(
        _fake_mode,
        (
            *("cache_enabled", "from_tensor", "lift_fns", "wrap_meta_outputs_with_default_device_logic"),
            *("fake_tensor_converter.from_meta_and_device", "shape_env.pending_fresh_unbacked_symbols.clear"),
        ),
    ),
    PrivateFields(
        lambda: _fake_mode().from_tensor(torch.ones(2)),
        ("fake_mode", "constant", "fake_device", "_has_symbolic_sizes_strides", "_is_view"),
    ),
    PrivateFields(lambda: torch.fx.GraphModule({}, torch.fx.Graph()), ("graph._codegen", "graph._target_to_str")),
    PrivateFields(_promotion, ("_maybe_promote_node", "_set_current_node")),
    PrivateFields(
        _rewrite_rule,
        ("_target_pattern.output_nodes", "_target_pattern.has_single_output_node"),
    ),
    PrivateFields(_folding, ("_opset_imports.get",)),
)


def part(name: str) -> Any:
    """Return the private part that `PARTS` calls `name`; raises `PrivatePartMissing` if this PyTorch lacks it."""
    return PARTS[name].find()


def changes() -> tuple[str, ...]:
    """Return how the private parts differ from the forms that the harness knows: a clause for each change."""
    found = [change for known in PARTS.values() if (change := known.change())]
    return tuple(found or _field_changes())


def _field_changes() -> Iterator[str]:
    for fields in FIELDS:
        try:
            yield from fields.missing()
        except Exception as error:
            yield f"an object with {', '.join(fields.names)} cannot be made ({describe_error(error).splitlines()[0]})"


@dataclass(frozen=True)
class Patch:
    """A private function, or a constant, that is replaced for a while.

    Attributes:
        owner: The module or the class that holds it.
        attribute: Its name there.
        original: The object before the replacement.
    """

    owner: Any
    attribute: str
    original: Any

    @contextmanager
    def replaced_by(self, replacement: Any) -> Iterator[None]:
        """Replace the part by `replacement` within the block; afterwards it is as before, so that blocks nest."""
        before = vars(self.owner)[self.attribute]
        setattr(self.owner, self.attribute, replacement)
        try:
            yield
        finally:
            setattr(self.owner, self.attribute, before)


@cache
def replaceable(name: str) -> Patch:
    """Return the patch for the part that `PARTS` calls `name`; raises as `part` does."""
    part(name)
    known = PARTS[name]
    path, _, attribute = known.path.rpartition(".")
    owner = importlib.import_module(known.module)
    owner = getattr(owner, path) if path else owner
    return Patch(owner, attribute, vars(owner)[attribute])


@cache
def preserved_composites() -> frozenset[Any]:
    """Return the composite operators that `torch.export` keeps whole."""
    return frozenset(replaceable("composites").original())


def node_name(graph: torch.fx.Graph, target: OpOverload) -> str:
    """Return the name that `torch.export` gives the first node of an operator: ``and_`` for ``aten.__and__.Tensor``."""
    return graph._target_to_str(target.overloadpacket.__name__)


#: Operators whose kernel PyTorch replaces while it exports with dynamic shapes (`torch.export._patches`).
RECURRENT = frozenset({"aten.lstm.input", "aten.gru.input"})


def forget_recurrent_kernels() -> None:
    """Let the next export with dynamic shapes find the kernels that PyTorch registers for it.

    PyTorch keeps the kernel that a process has called first. After any other export of a recurrent layer the next one,
    with dynamic shapes, fails or fixes them. A PyTorch without that cache has nothing to forget.
    """
    for name in RECURRENT:
        getattr(overload(name), "_dispatch_cache", {}).clear()


# torchlib's conversions, and PyTorch's decompositions for it. Each function raises `PrivatePartMissing`.


@cache
def registered() -> frozenset[str]:
    """Dotted overloads that torchlib converts."""
    return frozenset(str(t) for t in _implemented() if isinstance(t, OpOverload))


def torchlib_functions(name: str) -> tuple[str, ...]:
    """Return torchlib's conversions of an overload: ``aten_celu (opset 18)``."""
    metas = _registry().get_decomps(overload(name))
    return tuple(
        f"{_function_name(meta.onnx_function)} (opset {meta.opset_introduced}{', complex' if meta.is_complex else ''})"
        for meta in metas
    )


def _function_name(function: Any) -> str:
    function = getattr(function, "func", None) or getattr(function, "function", None) or function
    return str(getattr(function, "__name__", None) or getattr(function, "name", function))


@cache
def _registry() -> Any:
    register_all_operators()
    with quiet():
        return part("from_torchlib")()


@cache
def _implemented() -> frozenset[Any]:
    return frozenset(part("implemented")(_registry()))


@cache
def decomposition_functions() -> Mapping[Any, Callable[..., Any]]:
    """Return every decomposition function that the exporter may use, as if torchlib converted nothing."""
    with quiet():
        # Composite operators are in the table too, with their kernels: those are another answer.
        composite = {op for op in torch.export.default_decompositions() if is_composite(op)}
        whole = part("decompositions")(set())
    return {op: f for op, f in whole.items() if op not in composite}


@cache
def decomposition_table() -> Mapping[Any, Callable[..., Any]]:
    """Return the decompositions that the exporter uses."""
    with quiet():
        return dict(part("decompositions")(set(_implemented())))


# TorchScript. Each function raises `PrivatePartMissing` if PyTorch has moved a part.


def default_script_opset() -> int:
    """Return the opset that the TorchScript exporter emits unless it is given another."""
    return int(PrivatePart("torch.onnx._constants", "ONNX_DEFAULT_OPSET", "int").find())


def last_script_opset() -> int:
    """Return the last opset that the TorchScript exporter can be asked for."""
    return int(PrivatePart("torch.onnx._constants", "ONNX_MAX_OPSET", "int").find())


def script_symbolics() -> Any:
    """Return the module with the functions that register and unregister symbolic functions."""
    return PrivatePart("torch.onnx", "utils", "").find()


def script_node_creation() -> Patch | None:
    """Return the patch of the function that makes nodes in a TorchScript export; None if PyTorch changed its form."""
    known = PrivatePart(
        f"{_SCRIPTING}.jit_utils",
        "_create_node",
        "(graph_or_block, domain_op, inputs, attributes, params_dict, opset_version, n_outputs, "
        "shape_inference=Ellipsis)",
    )
    if known.change():
        return None
    return Patch(importlib.import_module(known.module), known.path, known.find())


@cache
def script_registry() -> Any:
    """TorchScript's registry with the functions of all opsets, which register themselves at import."""
    try:
        package = importlib.import_module(_SCRIPTING)
        for module in pkgutil.iter_modules(package.__path__):
            if module.name.startswith("symbolic_opset"):
                importlib.import_module(f"{_SCRIPTING}.{module.name}")
    except ImportError as error:
        raise PrivatePartMissing(f"{_SCRIPTING} is missing") from error
    return PrivatePart(f"{_SCRIPTING}.registration", "registry", "").find()


def script_symbolic_versions(name: str) -> tuple[int, ...]:
    """Return the opsets for which the TorchScript exporter has a symbolic function of ``aten::celu``."""
    group = script_registry().get_function_group(name)
    return tuple(sorted(group._functions)) if group is not None else ()
