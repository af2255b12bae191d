"""Goldens: stored invocations with PyTorch's outputs, usable where there is no PyTorch.

Only `record` imports it, and `check.run_in_pytorch`.
"""
