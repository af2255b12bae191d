"""A failure's message made comparable: the same for the same defect, whatever the case.

A signature keeps the words that name the defect and the operator it is in, and replaces by
placeholders what belongs to one case only: ``<n>`` numbers, ``<list>`` shapes and lists of values,
``<name>`` graph names, ``<dtype>``, ``<path>``, ``<addr>``. dtypes always go, even where a message
is about nothing else: a kernel that is missing in four dtypes is one gap with four dtypes, and a
report lists the dtypes of a group beside it.
"""

from __future__ import annotations

import re
from functools import lru_cache

from harness.compare.output_comparison import PROBLEMS
from harness.core.documents import without_escapes

#: Longest signature, in characters.
LIMIT = 200
#: How much of a message is looked at, in characters: exporters print whole graphs.
_MESSAGE_LIMIT = 50_000
_LINE_LIMIT = 4_000

# torch.onnx (dynamo): the root cause comes first, then the exceptions that it caused.
_SUMMARY = "## Exception summary"
_SUMMARY_LINK = "\N{UPWARDS BLACK ARROW}"
_SUMMARY_END = "(Refer to the full stack trace"
_RULE = re.compile(r"<function (\w+) at 0x")
_TARGET = re.compile(r"\btarget=(?:torch\.ops\.)?([\w.]+)")

_TRACEBACK = "Traceback (most recent call last)"
_RAISED = re.compile(r"^(?!Traceback|During|The above)[A-Za-z_][\w.]*(?:: .*)?$", re.MULTILINE)
_CAUSED_BY = re.compile(r"^\s*caused by:?\s", re.MULTILINE | re.IGNORECASE)
_NUMBERED = re.compile(r"^\s*\d+: (.+)$", re.MULTILINE)
# The backends' own exceptions already say the informative part of the runtime's, case by case; what
# caused them speaks of a whole batch.
_BACKEND = re.compile(r"^(?:UnsupportedModel|InvalidModel|BackendFailure|DeviceLost): ")

# Lines that lead to the informative one: OpenVINO's and TensorRT's above all.
_NOISE = re.compile(
    r"""^\s*(?:[\w.]+:\ )?(?:
        Exception\ from\ | While\ validating\ | Check\ '.*'\ failed\ at\ \S+$ | FrontEnd\ API\ failed
        | Model\ wasn't\ fully\ converted | Summary: | --\ Conversion\ is\ failed | Shape\ inference\ input
        | Details:$ | Not\ Implemented:$ | To\ facilitate\ the\ conversion | --\ \S+\ with\ a\ message:$
        | ==>\ Context: | \[checkMacros | (?:.*[|:]\s*)?Invalid\ Node\ -\ \S+$ | Inputs:$ | Outputs:$
    )""",
    re.VERBOSE,
)
_OPENVINO_OPERATOR = re.compile(r"^-- ([\w.]+?)(?:-\d+)? with a message:", re.MULTILINE)
_CHECKER_OPERATOR = re.compile(r"^==> Context: .*OpType: (\w+)", re.MULTILINE)
_TENSORRT_OPERATOR = re.compile(r"^[A-Z]+(?:_[A-Z]+)+: (\w+): ")
_FAILED_CHECK = re.compile(r"Check '(.+)' failed at ")

_DTYPE = r"""(?:
    b?float(?:8|16|32|64)(?:_\w+)? | u?int(?:4|8|16|32|64) | complex(?:32|64|128)
    | bf16 | fp?(?:8|16|32|64) | [iu](?:8|16|32|64)
    | B?FLOAT(?:8|16)?(?:E\w+)? | DOUBLE | U?INT(?:4|8|16|32|64) | BOOL | COMPLEX(?:64|128)
    | FP(?:8|16|32) | BF16
    | B?Float(?:16)? | Double | Half | Long | U?Int(?:8|16|32|64)? | Short | Char | Byte | Bool
    | Complex(?:Half|Float|Double)
)"""
_TYPE_MODULE = r"(?:torch|np|numpy|ml_dtypes|TensorProto|DataType|DType)\."
#: A function as a C++ compiler prints it, after the place that it is in.
_CPP_FUNCTION = r"\S+\.(?:h|hpp|cc|cpp):\d+ (?:[\w:<>&*, ]*? )?[\w:<>~]+::[\w~]+\((?:[^()]|\([^()]*\))*\)(?: const)?"
_SOURCE_FILE = (
    r"(?:\b[A-Za-z]:\\|\.{0,2}/)?(?:[\w.+@~-]+[/\\])*"
    r"[\w+-]+\.(?:py|pyx|cc|cpp|cu|hpp|h|rs|onnx|so)\b"
)
#: As TorchScript names nodes and their outputs.
_SCOPED_NAME = r"(?<![\w/])/(?:[\w.:]+/)*[A-Z]\w*(?:/[A-Z]\w*)*_output_\d+\b|(?<![\w/>])/[A-Z]\w*(?![\w/.])"
_NUMBER = r"[-+]?(?:\d+(?:\.\d+|\.(?=[\s,\])}]*[,\])}]))?(?:[eE][-+]?\d+)?|\.\d+|\binf\b|\bnan\b)"
_ELEMENT = rf"(?:{_NUMBER}[jLf]?|<n>|<list>|<name>|\?|None|(?:s|u|zuf|zf)\d+|\.\.)"
_ELEMENTS = rf"{_ELEMENT}(?:\s*[,x]?\s*{_ELEMENT})*\s*,?"

