"""What changed since a git revision, and the operators that it concerns."""
