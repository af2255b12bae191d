"""Ordinary ways in which users give a model, all of which the public export takes and translates rightly."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.export import Dim

WAYS: dict[str, Callable[[], Any]] = {}


def way(make: Callable[[], Any]) -> Callable[[], Any]:
    WAYS[make.__name__] = make
    return make


class Calls(nn.Module):
    """A module that calls a function with its weights at hand."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(self, *args)


class TwoInputs(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.relu(), y.float()


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None) -> torch.Tensor:
        x: torch.Tensor = self.embedding(input_ids)
        return x if attention_mask is None else x.mul(attention_mask[..., None])


class Options(nn.Module):
    def forward(
        self, x: torch.Tensor, power: int = 2, negate: bool = False, bias: Any = None, mode: str = "sum"
    ) -> torch.Tensor:
        x = -(x**power) if negate else x**power
        x = x if bias is None else x + bias
        return x.sum(-1) if mode == "sum" else x


class Nested(nn.Module):
    def forward(self, x: torch.Tensor, pair: Any, parts: dict[str, Any]) -> dict[str, Any]:
        return {"sum": x + pair[0] * parts["b"], "rest": [pair[1], (parts["a"], x.abs())]}


class CacheStep(nn.Module):
    def forward(self, x: torch.Tensor, past: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        present = torch.cat([past, x], 1)
        return (x @ present.transpose(1, 2)).softmax(-1) @ present, present


class Caches(nn.Module):
    def forward(self, x: torch.Tensor, caches: list[tuple[torch.Tensor, torch.Tensor]]) -> Any:
        grown = [(torch.cat([k, x], 1), torch.cat([v, x], 1)) for k, v in caches]
        return x + sum(k.sum(1, keepdim=True) for k, _ in grown), grown


@way
def one_tensor() -> Any:
    return nn.Linear(4, 3), torch.randn(2, 4)


@way
def tuple_of_one() -> Any:
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU()), (torch.randn(2, 4),)


@way
def list_of_inputs() -> Any:
    return TwoInputs(), [torch.randn(2, 3), torch.randint(0, 5, (2, 5))]


@way
def keyword_inputs() -> Any:
    return Masked(), {"input_ids": torch.randint(0, 20, (2, 5)), "attention_mask": torch.ones(2, 5)}


@way
def keyword_inputs_in_another_order() -> Any:
    return Masked(), {"attention_mask": torch.rand(2, 5), "input_ids": torch.randint(0, 20, (2, 5))}


@way
def positional_and_keyword() -> Any:
    return Masked(), (torch.randint(0, 20, (2, 5)),), {"attention_mask": torch.ones(2, 5)}, None


@way
def keyword_inputs_of_open_size() -> Any:
    batch, length = Dim("batch"), Dim("length")
    inputs = {"input_ids": torch.randint(0, 20, (2, 5)), "attention_mask": torch.ones(2, 5)}
    return Masked(), inputs, {name: {0: batch, 1: length} for name in inputs}


@way
def shared_open_size() -> Any:
    b = Dim("b")
    return TwoInputs(), (torch.randn(2, 3), torch.randn(2, 5)), {"x": {0: b}, "y": {0: b}}


@way
def shared_open_size_in_a_tuple() -> Any:
    b = Dim("b", min=1, max=64)
    return TwoInputs(), (torch.randn(2, 3), torch.randn(2, 5)), ({0: b}, {0: b})


@way
def shared_name() -> Any:
    return TwoInputs(), (torch.randn(2, 3), torch.randn(2, 5)), {"x": {0: "b"}, "y": {0: "b", 1: "n"}}


@way
def dynamic_size() -> Any:
    return nn.Linear(4, 3), (torch.randn(2, 4),), ({0: Dim.DYNAMIC},)


@way
def automatic_sizes() -> Any:
    return TwoInputs(), (torch.randn(2, 3), torch.randn(2, 5)), ((Dim.AUTO, Dim.AUTO), (Dim.AUTO, Dim.STATIC))


