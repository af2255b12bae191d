"""Property-based conformance tests for PyTorch → ONNX → inference runtimes."""

__version__ = "0.1.0"
