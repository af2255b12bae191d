"""Patterns of programs: what optimisers look for, each drawn whole with one thing different."""
