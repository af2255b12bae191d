"""A file of rules that is right, and the same with one defect in each, as an edit would leave it."""

from __future__ import annotations

BEFORE = """
import random
from onnxscript import opset18 as op
from harness.convert.rules import dynamo

chance = random.Random(0)

@dynamo("aten::leaky_relu")
def leaky_relu(self, negative_slope=0.01):
    return op.LeakyRelu(self, alpha=negative_slope)

@dynamo("aten::sqrt")
def sqrt(self):
    root = op.Sqrt(self)
    return op.Add(root, op.Mul(root, op.CastLike(1.2e-7, root)))

@dynamo("aten::neg")
def neg(self):
    return op.Neg(self)

@dynamo("aten::fmax")
def fmax(self, other):
    return op.Min(self, other)

@dynamo("aten::relu")
def relu(self):
    return op.Relu(self)

@dynamo("aten::abs")
def abs_(self):
    return op.Abs(self)
"""

#: Overload → how its rule is edited.
EDITS = {
    # Slightly worse: wrong for the few negative slopes only.
    "aten.leaky_relu.default": ("alpha=negative_slope", "alpha=abs(negative_slope)"),
    # One unit in the last place, then eight: both within what is accepted.
    "aten.sqrt.default": ("1.2e-7", "9.6e-7"),
    "aten.neg.default": ("return op.Neg(self)", 'raise NotImplementedError("no such operator yet")'),
    # Wrong, then right.
    "aten.fmax.default": (
        "op.Min(self, other)",
        "op.Where(op.IsNaN(self), other, op.Where(op.IsNaN(other), self, op.Max(self, other)))",
    ),
    "aten.relu.default": (
        "return op.Relu(self)",
        'if chance.random() < 0.5:\n        raise ValueError("unlucky")\n    return op.Relu(self)',
    ),
}


def edited(*overloads: str) -> str:
    """The rules with the edits of these operators."""
    text = BEFORE
    for overload in overloads:
        old, new = EDITS[overload]
        assert old in text
        text = text.replace(old, new)
    return text
