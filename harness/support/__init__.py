"""Is it supported: by running the calls, or as a view of a run."""
