"""Output rules of the families: what is right where an operator has more than one right answer."""
