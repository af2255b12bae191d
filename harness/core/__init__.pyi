# The names that other rooms import from here; `__init__.py` loads each at first use.

from . import overloads as overloads, values as values
from .blackboard import Blackboard as Blackboard
from .described_tensor import describe_tensor as describe_tensor
from .documents import (
    as_data as as_data,
    as_json as as_json,
    json_text as json_text,
    of_data as of_data,
    of_json as of_json,
)
from .dtypes import (
    ALL as ALL,
    BOOL as BOOL,
    COMPLEX as COMPLEX,
    FLOATS as FLOATS,
    FULL_FLOATS as FULL_FLOATS,
    INT_RANGE as INT_RANGE,
    INTEGRAL as INTEGRAL,
    INTS as INTS,
    NUMBERS as NUMBERS,
    PARTS as PARTS,
    PRECISION as PRECISION,
    SIGNED_INTS as SIGNED_INTS,
    UNSIGNED as UNSIGNED,
    WIDE_UNSIGNED as WIDE_UNSIGNED,
    Array as Array,
    is_float as is_float,
    is_integer as is_integer,
    wider_float as wider_float,
)
from .invocation import (
    Argument as Argument,
    Enumerated as Enumerated,
    InvalidInvocation as InvalidInvocation,
    Invocation as Invocation,
    Literal as Literal,
    Recipe as Recipe,
    TensorSpec as TensorSpec,
    contiguous_strides as contiguous_strides,
    describe as describe,
)
from .isolation import (
    IsolatedCalls as IsolatedCalls,
    IsolatedProcess as IsolatedProcess,
    ProcessDied as ProcessDied,
    Send as Send,
    preload_in_fork_server as preload_in_fork_server,
)
from .overloads import (
    UnknownOperator as UnknownOperator,
    all_overloads as all_overloads,
    match as match,
    near_names as near_names,
    normalise as normalise,
    packet as packet,
)
from .plain_text import (
    count as count,
    describe_error as describe_error,
    first_line as first_line,
    listed as listed,
    markdown_cell as markdown_cell,
    one_line as one_line,
    plain as plain,
    shown as shown,
    with_causes as with_causes,
    without_escapes as without_escapes,
)
from .plugins import (
    Registry as Registry,
    Unavailable as Unavailable,
    UnknownName as UnknownName,
    declaring_place as declaring_place,
    importable as importable,
    installed as installed,
    installed_version as installed_version,
)
from .snippet import (
    ExportSnippet as ExportSnippet,
    ExportWanted as ExportWanted,
    RunSnippet as RunSnippet,
    RunWanted as RunWanted,
    numpy_exchange as numpy_exchange,
)
from .styles import STYLE_WEIGHTS as STYLE_WEIGHTS
from .tensors import (
    TENSOR_PLACE as TENSOR_PLACE,
    BoundCall as BoundCall,
    bind as bind,
    build_tensor as build_tensor,
    build_tensors as build_tensors,
    fed_shape as fed_shape,
    output_tensors as output_tensors,
    overload as overload,
)
from .torch_operators import (
    COMPOSITE as COMPOSITE,
    META as META,
    OP_DB_MODULE as OP_DB_MODULE,
    OpOverload as OpOverload,
    TorchDispatchMode as TorchDispatchMode,
    dispatched_names as dispatched_names,
    is_composite as is_composite,
    is_dispatched as is_dispatched,
    module_db as module_db,
    op_db as op_db,
    own_definition as own_definition,
    python_dispatcher as python_dispatcher,
    pytree as pytree,
    registered_schemas as registered_schemas,
)
