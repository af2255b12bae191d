"""`conformance comment`: one comment on a pull request, kept up to date."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.app.cli._shared import example, statuses

if TYPE_CHECKING:
    from github.Issue import Issue

SECTION = "gate"

#: GitHub takes so many characters.
_LONGEST = 65_536
_CUT = "\n\n… the rest is on the page of the job.\n"
#: The status with which GitHub refuses a token that may only read.
_REFUSED = 403


@click.command(
    short_help="Keep one comment on a pull request up to date.",
    epilog=example(
        "conformance comment comment.md",
        "conformance comment comment.md --marker openvino --link https://ci.example.org/runs/7",
        "conformance comment comment.md --repository owner/name --pull-request 12",
    )
    + statuses("0, also if the token may not write comments, as in a pull request from a fork; 1 if GitHub fails"),
)
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--marker", default="conformance", show_default=True, metavar="NAME", help="Tells comments apart.")
@click.option("--link", default="", metavar="URL", help="The address of the page, for the last line.")
@click.option("--repository", envvar="GITHUB_REPOSITORY", metavar="OWNER/NAME", help="Default: GITHUB_REPOSITORY.")
@click.option("--pull-request", "number", type=int, metavar="N", help="Default: that of GITHUB_EVENT_PATH.")
def command(file: Path, marker: str, link: str, repository: str | None, number: int | None) -> None:
    """Write FILE, which is Markdown, as a comment on a pull request; a later call changes the same comment.

    The token is that of GITHUB_TOKEN, and the server that of GITHUB_API_URL. Both are there in a job of GitHub.
    """
    number = number or _event_number()
    token = os.environ.get("GITHUB_TOKEN", "")
    if not repository or not number or not token:
        lacking = {"GITHUB_TOKEN": token, "--repository": repository, "--pull-request": number}
        raise click.UsageError(f"no {' and no '.join(name for name, value in lacking.items() if not value)}")
    try:
        import github
    except ImportError:
        raise click.UsageError(
            "comments need PyGithub; to get it: pip install 'aten-onnx-conformance[github]'"
        ) from None
    server = os.environ.get("GITHUB_API_URL", "https://api.github.com")
    body = comment_body(file.read_text(encoding="utf-8"), marker, link)
    try:
        with github.Github(base_url=server, auth=github.Auth.Token(token), retry=3) as client:
            # Lazy: the repository itself is of no interest.
            issue = client.get_repo(repository, lazy=True).get_issue(number)
            click.echo(_write(issue, body, marker))
    except github.GithubException as error:
        if error.status != _REFUSED:
            raise click.ClickException(f"GitHub answers {error.status} to {server}: {error.message}") from None
        click.echo(f"warning: the token may not comment on {repository}#{number} (status {error.status})", err=True)
    except OSError as error:
        raise click.ClickException(f"{server} cannot be reached: {type(error).__name__}") from None


def comment_body(text: str, marker: str, link: str) -> str:
    """Return the text of a comment, with the line by which it is found again, no longer than GitHub takes."""
    head = f"{_mark(marker)}\n"
    tail = f"\n[The page and the run]({link})\n" if link else ""
    room = _LONGEST - len(head) - len(tail)
    if len(text) > room:
        text = text[: room - len(_CUT)].rpartition("\n")[0] + _CUT
    return head + text + tail


def _mark(marker: str) -> str:
    return f"<!-- conformance comment: {marker} -->"


def _write(issue: Issue, body: str, marker: str) -> str:
    """Change the comment that has the marker, or write one; return what was done."""
    for comment in issue.get_comments():
        if comment.body.startswith(_mark(marker)):
            if comment.body.strip() == body.strip():
                return f"unchanged: {comment.html_url}"
            comment.edit(body)
            return f"changed: {comment.html_url}"
    return f"wrote {issue.create_comment(body).html_url}"


def _event_number() -> int | None:
    """Return the number of the pull request that a job of GitHub is about; None elsewhere."""
    event = Path(os.environ.get("GITHUB_EVENT_PATH", ""))
    if not event.is_file():
        return None
    data = json.loads(event.read_text(encoding="utf-8"))
    number = data.get("pull_request", data).get("number")
    return number if isinstance(number, int) else None
