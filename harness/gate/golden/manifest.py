"""What made a set of goldens, and what is in it: ``manifest.json``."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.core import as_json, of_data, of_json
from harness.record import ResultsError, reason

MANIFEST_FILE = "manifest.json"
#: Of the files' layout.
FORMAT = 1


@dataclass(frozen=True)
class Listed:
    """One golden.

    Attributes:
        sha256: `harness.gate.golden.golden.Golden.content_hash`.
        call: The invocation as a person writes it.
    """

    sha256: str
    call: str


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The manifest.

    Attributes:
        harness: Version of the harness.
        seed: Of the draws.
        count: Goldens per overload, at most.
        versions: Distribution → version of what takes part.
        cpu: The vector instructions that PyTorch's kernels were chosen for: their last places depend on it.
        converters: Name → version.
        backends: Name → version, of those whose outcomes were recorded.
        files: Path → SHA-256.
        goldens: Overload → case id → what it is.
        format: `FORMAT`.
    """

    harness: str
    seed: int
    count: int
    versions: Mapping[str, str]
    cpu: str
    converters: Mapping[str, str]
    backends: Mapping[str, str]
    files: Mapping[str, str] = field(default_factory=dict)
    goldens: Mapping[str, Mapping[str, Listed]] = field(default_factory=dict)
    format: int = FORMAT

    def holding(self, files: Mapping[str, str], goldens: Mapping[str, Mapping[str, Listed]]) -> Manifest:
        """The same with other files and goldens, in a stable order."""
        return dataclasses.replace(
            self, files=dict(sorted(files.items())), goldens=dict(sorted(goldens.items()))
        )

    @property
    def json(self) -> str:
        """As the file holds it: a line per golden, so that a difference shows which changed."""
        head = {name: value for name, value in vars(self).items() if name != "goldens"}
        lines = json.dumps(head, indent=1).removesuffix("\n}")
        entries = [
            f"  {json.dumps(overload)}: {{\n"
            + ",\n".join(f"   {json.dumps(case_id)}: {as_json(listed)}" for case_id, listed in held.items())
            + "\n  }"
            for overload, held in self.goldens.items()
        ]
        return lines + ',\n "goldens": {\n' + ",\n".join(entries) + "\n }\n}\n"

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Read what `json` gave.

        Raises:
            ValueError: it is something else.
        """
        data = of_json(dict[str, Any], text)
        if data.get("format") != FORMAT:
            raise ValueError(f"format {data.get('format')}, this harness reads {FORMAT}")
        return of_data(cls, data)


def read_manifest(directory: Path) -> Manifest:
    """The manifest of the set in `directory`.

    Raises:
        ResultsError: there is none, or it is damaged.
    """
    path = directory / MANIFEST_FILE
    try:
        return Manifest.from_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ResultsError(
            f"{directory} holds no goldens: it has no {MANIFEST_FILE}; "
            "make them with `conformance golden record`"
        ) from None
    except (OSError, ValueError) as error:
        raise ResultsError(f"{path} is damaged ({reason(error)}); restore it from version control") from None
