"""Real architectures, scaled down: one file per family, each adding to one registry; nothing is downloaded.

Widths and depths are a fraction of the original's, so that a forward pass takes milliseconds; every kind of
layer of the original is there.
"""
