"""``python -m harness.cli``: the same as ``conformance``."""

from harness.cli._group import conformance

conformance(prog_name="conformance")
