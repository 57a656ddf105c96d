"""Whether two modules are the same program, apart from names of instructions.

    ROOT %t = tuple(%a, %b)   with   ROOT %tuple = tuple(%x, %y)
        then %a is %x and %b is %y, and so on down to the parameters

Equal means: the same instructions with the same operands, shapes, attributes,
literals and control edges, the same called computations, and in scheduled modules the
same order.
Stack-frame numbers and tables do not count. Where one of the texts spells a tuple's
element `%t#1` (jax 0.12), elements compare by tuple and index alone.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field

from hlo_passes.conformance.attribute_equality import attribute_difference
from hlo_passes.ir.attribute_values import canonical_header
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module


def first_difference(ours: Module, theirs: Module) -> str:
    """The first difference between two modules, in words; '' when they are equal."""
    mine, yours = canonical_header(ours.attributes), canonical_header(theirs.attributes)
    for name in dict.fromkeys((*mine, *yours)):
        if mine.get(name) != yours.get(name):
            return f"header: {name} is {mine.get(name)}, expected {yours.get(name)}"
    comparison = _Comparison()
    difference = comparison.computations(ours.entry, theirs.entry)
    return difference or _uncalled_difference(ours, theirs, comparison)


@dataclass(slots=True)
class _Comparison:
    """Computations found equal so far; callees are compared once per pair.

    Attributes:
        equal: pairs that were found equal, or are being compared.
        known: pairs that another comparison found equal.
    """

    equal: set[tuple[Computation, Computation]] = field(default_factory=set)
    known: Set[tuple[Computation, Computation]] = frozenset()

    def with_callees(self, ours: Computation, theirs: Computation) -> str:
        """As `computations`, but what is equal to them only counts if all is equal."""
        trial = _Comparison(known=self.equal)
        difference = trial.computations(ours, theirs)
        if not difference:
            self.equal |= trial.equal
        return difference

    def computations(self, ours: Computation, theirs: Computation) -> str:
        """The first difference between two computations and what they call."""
        work = [(ours, theirs)]
        while work:
            mine, yours = work.pop()
            if (mine, yours) in self.equal or (mine, yours) in self.known:
                continue
            self.equal.add((mine, yours))
            matching = _Matching(mine, yours)
            difference = matching.run()
            if difference:
                return f"in %{mine.name}: {difference}"
            if mine.execution_thread != yours.execution_thread:
                return f"in %{mine.name}: the execution thread differs"
            for a, b in matching.matched.items():
                work += zip(a.called_computations, b.called_computations, strict=True)
        return ""


def _uncalled_difference(ours: Module, theirs: Module, comparison: _Comparison) -> str:
    """What differs among computations that the entry does not reach.

    One that is equal to the other's of its name is its partner, else any equal one.
    """
    my_reached = {mine for mine, _ in comparison.equal}
    your_reached = {yours for _, yours in comparison.equal}
    mine = {c.name: c for c in ours.computations if c not in my_reached}
    yours = {c.name: c for c in theirs.computations if c not in your_reached}
    differences: dict[str, str] = {}
    for name in [name for name in mine if name in yours]:
        difference = comparison.with_callees(mine[name], yours[name])
        if difference:
            differences[name] = difference
        else:
            del mine[name], yours[name]
    by_kind: dict[_Kind, list[Computation]] = {}
    for computation in yours.values():
        by_kind.setdefault(_kind(computation), []).append(computation)
    for name, computation in mine.items():
        alike = by_kind.get(_kind(computation), [])
        partner = next(
            (c for c in alike if not comparison.with_callees(computation, c)), None
        )
        if partner is None:
            return differences.get(
                name, f"computation %{name}, which nothing calls, is not expected"
            )
        alike.remove(partner)
        del yours[partner.name]
    for name in yours:
        return f"computation %{name}, which nothing calls, is missing"
    return ""


#: What two equal computations have in common.
_Kind = tuple[tuple[str, ...], tuple[str, ...]]


def _kind(computation: Computation) -> _Kind:
    return (
        tuple(str(p.shape) for p in computation.parameters),
        tuple(
            sorted(
                f"{i.opcode} {i.literal or ''}"
                for i in computation.instructions
                if not is_implied(i)
            )
        ),
    )


class _Matching:
    """One-to-one matching of the instructions of two computations."""

    def __init__(self, ours: Computation, theirs: Computation) -> None:
        self.ours, self.theirs = ours, theirs
        self.matched: dict[Instruction, Instruction] = {}
        self.taken: dict[Instruction, Instruction] = {}

    def run(self) -> str:
        """The first difference; '' when everything is matched."""
        difference = self._match_down(self.ours.root, self.theirs.root)
        difference = difference or self._match_parameters()
        difference = difference or self._match_leftovers()
        difference = difference or self._control_difference()
        if not difference and self.ours.module.is_scheduled:
            difference = self._order_difference()
        return difference

    def _match_down(self, ours: Instruction, theirs: Instruction) -> str:
        work = [(ours, theirs)]
        while work:
            mine, yours = work.pop()
            if self.matched.get(mine) is yours:
                continue
            implied = is_implied(mine) or is_implied(yours)
            difference = local_difference(mine, yours, implied=implied)
            if difference:
                return f"%{mine.name} (expected %{yours.name}): {difference}"
            if not implied and (mine in self.matched or yours in self.taken):
                return self._doubly_matched(mine, yours)
            self.matched[mine] = yours
            self.taken[yours] = mine
            work += reversed(list(zip(mine.operands, yours.operands, strict=True)))
        return ""

    def _doubly_matched(self, mine: Instruction, yours: Instruction) -> str:
        if mine in self.matched:
            other = self.matched[mine]
            return (
                f"%{mine.name} matches %{other.name} and for %{yours.name}, "
                "which are two instructions"
            )
        other = self.taken[yours]
        return (
            f"%{mine.name} and %{other.name} are two instructions, "
            f"expected is one: %{yours.name}"
        )

    def _match_parameters(self) -> str:
        mine, yours = self.ours.parameters, self.theirs.parameters
        if len(mine) != len(yours):
            return f"{len(mine)} parameters, expected {len(yours)}"
        for a, b in zip(mine, yours, strict=True):
            difference = self._match_down(a, b)
            if difference:
                return difference
        return ""

    def _match_leftovers(self) -> str:
        """Instructions that the root does not need: by name, else by their kind."""
        mine = [i for i in self.ours.instructions if i not in self.matched]
        yours = [i for i in self.theirs.instructions if i not in self.taken]
        open_ends = [i for i in yours if not i.user_count]
        by_name = {i.name: i for i in open_ends}
        by_kind: dict[int, list[Instruction]] = {}
        my_kinds, your_kinds = _Kinds(), _Kinds()
        for instruction in open_ends:
            by_kind.setdefault(your_kinds.of(instruction), []).append(instruction)
        for instruction in mine:
            if instruction.user_count or instruction in self.matched:
                continue
            kind = my_kinds.of(instruction)
            same_name = by_name.get(instruction.name)
            alike = [i for i in by_kind.get(kind, ()) if i not in self.taken]
            partner = same_name if same_name in alike else next(iter(alike), None)
            partner = partner or (None if same_name in self.taken else same_name)
            if partner is None and self._may_be_implied(instruction):
                continue
            if partner is None:
                return (
                    f"%{instruction.name} ({instruction.opcode}), "
                    "which nothing reads, is not expected"
                )
            difference = self._match_down(instruction, partner)
            if difference:
                return difference
        for instruction in yours:
            if instruction not in self.taken:
                return f"%{instruction.name} ({instruction.opcode}) is missing"
        return ""

    def _may_be_implied(self, mine: Instruction) -> bool:
        """Whether it is an unread element and the other text spells `%tuple#1`."""
        return (
            mine.opcode == "get-tuple-element"
            and mine.operands[0] in self.matched
            and bool(self.theirs.spelled_elements)
        )

    def _control_difference(self) -> str:
        for mine, yours in self.matched.items():
            expected = {self.taken[p] for p in yours.control_predecessors}
            found = set(mine.control_predecessors)
            if found != expected:
                names = sorted(f"%{p.name}" for p in found ^ expected)
                return (
                    f"%{mine.name}: control predecessors differ in {', '.join(names)}"
                )
        return ""

    def _order_difference(self) -> str:
        my_order, your_order = (
            [
                i
                for i in instructions
                if i in partner and not (is_implied(i) or is_implied(partner[i]))
            ]
            for instructions, partner in (
                (self.ours.instructions, self.matched),
                (self.theirs.instructions, self.taken),
            )
        )
        pairs = zip(my_order, your_order, strict=True)
        for place, (mine, yours) in enumerate(pairs):
            if self.matched[mine] is not yours:
                return (
                    f"place {place} of the schedule: %{mine.name}, "
                    f"expected %{self.taken[yours].name}"
                )
        return ""


class _Kinds:
    """A number per instruction, equal for instructions with equal operands' kinds."""

    def __init__(self) -> None:
        self._known: dict[Instruction, int] = {}

    def of(self, instruction: Instruction) -> int:
        """The number of an instruction."""
        stack = [instruction]
        while stack:
            current = stack[-1]
            missing = [o for o in current.operands if o not in self._known]
            if missing:
                stack += missing
                continue
            stack.pop()
            operands = tuple(self._known[o] for o in current.operands)
            literal = current.literal
            self._known[current] = hash(
                (current.opcode, current.shape.text, literal, operands)
            )
        return self._known[instruction]


