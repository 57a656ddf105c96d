"""Combines independent collectives with equal keys in batches: the combiners' loop.

    keys {a: K, b: K, c: L, d: K}      ->  batch (a, b, d), batch (c) dropped
    d depends on b                     ->  batch (a, b), then batch (d) dropped

Every round takes the first collective that is left in post order. It adds the following
ones with the same key, until one would exceed a limit or depends on the batch. For
every round, XLA computes the post order and the reachability of the whole computation
again. This module does less:

- It updates the post order. If a batch takes the place of its first member, only the
  instructions move that the operands of the other members need, and only those that are
  between the members.
- It searches backwards from a candidate for a dependence on the batch, no further than
  the first member's place. It does not visit again what it found to be independent.

Moved instructions go before everything that is still to be done. Therefore both are
near-linear together. The decisions are XLA's.

Source: openxla/xla `xla/service/collective_combiner_utils.h`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from hlo_passes.analysis.post_order import post_order
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.passes.framework.base import Report

#: Combine thresholds with which XLA's GPU compiler starts.
#: Source: openxla/xla `xla/service/collective_utils.h`, `xla/debug_options_flags.cc`.
DEFAULT_THRESHOLD_BYTES = 30 * 1024 * 1024 + 7
DEFAULT_THRESHOLD_COUNT = 2048

#: A place in the post order: it compares like the order itself. An instruction that is
#: put in x's place receives that place with a number appended.
_Place = tuple[int, ...]
#: Places longer than this are numbered again.
_LONGEST_PLACE = 24


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a batch.

    Attributes:
        threshold_bytes: the most bytes that all results of a batch may have.
        threshold_count: the most members that a batch may have.
        past_dependence: skip a candidate that depends on the batch; the released rule
            ends the batch there.
    """

    threshold_bytes: int
    threshold_count: int
    past_dependence: bool = False


@dataclass(frozen=True, slots=True)
class Anchor:
    """Where the new instructions of a batch go in text order."""

    before: Instruction | None = None
    after: Instruction | None = None


#: Makes one instruction from a batch and replaces the members; returns what it made, in
#: the order of creation, the combined instruction first.
Builder = Callable[[Sequence[Instruction], Anchor], list[Instruction]]


def combine_by_key(
    computation: Computation,
    keys: dict[Instruction, Hashable],
    build: Builder,
    limits: Limits,
    report: Report,
) -> bool:
    """Combine the candidates of a computation; True if anything was combined.

    Args:
        computation: the computation whose instructions are combined.
        keys: the key of each candidate; candidates with equal keys may be combined.
        build: see `Builder`.
        limits: the limits of a batch.
        report: receives the reasons why candidates were left alone.
    """
    if not keys:
        return False
    run = _Run(computation, dict(keys), build, limits, report)
    run.all_rounds()
    run.explain_singles()
    if run.changed:
        restore_text_order(computation)
    return run.changed


