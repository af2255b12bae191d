"""What there is for one ATen operator on its way to ONNX, and what is missing.

`explanation.explain` puts together what the other modules find out, each about one thing: the operator
itself, its decomposition, ONNX's operator for it, who converts it, and who runs it.
"""