def is_implied(instruction: Instruction) -> bool:
    """Whether it is a get-tuple-element that the text writes as `%tuple#1`.

    Such text loses its attributes, its place and the number of such elements.
    """
    return (
        instruction.opcode == "get-tuple-element"
        and instruction in instruction.computation.spelled_elements
    )


def local_difference(
    ours: Instruction, theirs: Instruction, *, implied: bool = False
) -> str:
    """The difference between two instructions, apart from what they read.

    `implied`: one of them is implied, so the attributes of both do not count.
    """
    if ours.opcode != theirs.opcode:
        return f"opcode {ours.opcode}, expected {theirs.opcode}"
    if ours.shape != theirs.shape:
        return f"shape {ours.shape.text}, expected {theirs.shape.text}"
    if len(ours.operands) != len(theirs.operands):
        return f"{len(ours.operands)} operands, expected {len(theirs.operands)}"
    if ours.literal != theirs.literal:
        return f"({ours.literal}), expected ({theirs.literal})"
    if len(ours.called_computations) != len(theirs.called_computations):
        return "the number of called computations differs"
    if implied and ours.opcode == "get-tuple-element":
        index, expected = ours.tuple_index, theirs.tuple_index
        return "" if index == expected else f"index {index}, expected {expected}"
    return attribute_difference(ours, theirs)
