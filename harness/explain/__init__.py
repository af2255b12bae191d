"""Explain an operator on its way to ONNX: schema, decomposition, ONNX counterpart, converters and backends."""
