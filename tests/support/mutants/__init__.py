"""Conversion functions of PyTorch's exporters with one line changed."""
