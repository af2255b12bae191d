"""The harness in another repository's CI: the files of `conformance init github`, run step by step, and the comment."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from commands import typed
from harness_runs import environment, output

from harness.app.cli._group import conformance

RULES = """\
from onnxscript import opset18 as op

from harness.convert.rules import dynamo


@dynamo("aten::celu")
def celu(self, alpha: float = 1.0):
    return op.Celu(self, alpha=alpha)
"""
WORKFLOW = ".github/workflows/conformance.yml"
NIGHTLY = ".github/workflows/conformance-nightly.yml"
ACTION = ".github/actions/conformance/action.yml"


def written(place: Path, *words: str) -> dict[str, Any]:
    """Return the parsed files that `conformance init github` writes."""
    typed("init", "github", "--to", str(place), *words)
    return {name: yaml.safe_load((place / name).read_text()) for name in (WORKFLOW, NIGHTLY, ACTION)}


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--rules", "my rules.py", "--converter", "dynamo", "--backend", "openvino", "--baseline", "here/it is"),
        ("--install", "some-package>=1", "--install", "-e '.[all]'"),
    ],
    ids=["plain", "with options", "with packages"],
)
def test_the_files_are_what_github_takes(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "my rules.py").write_text(RULES)
    files = written(tmp_path, *words)
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema"]
    for schema, names in {"vendor.github-workflows": (WORKFLOW, NIGHTLY), "vendor.github-actions": (ACTION,)}.items():
        done = subprocess.run([*check, schema, *names], cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, output(done)
    for file in files.values():
        for step in steps(file):
            script = re.sub(r"\$\{\{.*?\}\}", "1", step.get("run", ""))
            assert "@" not in script, script
            subprocess.run(["bash", "-n"], input=script, text=True, check=True, timeout=60)


def steps(file: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the steps of a workflow of one job, or of an action."""
    if "runs" in file:
        return list(file["runs"]["steps"])
    (job,) = file["jobs"].values()
    return list(job["steps"])


def test_files_that_are_there_are_replaced_only_if_asked(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / WORKFLOW).write_text("mine")
    assert typed("init", "github", "--to", str(tmp_path), status=2).exit_code == 2
    assert (tmp_path / WORKFLOW).read_text() == "mine"
    written(tmp_path, "--force")
    assert (tmp_path / WORKFLOW).read_text() != "mine"
    missing = typed("init", "github", "--to", str(tmp_path), "--force", "--rules", "nowhere.py", status=2)
    assert "nowhere.py" in missing.output


@dataclass
class GitHub:
    """A server that speaks the part of GitHub's API that is about the comments of an issue.

    Attributes:
        address: Its address.
        comments: Id → body.
        writes: The requests that changed something.
        may_write: Whether the token may write.
    """

    address: str = ""
    comments: dict[int, str] = field(default_factory=dict)
    writes: list[str] = field(default_factory=list)
    may_write: bool = True


@pytest.fixture
def github() -> Iterator[GitHub]:
    state = GitHub()

    class Api(BaseHTTPRequestHandler):
        def answer(self, data: Any, status: int = 200) -> None:
            body = json.dumps(data).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def comment(self, number: int) -> dict[str, Any]:
            return {
                "id": number,
                "body": state.comments[number],
                "url": f"{state.address}/repos/o/r/issues/comments/{number}",
                "html_url": f"{state.address}/c/{number}",
            }

        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            if path == "/repos/o/r/issues/7":
                here = f"{state.address}/repos/o/r/issues/7"
                return self.answer({"number": 7, "url": here, "comments_url": f"{here}/comments"})
            if path == "/repos/o/r/issues/7/comments":
                # Pages of two, as a busy pull request has several.
                page = int((re.search(r"\bpage=(\d+)", query) or ["", "1"])[1])
                numbers = sorted(state.comments)[2 * page - 2 : 2 * page]
                body = json.dumps([self.comment(number) for number in numbers]).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                if len(state.comments) > 2 * page:
                    self.send_header("Link", f'<{state.address}{path}?page={page + 1}>; rel="next"')
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
                return None
            return self.answer({"message": "Not Found"}, 404)

        def write(self, number: int, status: int) -> None:
            given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if not state.may_write:
                return self.answer({"message": "Resource not accessible by integration"}, 403)
            state.writes.append(self.command)
            state.comments[number] = given["body"]
            return self.answer(self.comment(number), status)

        def do_POST(self) -> None:
            self.write(max(state.comments, default=0) + 1, 201)

        def do_PATCH(self) -> None:
            self.write(int(self.path.rpartition("/")[2]), 200)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Api) as server:
        state.address = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield state
        server.shutdown()


def comment(github: GitHub, file: Path, *words: str, status: int = 0) -> Result:
    event = file.with_name("event.json")
    event.write_text(json.dumps({"pull_request": {"number": 7}}))
    done = CliRunner().invoke(conformance, ["comment", str(file), *words], env=job_environment(github, event))
    assert done.exit_code == status, done.output
    return done


def job_environment(github: GitHub, event: Path) -> dict[str, str]:
    return environment(
        GITHUB_TOKEN="token",
        GITHUB_API_URL=github.address,
        GITHUB_REPOSITORY="o/r",
        GITHUB_EVENT_PATH=str(event),
    )


def test_a_comment_is_written_once_and_then_changed(github: GitHub, tmp_path: Path) -> None:
    github.comments = {1: "Somebody's.", 2: "Another.", 3: "A third, on the second page."}
    file = tmp_path / "comment.md"
    for text, writes in (("First.", ["POST"]), ("First.", ["POST"]), ("Second.", ["POST", "PATCH"])):
        file.write_text(text)
        comment(github, file, "--link", "https://ci.example.org/7")
        assert github.writes == writes
        assert text in github.comments[4]
        assert "https://ci.example.org/7" in github.comments[4]
    comment(github, file, "--marker", "other")
    assert len(github.comments) == 5
    assert github.comments[1] == "Somebody's."


