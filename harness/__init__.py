"""Property-based conformance tests for PyTorch → ONNX → inference runtimes.

The names are those that a notebook needs. Each is loaded at its first use: ``import harness`` does not import PyTorch.

    import harness

    plan = harness.make_plan(harness.Options(ops=("aten::celu",), examples=40))
    with harness.Session(plan, Path("out")) as session:
        for unit in plan.units:
            print(session.run(unit).text())
"""

import lazy_loader

#: The only place that states the version; the distribution takes it from here.
__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
