"""An operator on its way to ONNX: its schema, its decomposition, its ONNX counterpart, and who converts and runs it."""