def test_a_token_that_may_not_write_is_no_failure(github: GitHub, tmp_path: Path) -> None:
    github.may_write = False
    (tmp_path / "comment.md").write_text("Text.")
    assert "may not comment on o/r#7" in comment(github, tmp_path / "comment.md").output


def test_a_server_that_fails_is_named(github: GitHub, tmp_path: Path) -> None:
    (tmp_path / "comment.md").write_text("Text.")
    comment(github, tmp_path / "comment.md", "--pull-request", "8", status=1)
    comment(github, tmp_path / "comment.md", "--repository", "", status=2)


def test_a_long_text_is_cut_to_what_github_takes(github: GitHub, tmp_path: Path) -> None:
    (tmp_path / "comment.md").write_text("- a difference\n" * 10_000)
    comment(github, tmp_path / "comment.md")
    (body,) = github.comments.values()
    assert 60_000 < len(body) <= 65_536
    assert body.rstrip().endswith("page of the job.")


@dataclass
class Job:
    """A job of the workflow for pull requests in a repository.

    Attributes:
        place: The repository.
        github: The server.
    """

    place: Path
    github: GitHub

    def git(self, *words: str) -> None:
        identity = ("-c", "user.name=A", "-c", "user.email=a@example.org")
        subprocess.run(["git", *identity, *words], cwd=self.place, check=True, timeout=60)

    def run(self) -> int:
        """Run the scripts of the steps in order, as a runner does; return the status of the job."""
        temporary = self.place.parent / "runner"
        temporary.mkdir(exist_ok=True)
        event = temporary / "event.json"
        event.write_text(json.dumps({"pull_request": {"number": 7}}))
        (temporary / "output").write_text("")
        (temporary / "bin").mkdir(exist_ok=True)
        program = temporary / "bin" / "conformance"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m harness.app.cli "$@"\n')
        program.chmod(0o755)
        values = {"github.base_ref": "main", "github.token": "token", "steps.page.outputs.artifact-url": "https://page"}
        for step in steps(yaml.safe_load((self.place / WORKFLOW).read_text())):
            if "run" not in step:
                continue
            outputs = dict(line.split("=", 1) for line in (temporary / "output").read_text().splitlines())
            known = {**values, **{f"steps.run.outputs.{name}": value for name, value in outputs.items()}}
            given = {name: filled(str(value), known) for name, value in step.get("env", {}).items()}
            ours = {
                **job_environment(self.github, event),
                "GITHUB_OUTPUT": str(temporary / "output"),
                "GITHUB_STEP_SUMMARY": str(temporary / "summary.md"),
                "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}",
                **given,
            }
            # A run of all operators of the default budget would take longer than a test may.
            script = step["run"].replace("-n auto", "--examples 64 --source generated")
            done = subprocess.run(
                ["bash", "-e", "-o", "pipefail", "-c", script],
                cwd=self.place,
                env=ours,
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
            if done.returncode:
                return done.returncode
        return 0

    @property
    def body(self) -> str:
        """The text of the comment."""
        (body,) = self.github.comments.values()
        return body


def filled(text: str, known: Mapping[str, str]) -> str:
    """Return a text with GitHub's expressions replaced."""
    return re.sub(r"\$\{\{ (\S+) \}\}", lambda match: known[match[1]], text)


@pytest.fixture
def job(tmp_path: Path, github: GitHub) -> Job:
    made = Job(tmp_path / "repository", github)
    made.place.mkdir()
    (made.place / "my_rules.py").write_text(RULES)
    written(made.place, "--rules", "my_rules.py")
    made.git("init", "-q", "-b", "main")
    made.git("add", "-A")
    made.git("commit", "-q", "-m", "Rules")
    # What a runner's checkout calls it.
    made.git("update-ref", "refs/remotes/origin/main", "main")
    made.git("checkout", "-q", "-b", "mine")
    return made


@pytest.mark.slow
def test_a_pull_request_is_gated_and_keeps_one_comment(job: Job) -> None:
    # Nothing changed.
    assert job.run() == 0
    assert "no conversion function changed" in job.body
    # A harmless change, before there is a baseline: only shown.
    rules = job.place / "my_rules.py"
    rules.write_text(RULES.replace("op.Celu(self, alpha=alpha)", "op.Identity(op.Celu(self, alpha=alpha))"))
    assert job.run() == 0
    assert "there is no baseline in golden/baseline" in job.body
    assert (job.place / "conformance-results" / "site" / "index.html").is_file()
    # The baseline of that run, and a change that drops `alpha`.
    typed("baseline", job.place / "conformance-results" / "run", "--out", job.place / "golden" / "baseline")
    rules.write_text(RULES.replace("op.Celu(self, alpha=alpha)", "op.Celu(self)"))
    clean(job)
    assert job.run() == 1
    assert "worse than expected" in job.body
    assert "aten.celu.default" in job.body
    # Mended.
    rules.write_text(RULES.replace("op.Celu(self, alpha=alpha)", "op.Identity(op.Celu(self, alpha=alpha))"))
    clean(job)
    assert job.run() == 0
    assert "worse" not in job.body


def clean(job: Job) -> None:
    """Remove what the last job left, as a runner begins with a fresh checkout."""
    subprocess.run(["rm", "-r", str(job.place / "conformance-results")], check=True, timeout=60)
