"""A night: the sweep in shards, merged, compared and kept, shown and summed up.

    OUT/shards/I/    the record of shard I        OUT/summary.md     the job's page
    OUT/run/         the merged run               OUT/chat.json      the message for a chat's webhook
    OUT/site/        the dashboard                OUT/gate.md        the differences from the baseline
    OUT/failures.json                             OUT/logs/          the output of every step
    OUT/known.jsonl  a case of every root cause of the last nights, which this one tries again

Each step is a command of `conformance` in a process of its own. If a step fails, the others still give their results.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.gate.baseline.file import DEFAULT, is_baseline

#: `conformance` of the running Python, whether or not its script is on the path.
CONFORMANCE = (sys.executable, "-m", "harness.app.cli")
#: Seconds that a sweep gets to complete its record after the signal to end.
GRACE = 60.0
#: The baseline that is used if none is named.
BASELINE = Path(DEFAULT)
#: Number of runs of the dataset to compare with: the last one may have been a small one.
LAST = 3
#: The exit status of a sweep that was stopped for taking too long; no process has it.
TOO_LONG = 1000


@dataclass(frozen=True)
class Step:
    """The result of one step."""

    name: str
    message: str
    failed: bool
    seconds: float


@dataclass(frozen=True, kw_only=True)
class NightOptions:
    """The options of a night.

    Attributes:
        out: The folder that everything is written to.
        shard: ``I/N`` runs only this shard; "" for the whole night.
        on: The cluster that the sweep runs on; "" for this machine.
        finish: Run only what comes after the shards.
        shards: Number of shards.
        run: With `on`, the name of the sweep; "" makes one from the time.
        jobs: Number of shards that run in parallel.
        timeout: Minutes for a shard.
        op: The operators, as in `pytest harness`; so are `converter`, `backend`, `source` and `examples`.
        seed: Seed of the draws.
        dataset: The directory or URL that runs are kept in; "" keeps none.
        shrink: Seconds for shrinking failures.
        graphs: Whether the dashboard has graphs and scripts.
        history: Number of runs on the dashboard.
        keep: Which runs stay in the dataset, as (option, number) of `conformance dataset keep`; empty for all.
        baseline: What the night is compared with; None for `BASELINE` if it is there, else the last run of the dataset.
        waivers: The file of failures that are expected; None for none.
        link: The dashboard's address, for the summary.
        webhook: The address that the message is posted to; "" posts none.
        pytest: Further options of `pytest harness`.
    """

    out: Path
    shard: str = ""
    on: str = ""
    finish: bool = False
    shards: int = 1
    run: str = ""
    jobs: int = 1
    timeout: float = 330.0
    op: tuple[str, ...] = ()
    converter: tuple[str, ...] = ()
    backend: tuple[str, ...] = ()
    source: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    seed: int = 0
    dataset: str = ""
    shrink: float = 300.0
    graphs: bool = True
    history: int = 30
    keep: tuple[tuple[str, int], ...] = ()
    baseline: Path | None = None
    waivers: Path | None = None
    link: str = ""
    webhook: str = ""
    pytest: tuple[str, ...] = ()


class Nightly:
    """The options, and the results of the steps so far."""

    def __init__(self, given: NightOptions) -> None:
        self.given = given
        self.out: Path = given.out
        self.run = self.out / "run"
        self.steps: list[Step] = []
        self.sweeps: list[subprocess.Popen[bytes]] = []
        (self.out / "logs").mkdir(parents=True, exist_ok=True)

    def fetch_previous(self) -> None:
        """Fetch the last runs of the dataset."""
        if self.given.dataset:
            words = ("dataset", "fetch", self.given.dataset, "--last", LAST, "--out", self.out / "previous")
            # On the first night there are none.
            self.conformance("fetch the last runs", *words, may_fail=True)

    def previous(self) -> list[Path]:
        """Return the last runs, oldest first."""
        return sorted((self.out / "previous").glob("*"))

    def baseline(self) -> list[Path]:
        """Return the baseline, if there is one."""
        path = self.given.baseline or BASELINE
        return [path] if is_baseline(path) else []

    def against(self) -> list[Path]:
        """Return the baseline, or else the last runs, from which one of the same kind is chosen."""
        return self.baseline() or [self.out / "previous"][: len(self.previous())]

    def sweep(self) -> None:
        """Run all shards on this machine, `--jobs` at a time."""
        words = [f"{number}/{self.given.shards}" for number in range(1, self.given.shards + 1)]
        # Parallel shards must not write the file at the same time.
        self.known_cases()
        with ThreadPoolExecutor(self.given.jobs) as pool:
            try:
                list(pool.map(self.shard, words))
            except KeyboardInterrupt:
                pool.shutdown(wait=False, cancel_futures=True)
                self.end_sweeps()
                raise

    def shard(self, word: str) -> None:
        """Run one shard."""
        index = word.partition("/")[0]
        options = ["--shard", word, "--results-dir", self.out / "shards" / index, *self.chosen()]
        self.conformance_run(f"shard {word}", options)

    def on_cluster(self) -> None:
        """Run the sweep on a cluster, which cuts and merges its own shards."""
        name = self.given.run or f"nightly-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}"
        options = ["--on", self.given.on, "--run", name, "--results-dir", self.run, *self.chosen()]
        options += ["--dataset", self.given.dataset] if self.given.dataset else []
        self.conformance_run("sweep", options)
        if unfinished := run_field(self.run, "unfinished"):
            self.note(Step("complete", f"{len(unfinished):,} operators lack verdicts", True, 0))

    def known_cases(self) -> list[Path]:
        """Return a file with a case of every root cause of the last runs, if there are any.

        A machine's own corpus would not do: shards have to try the same cases everywhere.
        """
        runs, file = self.previous(), self.out / "known.jsonl"
        # The nodes of a cluster cannot read the file.
        if not runs or self.given.on or self.given.source:
            return []
        if not file.exists():
            # A damaged run of another night is no failure of this one.
            self.conformance("keep the last causes", "corpus", *runs, "--out", file, may_fail=True)
        return [file] if file.exists() else []

    def chosen(self) -> list[object]:
        """Return the options of `conformance run` that choose the cases."""
        sources = ["generated", "programs", *(f"corpus:{file}" for file in self.known_cases())]
        chosen = {name: getattr(self.given, name) for name in ("op", "converter", "backend", "examples")}
        options: list[object] = ["--seed", self.given.seed]
        for name, values in {"source": self.given.source or sources, **chosen}.items():
            options += [part for value in values for part in (f"--{name}", value)]
        for path in self.baseline():
            # Cases that differ are run again, so that a flaky one does not fail the gate.
            options += ["--baseline", path]
        return [*options, *self.waivers()]

    def waivers(self) -> list[object]:
        """Return the option that names the file of waivers, if there is one."""
        return ["--waivers", self.given.waivers] if self.given.waivers else []

    def conformance_run(self, name: str, options: list[object]) -> None:
        """Run `conformance run` in its own process group, so that its children end with it."""
        began, file = time.monotonic(), self.log(name.partition("/")[0].replace(" ", "-"))
        with file.open("wb") as log:
            process = subprocess.Popen(
                [*CONFORMANCE, "run", *map(str, options), *self.given.pytest],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            self.sweeps.append(process)
            try:
                status = process.wait(self.given.timeout * 60)
            except subprocess.TimeoutExpired:
                end(process)
                status = TOO_LONG
        # pytest fails for every operator with a defect; the gate decides whether that is new.
        failed = status not in (0, 1)
        self.note(Step(name, ended(status) if failed else "done", failed, time.monotonic() - began))
        if failed:
            print(*(f"  {line}" for line in content(file).splitlines()[-10:]), sep="\n", flush=True)

    def end_sweeps(self) -> None:
        """End all sweeps, which are in process groups of their own."""
        for process in self.sweeps:
            if process.poll() is None:
                end(process)

    def finish(self) -> None:
        """Run everything after the shards."""
        if shards := sorted((self.out / "shards").glob("*")):
            self.conformance("merge", "merge", *shards, "--out", self.run, means={1: "something is missing"})
        elif not (self.run / "run.json").is_file():
            self.note(Step("merge", f"no shard left anything in {self.out / 'shards'}", True, 0))
        merged = [self.run] if (self.run / "run.json").is_file() else []
        against = self.against()
        for run in merged:
            for expected in against:
                options = ("--fail-on", "regression", "--markdown", *self.waivers())
                means = {0: "nothing is worse", 1: "something is worse, or missing"}
                self.conformance("gate", "diff", expected, run, *options, to="gate.md", means=means)
            self.look_into(run)
            listing = ("--limit", 0, "--json")
            # Failures are expected.
            done: dict[str, Any] = {"to": "failures.json", "means": {1: "done"}, "fine": (0, 1)}
            self.conformance("failures", "failures", run, *listing, **done)
        if self.given.dataset:
            self.keep(merged)
        if runs := [*self.history(), *merged]:
            self.conformance("dashboard", "dashboard", *runs, "--out", self.out / "site")
        self.sum_up(merged, against)

    def look_into(self, run: Path) -> None:
        """Shrink failures, and write ONNX graphs and scripts for the dashboard."""
        if self.given.shrink:
            self.conformance("shrink", "shrink", run, "--budget", self.given.shrink)
        if self.given.graphs:
            self.conformance("graphs", "graphs", run)

    def keep(self, merged: list[Path]) -> None:
        """Add the run to the dataset, remove runs that are too old, and fetch the others for the dashboard."""
        dataset = self.given.dataset
        for run in merged:
            self.conformance("add to the dataset", "dataset", "add", run, "--to", dataset)
        rules = [part for rule in self.given.keep for part in rule]
        if rules:
            self.conformance("retention", "dataset", "keep", dataset, *rules, "--delete")
        where = ("--last", self.given.history, "--out", self.out / "history", "--set-aside")
        # A damaged run of another night is reported, and is no failure of this one.
        self.conformance("fetch the history", "dataset", "fetch", dataset, *where, fine=(0, 1))

    def history(self) -> list[Path]:
        """Return the other runs of the dataset."""
        own_id = run_field(self.run, "run_id")
        return [run for run in sorted((self.out / "history").glob("*")) if run_field(run, "run_id") != own_id]

    def sum_up(self, merged: list[Path], against: list[Path]) -> None:
        """Write the job's page and the chat message, both with the results of the steps."""
        page, message = self.out / "summary.md", self.out / "chat.json"
        options = [part for path in against for part in ("--against", path)]
        options += [part for path in self.history() for part in ("--earlier", path)]
        options += ["--link", self.given.link] if self.given.link else []
        options += list(map(str, self.waivers()))
        for run in merged:
            self.conformance("summary", "summary", run, *options, "--chat-out", message, to=page.name)
        broken = "; ".join(f"{step.name}: {step.message}" for step in self.steps if step.failed)
        first, _, rest = (content(page) or "## Conformance is red: there is no run\n").partition("\n")
        steps = [
            f"| {'**failed** ' * step.failed}{step.name} | {step.message} | {step.seconds:.0f} |" for step in self.steps
        ]
        table = ["| step | | seconds |", "| --- | --- | ---: |", *steps, ""]
        page.write_text("\n".join([first, *["", f"Failed: {broken}."] * bool(broken), rest, *table]))
        text = json.loads(content(message) or '{"text": "Conformance is red: there is no run"}')["text"]
        message.write_text(json.dumps({"text": text + f"\nFailed: {broken}" * bool(broken)}, indent=2))
        if os.environ.get("GITHUB_STEP_SUMMARY"):
            with Path(os.environ["GITHUB_STEP_SUMMARY"]).open("a") as job:
                job.write(content(page))
        if self.given.webhook:
            self.note(post(self.given.webhook, message))

    def conformance(
        self,
        name: str,
        *words: object,
        to: str = "",
        means: Mapping[int, str] | None = None,
        fine: tuple[int, ...] = (0,),
        may_fail: bool = False,
    ) -> None:
        """Run `conformance WORDS` as a step.

        Args:
            name: The name of the step.
            words: The command.
            to: A file in OUT for its output; "" for the log.
            means: Exit status → message, for statuses with a special meaning.
            fine: Exit statuses that are no failure.
            may_fail: Whether no exit status is a failure.
        """
        log, began = self.log(name.replace(" ", "-")), time.monotonic()
        with log.open("wb") as errors, (self.out / to if to else log).open("ab" if not to else "wb") as out:
            command = [*CONFORMANCE, *map(str, words)]
            status = subprocess.run(command, stdout=out, stderr=errors, check=False).returncode
        last = content(log).strip().splitlines()[-1:] if status else []
        known = {0: "done", **(means or {})}
        message = known.get(status) or (last[0].removeprefix("Error: ") if last else ended(status))
        self.note(Step(name, message, status not in fine and not may_fail, time.monotonic() - began))

    def note(self, step: Step) -> None:
        """Keep and print the result of a step."""
        self.steps.append(step)
        print(f"{'FAILED ' * step.failed}{step.name}: {step.message} ({step.seconds:.0f} s)", flush=True)

    def log(self, name: str) -> Path:
        """Return the log file of a step."""
        return self.out / "logs" / f"{name}.log"


