"""The converter's line that is behind a diagnosis."""
