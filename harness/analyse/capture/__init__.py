"""The operator calls that a model really makes, kept as invocations to run by themselves."""
