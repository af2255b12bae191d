"""Answer whether operators and models are supported: by running their calls, or as a view of a run."""
