"""The record of a run: its schema, its writer and readers, and archives of runs."""
