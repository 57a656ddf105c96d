"""Rules for scheduling groups: no gaps, no cycles, no single members.

    s (3) -> n -> d (3)           a simple gap: n joins group 3
    s (3) -> a, b -> d (3)        a gap with branches: refused, or filled on demand
    s (3) -> m (4), m (4) -> ...  groups 3 and 4 that wait for each other: refused

Source: openxla/xla `xla/service/legalize_scheduling_annotations.cc` (Aug 2026).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NoReturn

from hlo_passes.analysis.post_order import post_order
from hlo_passes.analysis.reachability import ancestors
from hlo_passes.analysis.scheduling_annotations import (
    Annotation,
    annotation_of,
    set_annotation,
)
from hlo_passes.errors import PassError
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction

Members = dict[Computation, list[Instruction]]


@dataclass(slots=True)
class AnnotationGroups:
    """Annotated instructions of a module, in the order in which they were found.

    Attributes:
        members: annotation -> computation -> instructions.
        annotations: instruction -> its annotation.
    """

    members: dict[Annotation, Members] = field(default_factory=dict)
    annotations: dict[Instruction, Annotation] = field(default_factory=dict)

    @staticmethod
    def of(computations: tuple[Computation, ...]) -> AnnotationGroups:
        """All that is annotated. Raises PassError E021 for an invalid annotation."""
        groups = AnnotationGroups()
        for computation in computations:
            for instruction in computation.instructions:
                annotation = annotation_of(instruction)
                if annotation is not None:
                    groups.add(instruction, annotation)
        return groups

    def add(self, instruction: Instruction, annotation: Annotation) -> None:
        """Add a member."""
        self.annotations[instruction] = annotation
        of_annotation = self.members.setdefault(annotation, {})
        of_annotation.setdefault(instruction.computation, []).append(instruction)

    def drop(self, instructions: set[Instruction]) -> None:
        """Drop members, and remove their annotations."""
        for annotation, of_annotation in list(self.members.items()):
            for computation, listed in list(of_annotation.items()):
                for gone in listed:
                    if gone in instructions:
                        set_annotation(gone, None)
                        del self.annotations[gone]
                kept = [i for i in listed if i not in instructions]
                if kept:
                    of_annotation[computation] = kept
                else:
                    del of_annotation[computation]
            if not of_annotation:
                del self.members[annotation]

    def by_group(self) -> dict[int, Members]:
        """Members by group, iterations together; those without a group are left out."""
        found: dict[int, Members] = {}
        for annotation, of_annotation in self.members.items():
            if annotation.group is not None:
                merged = found.setdefault(annotation.group, {})
                for computation, listed in of_annotation.items():
                    merged.setdefault(computation, []).extend(listed)
        return found

    def runs(self) -> Iterator[tuple[Annotation, list[Instruction]]]:
        """Each annotation in each computation."""
        for annotation, of_annotation in self.members.items():
            for listed in of_annotation.values():
                yield annotation, listed


def refuse(message: str, instruction: Instruction, hint: str = "") -> NoReturn:
    """Raise PassError E022."""
    raise PassError(message, code="E022", location=instruction.location, hint=hint)


def check_dones(
    groups: AnnotationGroups, is_done: Callable[[Instruction], bool]
) -> None:
    """Raise E022 unless every annotated done has the same annotation as its start."""
    for annotation, listed in groups.runs():
        for instruction in listed:
            if not is_done(instruction):
                continue
            start = instruction.operands[0]
            if groups.annotations.get(start) != annotation:
                refuse(
                    f"%{instruction.name} is in scheduling group "
                    f"{annotation.to_text()}, but its start %{start.name} is not",
                    instruction,
                    "give both the same annotation",
                )


def check_cycles(computation: Computation, groups: AnnotationGroups) -> None:
    """Raise E022 if two groups of a computation wait for each other."""
    bits: dict[Annotation, int] = {}
    for annotation, of_annotation in groups.members.items():
        if computation in of_annotation:
            bits[annotation] = 1 << len(bits)
    if len(bits) < 2:
        return
    above: dict[Instruction, int] = {}
    reached = dict.fromkeys(bits, 0)
    for instruction in post_order(computation):
        found = 0
        for needed in (*instruction.operands, *instruction.control_predecessors):
            found |= above[needed]
        annotation = groups.annotations.get(instruction)
        if annotation is not None:
            found |= bits[annotation]
            reached[annotation] |= found
        above[instruction] = found
    for one, bit in bits.items():
        for other, other_bit in bits.items():
            if bit < other_bit and reached[one] & other_bit and reached[other] & bit:
                refuse(
                    f"scheduling groups {one.to_text()} and {other.to_text()} wait for "
                    f"each other in %{computation.name}",
                    groups.members[one][computation][0],
                )


def fill_simple_gaps(groups: AnnotationGroups) -> int:
    """Annotate chains of single users between members; returns how many joined."""
    joined: list[Instruction] = []
    for annotation, listed in list(groups.runs()):
        for instruction in listed:
            chain = _simple_gap(instruction, annotation, groups.annotations)
            for member in chain:
                if annotation_of(member) is None:
                    set_annotation(member, annotation)
                    joined.append(member)
    for member in joined:
        annotation = annotation_of(member)
        if annotation is not None:
            groups.add(member, annotation)
    return len(joined)


def _simple_gap(
    instruction: Instruction,
    annotation: Annotation,
    annotations: dict[Instruction, Annotation],
) -> list[Instruction]:
    """The instructions on the single path to the next member; [] if there are none."""
    if len(instruction.users) != 1:
        return []
    (current,) = instruction.users
    if current in annotations or len(current.operands) != 1:
        return []
    chain: list[Instruction] = []
    while True:
        met = annotations.get(current)
        if met is not None and met.group == annotation.group:
            return chain
        chain.append(current)
        if len(current.users) != 1 or len(current.operands) != 1:
            return []
        (current,) = current.users


def propagate(groups: AnnotationGroups, *, dry_run: bool = False) -> int:
    """Annotate everything between members of a group; returns how many joined.

    Raises PassError E022 if an instruction between them has another annotation.
    """
    computations = dict.fromkeys(c for m in groups.members.values() for c in m)
    joined = 0
    for computation in computations:
        for annotation in sorted(groups.members, key=_annotation_order):
            members = groups.members[annotation].get(computation)
            if not members:
                continue
            for between in _between(members):
                met = annotation_of(between)
                if met is not None:
                    refuse(
                        f"%{between.name} is between members of scheduling group "
                        f"{annotation.to_text()}, but is in {met.to_text()}",
                        between,
                    )
                if not dry_run:
                    set_annotation(between, annotation)
                joined += 1
    return joined


def _annotation_order(annotation: Annotation) -> tuple[bool, int, bool, int]:
    group, iteration = annotation.group, annotation.iteration
    return (group is not None, group or 0, iteration is not None, iteration or 0)


def _between(members: list[Instruction]) -> list[Instruction]:
    """The instructions on a path from one member to another, in the order found."""
    above = ancestors(members)
    inside = set(members)
    found: dict[Instruction, None] = {}
    stack = list(members)
    while stack:
        current = stack.pop()
        for follower in (*current.users, *current.control_successors):
            if follower in above and follower not in inside and follower not in found:
                found[follower] = None
                stack.append(follower)
    return list(found)


def gaps(
    groups: AnnotationGroups, *, skip_opt_barriers: bool
) -> Iterator[tuple[Annotation, Instruction]]:
    """Annotations with a path that leaves the group and enters it again, and where.

    With `skip_opt_barriers` paths go through tuples and optimization barriers element
    by element.
    """
    for annotation, listed in groups.runs():
        frontier = dict.fromkeys(
            follower
            for instruction in listed
            for follower in (*instruction.users, *instruction.control_successors)
            if groups.annotations.get(follower) != annotation
        )
        seen = set(frontier)
        stack = list(frontier)
        while stack:
            current = stack.pop()
            for follower in (*current.users, *current.control_successors):
                if skip_opt_barriers:
                    if follower.opcode == "opt-barrier":
                        continue
                    follower = _element_after(current, follower)
                if groups.annotations.get(follower) == annotation:
                    yield annotation, follower
                if follower not in seen:
                    seen.add(follower)
                    stack.append(follower)


def _element_after(value: Instruction, user: Instruction) -> Instruction:
    """The element that is `value`, of a tuple with elements or after a barrier."""
    if user.opcode != "tuple" or not user.users or value not in user.operands:
        return user
    source = user
    if len(user.users) == 1:
        (source,) = user.users
        if source.opcode != "opt-barrier":
            return user
    index = user.operands.index(value)
    return next((u for u in source.users if u.tuple_index_or_none == index), user)
