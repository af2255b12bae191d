"""A directory on any file system that fsspec supports, accessed one whole file at a time."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

import fsspec

from harness.record.layout import ResultsError, reason

#: Where uploads are stored until they are complete.
ADDING = "adding"


class Location:
    """A directory given by path or URL; file names are relative to it and use ``/``.

    Args:
        url: A local path, or ``s3://bucket/path``, ``gs://…``, ``memory://…``. fsspec's configuration files and
            environment variables provide what the file system needs, such as credentials.

    Raises:
        ResultsError: fsspec does not know the URL's protocol, or its package is missing. Every method raises it if the
            file system refuses.
    """

    def __init__(self, url: str | Path) -> None:
        self.url = str(url).rstrip("/") or "/"
        try:
            self._fs, root = fsspec.core.url_to_fs(self.url)
        except (ImportError, ValueError) as error:
            raise ResultsError(f"{self.url} cannot be opened: {reason(error)}") from None
        self._root = str(root).rstrip("/")

    def named(self, name: str) -> str:
        """Return the path or URL of a file, for messages."""
        return f"{self.url}/{name}"

    def exists(self) -> bool:
        """Whether the directory exists."""
        with self._doing("look for"):
            self._fs.invalidate_cache()
            return bool(self._fs.exists(self._root))

    def files(self, below: str = "") -> dict[str, int]:
        """Return all files below `below`, at any depth, with their sizes in bytes."""
        top = self._path(below) if below else self._root
        with self._doing("list", below):
            self._fs.invalidate_cache()
            found: dict[str, Any] = self._fs.find(top, detail=True)
        return {path[len(self._root) :].lstrip("/"): int(entry["size"] or 0) for path, entry in sorted(found.items())}

    def read(self, name: str, last: int | None = None) -> bytes:
        """Return the content of a file, or its `last` bytes."""
        with self._doing("read", name):
            content = (
                self._fs.cat_file(self._path(name)) if last is None else self._fs.tail(self._path(name), size=last)
            )
        return bytes(content)

    @contextmanager
    def open(self, name: str) -> Iterator[Any]:
        """Open a file for reading at any position; the reader's own errors are not translated."""
        with self._doing("read", name):
            file = self._fs.open(self._path(name), "rb")
        with file:
            yield file

    def download(self, name: str, path: Path) -> None:
        """Copy a file to a local `path`, whose directory must exist."""
        with self._doing("read", name):
            self._fs.get_file(self._path(name), str(path))

    def upload(self, path: Path, name: str) -> None:
        """Copy a local file to `name`; readers never see an incomplete file."""
        token = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"
        temporary = self._path(f"{ADDING}/{token}")
        with self._doing("write", name):
            self._make_parent(temporary)
            try:
                self._fs.put_file(str(path), temporary)
                self._make_parent(self._path(name))
                self._fs.mv(temporary, self._path(name))
            finally:
                with suppress(Exception):
                    if self._fs.exists(temporary):
                        self._fs.rm_file(temporary)

    def write(self, text: str, name: str) -> None:
        """Write a small text file."""
        with self._doing("write", name):
            self._make_parent(self._path(name))
            self._fs.pipe_file(self._path(name), text.encode())

    def move(self, name: str, to: str) -> None:
        """Rename a file."""
        with self._doing("move", name):
            self._make_parent(self._path(to))
            self._fs.mv(self._path(name), self._path(to))

    def remove(self, names: list[str], directory: str = "") -> None:
        """Remove files in this order; missing ones are ignored.

        Args:
            names: The files.
            directory: Also removed if it is empty afterwards, with its empty subdirectories.
        """
        for name in names:
            with self._doing("remove", name), suppress(FileNotFoundError):
                self._fs.rm_file(self._path(name))
        parents = {str(parent) for name in names for parent in PurePosixPath(name).parents[:-1]}
        for parent in sorted(parents, reverse=True):
            if directory and f"{parent}/".startswith(f"{directory}/"):
                # Object stores have no directories.
                with suppress(Exception):
                    self._fs.rmdir(self._path(parent))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _make_parent(self, path: str) -> None:
        self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)

    @contextmanager
    def _doing(self, what: str, name: str = "") -> Iterator[None]:
        try:
            yield
        except ResultsError:
            raise
        # The exceptions depend on the file system.
        except Exception as error:
            where = self.named(name) if name else self.url
            raise ResultsError(f"cannot {what} {where}: {reason(error)}") from None
