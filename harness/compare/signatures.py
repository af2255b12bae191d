"""Signatures: failure messages normalised so that the same defect gives the same text in every case.

A signature keeps the words that name the defect and its operator. Whatever belongs to one case is replaced by a
placeholder: ``<n>`` for numbers, ``<list>`` for shapes and lists of values, ``<name>`` for graph names, ``<dtype>``,
``<path>``, ``<addr>``. dtypes are replaced even if the message is about nothing else: a kernel that is missing in four
dtypes is one gap, and reports list the dtypes of a group separately.
"""

from __future__ import annotations

import re
from functools import lru_cache

from harness.compare.problem_kinds import PROBLEMS
from harness.core.text import strip_escapes

#: Longest signature, in characters.
LIMIT = 200
#: Longest part of a message that is read, in characters, since exporters print whole graphs.
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
# The exceptions of backends already contain the informative part of the runtime's message for each case, whereas their
# cause describes a whole batch.
_BACKEND = re.compile(r"^(?:UnsupportedModel|InvalidModel|BackendFailure|DeviceLost): ")

# Lines that precede the informative one, mostly OpenVINO's and TensorRT's.
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
#: A function as a C++ compiler prints it, after its source location.
_CPP_FUNCTION = r"\S+\.(?:h|hpp|cc|cpp):\d+ (?:[\w:<>&*, ]*? )?[\w:<>~]+::[\w~]+\((?:[^()]|\([^()]*\))*\)(?: const)?"
_SOURCE_FILE = (
    r"(?:\b[A-Za-z]:\\|\.{0,2}/)?(?:[\w.+@~-]+[/\\])*"
    r"[\w+-]+\.(?:py|pyx|cc|cpp|cu|hpp|h|rs|onnx|so)\b"
)
#: Names that TorchScript gives to nodes and their outputs.
_SCOPED_NAME = r"(?<![\w/])/(?:[\w.:]+/)*[A-Z]\w*(?:/[A-Z]\w*)*_output_\d+\b|(?<![\w/>])/[A-Z]\w*(?![\w/.])"
_NUMBER = r"[-+]?(?:\d+(?:\.\d+|\.(?=[\s,\])}]*[,\])}]))?(?:[eE][-+]?\d+)?|\.\d+|\binf\b|\bnan\b)"
_ELEMENT = rf"(?:{_NUMBER}[jLf]?|<n>|<list>|<name>|\?|None|(?:s|u|zuf|zf)\d+|\.\.)"
_ELEMENTS = rf"{_ELEMENT}(?:\s*[,x]?\s*{_ELEMENT})*\s*,?"

