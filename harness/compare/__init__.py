"""Decide which outputs are right, and describe how a case ended."""
