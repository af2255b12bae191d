"""Whole models: the operator calls that they make, and where a wrong result begins."""
