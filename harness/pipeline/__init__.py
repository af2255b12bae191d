"""Running cases in a process that may die: reference, export, check, load, run, compare."""
