"""The JSON documents that commands print with ``--json``: their types, and their versions.

Each document begins with ``"schema": "NAME/VERSION"``; `conformance schema NAME` prints its JSON Schema. A version
stays as long as fields are only added. It becomes the next number if a field goes, or if its type or meaning changes.
Numbers that are not finite are null.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

import msgspec

from harness.causes.richness import CausesOfRuns
from harness.pipeline.model_task import FixedSize
from harness.support.health import PlugIn, RouteTest


class Printed(TypedDict):
    """What every document has."""

    schema: str


class Before(TypedDict):
    """Two values of one thing."""

    before: str | int | float | None
    after: str | int | float | None


class Known(TypedDict):
    """A known issue."""

    link: str
    note: str


class WaiverReport(TypedDict):
    """What became of a waiver."""

    overload: list[str]
    reason: str
    link: str
    until: str | None
    cases: int
    expired: bool
    unused: bool


class Baseline(Printed):
    """`conformance baseline`: what was written."""

    out: str
    cells: int
    operators: int
    cases: int
    passed: int
    failed: int
    bytes: int
    kept: int


class TriedRelease(TypedDict):
    """A release, and the verdict with it, or the reason why there is none."""

    release: str
    verdict: str | None
    missing: str | None


class Bisect(Printed):
    """`conformance bisect`: the releases before and after the change."""

    package: str
    tried: list[TriedRelease]
    before: str | None
    after: str | None
    between: list[str]


class UsePlace(TypedDict):
    """What a run says of an operator on one route."""

    converter: str
    backend: str
    own_cases: int
    own_failures: int
    cases: int
    failures: int
    how: str
    case_id: str


class UsedOperator(TypedDict):
    """An operator that a model calls."""

    overload: str
    calls: int
    kinds: int
    modules: list[str]
    places: list[UsePlace]


class CapturedModel(TypedDict):
    """The calls of a model."""

    model: str
    calls: int
    kinds: int
    left_out: dict[str, int]
    run: str | None
    operators: list[UsedOperator]


class Capture(Printed):
    """`conformance capture`: the calls that were kept."""

    saved: str
    entries: int
    models: NotRequired[list[CapturedModel]]


class OutputErrors(TypedDict):
    """The error of an output of a model."""

    output: int
    form: str
    error: float | None
    largest: float | None
    allowed: float | None


class ModelRunReport(TypedDict):
    """One run of a model."""

    change: str
    stage: str
    outcome: str
    message: str
    excused: str
    error: float | None
    traced: str | None
    fixed: list[list[str | int]]
    outputs: list[OutputErrors]


class CallReport(TypedDict):
    """A call that fails by itself as the model does."""

    call: str
    case_id: str
    stage: str
    outcome: str
    blame: str
    component: str
    place: str
    message: str
    evidence: str


class RemedyReport(TypedDict):
    """A change that was tried."""

    kind: str
    value: str
    helps: bool | None


class Cause(TypedDict):
    """The cause of a model's failure."""

    component: str
    place: str
    fault: str
    symptom: str
    rule: str
    evidence: str
    node: dict[str, Any] | None


class Optimiser(TypedDict):
    """The optimiser without which a model is right; empty for none."""

    owner: str
    passes: list[str]


class RangeLoss(TypedDict):
    """The first node that leaves the range of its dtype."""

    change: str
    operator: str
    value: str
    steps: float
    largest: float | None


class Accuracy(TypedDict):
    """The accuracy of one run of a transformed model, or with a user's inputs."""

    inputs: str
    error: float | None
    sqnr: float | None
    rows: int
    top1: int
    top5: int
    margins: list[float | None]
    range_loss: RangeLoss | None


class Nodes(TypedDict):
    """How many nodes of a file were compared with their definitions."""

    nodes: int
    judged: int
    wrong: int
    unjudged: list[dict[str, str]]


