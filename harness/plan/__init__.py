"""Plan units of work from options, and run a unit: selection, sharding, blame."""
