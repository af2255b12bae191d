"""Programs of several calls: see `harness.generate.programs`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from harness.core.case_group import CaseGroup
from harness.core.invocation import Invocation
from harness.core.overloads import match
from harness.core.program import Program
from harness.generate.case_library import load_cases
from harness.generate.program_draws import draw_program, other_values
from harness.generate.programs import DTYPES, Pattern, load_patterns
from harness.generate.sources.source import SIZES_PER_EXPORT, Request, SourceFinding, resized

#: Value draws of each program.
_VALUES = 2
#: Programs drawn for each dynamic export: of some the sizes cannot change.
_TRIES = 3


def create(argument: str) -> Programs:
    """Create the source of ``programs``, or of ``programs:OPERATOR``: those that contain the operator.

    Raises:
        UnknownOperator: PyTorch has no such operator; near ones are named.
    """
    return Programs(tuple(match(argument, sorted(load_cases()))) if argument else ())


@dataclass(frozen=True)
class Programs:
    """Draws, if the name is that of a pattern.

    Attributes:
        containing: Only programs that call one of these overloads; none for all.
    """

    containing: tuple[str, ...] = ()
    name = "programs"

    def overloads(self) -> Collection[str]:
        """See `harness.generate.sources.source.Source`."""
        return load_patterns()

    def find(self, request: Request) -> SourceFinding:
        """See `harness.generate.sources.source.Source`."""
        found = load_patterns().get(request.overload)
        if found is None:
            return SourceFinding()
        if request.dynamic:
            exports = -(-request.examples // (1 + SIZES_PER_EXPORT))
            return SourceFinding(resized(request, self._drawn(found, request, _TRIES * exports))[:exports])
        if found.dynamic:
            return SourceFinding()
        values = request.values or _VALUES
        return SourceFinding(
            tuple(
                CaseGroup.of(program, (program, *(other_values(program, n) for n in range(1, values))))
                for program in self._drawn(found, request, -(-int(request.examples * found.share) // values))
            )
        )

    def _drawn(self, found: Pattern, request: Request, draws: int) -> Sequence[Invocation]:
        """Return the structures among a number of draws, each once."""
        dtypes = tuple(dtype for dtype in DTYPES if request.dtypes is None or dtype in request.dtypes)
        drawn: dict[str, Invocation] = {}
        for index in range(draws if dtypes else 0):
            program = draw_program(found, request.seed, index, dtypes)
            if not self.containing or {call.overload for call in Program.of(program).calls} & set(self.containing):
                drawn.setdefault(program.structure_id, program)
        return list(drawn.values())
