# The names that other rooms import from here; `__init__.py` loads each at first use.

from .cause import (
    CAUSE_COLUMNS as CAUSE_COLUMNS,
    SEVERITY as SEVERITY,
    RootCause as RootCause,
    root_cause as root_cause,
    severity as severity,
)
from .groups import (
    COLUMNS as COLUMNS,
    FAILED as FAILED,
    FAILURES as FAILURES,
    FailureGroup as FailureGroup,
    OrdinaryFailures as OrdinaryFailures,
    call as call,
    failure_groups as failure_groups,
    minimal_data as minimal_data,
)
from .known_issues import (
    KnownIssue as KnownIssue,
    NoLongerFailing as NoLongerFailing,
    no_longer_failing as no_longer_failing,
    read_known_issues as read_known_issues,
    rows_about as rows_about,
    shipped_file as shipped_file,
)
from .priority import (
    EDGE as EDGE,
    failing_pairs as failing_pairs,
    failure_priority as failure_priority,
    operator_priority as operator_priority,
)
from .problem_rows import PROBLEMS as PROBLEMS, each_problem as each_problem
from .rows import CodedRows as CodedRows, with_ordinary as with_ordinary
from .rules import RULES as RULES, Rule as Rule
from .use import Pair as Pair, UseWeights as UseWeights, model_use as model_use
