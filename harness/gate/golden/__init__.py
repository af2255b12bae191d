"""Goldens: stored invocations with PyTorch's outputs, usable where there is no PyTorch.

Only `select`, `make` and `verify` import it.
"""
