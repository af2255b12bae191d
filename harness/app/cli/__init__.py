"""`conformance`: commands for recorded runs, a file per command.

A module `name.py` here that defines `command` is the command ``conformance name``.
"""
