"""A file of rules to be filled in, put together from the skeletons of converters."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from harness.analyse.explain.alignment import Pair
from harness.analyse.explain.onnx_operator import OnnxOperator
from harness.analyse.explain.operator import Operator
from harness.convert import SkeletonWanted, find_converter


def hint(operator: OnnxOperator | None, why: str, pairs: Sequence[Pair]) -> tuple[str, ...]:
    """Comments on the ONNX operator that may serve."""
    if operator is None:
        return ()
    lines = [f"ONNX {operator.name}, since opset {operator.first_opset}: {why}"]
    for pair in pairs:
        one = pair.aten or "(no argument)"
        other = f"{pair.onnx} ({pair.kind})" if pair.onnx else "(no counterpart)"
        lines.append(f"  {one} -> {other}: {pair.why}")
    return tuple(part for line in lines for part in textwrap.wrap(line, 100, subsequent_indent="      "))


def rules_file(operator: Operator, names: Sequence[str], hints: Sequence[str]) -> str:
    """The text of a file for ``--rules``; "" where no overload is functional.

    Args:
        operator: What to convert.
        names: Converters that have skeletons.
        hints: Comments for the body.
    """
    signatures = tuple(o.signature for o in operator.functional)
    if not signatures:
        return ""
    imports: dict[str, None] = {}
    functions: list[str] = []
    for name in names:
        entry = find_converter(name)
        if entry.skeleton is None:
            continue
        # A hint once is enough.
        wanted = SkeletonWanted(signatures=signatures, hint=tuple(hints) if not functions else ())
        skeleton = entry.skeleton(wanted)
        imports.update(dict.fromkeys(skeleton.imports))
        functions.append(skeleton.code.rstrip())
    if not functions:
        return ""
    title = f'"""Rules for {operator.name}: fill in, then `pytest harness --rules THIS_FILE`."""'
    return "\n\n".join([title, _imports(tuple(imports))]) + "\n\n\n" + "\n\n\n".join(functions) + "\n"


def _imports(lines: Sequence[str]) -> str:
    """Other packages first; what is imported from one module on one line."""
    together: dict[str, list[str]] = {}
    for line in lines:
        module, _, names = line.removeprefix("from ").partition(" import ")
        together.setdefault(module, []).append(names)
    texts = [f"from {module} import {', '.join(sorted(names))}" for module, names in together.items()]
    theirs = sorted(text for text in texts if not text.startswith("from harness"))
    ours = sorted(text for text in texts if text.startswith("from harness"))
    return "\n\n".join("\n".join(part) for part in (theirs, ours) if part)
