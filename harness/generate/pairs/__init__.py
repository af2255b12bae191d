"""Pairs of conditions that calls have: the pairs that were tried together."""
