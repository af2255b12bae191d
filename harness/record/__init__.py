"""The record of a run: its schema, writing it as the run goes, reading it back, archives of runs."""
