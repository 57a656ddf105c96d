"""Hands divisions on along ties until nothing more can be said.

    %a  {devices=[8,1]<=[8]}                  written by somebody
    %n = negate(%a)                           gets it: forward
    %b = f32[16,32] broadcast(%bias)          %bias gets what %b has: backward

First divisions go where every element stays where it is, then through sums, products
and lookups, last through what makes larger arrays of smaller ones, so that a large
array is not divided as a small one happens to be. Of two operands the one in more parts
is asked first, then the larger one, then the first. What is there is only ever refined.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from hlo_passes.analysis.sharding_rules import (
    LARGER,
    SAME,
    ArrayIndices,
    Rule,
    handed_over,
)
from hlo_passes.ir.sharding_splits import Split
from hlo_passes.passes.sharding.values import Array, Program, Tie


def propagate(program: Program) -> None:
    """Divide the arrays of a program as what is divided already suggests.

    Complexity: each tie is asked anew when one of its arrays has changed, for each of
        its operands; an array changes a few times at most.
    """
    walk = _Walk(program)
    for level in range(SAME, LARGER + 1):
        walk.until_nothing_changes(level)
        # What enters a loop is heard one array at a time, the largest first: the body
        # must leave a state as it found it, or data moves in every iteration.
        for tie in walk.entries:
            changed = _forward(tie)
            if changed:
                walk.mark(changed)
                walk.until_nothing_changes(level)


class _Walk:
    """Asks ties forward and backward as long as one of their arrays has changed.

    A round asks all ties forward, in the order of the program, and then all backward,
    from its end. A question whose arrays change later in a round belongs to the next
    one if its turn is over. Questions have the numbers of their turns.
    """

    def __init__(self, program: Program) -> None:
        self.ties = [tie for tie in program.ties if not tie.enters_loop]
        self.uses = _uses(program)
        self.entries = sorted(
            (tie for tie in program.ties if tie.enters_loop),
            key=lambda tie: -_size_of(tie.results[0]),
        )
        self.level = -1
        self.next_round: set[int] = set()
        numbers = {id(tie): k for k, tie in enumerate(self.ties)}
        questions: list[list[int]] = [[k] for k in range(len(self.ties))]
        for k, (tie, _) in enumerate(self.uses, start=len(self.ties)):
            if id(tie) in numbers:
                questions[numbers[id(tie)]].append(k)
            else:
                numbers[id(tie)] = len(questions)
                questions.append([k])
        #: The questions of the ties of an array, by the array's `id`.
        self.of_array: dict[int, list[list[int]]] = {}
        by_id = {id(tie): tie for tie in (*self.ties, *self.entries)}
        for key, number in numbers.items():
            tie = by_id[key]
            for one in {id(array) for array in (*tie.operands, *tie.results)}:
                self.of_array.setdefault(one, []).append(questions[number])

    def mark(self, changed: Sequence[Array]) -> list[int]:
        """Ask again, in the next round, whatever reads or makes an array."""
        found = [
            question
            for array in changed
            for questions in self.of_array.get(id(array), ())
            for question in questions
        ]
        self.next_round.update(found)
        return found

    def until_nothing_changes(self, level: int) -> None:
        """Ask the ties whose rules count at a level."""
        if level != self.level:  # rules that count from now on have not been asked
            self.level = level
            self.next_round.update(range(len(self.ties) + len(self.uses)))
        while self.next_round:
            turns, self.next_round = sorted(self.next_round), set()
            waiting = set(turns)
            while turns:
                turn = heapq.heappop(turns)
                waiting.discard(turn)
                for question in self.mark(self._ask(turn)):
                    # Its turn is still to come in this round.
                    if question > turn:
                        self.next_round.discard(question)
                        if question not in waiting:
                            waiting.add(question)
                            heapq.heappush(turns, question)

    def _ask(self, turn: int) -> list[Array]:
        """The arrays that a question divides further."""
        if turn < len(self.ties):
            tie = self.ties[turn]
            return _forward(tie) if tie.rule.forward <= self.level else []
        tie, place = self.uses[turn - len(self.ties)]
        return _backward(tie, place) if tie.rule.backward <= self.level else []


def _uses(program: Program) -> list[tuple[Tie, int]]:
    """Ties and places of their operands: the last array first, its first user first."""
    number = {id(array): k for k, array in enumerate(program.arrays)}
    uses = [
        (-number[id(array)], k, place)
        for k, tie in enumerate(program.ties)
        for place, array in enumerate(tie.operands)
        if array.shape.rank
    ]
    return [(program.ties[k], place) for _, k, place in sorted(uses)]


Place = tuple[Array, ArrayIndices]


def _forward(tie: Tie) -> list[Array]:
    """The results that what a tie reads divides further."""
    operands = _asked_first(list(zip(tie.operands, tie.rule.operands, strict=True)))
    results = list(zip(tie.results, tie.rule.results, strict=True))
    return [
        target[0]
        for target in results
        for source in operands
        if _suggest(source, target, tie.rule, mirror=True)
    ]


def _backward(tie: Tie, place: int) -> list[Array]:
    """An operand, if what a tie makes or else reads divides it further."""
    operands = list(zip(tie.operands, tie.rule.operands, strict=True))
    results = list(zip(tie.results, tie.rule.results, strict=True))
    target = operands[place]
    found = [_suggest(source, target, tie.rule, mirror=True) for source in results]
    # Another operand knows how an index is divided that the results lack.
    others = operands[:place] + operands[place + 1 :]
    found += [
        _suggest(source, target, tie.rule, mirror=False)
        for source in _asked_first(others)
    ]
    return [target[0]] if any(found) else []


def _asked_first(places: Sequence[Place]) -> list[Place]:
    return sorted(places, key=lambda each: (-each[0].splits.tiles, -_size_of(each[0])))


def _size_of(array: Array) -> int:
    return array.shape.byte_size if array.shape.is_array else 0


def suggestions(
    source: Place, target: Place, rule: Rule, *, mirror: bool
) -> list[tuple[int, Split]]:
    """What one array suggests for dimensions of another: (dimension, division)."""
    (array, have), (_, want) = source, target
    if array.is_opaque or array.splits.is_replicated:
        return []
    found = handed_over(array.splits, have, want, rule, mirror)
    return [(dim, split) for dim, split in enumerate(found) if split is not None]


def _suggest(source: Place, target: Place, rule: Rule, *, mirror: bool) -> bool:
    array = target[0]
    changed = False
    for dim, split in suggestions(source, target, rule, mirror=mirror):
        if array.splits.dims[dim] == split or not array.may_divide(dim):
            continue
        finer = array.splits.refined(dim, split, array.shape.dimensions[dim])
        if finer is not None:
            array.splits = finer
            changed = True
    return changed


def disagreements(program: Program) -> list[tuple[Tie, str]]:
    """Ties whose operands must move between devices, and why, one reason for each.

    An operand that is divided less than the result does not move: a device takes a part
    of what it has.
    """
    found: list[tuple[Tie, str]] = []
    for tie in program.ties:
        operands = list(zip(tie.operands, tie.rule.operands, strict=True))
        results = list(zip(tie.results, tie.rule.results, strict=True))
        reasons = [
            why
            for target in results
            for source in operands
            if (why := _disagreement(source, target, tie.rule))
        ]
        if reasons:
            found.append((tie, reasons[0]))
    return found


def _disagreement(source: Place, target: Place, rule: Rule) -> str:
    """Why a target is not divided as a source suggests; '' where it is."""
    array = target[0]
    for dim, split in suggestions(source, target, rule, mirror=True):
        size = array.shape.dimensions[dim]
        here = array.splits.dims[dim]
        if array.is_opaque or (here is not None and here.refines(split, size)):
            continue
        name = f"dimension {dim} of %{array.maker.name}"
        asks = f"%{source[0].maker.name} is in {split.parts} parts there"
        if not array.may_divide(dim):
            return f"{name} keeps its own sharding, and {asks}"
        if split.parts > size:
            return f"{name} has {size} elements, and {asks}"
        if not split.refines(here, size):
            return f"{name} is divided over other devices, and {asks}"
        return f"{name} cannot be divided over devices that divide another, and {asks}"
    return ""
