"""Locate the converter's line behind a diagnosis."""
