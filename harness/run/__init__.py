"""Backends: they run a model on inputs and return its outputs."""
