"""Whether operators, calls and models are supported: answers from a record. They run no operator."""
