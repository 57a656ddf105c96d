"""Whether two instructions or computations compute the same, in XLA's sense.

    %add (x, y) { ROOT %s = add(%x, %y) }    is    %sum (a, b) { ROOT %r = add(%a, %b) }

Names, metadata, frontend attributes and the order of instructions do not count.
Shardings conflict only when both are there and differ.

Source: openxla/xla `xla/hlo/ir/hlo_instruction.cc`, `hlo_computation.cc`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hlo_passes.analysis.post_order import post_order
from hlo_passes.ir.attribute_tables import filled_attributes
from hlo_passes.ir.opcodes import CALLEE_ATTRIBUTES, ROWS, facts

if TYPE_CHECKING:
    from hlo_passes.ir.computation import Computation
    from hlo_passes.ir.instruction import Instruction

#: Attributes that say nothing about what is computed.
_DESCRIPTIVE: Final = frozenset(
    ("metadata", "frontend_attributes", "sharding", "origin", "statistics")
)
#: Never equal to another: token plumbing and domains.
_UNIQUE: Final = frozenset(("after-all", "add-dependency", "domain"))
#: Frontend attribute that holds a sharding in text, compared like an operand.
#: Source: openxla/xla `xla/hlo/ir/hlo_sharding.h`.
_SHARDING_ATTRIBUTE: Final = "xla.sdy.sharding"

Meaning = tuple[tuple[str, object], ...]
if TYPE_CHECKING:
    _Bodies = tuple[Computation, Computation]


class Structure:
    """Answers whether things are equal, as long as they do not change.

    Answers about computations are kept.

    `layout_sensitive`: shapes must agree in layout too.
    """

    def __init__(self, *, layout_sensitive: bool) -> None:
        """Compare nothing yet."""
        self.layout_sensitive = layout_sensitive
        self._bodies: dict[_Bodies, bool] = {}
        self._digests: dict[Computation, int] = {}

    def shape_key(self, instruction: Instruction) -> str:
        """Equal for shapes that count as equal."""
        shape = instruction.shape
        return shape.text if self.layout_sensitive else shape.text_without_layout

    def meaning(self, instruction: Instruction) -> Meaning:
        """The attributes that count, sorted by name; hashable."""
        attributes = instruction.attributes
        filled = filled_attributes(instruction.opcode)
        if not attributes and not filled:
            return ()
        found: list[tuple[str, object]] = [
            (name, text) for name, text in filled.items() if name not in attributes
        ]
        for name, text in attributes.items():
            if name in _DESCRIPTIVE or name in CALLEE_ATTRIBUTES:
                continue
            if name == "replica_groups":
                groups = instruction.replica_groups
                found.append((name, groups and groups.groups))
            elif not (name == "async_execution_thread" and text == '"main"'):
                spelling = instruction.spelling_of(name)
                if spelling is not None:
                    found.append((name, spelling))
        if "frontend_attributes" in attributes:
            frontend = instruction.frontend_attributes
            if facts(instruction.opcode).spelling == "transfer":
                # Frontend attributes of send and recv count as their own.
                found.append(("frontend_attributes", frontend.pairs))
            elif _SHARDING_ATTRIBUTE in frontend:
                found.append((_SHARDING_ATTRIBUTE, frontend[_SHARDING_ATTRIBUTE]))
        return tuple(sorted(found, key=lambda item: item[0]))

    def shardings_agree(self, one: Instruction, other: Instruction) -> bool:
        """Whether the shardings do not conflict."""
        a, b = one.spelling_of("sharding"), other.spelling_of("sharding")
        return a is None or b is None or a == b

    def callees_agree(self, one: Instruction, other: Instruction) -> bool:
        """Whether both call equal computations, in the same order."""
        mine, yours = one.called_computations, other.called_computations
        return len(mine) == len(yours) and all(
            self.computations_equal(a, b) for a, b in zip(mine, yours, strict=True)
        )

    def callees_digest(self, instruction: Instruction) -> tuple[int, ...]:
        """Equal for instructions that call equal computations, seldom for others.

        It is valid within this process only, and ignores what the callees call.
        """
        return tuple(map(self._body_digest, instruction.called_computations))

    def _body_digest(self, computation: Computation) -> int:
        found = self._digests.get(computation)
        if found is None:
            digests: dict[Instruction, int] = {}
            for i in post_order(computation):
                operands = tuple([digests[o] for o in i.operands])
                key = i.opcode, self.shape_key(i), i.literal, self.meaning(i)
                digests[i] = hash((key, operands))
            found = self._digests[computation] = digests[computation.root]
        return found

    def equal_apart_from_operands(self, one: Instruction, other: Instruction) -> bool:
        """Whether they can differ only in what they read."""
        return one is other or (
            self._alike(one, other) and self.callees_agree(one, other)
        )

    def _alike(self, one: Instruction, other: Instruction) -> bool:
        """Whether they can differ only in what they read or call."""
        return (
            one.opcode == other.opcode
            and one.opcode in ROWS
            and one.opcode not in _UNIQUE
            and one.literal == other.literal
            and not is_elided(one)
            and len(one.operands) == len(other.operands)
            and self.shape_key(one) == self.shape_key(other)
            and self.meaning(one) == self.meaning(other)
            and self.shardings_agree(one, other)
        )

    def computations_equal(self, one: Computation, other: Computation) -> bool:
        """Whether two computations return the same for the same arguments.

        What they call is compared in turn, by a worklist: calls may nest deeply.
        """
        if one is other:
            return True
        start = (one, other)
        if start in self._bodies:
            return self._bodies[start]
        asked_by: dict[_Bodies, _Bodies | None] = {start: None}
        work = [start]
        while work:
            pair = work.pop()
            called = self._pairs_called(*pair)
            if called is None or any(self._bodies.get(p) is False for p in called):
                # Those that led here differ, too; nothing is known of the others.
                unequal: _Bodies | None = pair
                while unequal is not None:
                    self._bodies[unequal] = False
                    unequal = asked_by[unequal]
                return False
            for each in called:
                if each not in asked_by and each not in self._bodies:
                    asked_by[each] = pair
                    work.append(each)
        self._bodies.update(dict.fromkeys(asked_by, True))
        return True

    def _pairs_called(
        self, one: Computation, other: Computation
    ) -> list[_Bodies] | None:
        """What must be equal for these two to be; None when they differ themselves."""
        if (
            len(one.parameters) != len(other.parameters)
            or one.execution_thread != other.execution_thread
        ):
            return None
        called: dict[_Bodies, None] = {}
        seen = {(one.root, other.root)}
        work = [(one.root, other.root)]
        while work:
            a, b = work.pop()
            if a is not b:
                mine, yours = a.called_computations, b.called_computations
                if not self._alike(a, b) or len(mine) != len(yours):
                    return None
                for callees in zip(mine, yours, strict=True):
                    if callees[0] is not callees[1]:
                        called[callees] = None
            for pair in zip(a.operands, b.operands, strict=True):
                if pair not in seen:
                    seen.add(pair)
                    work.append(pair)
        return list(called)


def is_elided(instruction: Instruction) -> bool:
    """Whether the text left out a constant's value: `constant({...})`."""
    return instruction.literal is not None and "..." in instruction.literal
