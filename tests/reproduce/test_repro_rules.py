"""`conformance repro` of a failure that the user's own conversion function makes."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import Result
from commands import entered
from harness_runs import literal_unit, recorded, unary
from script_runs import ended, fork_scripts, run_script

from harness.core.invocation import Invocation
from harness.pipeline.supervisor import Supervisor
from harness.plan.unit import run_unit
from harness.record.run_info import RunInfo

pytestmark = pytest.mark.slowest(24)

RULES = """
import math

from onnxscript import opset18 as op

from harness.convert.rules import dynamo, torchscript

UNUSED = math.pi
SLOPE = 1.0


def scaled(x, alpha):
    # The alpha that the caller has is dropped here.
    return op.Celu(x, alpha=SLOPE)


@dynamo("aten::celu")
def celu(self, alpha=1.0):
    return scaled(self, alpha)


@torchscript("aten::celu")
def celu_symbolic(g, input, alpha):
    return g.op("Celu", input, alpha_f=SLOPE)
"""

CALL = unary("aten.celu.default", [-1.0, 2.0])
CALL = Invocation(CALL.overload, (*CALL.arguments, ("alpha", 2.0)))


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`run`, in which both rules fail, and their file ``my_rules.py``."""
    directory = tmp_path_factory.mktemp("repro-rules")
    file = directory / "my_rules.py"
    file.write_text(RULES)
    verdicts = []
    with Supervisor(timeout=60) as supervisor:
        for converter in ("dynamo", "torchscript"):
            unit = literal_unit([CALL], converter=converter, backends=["ort-cpu"], rules=[str(file)])
            verdicts += [v for found in run_unit(unit, supervisor) for v in found]
    info = RunInfo.begin(seed=0, options={"rules": [str(file)]})
    recorded(directory / "run", verdicts, info)
    return directory


@pytest.fixture(autouse=True)
def scripts_are_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    fork_scripts(monkeypatch)


def repro(tried: Path, converter: str, out: Path, *more: str | Path) -> Result:
    return entered("repro", CALL.case_id, "--run", tried / "run", "--converter", converter, "--out", out, *more)


@pytest.mark.slow
@pytest.mark.parametrize(("converter", "function"), [("dynamo", "celu"), ("torchscript", "celu_symbolic")])
def test_the_script_has_the_rule_in_it(tried: Path, tmp_path: Path, converter: str, function: str) -> None:
    done = repro(tried, converter, tmp_path / "shown.py")
    assert done.exit_code == 0, done.output
    assert "the script fails as recorded" in done.stderr + done.output
    script = (tmp_path / "shown.py").read_text()
    assert f"def {function}(" in script
    assert "harness" not in script
    assert "UNUSED" not in script
    # What is mended in the script is mended.
    rerun = run_script(tmp_path, script.replace("=SLOPE", "=2.0"))
    assert rerun.returncode == 0, ended(rerun)


def test_a_mended_rule_is_seen(tried: Path, tmp_path: Path) -> None:
    mended = tmp_path / "my_rules.py"
    mended.write_text(RULES.replace("alpha=SLOPE", "alpha=alpha"))
    done = repro(tried, "dynamo", tmp_path / "shown.py", "--rules", mended)
    assert done.exit_code == 1
    assert "The defect is gone." in done.output


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "registers no rule"),
        (
            "from harness.convert.rules import dynamo\nmade = dynamo('aten::celu')\n"
            "made(type('celu', (), {'__name__': 'celu', '__call__': lambda s, x, alpha=1.0: x})())\n",
            "no statement that defines the rule celu",
        ),
    ],
)
def test_a_rule_that_cannot_be_shown_gives_no_script(tried: Path, tmp_path: Path, text: str, said: str) -> None:
    other = tmp_path / "my_rules.py"
    other.write_text(text)
    done = repro(tried, "dynamo", tmp_path / "shown.py", "--rules", other)
    assert done.exit_code == 1
    assert said in done.output
    assert not (tmp_path / "shown.py").exists()


def test_a_file_of_rules_that_is_gone_is_asked_for(tried: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "others.py"
    elsewhere.write_text(RULES)
    done = repro(tried, "dynamo", tmp_path / "shown.py", "--rules", elsewhere)
    assert done.exit_code == 1
    assert "converted by the rule my_rules.py:celu; say where my_rules.py is: --rules FILE" in done.output
