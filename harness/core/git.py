"""Questions to git about the repository of the working directory."""

from __future__ import annotations

import subprocess


class GitFailure(Exception):
    """A command of git fails; the message is one line."""


class GitMissing(GitFailure):
    """Git cannot be run."""


def git_output(*words: str) -> str:
    """Return what a command of git prints; names of files are printed as they are.

    Raises:
        GitMissing: Git cannot be run.
        GitFailure: The command fails.
    """
    command = ["git", "-c", "core.quotePath=false", *words]
    try:
        done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False)
    except OSError as error:
        raise GitMissing(f"git cannot be run: {error.strerror}") from None
    if done.returncode:
        message = done.stderr.strip().splitlines() or ["nothing in common"]
        raise GitFailure(f"git {' '.join(words[:2])}: {message[0].removeprefix('fatal: ')}")
    return done.stdout
