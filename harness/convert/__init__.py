"""Convert PyTorch programs to ONNX models: converters, rules, and PyTorch's private names."""
