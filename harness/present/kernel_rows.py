"""Describe what ran where, in rows of a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from harness.core.text import count
from harness.models.kernels import KernelReport, dtypes_of
from harness.present.report import Row
from harness.run.artefact import NodeKernel

#: Nodes of a complaint that are named.
_NAMED = 5


def kernel_rows(reports: Sequence[KernelReport]) -> Iterator[Row]:
    """Yield a row for each device and set of dtypes of a route, with its operators; those with most nodes first."""
    for report in reports:
        if report.problem:
            yield Row(str(report.route), f"unknown: {report.problem}")
            continue
        groups: dict[tuple[str, str], list[NodeKernel]] = {}
        for node in report.nodes:
            groups.setdefault((node.device, ", ".join(dtypes_of(node))), []).append(node)
        for (device, dtypes), nodes in sorted(groups.items(), key=lambda item: -len(item[1])):
            operators = Counter(node.operator for node in nodes).most_common()
            words = ", ".join(f"{name} {number}" if number > 1 else name for name, number in operators)
            yield Row(str(report.route), f"{count(len(nodes), 'node')} on {device} in {dtypes or 'no dtype'}: {words}")


def kernel_complaints(reports: Sequence[KernelReport], device: str | None, dtype: str | None) -> Iterator[Row]:
    """Yield what is not as required: nodes elsewhere, nodes in another dtype, or a runtime that says nothing.

    Args:
        reports: The reports.
        device: The device that every node must run on; None for any.
        dtype: The floating dtype that every node must compute in; None for any.
    """
    for report in reports:
        if report.problem and (device or dtype):
            yield Row(str(report.route), f"it is not known what ran where: {report.problem}")
        if device and (elsewhere := report.off_device(device)):
            yield Row(str(report.route), f"not on {device}: {_named(elsewhere, lambda node: node.device)}")
        if dtype and (others := report.off_dtype(dtype)):
            yield Row(str(report.route), f"not in {dtype}: {_named(others, lambda node: ', '.join(dtypes_of(node)))}")


def _named(nodes: Sequence[NodeKernel], what: Any) -> str:
    shown = ", ".join(f"{node.operator} {node.name} ({what(node)})" for node in nodes[:_NAMED])
    more = f", and {len(nodes) - _NAMED} more" if len(nodes) > _NAMED else ""
    return f"{count(len(nodes), 'node')}: {shown}{more}"


def kernel_data(reports: Sequence[KernelReport]) -> list[dict[str, Any]]:
    """Return the reports as JSON data."""
    return [
        {"route": str(report.route), "problem": report.problem, "nodes": [asdict(node) for node in report.nodes]}
        for report in reports
    ]