#: Pattern → replacement, in this order.
_SUBSTITUTIONS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.VERBOSE if "\n" in pattern else 0), replacement)
    for pattern, replacement in (
        # torch.export: a size that values decide, `u8`, is not a dtype.
        (r"\bu\d+ \(unhinted: u\d+\)", "<n> (<n>)"),
        # What the comparison says of one element.
        (rf"^({'|'.join(PROBLEMS)}): .*", r"\1"),
        # Courtesies, and what follows the message proper.
        (r"\s*\[Caused by the value '.*", ""),
        (r"\s*Please (?:feel free|open a bug|report|see|check|refer).*", ""),
        (r"\s*See the stack trace for more information\.?", ""),
        # What Python objects print.
        (r"<OpOverload\(op='([\w.]+)', overload='(\w+)'\)>", r"\1.\2"),
        (r"<function ([\w.<>]+) at 0x[0-9a-fA-F]+>", r"\1"),
        (r"<class '(?:[\w.]*\.)?(\w+)'>", r"\1"),
        (r" (?:object )?at 0x[0-9a-fA-F]+(?=>)", ""),
        (r"^(?:[A-Za-z_]\w*\.)+([A-Z]\w*)(?=: |$)", r"\1"),
        (r"Error when translating node .*?target=(?:torch\.ops\.)?([\w.]+).*", r"Error when translating \1"),
        # torch.onnx and torchlib: what they print of the call that failed.
        (r"<n> INTERNAL ASSERT FAILED|\b\d+ INTERNAL ASSERT FAILED", "INTERNAL ASSERT FAILED"),
        (r"(it isn't a special case\.)\s*Argument types:[^\n]*?\bbool\b.*", r"\1 An argument is a bool."),
        (r"(it isn't a special case\.)\s*Argument types:.*", r"\1"),
        (r"( Signature: [\w.']*::\w+)\(.*", r"\1"),
        (r"\bFakeTensor\((?:[^()]|\([^()]*\))*\)", "FakeTensor"),
        (r"\s*Tried overloads: .*", ""),
        (r"(?<=\w)\.? (?:self|other|input):$", ""),
        # onnx: which input is not part of the defect.
        (r"(\(op_type:\w+\)): [\w<>]+ typestr: [\w<>]+, has unsupported type\b.*", r"\1: unsupported type"),
        (r"(\(op_type:\w+\)): [\w<>]+ has (inconsistent|unsupported) type\b.*", r"\1: \2 type"),
        # ONNX Runtime.
        (r"\[with (?:[^\[\]]|\[[^\[\]]*\])*\]\s*", ""),
        (r"\bT(?:\(0\)|\{0\}|<list>)", "T<n>"),
        (r"\bMLFloat16\b", "<dtype>"),
        (r"(?:\b[\w.]+: )?\[ONNXRuntimeError\] : \d+ : (\w+) : ", r"\1: "),
        (r"Non-zero status code returned while running (\w+) node\.", r"running \1:"),
        (r"\s*Name:\s*'[^']*'", ""),
        (r"\s*Status Message:", ""),
        (_CPP_FUNCTION, ""),
        (r'In Node, \("[^"]*", (\w+), .*? , Error ', r"\1: "),
        (r"\bNode \([^()]*\) Op \((\w+)\)", r"\1"),
        (r"of input parameter \([^()]*\) ", ""),
        (r"\s+(?:in node|node with name|with friendly_name|and name) ?(?:\([^()]*\)|'[^']*'|\"[^\"]*\")", ""),
        (r",? ?(?:node name|Operation name|name): [\w/.:]+", ""),
        (r"\b([Nn]ode input|node with name|node) '[^']*'", r"\1 <name>"),
        # OpenVINO, TensorRT.
        (r"(Check '.+?') failed at \S+", r"\1 failed:"),
        (r"\(\w+: (?=\S)", "("),
        (r" In \w+ at \S+?:\d+\)?$", ""),
        (r"(?<=\()Provided.*", ""),
        # Python: where source that PyTorch wrote does not parse.
        (r"(?<=invalid syntax) \([^()]*, line \d+\)", ""),
        # Places and identities.
        (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "<addr>"),
        (r"\b0x[0-9a-fA-F]+\b|\b(?=[a-f]*[0-9])[0-9a-f]{12,}\b", "<addr>"),
        (r"https?://\S+", "<path>"),
        (_SCOPED_NAME, "<name>"),
        (_SOURCE_FILE, "<path>"),
        (r"(?<![\w<>/])(?:/[\w.+@-]+){2,}/?|\b[A-Za-z]:\\\S+", "<path>"),
        (r"<path>(?:\.\d+)*(?::\d+)+", "<path>"),
        (r"\btmp[a-z0-9_]{6,}\b", "<path>"),
        # dtypes, before numbers eat them.
        (r"\b[tT]ensor\((?:\w+|<dtype>)\)", "<dtype>"),
        ("\n" + rf"(?<![\w<])(?:{_TYPE_MODULE})?{_DTYPE}(?![\w>])", "<dtype>"),
        (r"(?:torch|np|numpy)\.<dtype>", "<dtype>"),
        (r"\btorch\.(?:bool|float|double|half|long|int|short|char|byte)\b", "<dtype>"),
        (r"(['\"])(?:bool|float|double|half|long|int|short)\1", r"\1<dtype>\1"),
        (r"\bd?type (?:bool|float|double)\b", "type <dtype>"),
        # Names that exporters and the harness give.
        (r"%\w+", "<name>"),
        (r"\bonnx::\w+_\d+\b", "<name>"),
        (r"(?<![\w<.:])(?:node_\w+|val_\d+\w*|[a-z]{1,4}\d+_\w*\d|\w+_\d+(?:_\w*\d)?)(?![\w>(])", "<name>"),
        # Shapes and values.
        (r"\b(?:torch\.Size|Shape|TensorShape)\(([\[{][^\[\](){}]*[\]}])\)", r"\1"),
        (r"\b\d+(?:x\d+)+\b", "<list>"),
        (rf"\[\s*(?:{_ELEMENTS})?\s*\]|\{{\s*(?:{_ELEMENTS})\s*\}}", "<list>"),
        (rf"\(\s*{_ELEMENT}\s*(?:,\s*{_ELEMENT}\s*)*,\s*(?:{_ELEMENT}\s*)?\)|(?<=[\s=:])\(\)", "<list>"),
        (rf"(?<![\w<])(?:{_NUMBER})[jL]?(?![\w>])", "<n>"),
        (r"(?<![\w<])(?:s|u|zuf|zf)\d+(?![\w>])", "<n>"),
        (r"<dtype>\(<n>\)", "<n>"),
        (r"<n>(?:\s*[,x]?\s*<n>)+", "<n>"),
        (r"<list>(?:\s*,?\s*<list>)+", "<list>"),
        (r"\s+", " "),
    )
)  # fmt: skip


