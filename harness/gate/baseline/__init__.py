"""Expected outcomes: kept as text beside the code, compared with every run, changed on purpose only."""