def end(process: subprocess.Popen[bytes]) -> None:
    """Ask a sweep to complete its record and end; kill it after `GRACE` seconds."""
    os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def ended(status: int) -> str:
    """Return an exit status in words."""
    if status == TOO_LONG:
        return "took longer than --timeout"
    return f"was killed ({signal.Signals(-status).name})" if status < 0 else f"exit status {status}"


def content(path: Path) -> str:
    """Return the text of a file; "" if there is none."""
    return path.read_text(errors="replace") if path.is_file() else ""


def run_field(run: Path, name: str) -> Any:
    """Return a field of a run's ``run.json``; None if it cannot be read."""
    try:
        return json.loads(content(run / "run.json")).get(name)
    except (ValueError, AttributeError):
        return None


def post(url: str, message: Path) -> Step:
    """Post a message to a chat's webhook. An unreachable webhook does not make a run red."""
    began = time.monotonic()
    request = urllib.request.Request(url, message.read_bytes(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            result = f"posted, status {answer.status}"
    except (OSError, ValueError) as error:
        # The address is a secret, and an error may quote it: only the error's type is shown.
        result = f"not posted: {type(error).__name__}"
    return Step("webhook", result, False, time.monotonic() - began)


def run_night(given: NightOptions) -> int:
    """Run the requested part of a night, and return the exit status."""
    # A CI sends this signal to a job that is cancelled.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    night = Nightly(given)
    night.fetch_previous()
    try:
        if given.shard:
            night.shard(given.shard)
        elif given.on:
            night.on_cluster()
        elif not given.finish:
            night.sweep()
        if not given.shard:
            night.finish()
    except KeyboardInterrupt:
        night.end_sweeps()
        return 128 + signal.SIGINT
    print(f"wrote everything to {given.out}", flush=True)
    return int(any(step.failed for step in night.steps))
