"""Whether a run is as expected: baselines, goldens, upgrades, and two runs compared."""
