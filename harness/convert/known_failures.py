"""What the capture of calls fails with, known from one call for others of its kind.

Where PyTorch's first way of capturing a program fails, the exporter tries a second, which takes many times
as long and fails as well. A single call is run without values in milliseconds, and where that raises, the
capture raises the same. So the exporter is asked once for each kind of failure.
"""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass, field
from typing import Any

from harness.core import BoundCall

#: As a tensor without values shows them, with 0 for each number.
_SIZES = re.compile(r"\((?:u?0(?:, )?)+,?\)")
_DTYPE = re.compile(r", dtype=\w+")


@dataclass(frozen=True)
class _Known:
    """What the exporter raised.

    Attributes:
        raised: The words in which the call failed without values, what the exporter says after them, and its
            own words, which quote both; None where it does not quote them.
    """

    kind: type[Exception]
    raised: tuple[str, str, str] | None


@dataclass
class KnownFailures:
    """The kinds of failures that an exporter has been asked about.

    Calls of an operator with the same arguments given, which fail in the same words but for numbers, sizes
    and dtypes, are of one kind.
    """

    _known: dict[tuple[object, ...], _Known] = field(default_factory=dict)

    def learn(self, call: BoundCall, error: BaseException, failure: Exception) -> None:
        """Note what the exporter raises for a call.

        Args:
            call: Which.
            error: What it raises without values.
            failure: What the exporter raises when neither way of capturing works.
        """
        said, quoted = str(failure), str(error)
        cause = failure.__cause__
        quotes = type(cause) is type(error) and str(cause).startswith(quoted) and str(cause) in said
        more = str(cause).removeprefix(quoted)
        raised = (quoted, more, said) if quotes and quoted else None
        self._known[_kind(call, error)] = _Known(type(failure), raised)

    def is_known(self, call: BoundCall, error: BaseException) -> bool:
        """Whether both ways of capturing have failed for a call of this kind."""
        return _kind(call, error) in self._known

    def failure(self, call: BoundCall, error: BaseException) -> Exception | None:
        """What the exporter raises for a call that raises `error` without values; None where it must be
        asked."""
        known = self._known.get(_kind(call, error))
        if known is None or known.raised is None:
            return None
        quoted, more, said = known.raised
        failure = known.kind(said.replace(quoted, str(error)))
        failure.__cause__ = _saying_more(error, more) if more else error
        return failure


def _kind(call: BoundCall, error: BaseException) -> tuple[Any, ...]:
    given = len(call.positional), tuple(name for name, _ in call.keywords)
    words = _DTYPE.sub("", re.sub(r"[\d.]+", "0", str(error)))
    return str(call.target), given, type(error), _SIZES.sub("(0)", words)


def _saying_more(error: BaseException, more: str) -> BaseException:
    other = copy.copy(error)
    other.args = (f"{error}{more}",)
    return other
