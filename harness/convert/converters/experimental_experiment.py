"""`experimental-experiment`: the custom exporter of the experimental-experiment project.

It is on no package index: a clone is installed, or put on ``PYTHONPATH``.
"""

from __future__ import annotations

from harness.convert.graph_builder import Exporter, plug_in

plug_in(
    Exporter(
        name="experimental-experiment",
        package="experimental_experiment",
        interpreter="experimental_experiment.torch_interpreter",
        needs=("onnx_diagnostic", "optree", "scipy", "transformers"),
        distribution="experimental-experiment",
        install="pip install git+https://github.com/sdpython/experimental-experiment 'transformers<5' scipy",
    ),
    tracker="sdpython/experimental-experiment",
)
