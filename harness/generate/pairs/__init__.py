"""Pairs of conditions that calls have: what was tried together with what."""
