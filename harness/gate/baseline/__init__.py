"""Baselines: expected outcomes as text under version control, compared with every run and changed only on purpose."""
