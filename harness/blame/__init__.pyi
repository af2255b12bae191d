# The names that other rooms import from here; `__init__.py` loads each at first use.

from .inquiry import (
    FailureKind as FailureKind,
    not_examined as not_examined,
    signature as signature,
    with_blame as with_blame,
)
