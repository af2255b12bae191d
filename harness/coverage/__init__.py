"""Measure what the draws cover: points of argument spaces, pairs of conditions, operators with and without a case."""