# The cases of a structure, and many others, fail in the same words, and more than one asks for their
# signature.
@lru_cache(maxsize=512)
def normalise(message: str) -> str:
    """The signature of a failure message, on one line of at most `LIMIT` characters.

    Normalising a signature gives it back unchanged. An empty message has the signature "".

    Args:
        message: As the exporter, PyTorch or the runtime gave it, whole: the informative part of
            torch.onnx's errors is far from their beginning.
    """
    line = without_escapes(message[:_MESSAGE_LIMIT])
    # One substitution can make room for another: lists of lists, a cut beside a placeholder.
    for _ in range(20):
        before, line = line, _cut(_substitute(_informative_line(line)[:_LINE_LIMIT]))
        if line == before:
            break
    return line


def informative_line(message: str) -> str:
    """The line of a message that says what failed, whole: numbers, names and shapes are left in it."""
    return _informative_line(without_escapes(message[:_MESSAGE_LIMIT]))


def _substitute(line: str) -> str:
    for pattern, replacement in _SUBSTITUTIONS:
        line = pattern.sub(replacement, line)
    return line.strip()


def _cut(line: str) -> str:
    if len(line) <= LIMIT:
        return line
    head, space, _ = line[: LIMIT - 1].rpartition(" ")
    return f"{head if space else line[: LIMIT - 2]} …"


def _informative_line(text: str) -> str:
    if _SUMMARY in text:
        root = text.partition(_SUMMARY)[2].partition(_SUMMARY_END)[0].partition(_SUMMARY_LINK)[0]
        return _within_rule(_first_useful(root), text)
    if _TRACEBACK in text:
        raised = _RAISED.search(text.partition(_TRACEBACK)[2])
        if raised:
            return raised[0]
    first, *causes = _CAUSED_BY.split(text)
    if _BACKEND.match(first):
        return _first_useful(_BACKEND.sub("", first))
    if not causes:
        return _first_useful(first)
    numbered = _NUMBERED.findall(causes[-1])
    return _within_rule(numbered[-1] if numbered else _first_useful(causes[-1]), text)


def _first_useful(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) < 2:
        return "".join(lines)
    useful = [line for line in lines if not _NOISE.match(line)]
    if not useful:
        check = _FAILED_CHECK.search(text)
        return f"Check '{check[1]}' failed" if check else lines[0]
    line = useful[0]
    if line.endswith(":") and len(useful) > 1:
        line = f"{line} {useful[1]}"
    for pattern in (_OPENVINO_OPERATOR, _CHECKER_OPERATOR, _TENSORRT_OPERATOR):
        operator = pattern.search(text)
        if operator and operator[1] not in line:
            return f"{operator[1]}: {line}"
    return line


def _within_rule(line: str, chain: str) -> str:
    """The root cause, with the conversion function or the operator that the chain says it happened in."""
    where = _RULE.search(chain) or _TARGET.search(chain)
    if not where or where[1] in line or "No ONNX function found" in line:
        return line
    return f"in {where[1]}: {line}"
