"""Faster exports than the public entry points give, by private parts of PyTorch's exporters."""
