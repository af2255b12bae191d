"""Programs of any operators: chains, and expressions of weights alone, which optimisers compute beforehand.

They take two and a half times the usual number of cases: with other draws they find other defects, while the patterns
of single rules find the same ones again.
"""

from __future__ import annotations

from harness.core.invocation import Result
from harness.core.program import results_in
from harness.generate.any_call import add_any_call
from harness.generate.programs import ProgramDraw, pattern


@pattern("chain", source="any operators, one after the other", share=2.5)
def chain(p: ProgramDraw) -> list[Result]:
    """Calls that take what earlier ones give; whatever no other call takes is returned."""
    p.call("aten.clone.default", self=p.input(p.choose((2, 3), (3,), (2, 1, 4), (1, 2, 3, 3), (2, 0))))
    for _ in range(p.choose(2, 3, 4)):
        add_any_call(p)
    taken = {result for call in p.calls for result in results_in(call)}
    return [Result(i) for i in range(len(p.calls)) if Result(i) not in taken]


@pattern("folded", source="onnxscript constant folding, by the reference evaluator", share=2.5)
def folded(p: ProgramDraw) -> list[Result]:
    """Draw a call of weights alone, or a chain of two, together with one of an input."""
    found = [add_any_call(p, of_weights=True) for _ in range(p.choose(1, 1, 2))]
    if p.sometimes():
        found.append(add_any_call(p))
    taken = {result for call in p.calls for result in results_in(call)}
    other = p.call("aten.neg.default", self=p.input((2, 3)))
    return [other, *(result for result in found if result is not None and result not in taken)]
