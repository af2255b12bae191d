"""What git is asked: a file as it was at a revision."""

from __future__ import annotations

import difflib
import subprocess
from dataclasses import dataclass
from pathlib import Path


class RevisionProblem(Exception):
    """A revision that cannot be compared with; the message is one line for a person."""


@dataclass(frozen=True)
class Repository:
    """A work tree with the revision to compare it with.

    Attributes:
        root: Of the work tree.
        commit: The revision's full hash.
    """

    root: Path
    commit: str

    @classmethod
    def of(cls, directory: Path, revision: str) -> Repository:
        """The repository that a directory lies in.

        Args:
            directory: Of this machine.
            revision: A commit, branch or tag, or whatever names one: ``HEAD~3``.

        Raises:
            RevisionProblem: no git, no repository, or no such revision in it.
        """
        root = _git(directory, "rev-parse", "--show-toplevel")
        if root is None:
            raise RevisionProblem(
                f"--changed-since {revision}: {directory} is not in a git repository; "
                "run in a clone, or leave the option out"
            )
        wanted = f"{revision}^{{commit}}"
        commit = _git(directory, "rev-parse", "--verify", "--quiet", "--end-of-options", wanted)
        if commit is None:
            known = (_git(directory, "for-each-ref", "--format=%(refname:short)") or "").split()
            near = difflib.get_close_matches(revision, known, n=3, cutoff=0.5)
            hint = f"did you mean {' or '.join(near)}?" if near else "a commit, a branch or a tag is wanted"
            raise RevisionProblem(f"--changed-since {revision}: no such revision in {root.strip()}; {hint}")
        return cls(Path(root.strip()), commit.strip())

    def before(self, file: Path) -> str | None:
        """A file's text at the revision; None where there was no such file."""
        try:
            path = file.resolve().relative_to(self.root.resolve()).as_posix()
        except ValueError:
            return None
        return _git(self.root, "show", f"{self.commit}:{path}")

    def changed(self, file: Path) -> bool:
        """Whether a file of the work tree differs from what it was, or is new."""
        return self.before(file) != file.read_text(encoding="utf-8")


def _git(directory: Path, *words: str) -> str | None:
    """What git prints; None where it fails.

    Raises:
        RevisionProblem: there is no git.
    """
    try:
        done = subprocess.run(["git", "-C", str(directory), *words], capture_output=True, check=False)
    except FileNotFoundError:
        raise RevisionProblem("--changed-since: git is not installed") from None
    return done.stdout.decode("utf-8", errors="replace") if done.returncode == 0 else None
