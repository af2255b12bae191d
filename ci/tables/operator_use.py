"""Change `cases/operator_use.json` and `cases/use.parquet`: what models call, and how often.

`operator_use.json` counts how often models call which operator, with which dtypes and attributes, the insides of
composites, too. `use.parquet` has every distinct call that an exporter meets, composites whole, with sizes made small
so that equal sizes stay equal and dividing ones divide (`ci/tables/small_calls.py`).

    python ci/tables/operator_use.py                    # all models: ten minutes on one core
    python ci/tables/operator_use.py 'timm/*' --print   # only look at some

The models are those of cases/models and of packages that people take models from. They are small, have random
weights, and run once; nothing is downloaded. The packages are needed in addition to the harness's own, in any
environment (for a PyTorch without CUDA with `--no-deps`, so that it is not replaced):

    pip install timm torchvision transformers diffusers segmentation-models-pytorch monai einops

A model that cannot be made with the installed versions is named and left out.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import json
import os
import sys
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from small_calls import small_call

from harness.core.invocation import Argument, Enumerated, Invocation, Literal, TensorSpec
from harness.core.isolation import IsolatedCalls
from harness.core.tensors import overload as overload_named
from harness.core.torch_operators import COMPOSITE, TorchDispatchMode
from harness.generate.cases_home import cases_directory
from harness.generate.sources.use import FILE as CALLS_FILE, HALVES, SCHEMA, cast_call
from harness.models.capture import BOOKKEEPING, kind
from harness.pipeline.captured_calls import CannotKeep, invocation_of
from harness.pipeline.model_loading import load_model, load_models
from harness.record.layout import replacing

#: Nothing is downloaded, whatever a package would like to.
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", DIFFUSERS_VERBOSITY="error")
FILE = "operator_use.json"
#: Values of an attribute that are kept, the commonest first.
_VALUES = 6

for _name in ("nms", "qnms"):
    # A torchvision that was built for CUDA cannot load its operators into a PyTorch without CUDA, and fails
    # for want of these two. No model here calls them.
    with contextlib.suppress(RuntimeError):
        _schema = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        torch.library.define(f"torchvision::{_name}", _schema)


class CallCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what is dispatched as `conformance capture` notes it: composites, and what they are made of."""

    def __init__(self, process: IsolatedCalls) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._process = process
        self.calls: Counter[tuple[str, str]] = Counter()
        self.attributes: defaultdict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
        #: Of what exporters meet, by kind: the first, made small, and how often it is called.
        self.whole: dict[Any, tuple[Invocation, int]] = {}
        self.too_large = 0
        self._depth = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if str(func) not in BOOKKEEPING:
            with contextlib.suppress(CannotKeep):
                self._note(invocation_of(func, args, kwargs, _describe_form))
                if not self._depth:
                    self._note_whole(invocation_of(func, args, kwargs))
        if func.has_kernel_for_dispatch_key(COMPOSITE):
            self._depth += 1
            try:
                with self:
                    result = func.decompose(*args, **kwargs)
            finally:
                self._depth -= 1
            if result is not NotImplemented:
                return result
        return func(*args, **kwargs)

    def _note_whole(self, call: Invocation) -> None:
        key = kind(call)
        known, times = self.whole.get(key, (None, 0))
        if known is None:
            known = small_call(call, self._process)
        if known is None:
            self.too_large += 1
        else:
            self.whole[key] = known, times + 1

    def _note(self, call: Invocation) -> None:
        self.calls[call.overload, call.dtype] += 1
        for name, value in attributes_of(call).items():
            # Sizes are a model's own; flags, modes and numbers are what conversions depend on.
            if value is not None and not isinstance(value, list):
                self.attributes[call.overload][name, json.dumps(value)] += 1


def attributes_of(call: Invocation) -> dict[str, Any]:
    """Argument that is not a tensor → value as JSON has it; defaults where it is omitted."""
    given = dict(call.arguments)
    found = {}
    for argument in overload_named(call.overload)._schema.arguments:
        if "Tensor" in str(argument.type):
            continue
        if argument.name in given:
            found[argument.name] = _value(given[argument.name])
        elif argument.has_default_value():
            found[argument.name] = _to_json(argument.default_value)
    return found