class RouteReport(TypedDict):
    """A model on one route."""

    converter: str
    backend: str
    shapes: str
    dtype: str | None
    noise_as_input: bool
    survives: bool
    compared: bool
    runs: list[ModelRunReport]
    first_wrong_value: dict[str, Any] | None
    calls: list[CallReport]
    remedies: list[RemedyReport]
    owner: str
    obstacle: str
    cause: Cause | None
    optimiser: Optimiser
    notes: list[str]
    fixed_sizes: list[FixedSize]
    accuracy: list[Accuracy]
    range_loss: RangeLoss | None
    nodes: Nodes | None


class State(TypedDict):
    """What a model keeps between calls."""

    changed: list[str]
    inputs_written: list[str]
    second_call_differs: bool


class InputDifference(TypedDict):
    """How the tensors differ that two functions make of a file."""

    file: str
    input: str
    kind: str
    first: str
    second: str
    scale: list[float]
    offset: list[float]
    largest: float | None
    correlation: float | None


class Preprocessing(TypedDict):
    """The comparison of two preprocessing functions."""

    files: int
    differences: list[InputDifference]


class KernelNodes(TypedDict):
    """What a runtime says about the nodes of a route."""

    route: str
    problem: str
    nodes: list[dict[str, Any]]


class Check(Printed):
    """`conformance check`: whether a model survives."""

    model: str
    word: str
    survives: bool
    preprocessing: Preprocessing | None
    left_out: list[str]
    notes: list[str]
    given_in_training_mode: bool
    state: State
    ways: list[RouteReport]
    kernels: list[KernelNodes]


class Headroom(Printed):
    """`conformance check --headroom`: how near values come to the limits of a dtype."""

    dtype: str
    inputs: int
    nodes: int
    peaks: list[dict[str, Any]]
    kept: list[dict[str, Any]]
    error: float | None
    limit: float | None
    runtime_error: float | None
    unnamed: int
    problem: str
    options: dict[str, str]


class Corpus(Printed):
    """`conformance corpus`: the cases that were written."""

    out: str
    runs: int
    cases: int
    operators: int


class SetAside(TypedDict):
    """A damaged run, and why."""

    name: str
    message: str


class Dashboard(Printed):
    """`conformance dashboard`: the site that was written; `summary` is its own ``summary.json``."""

    site: str
    runs: int
    aside: list[SetAside]
    seconds: float
    summary: dict[str, Any]


class Addition(TypedDict):
    """A run that was added to a dataset."""

    run: str
    run_id: str
    became: str
    why: str


class DatasetAdd(Printed):
    """`conformance dataset add`."""

    added: list[Addition]


class Damage(TypedDict):
    """A damaged run."""

    run_id: str
    reason: str
    moved_to: NotRequired[str | None]


class DatasetCheck(Printed):
    """`conformance dataset check`."""

    damaged: list[Damage]


class FetchedRun(TypedDict):
    """A run that was copied."""

    run_id: str
    path: str


class DatasetFetch(Printed):
    """`conformance dataset fetch`."""

    fetched: list[FetchedRun]
    damaged: list[Damage]


class KeptRun(TypedDict):
    """A run, and its size in bytes."""

    run_id: str
    bytes: int


class DatasetKeep(Printed):
    """`conformance dataset keep`."""

    kept: list[KeptRun]
    removed: list[KeptRun]
    deleted: bool


class ListedRun(TypedDict):
    """A run of a dataset."""

    run_id: str
    started: str
    finished: str | None
    exit_status: int | None
    seed: int
    verdicts: int
    bytes: int
    unfinished: list[str]
    converters: list[str]
    backends: list[str]
    versions: dict[str, str]


class Quarantined(TypedDict):
    """A run that was set aside."""

    name: str
    reason: str
    since: str | None


class DatasetList(Printed):
    """`conformance dataset list`."""

    runs: list[ListedRun]
    damaged: list[Damage]
    set_aside: list[Quarantined]


class Cells(TypedDict):
    """Numbers of entries that were compared case by case, by chance, and that are expected."""

    same_cases: int
    other_cases: int
    expected: int


class CellDifference(TypedDict):
    """A difference from a baseline."""

    finding: str
    overload: str
    dtype: str
    converter: str
    backend: str
    shape_mode: str
    what: str
    why: str
    case_id: str
    failure: list[str]


