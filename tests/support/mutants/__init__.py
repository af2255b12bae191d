"""Conversion functions of PyTorch's exporters with one line changed, and whether a sweep notices.

`python -m mutants` runs them; it needs this folder's parent and the project on the path. `mutation` says what
can be changed, `applied` changes it in this process, and `tests/plugins/mutated` in all processes of a run.
"""