def _to_json(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_to_json(element) for element in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _value(argument: Argument) -> Any:
    if isinstance(argument, Enumerated):
        return argument.name if argument.kind == "device" else f"torch.{argument.name}"
    if isinstance(argument, tuple):
        return [_value(element) for element in argument]
    return _to_json(argument)


def _describe_form(tensor: torch.Tensor, place: str) -> TensorSpec:
    del place
    dtype = str(tensor.dtype).removeprefix("torch.")
    return TensorSpec(tuple(tensor.shape), dtype, tuple(tensor.stride()), 0, Literal(()))


def calls_of(make: Callable[[], Any], process: IsolatedCalls) -> CallCounter:
    """Count the calls of one forward pass."""
    torch.manual_seed(0)
    # Exporters see the parts of this kernel of eager mode.
    torch.backends.mha.set_fastpath_enabled(False)
    counter = CallCounter(process)
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")
        module, args, kwargs = make()
        module.eval()
        with counter:
            module(*args, **kwargs)
    return counter


def _own(name: str) -> Any:
    model = load_model(name)
    return model.program, model.inputs, {}


def _models() -> Iterator[tuple[str, str, Callable[[], Any]]]:
    from use_models import used_models

    for name in load_models():
        yield f"cases/{name}", "own", partial(_own, name)
    for one in used_models():
        yield one.name, one.kind, one.make


def main() -> None:
    """Count, say what was counted, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("patterns", nargs="*", help="names of models or globs; default: all")
    parser.add_argument("--print", action="store_true", dest="only_print", help="write no file")
    given = parser.parse_args()
    if given.patterns and not given.only_print:
        parser.error("the file holds all models: leave the names out, or add --print")
    counted: dict[str, tuple[str, CallCounter]] = {}
    process = IsolatedCalls(timeout=60)
    for name, purpose, make in _models():
        if given.patterns and not any(fnmatch.fnmatch(name, pattern) for pattern in given.patterns):
            continue
        start = time.perf_counter()
        try:
            counter = calls_of(make, process)
        except Exception as error:
            # A package of another version may refuse a configuration; the others count anyway.
            print(f"{name}: left out: {type(error).__name__}: {' '.join(str(error).split())[:160]}", flush=True)
            continue
        counted[name] = purpose, counter
        operators = len({overload for overload, _ in counter.calls})
        seconds = time.perf_counter() - start
        print(f"{name}: {counter.calls.total()} calls of {operators} operators, {seconds:.1f} s", flush=True)
    process.stop()
    print(f"{len(counted)} models")
    calls = distinct_calls(counted)
    large = sum(counter.too_large for _, counter in counted.values())
    print(f"{calls.num_rows} distinct calls; {large} calls are too large even when made small")
    if not given.only_print:
        (cases_directory() / FILE).write_text(format_file(counted), encoding="utf-8")
        with replacing(cases_directory() / CALLS_FILE) as temporary:
            pq.write_table(calls, temporary, compression="zstd")


def distinct_calls(counted: dict[str, tuple[str, CallCounter]]) -> pa.Table:
    """Every distinct call with the models that make it, those of most models first."""
    calls: dict[Any, tuple[Invocation, dict[int, int]]] = {}
    for number, (_, counter) in enumerate(counted.values()):
        for call, times in counter.whole.values():
            _, models = calls.setdefault(kind(call), (call, {}))
            models[number] = models.get(number, 0) + times
    rows: list[dict[str, Any]] = [
        {
            "overload": call.overload,
            "dtype": call.dtype,
            "invocation": call.json,
            "case_ids": [call.case_id, *(cast_call(call, dtype).case_id for dtype in _halves(call))],
            "models": sorted(models),
            "calls": sum(models.values()),
        }
        for call, models in calls.values()
    ]
    rows.sort(key=lambda row: (row["overload"], -len(row["models"]), -row["calls"], row["invocation"]))
    names = json.dumps([[name, kind_of] for name, (kind_of, _) in counted.items()])
    return pa.Table.from_pylist(rows, schema=SCHEMA.with_metadata({"models": names}))


def _halves(call: Invocation) -> tuple[str, ...]:
    return HALVES if call.dtype == "float32" else ()


def format_file(counted: dict[str, tuple[str, CallCounter]]) -> str:
    """Return the file: JSON with a model or an operator to a line, so that a change is read in a diff."""
    models = [json.dumps([name, kind]) for name, (kind, _) in counted.items()]
    calls: defaultdict[str, defaultdict[str, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
    attributes: defaultdict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
    for number, (_, counter) in enumerate(counted.values()):
        for (overload, dtype), times in sorted(counter.calls.items()):
            calls[overload][dtype][str(number)] = times
        for overload, values in counter.attributes.items():
            attributes[overload].update(values)
    lines = []
    for overload in sorted(calls):
        kept: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for (name, value), times in sorted(attributes[overload].items(), key=lambda one: (-one[1], one[0])):
            if len(kept[name]) < _VALUES:
                kept[name][value] = times
        about = {"calls": calls[overload], "attributes": dict(sorted(kept.items()))}
        lines.append(f"{json.dumps(overload)}: {json.dumps(about)}")
    packages = sorted({name.split("/")[0] for name in counted} - {"cases"})
    versions = {name: version(name) for name in ("torch", *packages)}
    parts = (
        f'"made with": {json.dumps("python ci/tables/operator_use.py")}',
        f'"versions": {json.dumps(versions)}',
        '"models": [\n' + ",\n".join(models) + "\n]",
        '"operators": {\n' + ",\n".join(lines) + "\n}",
    )
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    main()