@dataclass(slots=True)
class _Run:
    """The state of one computation's rounds."""

    computation: Computation
    keys: dict[Instruction, Hashable]
    build: Builder
    limits: Limits
    report: Report
    changed: bool = False
    # XLA's own list of instructions: new ones are at its end.
    listed: list[Instruction] = field(default_factory=list)
    place: dict[Instruction, _Place] = field(default_factory=dict)
    text_position: dict[Instruction, int] = field(default_factory=dict)
    # Candidates by place; entries become stale when a candidate moves or is done.
    queue: list[tuple[_Place, int, Instruction]] = field(default_factory=list)
    group_queues: dict[Hashable, list[tuple[_Place, int, Instruction]]] = field(
        default_factory=dict
    )
    serial: dict[Instruction, int] = field(default_factory=dict)
    candidates: list[Instruction] = field(default_factory=list)
    all_keys: dict[Instruction, Hashable] = field(default_factory=dict)
    # Members of batches of one, and keys with a batch that reached its count.
    lonely: list[Instruction] = field(default_factory=list)
    full: set[Hashable] = field(default_factory=set)
    # Instructions that need no candidate.
    free: set[Instruction] = field(default_factory=set)
    opcode: str = ""

    def __post_init__(self) -> None:
        """Number all instructions."""
        self.opcode = next(iter(self.keys)).opcode
        self.listed = list(self.computation.instructions)
        self.text_position = {i: k for k, i in enumerate(self.listed)}
        self.serial = {i: k for k, i in enumerate(self.keys)}
        self.all_keys = dict(self.keys)
        self._number_anew(post_order(self.computation))
        self.candidates = [entry[2] for entry in sorted(self.queue)]

    # -- order --------------------------------------------------------------

    def _number_anew(self, order: Sequence[Instruction]) -> None:
        self.place = {instruction: (k,) for k, instruction in enumerate(order)}
        self.queue = [(self.place[i], self.serial[i], i) for i in self.keys]
        self.group_queues = {}
        for entry in self.queue:
            group = self.group_queues.setdefault(self.keys[entry[2]], [])
            group.append(entry)
        heapify(self.queue)
        for group in self.group_queues.values():
            heapify(group)

    def _move(self, instruction: Instruction, place: _Place) -> None:
        self.place[instruction] = place
        key = self.keys.get(instruction)
        if key is not None:
            entry = (place, self.serial[instruction], instruction)
            heappush(self.queue, entry)
            heappush(self.group_queues[key], entry)

    def _pop(self, queue: list[tuple[_Place, int, Instruction]]) -> Instruction | None:
        """The first candidate of a queue that is still to be done."""
        while queue:
            place, _, instruction = heappop(queue)
            if instruction in self.keys and self.place[instruction] == place:
                return instruction
        return None

    def _put_back(self, instruction: Instruction) -> None:
        """Put a candidate back in its group; its entry in the queue of all was kept."""
        entry = (self.place[instruction], self.serial[instruction], instruction)
        heappush(self.group_queues[self.keys[instruction]], entry)

    # -- rounds -------------------------------------------------------------

    def all_rounds(self) -> None:
        """Take batches until no candidate is left."""
        while (first := self._pop(self.queue)) is not None:
            if self._fits(first):
                self._one_round(first)
            else:
                del self.keys[first]

    def _fits(self, instruction: Instruction) -> bool:
        """Whether it can be a member of any batch."""
        name, bytes_ = instruction.name, instruction.shape.byte_size
        count = len(instruction.operands)
        if count != 1:
            self.report.remark(f"not combined: %{name} has {count} operands already")
        elif bytes_ > self.limits.threshold_bytes:
            self.report.remark(
                f"not combined: %{name} has {bytes_} bytes, "
                f"but threshold-bytes is {self.limits.threshold_bytes}"
            )
        else:
            return True
        return False

    def _one_round(self, first: Instruction) -> None:
        # The first collective starts the batch.
        limits = self.limits
        group = self.group_queues[self.keys[first]]
        batch = [first]
        del self.keys[first]
        total = first.shape.byte_size
        front = self.place[first]
        # The instructions that depend on the batch (with the member), and those that do
        # not.
        dependent = {first: first}
        independent: set[Instruction] = set()
        passed: list[Instruction] = []
        cut = False
        while len(batch) < limits.threshold_count:
            # Take the next candidate; one that no longer fits is out for good.
            candidate = self._pop(group)
            if candidate is None:
                break
            if not self._fits(candidate):
                del self.keys[candidate]
                continue
            # A candidate that makes the batch too large ends it.
            bytes_ = candidate.shape.byte_size
            if total + bytes_ > limits.threshold_bytes:
                self._remark_bytes(batch, candidate, total + bytes_)
                passed.append(candidate)
                cut = True
                break
            # A candidate that depends on a member ends the batch, or is skipped where
            # the limits allow that.
            needed = self._member_needed(candidate, dependent, independent, front)
            if needed is not None:
                dependent[candidate] = needed
                self._remark_dependence(needed, candidate)
                passed.append(candidate)
                cut = True
                if limits.past_dependence:
                    continue
                break
            # Otherwise the candidate becomes a member.
            batch.append(candidate)
            dependent[candidate] = candidate
            total += bytes_
            del self.keys[candidate]
        # Candidates that were passed over may join a later batch.
        for candidate in passed:
            self._put_back(candidate)
        # Combine the batch. A collective for which nothing was found stays as it is.
        if len(batch) == limits.threshold_count:
            self.full.add(self.all_keys[first])
        if len(batch) > 1:
            self._combine(batch)
        elif not cut:
            self.lonely.append(first)

    def _member_needed(
        self,
        candidate: Instruction,
        dependent: dict[Instruction, Instruction],
        independent: set[Instruction],
        front: _Place,
    ) -> Instruction | None:
        """A member of the batch that `candidate` depends on, or None."""
        place = self.place
        seen: list[Instruction] = []
        work = [candidate]
        while work:
            current = work.pop()
            for needed in (*current.operands, *current._control_predecessors):
                if needed in dependent:
                    independent.difference_update(seen)
                    return dependent[needed]
                if needed not in independent and place[needed] > front:
                    independent.add(needed)
                    seen.append(needed)
                    work.append(needed)
        return None

    # -- building -----------------------------------------------------------

    def _combine(self, batch: list[Instruction]) -> None:
        operands = [member.operands[0] for member in batch]
        dead = [member.operands[0] for member in batch if not member._users]
        used = next((k for k, member in enumerate(batch) if member._users), None)
        places = [self.place[member] for member in batch]
        anchor, position = self._anchor(batch, operands)
        made = self.build(batch, anchor)
        self.changed = True
        self.report.count("batches-combined")
        self.report.count("collectives-combined", len(batch))
        for instruction in made:
            self.text_position[instruction] = position
        self.listed += made
        if self._must_number_anew(dead):
            self.listed = [i for i in self.listed if not i.removed]
            self._number_anew(post_order(self.computation, self.listed))
            return
        # Elements go where the members were, what turns them back right after them.
        combined, results = self._place_around(made, places)
        self.place[combined] = places[-1]
        if used is None:
            return
        # The next post order meets the batch where it met the first member with users.
        self._move_after(places[used], list(combined.operands), combined)
        for number, result in enumerate(results[used]):
            self.place[result] = (*self.place[combined][:-1], _LAST + number)
        if len(self.place[combined]) > _LONGEST_PLACE:
            order = sorted(
                (i for i in self.place if not i.removed), key=self.place.__getitem__
            )
            self._number_anew(order)

    def _must_number_anew(self, dead: Sequence[Instruction]) -> bool:
        """Whether candidates were first met from members that nothing reads.

        The elements of these are at the end of XLA's list, and so are the candidates.
        """
        return not all(map(self._needs_no_candidate, dead))

    def _place_around(
        self, made: Sequence[Instruction], places: Sequence[_Place]
    ) -> tuple[Instruction, list[list[Instruction]]]:
        """Give places to all that was made but the combined collective.

        Returns:
            The collective, and for each member what has its place now: the element, and
            what turns it back, if anything does.
        """
        collective = next(i for i in made if i.opcode == self.opcode)
        results: list[list[Instruction]] = [[] for _ in places]
        elements: dict[Instruction, int] = {}
        for each in made[made.index(collective) + 1 :]:
            (source,) = each.operands
            if source is collective:
                # One for each member, in their order, whichever output it takes.
                elements[each] = len(elements)
            member = elements.get(each, elements.get(source, 0))
            self.place[each] = (*places[member], *([0] if results[member] else []))
            results[member].append(each)
        # What turns an operand comes right after it.
        for each in made[: made.index(collective)]:
            self.place[each] = (*self.place[each.operands[0]], 0)
        return collective, results

    def _needs_no_candidate(self, operand: Instruction) -> bool:
        """Whether no candidate is left in what an operand of a dead member needs."""
        free, keys = self.free, self.keys
        seen: set[Instruction] = set()
        work = [operand]
        while work:
            current = work.pop()
            if current in free or current in seen:
                continue
            if current in keys:
                return False
            seen.add(current)
            work += current.operands
            work += current._control_predecessors
        free |= seen
        return True

    def _anchor(
        self, batch: list[Instruction], operands: list[Instruction]
    ) -> tuple[Anchor, int]:
        """The place of the first member, or after the last operand if that is later."""
        position = self.text_position
        first = min(batch, key=position.__getitem__)
        last = max(operands, key=position.__getitem__)
        if position[last] < position[first]:
            return Anchor(before=first), position[first]
        return Anchor(after=last), position[last]

    def _move_after(
        self, front: _Place, operands: list[Instruction], combined: Instruction
    ) -> None:
        """Give places at `front` to what the batch needs, then to the batch.

        The order is depth first, operands from first to last: XLA's next post order
        meets them in that order.
        """
        place, number = self.place, 0
        moved: set[Instruction] = set()
        for operand in operands:
            opened: set[Instruction] = set()
            stack = [operand]
            while stack:
                current = stack[-1]
                if current in moved or place[current] < front:
                    stack.pop()
                elif current in opened:
                    stack.pop()
                    moved.add(current)
                    self._move(current, (*front, number))
                    number += 1
                else:
                    opened.add(current)
                    stack.extend(reversed(current.operands))
                    stack.extend(current._control_predecessors)
        place[combined] = (*front, number)

    # -- remarks ------------------------------------------------------------

    def _remark_bytes(
        self, batch: list[Instruction], candidate: Instruction, total: int
    ) -> None:
        self.report.remark(
            f"not combined: %{candidate.name} with the batch of %{batch[0].name}: "
            f"{total} bytes together, threshold-bytes is {self.limits.threshold_bytes}"
        )

    def _remark_dependence(self, member: Instruction, candidate: Instruction) -> None:
        rule = (
            "the batch continues after it"
            if self.limits.past_dependence
            else "the batch ends there (released rule)"
        )
        self.report.remark(
            f"not combined: %{candidate.name} depends on %{member.name}; {rule}"
        )

    def explain_singles(self) -> None:
        """Say why candidates that found no other with their key stayed alone."""
        index = {candidate: k for k, candidate in enumerate(self.candidates)}
        reported: set[frozenset[Instruction]] = set()
        for single in self.lonely:
            if self.all_keys[single] in self.full:
                self.report.remark(
                    f"not combined: %{single.name} is left over, "
                    f"but threshold-count is {self.limits.threshold_count}"
                )
                continue
            k = index[single]
            others = self.candidates[k + 1 : k + 2] or self.candidates[:k][-1:]
            if not others:
                self.report.remark(f"not combined: %{single.name} has no partner")
                continue
            pair = frozenset((single, others[0]))
            key, other_key = (self.all_keys[i] for i in (single, others[0]))
            fields = key_differences(key, other_key)
            if fields and pair not in reported:
                reported.add(pair)
                self.report.remark(
                    f"not combined: %{single.name} and %{others[0].name} "
                    f"differ in {', '.join(fields)}"
                )


#: More than any number of moved instructions: the place after a combined one.
_LAST = 1 << 62


def key_differences(key: Hashable, other: Hashable) -> list[str]:
    """Names of the fields in which two keys (NamedTuples) differ."""
    names: tuple[str, ...] = getattr(key, "_fields", ())
    return [name for name in names if getattr(key, name) != getattr(other, name)]
