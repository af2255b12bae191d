"""What a changed outcome may come from: other versions of what took part, another conversion function."""

from __future__ import annotations

from collections.abc import Mapping

#: Every outcome depends on these, beside its converter and its backend.
_COMMON = ("torch", "numpy", "onnx", "onnxscript", "onnx-ir", "harness")


def version_changes(before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Name → (version before, version now) where they differ, by name; "" for what took no part.

    Nothing where one of the two says nothing of versions at all.
    """
    if not before or not now:
        return {}
    return {
        name: (before.get(name, ""), now.get(name, ""))
        for name in sorted({*before, *now})
        if before.get(name, "") != now.get(name, "")
    }


def why(
    versions: Mapping[str, tuple[str, str]],
    converter: str,
    backend: str,
    rules: tuple[str, str] | None = None,
) -> str:
    """What differs that a change with one converter and backend may come from; "" for nothing known.

    Args:
        versions: What differs between the runs, from `version_changes`.
        converter: Of the changed cases.
        backend: Name; "" if none took part.
        rules: The user's conversion functions before and now, where they differ; "" for the converter's own.
    """
    parts = []
    if rules is not None:
        before, now = (rule or "the converter's own" for rule in rules)
        parts.append(f"rule: {before} → {now}")
    both = [name for name, (a, b) in versions.items() if a and b]
    names = [n for n in (*_COMMON, f"converter {converter}", f"backend {backend}") if n in both]
    if names:
        parts.append(f"other versions: {', '.join(names)}")
    return "; ".join(parts)
