"""A record that cannot be written any further, such as on a full disk: the run ends at once, in a line.

An item that cannot write its verdicts fails with the reason as a property of its report, so that xdist's workers need
nothing of their own. What was written before is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from harness.record.layout import ResultsError

#: The exit status, that of ``sysexits.h`` for an error of input or output.
STATUS = 74
#: The property of an item's report with the reason.
PROPERTY = "record lost"


@contextmanager
def noted(item: pytest.Item) -> Iterator[None]:
    """Note on an item that its verdicts cannot be written, and fail it without a traceback."""
    try:
        yield
    except ResultsError as error:
        item.user_properties.append((PROPERTY, str(error)))
        pytest.fail(str(error), pytrace=False)


def end_session(session: pytest.Session, reason: str) -> None:
    """End a session after the item that is reported, with or without xdist."""
    session.shouldstop = reason
    distributed: Any = session.config.pluginmanager.get_plugin("dsession")
    if distributed is not None:
        distributed.shouldstop = reason