#: Pattern → replacement, in this order.
_SUBSTITUTIONS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.VERBOSE if "\n" in pattern else 0), replacement)
    for pattern, replacement in (
        # torch.export: `u8`, a size that depends on values, must not be taken for a dtype.
        (r"\bu\d+ \(unhinted: u\d+\)", "<n> (<n>)"),
        # The comparison's description of one element.
        (rf"^({'|'.join(PROBLEMS)}): .*", r"\1"),
        # Polite requests, and whatever follows the message.
        (r"\s*\[Caused by the value '.*", ""),
        (r"\s*Please (?:feel free|open a bug|report|see|check|refer).*", ""),
        (r"\s*See the stack trace for more information\.?", ""),
        # How Python prints objects.
        (r"<OpOverload\(op='([\w.]+)', overload='(\w+)'\)>", r"\1.\2"),
        (r"<function ([\w.<>]+) at 0x[0-9a-fA-F]+>", r"\1"),
        (r"<class '(?:[\w.]*\.)?(\w+)'>", r"\1"),
        (r" (?:object )?at 0x[0-9a-fA-F]+(?=>)", ""),
        (r"^(?:[A-Za-z_]\w*\.)+([A-Z]\w*)(?=: |$)", r"\1"),
        (r"Error when translating node .*?target=(?:torch\.ops\.)?([\w.]+).*", r"Error when translating \1"),
        # torch.onnx and torchlib: how they print the call that failed.
        (r"<n> INTERNAL ASSERT FAILED|\b\d+ INTERNAL ASSERT FAILED", "INTERNAL ASSERT FAILED"),
        (r"(it isn't a special case\.)\s*Argument types:[^\n]*?\bbool\b.*", r"\1 An argument is a bool."),
        (r"(it isn't a special case\.)\s*Argument types:.*", r"\1"),
        (r"( Signature: [\w.']*::\w+)\(.*", r"\1"),
        (r"\bFakeTensor\((?:[^()]|\([^()]*\))*\)", "FakeTensor"),
        (r"\s*Tried overloads: .*", ""),
        (r"(?<=\w)\.? (?:self|other|input):$", ""),
        # onnx: the input is not part of the defect.
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
        # Python: a syntax error in source that PyTorch generated.
        (r"(?<=invalid syntax) \([^()]*, line \d+\)", ""),
        # Locations and identities.
        (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "<addr>"),
        (r"\b0x[0-9a-fA-F]+\b|\b(?=[a-f]*[0-9])[0-9a-f]{12,}\b", "<addr>"),
        (r"https?://\S+", "<path>"),
        (_SCOPED_NAME, "<name>"),
        (_SOURCE_FILE, "<path>"),
        (r"(?<![\w<>/])(?:/[\w.+@-]+){2,}/?|\b[A-Za-z]:\\\S+", "<path>"),
        (r"<path>(?:\.\d+)*(?::\d+)+", "<path>"),
        (r"\btmp[a-z0-9_]{6,}\b", "<path>"),
        # dtypes, before their digits are replaced as numbers.
        (r"\b[tT]ensor\((?:\w+|<dtype>)\)", "<dtype>"),
        ("\n" + rf"(?<![\w<])(?:{_TYPE_MODULE})?{_DTYPE}(?![\w>])", "<dtype>"),
        (r"(?:torch|np|numpy)\.<dtype>", "<dtype>"),
        (r"\btorch\.(?:bool|float|double|half|long|int|short|char|byte)\b", "<dtype>"),
        (r"(['\"])(?:bool|float|double|half|long|int|short)\1", r"\1<dtype>\1"),
        (r"\bd?type (?:bool|float|double)\b", "type <dtype>"),
        # Names given by exporters and the harness.
        (r"%\w+", "<name>"),
        (r"\bonnx::\w+_\d+\b", "<name>"),
        # A value or node of a batch's graph, also within the name that an optimiser derives from it.
        (r"(?<![A-Za-z0-9])c\d+_[a-z]\d+\w*", "<name>"),
        # Conversion functions for later opsets are named alike: `aten_scaled_dot_product_attention_23`.
        (
            r"(?<![\w<.:])(?<!\Ain (?=aten_))(?:node_\w+|val_\d+\w*|[a-z]{1,4}\d+_\w*\d|\w+_\d+(?:_\w*\d)?)(?![\w>(])",
            "<name>",
        ),
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


# Cached because many cases fail with the same message, and several callers ask for its signature.
@lru_cache(maxsize=512)
def normalise(message: str) -> str:
    """Return the signature of a failure message, one line of at most `LIMIT` characters.

    A signature is its own signature; an empty message has the signature "".

    Args:
        message: The complete message of the exporter, PyTorch or the runtime; the informative part of torch.onnx's
            messages is far from the beginning.
    """
    line = strip_escapes(message[:_MESSAGE_LIMIT])
    # A substitution can make another one possible, for instance in lists of lists.
    for _ in range(20):
        before, line = line, _cut(_substitute(_informative_line(line)[:_LINE_LIMIT]))
        if line == before:
            break
    return line


def informative_line(message: str) -> str:
    """Return the line of a message that says what failed, with its numbers, names and shapes."""
    return _informative_line(strip_escapes(message[:_MESSAGE_LIMIT]))


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
    """Return the root cause, preceded by the conversion function or operator in which it occurred."""
    where = _RULE.search(chain) or _TARGET.search(chain)
    if not where or where[1] in line or "No ONNX function found" in line:
        return line
    return f"in {where[1]}: {line}"
