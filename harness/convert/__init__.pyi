# The names that other rooms import from here; `__init__.py` loads each at first use.

from . import exporter_messages as exporter_messages
from .conversion_calls import (
    emitting_function as emitting_function,
    left_to as left_to,
    work_together as work_together,
)
from .conversion_sources import (
    ConversionFunction as ConversionFunction,
    conversion_functions as conversion_functions,
)
from .converter import (
    CONVERTERS as CONVERTERS,
    Converter as Converter,
    ConverterEntry as ConverterEntry,
    ConvertsParts as ConvertsParts,
    ExportRequest as ExportRequest,
    HasExporterPasses as HasExporterPasses,
    HasProgram as HasProgram,
    HasUnoptimised as HasUnoptimised,
    PartialResult as PartialResult,
    UnsupportedOperator as UnsupportedOperator,
    find_converter as find_converter,
    goes_on as goes_on,
)
from .emission import (
    CodeLine as CodeLine,
    EmittedGraph as EmittedGraph,
    emitted as emitted,
    executed_lines as executed_lines,
    raising_lines as raising_lines,
    traced_functions as traced_functions,
)
from .exporter_check import kept as kept
from .function_families import (
    function_named as function_named,
    function_of_family as function_of_family,
    own_function as own_function,
    standing_for as standing_for,
)
from .operator_calls import OperatorCall as OperatorCall, OperatorCalls as OperatorCalls
from .rules.rule import Rule as Rule, RuleProblem as RuleProblem
from .rules.rule_book import RuleBook as RuleBook, load_rules as load_rules
from .rules.standalone_source import (
    NotSeparable as NotSeparable,
    RuleSource as RuleSource,
    rule_source as rule_source,
)
from .skeleton import Parameter as Parameter, Signature as Signature, SkeletonWanted as SkeletonWanted
from .torch_private import (
    PrivatePartMissing as PrivatePartMissing,
    decomposition_functions as decomposition_functions,
    decomposition_table as decomposition_table,
    quiet as quiet,
    registered as registered,
    script_registry as script_registry,
)
from .written_schemas import takes_numbers as takes_numbers
