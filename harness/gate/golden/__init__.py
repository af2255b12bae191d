"""Goldens: stored invocations with PyTorch's outputs, which can be checked without PyTorch.

Only `record` and `check.run_in_pytorch` import PyTorch.
"""
