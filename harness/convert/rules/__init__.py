"""Rules: conversion functions of one's own, tried in place of a converter's.

    from harness.convert.rules import dynamo, torchscript
    from onnxscript import opset18 as op

    @dynamo("aten::celu")          # an onnxscript function, as in `custom_translation_table`
    def celu(self, alpha=1.0):
        return op.Celu(self, alpha=alpha)

    @torchscript("aten::celu")     # a symbolic, as for `register_custom_op_symbolic`
    def celu_symbolic(g, input, alpha):
        return g.op("Celu", input, alpha_f=...)

``pytest harness --rules my_rules.py --op aten::celu`` runs the operator with and without them.
"""

from harness.convert.rules.rule import Rule, RuleProblem, dynamo, rule, torchscript

__all__ = ["Rule", "RuleProblem", "dynamo", "rule", "torchscript"]
