"""Group failures by root cause, rank them by use, and match them with known issues: reads a record, runs nothing."""
