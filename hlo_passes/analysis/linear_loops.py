"""When a loop ends whose variables grow by a constant: solved, not run.

    i starts at 3 and grows by 2, the condition is i < 1000003     500000 iterations

Each scalar of the state is written as `start + step * t`, t the number of the
iteration, from some iteration on. The condition compares such forms. Integers that
would wrap around, and anything that is not of this form, are left to whoever runs the
loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from hlo_passes.analysis.scalar_expressions import (
    COMPARISONS,
    Apply,
    Constant,
    Expression,
    Path,
    State,
    in_range,
)

#: Iterations that pass before a variable that follows others has its form.
MOST_DELAYED: Final = 8
_OPPOSITE: Final = {
    "LT": "GE",
    "GE": "LT",
    "GT": "LE",
    "LE": "GT",
    "EQ": "NE",
    "NE": "EQ",
}


@dataclass(frozen=True, slots=True)
class Line:
    """`start + step * t`, for every iteration t from `since` on."""

    start: int
    step: int
    since: int = 0

    def at(self, t: int) -> int:
        """The value in iteration t."""
        return self.start + self.step * t


class _NotLinearError(Exception):
    """An expression is not of the form `start + step * t`."""


@dataclass(slots=True)
class LinearLoop:
    """The scalars of a loop as lines.

    Attributes:
        first: the state before the first iteration.
        next: each element of the state after an iteration.
        condition: whether another iteration runs.
    """

    first: Mapping[Path, int]
    next: Mapping[Path, Expression]
    condition: Expression
    _lines: dict[Path, Line] = field(default_factory=dict)
    #: Lines of everything that was computed, which must fit their types.
    _computed: list[tuple[str, Line]] = field(default_factory=list)
    #: How many of them belong to the body, which does not run in the last iteration.
    _of_body: int = 0

    def iterations(self) -> tuple[int, int] | None:
        """(how often the body runs, the iterations to run before this is certain).

        None: not of this form, endless, or something would wrap around. The second
        number is small; if the condition fails earlier, that is the answer instead.
        """
        try:
            self._find_lines()
            since, ends = self._end(self.condition, holds=True)
        except _NotLinearError:
            return None
        if ends is None:
            return None
        for k, (kind, line) in enumerate(self._computed):
            last = ends - 1 if k < self._of_body else ends
            if last >= line.since and not (
                in_range(kind, line.at(line.since)) and in_range(kind, line.at(last))
            ):
                return None
        return ends, since

    # -- lines of the state --------------------------------------------------------

    def _find_lines(self) -> None:
        """Variables that grow by themselves, then those that follow others."""
        waiting = dict(self.next)
        for path, expression in list(waiting.items()):
            step = _own_step(expression, path)
            if step is not None:
                self._lines[path] = Line(self.first[path], step)
                del waiting[path]
        for _ in range(MOST_DELAYED):
            for path, expression in list(waiting.items()):
                try:
                    line = self._line(expression)
                except _NotLinearError:
                    continue
                # What an iteration computes is seen by the one after it.
                later = Line(line.start - line.step, line.step, line.since + 1)
                if later.since == 1 and later.at(0) == self.first[path]:
                    later = Line(later.start, later.step)
                self._lines[path] = later
                del waiting[path]
        if waiting:
            raise _NotLinearError
        # The last values that the body computes are those of the state after it.
        self._computed.clear()
        for expression in self.next.values():
            self._line(expression)
        self._of_body = len(self._computed)

    def _line(self, expression: Expression) -> Line:
        if isinstance(expression, Constant):
            return Line(expression.value, 0)
        if isinstance(expression, State):
            found = self._lines.get(expression.path)
            if found is None:
                raise _NotLinearError
            return found
        parts = [self._line(operand) for operand in expression.operands]
        line = _combined(expression, parts)
        self._computed.append((expression.type, line))
        return line

    # -- the condition ---------------------------------------------------------------

    def _end(self, node: Expression, *, holds: bool) -> tuple[int, int | None]:
        """(since when this is right, the first iteration where `node` is not `holds`).

        None: there is no such iteration.
        """
        if isinstance(node, Apply) and node.opcode == "not":
            return self._end(node.operands[0], holds=not holds)
        joins = "and" if holds else "or"
        if isinstance(node, Apply) and node.type == "pred" and node.opcode == joins:
            ends = [self._end(operand, holds=holds) for operand in node.operands]
            found = [end for _, end in ends if end is not None]
            return max(since for since, _ in ends), min(found, default=None)
        if isinstance(node, Apply) and node.opcode == "compare":
            left, right = (self._line(operand) for operand in node.operands)
            since = max(left.since, right.since)
            gap = Line(left.start - right.start, left.step - right.step, since)
            direction = node.direction if holds else _OPPOSITE[node.direction]
            return since, _first_without(gap, direction)
        line = self._line(node)
        if line.step:
            raise _NotLinearError
        return line.since, None if bool(line.start) == holds else line.since


def _own_step(expression: Expression, path: Path) -> int | None:
    """The step of a variable that grows by a constant; 0 if it stays as it is."""
    step = 0
    while isinstance(expression, Apply):
        if expression.opcode not in ("add", "subtract"):
            return None
        left, right = expression.operands
        if isinstance(right, Constant):
            step += right.value if expression.opcode == "add" else -right.value
            expression = left
        elif isinstance(left, Constant) and expression.opcode == "add":
            step += left.value
            expression = right
        else:
            return None
    return step if isinstance(expression, State) and expression.path == path else None


def _combined(node: Apply, parts: list[Line]) -> Line:
    since = max(part.since for part in parts)
    if node.type == "pred" or any(o.type == "pred" for o in node.operands):
        raise _NotLinearError
    if node.opcode in ("add", "subtract"):
        sign = 1 if node.opcode == "add" else -1
        a, b = parts
        return Line(a.start + sign * b.start, a.step + sign * b.step, since)
    if node.opcode == "multiply":
        a, b = parts if parts[1].step == 0 else (parts[1], parts[0])
        if b.step == 0:
            return Line(a.start * b.start, a.step * b.start, since)
    if node.opcode == "negate":
        return Line(-parts[0].start, -parts[0].step, since)
    if node.opcode == "convert":
        return Line(parts[0].start, parts[0].step, since)
    raise _NotLinearError


def _first_without(gap: Line, direction: str) -> int | None:
    """The first iteration in which `gap` does not compare with 0 in this way."""
    holds, t = COMPARISONS[direction], gap.since
    if not holds(gap.at(t), 0):
        return t
    value, step = gap.at(t), gap.step
    if direction == "EQ":
        return t + 1 if step else None
    if direction == "NE":
        crosses = step != 0 and -value % step == 0 and -value // step > 0
        return t - value // step if crosses else None
    if (step <= 0) if direction in ("LT", "LE") else (step >= 0):
        return None
    # Up to 0 where 0 ends it, else to the first number beyond.
    reach = abs(value) + (direction in ("LE", "GE"))
    return t - (-reach // abs(step))
