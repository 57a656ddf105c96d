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
    Rule,
    handed_over,
)
from hlo_passes.ir.sharding_splits import Split
from hlo_passes.passes.sharding.sources import Place, Sources
from hlo_passes.passes.sharding.values import Array, Program, Tie


def propagate(program: Program) -> None:
    """Divide the arrays of a program as what is divided already suggests.

    Complexity: each tie is asked anew, for each of its operands, when one of its arrays
        is divided as none was before; an array changes a few times at most.
    """
    walk = _Walk(program)
    for level in range(SAME, LARGER + 1):
        walk.until_nothing_changes(level)
        # What enters a loop is heard one array at a time, the largest first: the body
        # must leave a state as it found it, or data moves in every iteration.
        for entry in walk.entries:
            changed = entry.forward()
            if changed:
                walk.mark(changed)
                walk.until_nothing_changes(level)


class _Asked:
    """A tie, and what its arrays have been asked already.

    Attributes:
        tie: the tie.
        operands: what suggests something to results and to each other.
        results: what suggests something to operands.
        questions: the numbers of its questions.
    """

    def __init__(self, tie: Tie) -> None:
        rule = tie.rule
        self.tie = tie
        self.operands = Sources(
            list(zip(tie.operands, rule.operands, strict=True)), by_size=True
        )
        self.results = Sources(
            list(zip(tie.results, rule.results, strict=True)), by_size=False
        )
        self.questions: list[int] = []
        self._forward_heard = 0
        #: For each operand, what it has heard of operands and of results.
        self._heard = [(0, 0)] * len(tie.operands)

    def update(self, array: Array) -> None:
        """Take over how an array is divided now."""
        self.operands.update(array)
        self.results.update(array)

    def has_news(self) -> bool:
        """Whether anything may be suggested that was not, when this was asked last."""
        return self.operands.has_news() | self.results.has_news()

    def forward(self) -> list[Array]:
        """The results that what a tie reads divides further."""
        sources = self.operands.since(self._forward_heard)
        self._forward_heard = self.operands.appeared
        return [
            target[0]
            for target in (self.results.places if sources else ())
            for source in sources
            if _suggest(source, target, self.tie.rule, mirror=True)
        ]

    def backward(self, place: int) -> list[Array]:
        """An operand, if what a tie makes or else reads divides it further."""
        rule, target = self.tie.rule, self.operands.places[place]
        others_heard, results_heard = self._heard[place]
        found = [
            _suggest(source, target, rule, mirror=True)
            for source in self.results.since(results_heard)
        ]
        if any(found):  # it may be an operand twice
            self.update(target[0])
        self._heard[place] = self.operands.appeared, self.results.appeared
        # Another operand knows how an index is divided that the results lack.
        found += [
            _suggest(source, target, rule, mirror=False)
            for source in self.operands.since(others_heard, but=place)
        ]
        return [target[0]] if any(found) else []


class _Walk:
    """Asks ties forward and backward as long as one of their arrays has changed.

    A round asks all ties forward, in the order of the program, and then all backward,
    from its end. A question whose arrays change later in a round belongs to the next
    one if its turn is over. Questions have the numbers of their turns. Those that would
    hear nothing new are not asked: they would change nothing.
    """

    def __init__(self, program: Program) -> None:
        asked = {id(tie): _Asked(tie) for tie in program.ties}
        self.ties = [asked[id(tie)] for tie in program.ties if not tie.enters_loop]
        self.uses = [(asked[id(tie)], place) for tie, place in _uses(program)]
        self.entries = sorted(
            (asked[id(tie)] for tie in program.ties if tie.enters_loop),
            key=lambda each: -each.tie.results[0].byte_size,
        )
        self.level = -1
        self.next_round: set[int] = set()
        for k, each in enumerate(self.ties):
            each.questions.append(k)
        for k, (each, _) in enumerate(self.uses, start=len(self.ties)):
            each.questions.append(k)
        #: The ties of an array, by the array's `id`.
        self.of_array: dict[int, list[_Asked]] = {}
        for tie in program.ties:
            for one in {id(array) for array in (*tie.operands, *tie.results)}:
                self.of_array.setdefault(one, []).append(asked[id(tie)])

    def mark(self, changed: Sequence[Array]) -> list[int]:
        """Ask again, in the next round, whoever has not heard what arrays say now."""
        found: list[int] = []
        for array in changed:
            for each in self.of_array.get(id(array), ()):
                each.update(array)
                if each.has_news():
                    found += each.questions
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
            each = self.ties[turn]
            return each.forward() if each.tie.rule.forward <= self.level else []
        each, place = self.uses[turn - len(self.ties)]
        is_time = each.tie.rule.backward <= self.level
        return each.backward(place) if is_time else []


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
