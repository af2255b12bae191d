"""From options to units of work, and running a unit: selection, sharding, blame."""
