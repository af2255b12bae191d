"""Check whole models: the calls that they make, the routes that they survive, and what helps if they fail."""
