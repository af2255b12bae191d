"""Operator cases of ONNX's own operators, a family to a file."""
