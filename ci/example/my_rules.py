from onnxscript import opset18 as op

from harness.convert.rules import dynamo


@dynamo("aten::fmax")
def fmax(self, other):
    """Return the larger of two elements, and the other one where one is NaN."""
    larger = op.Where(op.Less(self, other), other, self)
    return op.Where(op.IsNaN(self), other, op.Where(op.IsNaN(other), self, larger))
