"""Assign blame for failures: witnesses, and the table that decides."""
