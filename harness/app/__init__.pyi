# The names that other rooms import from here; `__init__.py` loads each at first use.

from .session import Session as Session
