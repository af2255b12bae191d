# The names that other rooms import from here; `__init__.py` loads each at first use.

from .base import (
    BACKENDS as BACKENDS,
    Array as Array,
    Backend as Backend,
    BackendFailure as BackendFailure,
    DeviceLost as DeviceLost,
    HasPlain as HasPlain,
    InvalidModel as InvalidModel,
    Session as Session,
    ShapeRange as ShapeRange,
    UnsupportedModel as UnsupportedModel,
)
