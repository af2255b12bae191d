"""Whose defect a failure is, and what says so.

A failure is a charge. Witnesses (`harness.blame.witnesses`, one per file) look at it in the worker process
and give testimony; `decide` turns testimonies into a blame, by a table and nothing else; `inquiry` chooses
which failures of a unit are looked into.
"""
