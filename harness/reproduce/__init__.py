"""A failure to show to others: shrunk, as a script, as a bug report, and the release that it came with."""
