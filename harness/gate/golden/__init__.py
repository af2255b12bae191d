"""Goldens: stored invocations with PyTorch's outputs, usable where there is no PyTorch.

Only `record` and `check.run_in_pytorch` import PyTorch.
"""
