"""Values that all rooms share: invocations, dtypes, overloads, tensors, and registries of plug-ins."""