class CaseDifference(TypedDict):
    """The changes of an operator on one route, case by case."""

    overload: str
    converter: str
    backend: str
    shape_mode: str
    counts: dict[str, int]
    examples: dict[str, str]
    why: str


class Diff(Printed):
    """`conformance diff`: case by case with `overloads` and `not_requested`, from a baseline with `differences` and
    `worse`."""

    counts: dict[str, int]
    compared: Cells | int
    missing: str
    versions: dict[str, Before]
    options: dict[str, Before]
    waivers: list[WaiverReport]
    worse: NotRequired[int]
    differences: NotRequired[list[CellDifference]]
    not_requested: NotRequired[dict[str, int]]
    overloads: NotRequired[list[CaseDifference]]


class FigureChange(TypedDict):
    """The change of a figure, and the interval of the difference, which is positive where it is worse."""

    figure: str
    before: float
    after: float
    low: float
    high: float
    median: float
    worse: bool
    better: bool


class ModelFigures(TypedDict):
    """What an upgrade changed of the cost of a model's calls."""

    model: str
    problem: str
    changes: list[FigureChange]


class Upgrade(Printed):
    """`conformance upgrade`: what changed since the baseline was recorded."""

    counts: dict[str, int]
    worse: int
    missing: str
    compared: Cells
    versions: dict[str, Before]
    options: dict[str, Before]
    differences: list[CellDifference]
    waivers: list[WaiverReport]
    figures: list[ModelFigures]
    run: str
    accepted: bool


class DoctorProblem(TypedDict):
    """Something that is wrong with an installation."""

    id: str
    subject: str
    details: list[str]
    text: str


class Doctor(Printed):
    """`conformance doctor`: what is installed, and what is wrong."""

    healthy: bool
    versions: dict[str, str]
    problems: list[DoctorProblem]
    plugins: list[PlugIn]
    tests: list[RouteTest]


class Explain(Printed):
    """`conformance explain`: an operator, its overloads, and its counterpart in ONNX."""

    operator: dict[str, Any]
    overloads: list[dict[str, Any]]
    onnx: dict[str, Any] | None
    candidate: dict[str, Any] | None
    emits: dict[str, list[str]]
    unavailable: dict[str, str]
    missing: dict[str, list[str]]


class Smallest(TypedDict):
    """The smallest case of a group."""

    case_id: str
    converter: str
    backend: str
    signature: str
    message: str
    invocation: str


class Minimal(TypedDict):
    """A shrunk case."""

    case_id: str
    invocation: str
    message: str
    matters: list[str]
    elements: int


class Group(TypedDict):
    """Failures of one root cause."""

    outcome: str
    stage: str
    blame: str
    cases: int
    ordinary_cases: int
    rule: str
    callers: int
    priority: float
    file: str
    owner: str
    component: str
    place: str
    fault: str
    symptom: str
    choice: str
    overloads: list[str]
    dtypes: list[str]
    converters: list[str]
    backends: list[str]
    smallest: Smallest
    minimal: Minimal | None
    known: list[Known]
    where: str
    wrong: str


class Groups(TypedDict):
    """The failures of a run: numbers of root causes, and those that are listed."""

    total: int
    left_open: int
    groups: list[Group]


class Inaccuracy(TypedDict):
    """Results that are less exact than PyTorch's."""

    component: str
    place: str
    cases: int
    overloads: list[str]
    dtypes: list[str]
    largest_error: float | None
    largest_ulps: float | None
    case_id: str


class NoLongerFailing(Known):
    """A known issue that a run contradicts."""

    passed: int


class Failures(Printed):
    """`conformance failures`: the distinct failures of a run."""

    run: str
    missing: str
    failures: Groups
    inaccuracies: list[Inaccuracy]
    no_longer_failing: list[NoLongerFailing]


class Graphs(Printed):
    """`conformance graphs`: numbers of graphs and scripts, and why others were not made."""

    run: str
    graphs: int
    scripts: int
    failed: dict[str, str]


