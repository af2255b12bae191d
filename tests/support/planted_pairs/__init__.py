"""Defects that need two conditions at once, chosen at random, and whether the draws meet them.

`python -m planted_pairs` chooses and measures; `tests/plugins/planted/pairs.py` is wrong as they say.
"""
