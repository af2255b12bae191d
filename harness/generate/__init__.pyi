# The names that other rooms import from here; `__init__.py` loads each at first use.

from . import provider as provider
from .call_traits import (
    CONDITIONS as CONDITIONS,
    CallTraits as CallTraits,
    call_traits as call_traits,
    is_everyday as is_everyday,
)
from .case_library import load_cases as load_cases
from .cases_home import CaseFileError as CaseFileError, cases_directory as cases_directory
from .draw import (
    ANY as ANY,
    DISTINCT as DISTINCT,
    FINITE as FINITE,
    NONZERO as NONZERO,
    OMIT as OMIT,
    Domain as Domain,
    Draw as Draw,
    ascending as ascending,
    between as between,
    index_into as index_into,
    unique_below as unique_below,
)
from .draws import (
    VALUES as VALUES,
    draw_cases as draw_cases,
    draw_examples as draw_examples,
    draw_invocations as draw_invocations,
    invocations as invocations,
)
from .operator_case import (
    OPERATOR_CASES as OPERATOR_CASES,
    Arguments as Arguments,
    Family as Family,
    OperatorCase as OperatorCase,
    judge_of as judge_of,
)
from .operator_family import (
    family_name as family_name,
    is_alias as is_alias,
    packet_of as packet_of,
    without_dimensions as without_dimensions,
)
from .pairs.condition import Condition as Condition, ConditionKind as ConditionKind, make_pair as make_pair
from .pairs.needs import PairGrowth as PairGrowth, pair_growth as pair_growth, pair_needs as pair_needs
from .pairs.of_arguments import DIMS as DIMS, MODES as MODES
from .pairs.of_tensors import held_tensors as held_tensors, is_index as is_index
from .pairs.of_values import FLOAT_CLASSES as FLOAT_CLASSES, INT_CLASSES as INT_CLASSES, computed as computed
from .pairs.table import PairTable as PairTable, pair_table as pair_table
from .pairs.windows import per_dim as per_dim, targets as targets, window as window
from .promotion import (
    REPRESENTATIVES as REPRESENTATIVES,
    Promotion as Promotion,
    kind_of_dtype as kind_of_dtype,
)
from .provider import StableProvider as StableProvider
from .regressions import Corpus as Corpus, CorpusEntry as CorpusEntry
from .regressions.remember import Memory as Memory, Remembered as Remembered
from .sources.corpus import FromCorpus as FromCorpus, FromFile as FromFile
from .sources.generated import Generated as Generated
from .sources.recorded import (
    FromRecord as FromRecord,
    Replayed as Replayed,
    read_replay as read_replay,
)
from .sources.registry import (
    default_sources as default_sources,
    find_source as find_source,
    sources_in_order as sources_in_order,
)
from .sources.source import Notice as Notice, Request as Request, Source as Source
