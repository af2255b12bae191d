"""Whole models: what is registered in `cases.models`, what a user names, and what becomes of them."""
