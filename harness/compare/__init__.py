"""Which outputs are right, and what to call what became of a case."""
