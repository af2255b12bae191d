"""ONNX model and inputs in, outputs out: the backends."""