class Shard(TypedDict):
    """A shard of a merged run."""

    index: int
    count: int
    state: str
    operators: list[str]
    unfinished: list[str]


class Merge(Printed):
    """`conformance merge`: the merged run."""

    run: str
    run_id: str
    verdicts: int
    complete: bool
    set_aside: list[str]
    shards: list[Shard]


class Measure(Printed):
    """`conformance measure`: what a call of a model costs: milliseconds, bytes left, decibels, rows."""

    milliseconds: float
    memory: float
    sqnr: float | None
    flips: int
    rows: int
    route: str


class Claim(TypedDict):
    """What became of a runtime's claim."""

    backend: str
    overload: str
    outcome: str
    compared: int
    failing: int
    example: str


class Profile(Printed):
    """`conformance profile`: each claim of a runtime."""

    claims: list[Claim]


class VerdictReport(TypedDict):
    """The end of a case on one route."""

    converter: str
    converter_version: str
    opset: int | None
    backend: str
    backend_version: str
    device: str
    shape_mode: str
    stage: str
    outcome: str
    blame: str
    blame_rule: str
    component: str
    place: str
    fault: str
    signature: str
    message: str
    max_abs_error: float | None
    max_rel_error: float | None
    max_ulp_error: float | None
    needed_rtol: float | None
    needed_atol: float | None
    mismatched_elements: int
    total_elements: int
    exported_invocation: str
    placement: str
    excused: str
    owner: str
    evidence: str
    diagnosis: dict[str, Any] | None
    problems: list[dict[str, Any]]
    lines: NotRequired[list[SuspectLine]]
    no_lines_because: NotRequired[str]


class SuspectLine(TypedDict):
    """A statement of a converter that may cause a failure."""

    function: str
    file: str
    line: int
    text: str
    reason: str
    score: float


class ReplayedCase(TypedDict):
    """A case that was run again, with its outputs as flat lists; null for an output of more than 64 elements."""

    case_id: str
    call: str
    invocation: str
    verdict: VerdictReport
    expected: list[list[Any] | None] | None
    float64: list[list[Any] | None] | None
    got: list[list[Any] | None] | None


class Replay(Printed):
    """`conformance replay`: cases that were run again."""

    cases: list[ReplayedCase]
    still_failing: int


class Repro(Printed):
    """`conformance repro`: a script or a bug report."""

    script: str
    issue: str | None
    path: str | None
    attachments: list[str]
    reproduces: bool | None
    exit_status: int | None
    output: str | None
    known: list[Known]


class Run(Printed):
    """`conformance run`: the run that was made; null if nothing was run."""

    exit_status: int
    run: str | None
    run_id: str | None
    cases: int
    verdicts: int
    outcomes: dict[str, int]


class Show(Printed):
    """`conformance show`: a case and its verdicts."""

    run: str
    case_id: str
    call: str
    torch: str
    invocation: str
    versions: dict[str, str]
    verdicts: list[VerdictReport]
    minimal: list[Minimal]
    known: list[Known]


class Shrink(Printed):
    """`conformance shrink`: a minimal case; one document on each line."""

    case_id: str
    overload: str
    converter: str
    backend: str
    stage: str
    outcome: str
    signature: str
    blame: str
    message: str
    minimal_id: str
    invocation: str
    evidence: str
    component: str
    place: str
    fault: str
    detail: str
    diagnosis: str
    exported_invocation: str
    matters: list[str]
    elements: int
    evaluations: int
    finished: bool


class ShardState(TypedDict):
    """A shard of a run."""

    index: int
    count: int
    state: str
    operators: int
    unfinished: list[str]


class Passing(TypedDict):
    """How many of some cases pass."""

    passed: int
    total: int


class Column(TypedDict):
    """A route of a run."""

    converter: str
    backend: str
    operators: dict[str, int]
    passed: int
    total: int
    ordinary: Passing
    ordinary_by_use: float | None


