"""``python -m harness.app.cli``: the same as ``conformance``."""

from harness.app.cli._group import conformance

conformance(prog_name="conformance")
