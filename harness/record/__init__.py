"""The record of a run: writing it as the run goes, and reading it back."""
