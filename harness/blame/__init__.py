"""Whose defect a failure is: witnesses, and the table that decides."""