class Summary(Printed):
    """`conformance summary`: a run in numbers."""

    headline: str
    red: bool
    run_id: str
    started: str
    complete: bool
    missing: str
    shards: list[ShardState]
    columns: list[Column]
    failures: int
    onnx_operators: list[dict[str, Any]]
    invalid_nodes: list[dict[str, Any]]
    passes: list[dict[str, Any]]
    fallbacks: list[dict[str, Any]]
    causes: CausesOfRuns | None
    real_use: list[dict[str, Any]]
    against: str
    worse: int
    differences: str


class Failing(TypedDict):
    """Calls of an operator that fail alike."""

    cause: dict[str, Any]
    cases: int
    outcome: str
    stage: str
    condition: str
    call: str
    message: str


class SupportedCalls(TypedDict):
    """The calls of an operator in one dtype."""

    overload: str
    dtype: str
    level: str
    passing: int
    cases: int
    failing: list[Failing]


class Answer(TypedDict):
    """Whether an operator or a model is supported on one route."""

    asked: str
    converter: str
    backend: str
    level: str
    problem: str
    calls: list[SupportedCalls]


class Supports(Printed):
    """`conformance supports`: an answer for each operator or model."""

    answers: list[Answer]


class ErrorRow(TypedDict):
    """The errors of an operator in one dtype on one route."""

    overload: str
    dtype: str
    converter: str
    backend: str
    shape_mode: str
    cases: int
    wrong: int
    median_ulp: float | None
    p99_ulp: float | None
    max_ulp: float | None
    max_abs: float | None
    rtol: float | None
    atol: float | None
    default_rtol: float | None
    default_atol: float | None
    worst_case: str


class Excuse(TypedDict):
    """A rule that excuses elements."""

    rule: str
    cases: int
    elements: int
    operators: list[str]
    example: str


class Tolerance(Printed):
    """`conformance tolerance`: the errors of a run."""

    run: str
    run_id: str
    versions: dict[str, str]
    rows: list[ErrorRow]
    excused: list[Excuse]


class Ids(Printed):
    """`conformance schema ids`: the stable ids of the record, each with its sentence.

    A sentence has placeholders in braces, and may change; an id stays.
    """

    outcomes: dict[str, str]
    stages: dict[str, str]
    blames: dict[str, str]
    rules: dict[str, str]
    faults: dict[str, str]
    problems: dict[str, str]


@dataclass(frozen=True)
class Document:
    """A document of a command.

    Attributes:
        type: Its type, a `TypedDict`.
        version: Its version.
    """

    type: type[Any]
    version: int = 1


#: Name → document. The name is the command's, with a dash for a subcommand.
DOCUMENTS: Mapping[str, Document] = {
    "baseline": Document(Baseline),
    "bisect": Document(Bisect),
    "capture": Document(Capture),
    "check": Document(Check),
    "corpus": Document(Corpus),
    "dashboard": Document(Dashboard),
    "dataset-add": Document(DatasetAdd),
    "dataset-check": Document(DatasetCheck),
    "dataset-fetch": Document(DatasetFetch),
    "dataset-keep": Document(DatasetKeep),
    "dataset-list": Document(DatasetList),
    "diff": Document(Diff),
    "doctor": Document(Doctor),
    "explain": Document(Explain),
    "failures": Document(Failures),
    "graphs": Document(Graphs),
    "headroom": Document(Headroom),
    "ids": Document(Ids),
    "measure": Document(Measure),
    "merge": Document(Merge),
    "profile": Document(Profile),
    "replay": Document(Replay),
    "repro": Document(Repro),
    "run": Document(Run),
    "show": Document(Show),
    "shrink": Document(Shrink),
    "summary": Document(Summary),
    "supports": Document(Supports),
    "tolerance": Document(Tolerance),
    "upgrade": Document(Upgrade),
}


def label_document(name: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document that says what it is."""
    return {"schema": f"{name}/{DOCUMENTS[name].version}", **data}


def json_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a document, in the dialect of 2020-12."""
    document = DOCUMENTS[name]
    schema = msgspec.json.schema(document.type)
    identity = f"{name}/{document.version}"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": identity, **schema}
