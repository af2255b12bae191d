"""Groups on their way through one task: accepted by PyTorch, then inside a model, whole or in part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import onnx

from harness.execute.program import Exportable
from harness.execute.reference import Reference
from harness.execute.submodel import extract
from harness.execute.task import Group, MemberKey


@dataclass(frozen=True)
class Accepted:
    """A group that PyTorch accepts, with what the later stages need of it."""

    group: Group
    structure: Exportable
    references: Mapping[int, Reference]

    @property
    def keys(self) -> tuple[MemberKey, ...]:
        """Its cases."""
        return tuple((self.group.index, case) for case in self.references)


@dataclass(frozen=True)
class Converted:
    """Groups inside one model.

    Attributes:
        model: The whole.
        members: Of its parts, in order.
        convert_ms: Each case's share.
        rule: What the user's rules contributed to every member; "" for nothing.
    """

    model: onnx.ModelProto
    members: tuple[Accepted, ...]
    convert_ms: float
    rule: str = ""
    _alone: dict[int, bytes] = field(default_factory=dict, compare=False)

    def alone(self, member: Accepted) -> bytes:
        """The model cut down to `member`, serialised."""
        index = member.group.index
        if index not in self._alone:
            self._alone[index] = self.part([member]).model.SerializeToString()
        return self._alone[index]

    def part(self, members: Sequence[Accepted]) -> Converted:
        """The same model cut down to `members`."""
        if len(members) == len(self.members):
            return self
        model = extract(
            self.model,
            [name for m in members for name in m.structure.input_names],
            [name for m in members for name in m.structure.output_names],
        )
        return Converted(model, tuple(members), self.convert_ms, self.rule)


def keys_of(members: Sequence[Accepted]) -> tuple[MemberKey, ...]:
    """The cases of `members`."""
    return tuple(key for m in members for key in m.keys)


def halves(members: Sequence[Accepted]) -> tuple[Sequence[Accepted], Sequence[Accepted]]:
    """The first half and the rest."""
    middle = len(members) // 2
    return members[:middle], members[middle:]
