"""What the pages and the table of support show: answers by operator, with how much models use it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from harness.analyse import Provenance, SupportCell, SupportRecord, aten_cells, onnx_cells
from harness.causes import UseWeights, model_use
from harness.core import ALL, COMPLEX, WIDE_UNSIGNED

#: Converter and backend.
Column = tuple[str, str]
_PACKAGES = ("torch", "onnx", "onnxscript", "onnxruntime", "openvino")
_DTYPES = (*ALL, *WIDE_UNSIGNED, *COMPLEX)


@dataclass(frozen=True)
class SupportCatalog:
    """The answers of one record.

    Attributes:
        aten: Overload → its cells.
        onnx: ONNX operator → its cells.
    """

    aten: Mapping[str, Sequence[SupportCell]]
    onnx: Mapping[str, Sequence[SupportCell]]
    provenance: Provenance
    use: UseWeights

    @cached_property
    def columns(self) -> list[Column]:
        """Sorted."""
        return sorted({(cell.converter, cell.backend) for cells in self.aten.values() for cell in cells})

    @property
    def recorded(self) -> str:
        """When, and with which versions, as a sentence."""
        about = self.provenance
        versions = (f"{name} {about.versions[name]}" for name in _PACKAGES if name in about.versions)
        return f"Recorded {about.recorded[:10]} with {', '.join(versions)}."

    def operators(self, domain: str) -> Mapping[str, Sequence[SupportCell]]:
        """Those of ``aten`` or ``onnx``."""
        return self.aten if domain == "aten" else self.onnx

    def callers(self, name: str) -> int:
        """How many models call an overload, or one of those whose cases are an ONNX operator's."""
        cells = self.onnx.get(name)
        overloads = {name} if cells is None else {one for cell in cells for one in cell.overloads}
        return len(frozenset[int]().union(*map(self.use.callers_of, overloads)))

    def to_data(self) -> dict[str, Any]:
        """As JSON."""
        about = self.provenance
        return {
            "record": {"run": about.run, "recorded": about.recorded, "versions": dict(about.versions)},
            "models": len(self.use.models),
            **{
                domain: {
                    name: {"callers": self.callers(name), "cells": [cell.to_data() for cell in cells]}
                    for name, cells in self.operators(domain).items()
                }
                for domain in ("aten", "onnx")
            },
        }


def support_catalog(record: SupportRecord) -> SupportCatalog:
    """The answers of a record."""
    return SupportCatalog(
        _by_name(aten_cells(record.kinds)), _by_name(onnx_cells(record.kinds)), record.provenance, model_use()
    )


def dtypes_of_cells(cells: Sequence[SupportCell]) -> list[str]:
    """The dtypes that occur, in the product's own order."""
    known = {name: place for place, name in enumerate(_DTYPES)}
    return sorted({cell.dtype for cell in cells}, key=lambda name: (known.get(name, len(known)), name))


def _by_name(cells: Sequence[SupportCell]) -> dict[str, list[SupportCell]]:
    found: defaultdict[str, list[SupportCell]] = defaultdict(list)
    for cell in cells:
        found[cell.name].append(cell)
    return dict(found)
