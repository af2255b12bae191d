"""PyTorch program in, ONNX model out: converters, rules, and what is private in PyTorch."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
