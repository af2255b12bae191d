"""File systems that a dataset is tried on."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.arrow import ArrowFSWrapper
from pyarrow.fs import LocalFileSystem


class _Arrow(ArrowFSWrapper):  # type: ignore[misc]
    """PyArrow's own local file system: other code than fsspec's for every operation."""

    protocol = "arrowlocal"

    def __init__(self, **options: Any) -> None:
        super().__init__(LocalFileSystem(), **options)


fsspec.register_implementation("arrowlocal", _Arrow, clobber=True)

#: A path, a URL of it, another implementation of files, and one with no directories on a disk.
KINDS = ("path", "file", "arrowlocal", "memory")


def url(kind: str, directory: Path) -> str:
    """An empty place of that kind."""
    if kind == "memory":
        return f"memory://dataset-{secrets.token_hex(4)}"
    return str(directory / "dataset") if kind == "path" else f"{kind}://{directory}/dataset"
