"""PyTorch program in, ONNX model out: converters, rules, and what is private in PyTorch."""
