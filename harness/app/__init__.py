"""Wiring: the pytest plug-in, the session and the commands."""