@way
def derived_size() -> Any:
    h = Dim("h", min=1, max=32)
    pool = Calls(lambda m, x: nn.functional.pixel_unshuffle(x, 4))
    return pool, (torch.randn(1, 1, 8, 8),), ((({2: 4 * h}),),)


@way
def related_sizes() -> Any:
    n = Dim("n", min=2, max=50)
    differ = Calls(lambda m, x, y: x[1:] + y)
    return differ, (torch.randn(6, 4), torch.randn(5, 4)), (({0: n + 1}, {0: n}),)


@way
def cache_of_open_length() -> Any:
    b = Dim("b")
    shapes = {"x": {0: b}, "past": {0: b, 1: Dim("p")}}
    return CacheStep(), (torch.randn(2, 1, 4), torch.randn(2, 5, 4)), shapes


@way
def caches_in_a_list() -> Any:
    b, p = Dim("b"), Dim("p")
    caches = [(torch.randn(2, 5, 4), torch.randn(2, 5, 4)) for _ in range(2)]
    each = ({0: b, 1: p}, {0: b, 1: p})
    return Caches(), (torch.randn(2, 1, 4), caches), {"x": {0: b}, "caches": [each, each]}


@way
def nested_inputs_and_outputs() -> Any:
    return Nested(), (torch.randn(3), (torch.randn(3), torch.randn(2)), {"a": torch.randn(1), "b": torch.randn(3)})


@way
def flags_and_numbers() -> Any:
    return Options(), (torch.randn(2, 3), 3, True)


@way
def missing_option_and_text() -> Any:
    return Options(), (torch.randn(2, 3), 2, False, None, "none")


@way
def option_by_keyword() -> Any:
    return Options(), (torch.randn(2, 3),), {"bias": torch.randn(3), "mode": "none"}, None


@way
def plain_function() -> Any:
    return (lambda x, y: (x * y).sum(-1)), (torch.randn(2, 3), torch.randn(2, 3))


@way
def compiled_module() -> Any:
    return torch.compile(nn.Sequential(nn.Linear(4, 3), nn.GELU())), (torch.randn(2, 4),)


@way
def half_precision() -> Any:
    return nn.Linear(4, 3).half(), (torch.randn(2, 4).half(),)


@way
def tokens() -> Any:
    return nn.Sequential(nn.Embedding(30, 8), nn.Linear(8, 30)), (torch.randint(0, 30, (1, 7)),)


@way
def image() -> Any:
    layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return layers, (torch.rand(1, 3, 16, 16),)


@way
def dropout_in_training_mode() -> Any:
    return nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).train(), (torch.randn(2, 4),)


@way
def ordered_dict_output() -> Any:
    return Calls(lambda m, x: OrderedDict(logits=m.linear(x), hidden=x)), (torch.randn(2, 4),)


Pair = namedtuple("Pair", ["logits", "hidden"])


@way
def named_tuple_output() -> Any:
    return Calls(lambda m, x: Pair(m.linear(x), x * 2)), (torch.randn(2, 4),)


@way
def output_with_none() -> Any:
    return Calls(lambda m, x: (m.linear(x), None)), (torch.randn(2, 4),)


@dataclasses.dataclass
class Registered:
    logits: torch.Tensor


torch.export.register_dataclass(Registered, serialized_type_name="ways_to_give.Registered")


@way
def registered_dataclass_output() -> Any:
    return Calls(lambda m, x: Registered(m.linear(x))), (torch.randn(2, 4),)


@way
def unused_input() -> Any:
    return Calls(lambda m, x, y: m.linear(x)), (torch.randn(2, 4), torch.randn(3))


@way
def fourier_transform() -> Any:
    return Calls(lambda m, x: torch.view_as_real(torch.fft.rfft(x))), (torch.randn(16),)


@way
def no_batch_and_scalars() -> Any:
    return Calls(lambda m, x, scale: m.linear(x) * scale), (torch.randn(4), torch.tensor(0.5))
