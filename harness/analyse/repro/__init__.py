"""A recorded failure as a script that needs nothing of the harness, and as a bug report."""
