"""Decide whether a run is as expected: baselines, goldens, upgrades, and comparisons of two runs."""
