"""Whether operators, calls and models are supported: answers from a record, which run nothing."""
