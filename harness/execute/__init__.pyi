# The names that other rooms import from here; `__init__.py` loads each at first use.

from .batch_export import (
    Accepted as Accepted,
    BatchExport as BatchExport,
    NotConverted as NotConverted,
)
from .case_runner import Executor as Executor
from .models.model_cases import cases_of as cases_of, export_of as export_of, feeds_of as feeds_of
from .models.model_loading import (
    Axis as Axis,
    LoadedModel as LoadedModel,
    ModelAndInputs as ModelAndInputs,
    ModelProblem as ModelProblem,
    check_word as check_word,
    load_model as load_model,
    load_models as load_models,
    model as model,
)
from .models.model_reference import (
    Move as Move,
    RoundingOracle as RoundingOracle,
    run_model as run_model,
)
from .models.model_runner import growth as growth
from .models.model_task import (
    PREFIX as PREFIX,
    Growth as Growth,
    ModelCase as ModelCase,
    ModelCases as ModelCases,
    ModelTask as ModelTask,
    NoModel as NoModel,
    Traced as Traced,
    model_name as model_name,
    model_word as model_word,
    refuse_model as refuse_model,
)
from .placement_words import FELL_BACK as FELL_BACK, FOLDED as FOLDED, operators_on_cpu as operators_on_cpu
from .program import (
    Exportable as Exportable,
    export_alone as export_alone,
    export_request as export_request,
    varying_dims as varying_dims,
)
from .reference import Reference as Reference, run_reference as run_reference
from .resize import variants as variants
from .run_steps import (
    StepFailure as StepFailure,
    emitted_opset as emitted_opset,
    named_feeds as named_feeds,
    narrowing as narrowing,
    outputs_of as outputs_of,
    outputs_or_failure as outputs_or_failure,
)
from .submodel import (
    all_nodes as all_nodes,
    extract as extract,
    outer_names as outer_names,
    subgraphs as subgraphs,
    with_inner_nodes as with_inner_nodes,
)
from .supervisor import Death as Death, Supervisor as Supervisor, WorkerFailed as WorkerFailed
from .task import (
    OWN_FAULT as OWN_FAULT,
    Group as Group,
    MemberKey as MemberKey,
    Result as Result,
    Settings as Settings,
    Step as Step,
    Task as Task,
)
from .torch_call import (
    CallRejected as CallRejected,
    NothingToCompare as NothingToCompare,
    call_invocation as call_invocation,
    map_arguments as map_arguments,
    quiet_call as quiet_call,
    to_numpy as to_numpy,
)
from .worker import WorkerProcess as WorkerProcess
