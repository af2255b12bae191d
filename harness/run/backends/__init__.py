"""The backends, one module each."""
