"""Operator cases in, invocations out."""
