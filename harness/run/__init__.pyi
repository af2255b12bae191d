# The names that other rooms import from here; `__init__.py` loads each at first use.

from . import ort_messages as ort_messages
from .backend import (
    BACKENDS as BACKENDS,
    Backend as Backend,
    BackendFailure as BackendFailure,
    BackendSession as BackendSession,
    DeviceLost as DeviceLost,
    HasGraphPasses as HasGraphPasses,
    HasPlacement as HasPlacement,
    HasPlain as HasPlain,
    InvalidModel as InvalidModel,
    PlacedNode as PlacedNode,
    ShapeRange as ShapeRange,
    UnsupportedModel as UnsupportedModel,
    runtime_distributions as runtime_distributions,
)
from .cuda import missing_gpu as missing_gpu
