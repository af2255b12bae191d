"""What a person is shown of a run: views of its record, which know nothing of how it came about."""
