"""Where a model's wrong result begins: the first exported value that its own inputs do not explain."""
