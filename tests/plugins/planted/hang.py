"""Never comes back, signals or not, when it runs on the guilty value."""

from __future__ import annotations

import ctypes

from planted import _guilty

# A `PyDLL` call keeps the interpreter's lock, as native code that hangs mostly does.
prepare = _guilty.at_run(lambda: ctypes.PyDLL(None).sleep(100_000))
