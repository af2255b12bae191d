"""What the draws reach: corners of arguments, pairs of conditions, operators with and without a case."""
