"""Sentences on the results of real models' calls."""

from __future__ import annotations

from harness.causes.real_use import RealUse, Share
from harness.core.text import count


def real_use_sentence(use: RealUse) -> str:
    """The headline: how many distinct calls of how many models pass, by dtype."""
    shares = [_share(share, f"in {dtype}") for dtype, share in use.by_dtype.items()]
    if use.dynamic.total:
        shares.append(_share(use.dynamic, "with open sizes"))
    return f"Of {count(use.calls, 'distinct call')} that {count(use.models, 'real model')} make, {', '.join(shares)}."


def kinds_sentence(use: RealUse) -> str:
    """The shares by kind of model, each as its models call."""
    return "By kind of model: " + ", ".join(f"{kind} {_percent(share)}" for kind, share in use.by_kind.items())


def _share(share: Share, where: str) -> str:
    return f"{_percent(share)} pass {where}"


def _percent(share: Share) -> str:
    return f"{100 * share.passed / share.total:.1f}%"
