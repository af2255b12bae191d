"""Sentences on the results of real models' calls."""

from __future__ import annotations

from harness.causes.real_use import RealUse, Share
from harness.core.text import count

#: Kind of model → its name for people, if it is not the kind itself.
_KINDS = {"own": "our own test models"}


def real_use_sentence(use: RealUse) -> str:
    """Return the headline: the numbers of distinct calls and models, and the shares that pass by dtype."""
    shares = [_share(share, f"in {dtype}") for dtype, share in use.by_dtype.items()]
    if use.dynamic.total:
        shares.append(_share(use.dynamic, "with dynamic dimensions"))
    # A run has the commonest calls of each operator, unless it was asked for all.
    known = count(max(use.models, use.known), "real model")
    models = known if use.models >= use.known else f"{use.models:,} of {known}"
    return f"Of {count(use.calls, 'distinct call')} that {models} make, {', '.join(shares)}."


def kinds_sentence(use: RealUse) -> str:
    """Return the shares by kind of model, weighted by the models' calls."""
    shares = (f"{_KINDS.get(kind, kind.replace('_', ' '))} {_percent(share)}" for kind, share in use.by_kind.items())
    return f"By kind of model: {', '.join(shares)}"


def _share(share: Share, where: str) -> str:
    return f"{_percent(share)} pass {where}"


def _percent(share: Share) -> str:
    return f"{100 * share.passed / share.total:.1f}%"
