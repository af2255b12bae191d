"""`conformance`: what is done with a run once it is recorded, a file per command.

A module `name.py` here that defines `command` is the command ``conformance name``.
"""
