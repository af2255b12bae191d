"""What everything passes on: invocations, dtypes, overloads, tensors, and what plugs in."""
