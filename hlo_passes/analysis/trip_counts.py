"""How often the loops of a module run: noted, given, or found out.

    counts = TripCounts(module)
    counts.of(loop)          126, None where nobody can know
    counts.why_unknown(loop) '%reduce.3 (reduce) decides when it ends'

A count that XLA noted in the backend config is what XLA's executables follow, so it
comes first. Otherwise the scalars that the condition reads are followed through body
and start of the loop: through tuples, copies, fusions and calls, and through values
that loops around it hand on unchanged. What grows by constants is solved; what does not
is run, for a limited number of steps. This knows more loops than XLA's own pass
(`passes/while_loop_trip_count_annotator.py`), and it says what running the loop says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from hlo_passes.analysis.call_graph import CallGraph, build_call_graph
from hlo_passes.analysis.linear_loops import LinearLoop
from hlo_passes.analysis.scalar_expressions import (
    Evaluation,
    Expression,
    NotKnownError,
    Path,
    Scope,
    State,
    spelled,
    state_scope,
)
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.gpu_config import known_trip_count
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module

#: Operations that are evaluated before a loop that has to be run is given up.
MOST_OPERATIONS: Final = 50_000
#: Scalars of the state that the condition may depend on.
_MOST_VARIABLES: Final = 64
#: Loops around a loop that its start is followed through, and call sites of one.
_MOST_AROUND: Final = 32
_MOST_CALLERS: Final = 16
#: A loop calls its body and its condition.
_CALLEES: Final = 2


@dataclass(frozen=True, slots=True)
class Loop:
    """What decides how often a loop runs.

    Attributes:
        condition: whether another iteration runs.
        next: the elements of the state that it depends on, after an iteration.
    """

    condition: Expression
    next: Mapping[Path, Expression]


@dataclass(slots=True)
class TripCounts:
    """Counts of the loops of one module, each found when it is asked for.

    The module must not change as long as this is used.

    Attributes:
        module: whose loops they are.
        given: counts by name of the loop, which go before what the module says.
    """

    module: Module
    given: Mapping[str, int] = field(default_factory=dict)
    _found: dict[Instruction, int | str] = field(default_factory=dict)
    _passed: dict[tuple[Computation, int, Path], int | None] = field(
        default_factory=dict
    )
    _callers: CallGraph | None = None
    _unknown: dict[str, None] = field(default_factory=dict)

    def of(self, loop: Instruction) -> int | None:
        """How often the body runs; None where nothing says it."""
        if loop.name in self.given:
            return self.given[loop.name]
        noted = known_trip_count(loop)
        return self.found(loop) if noted is None else noted

    def or_once(self, loop: Instruction) -> int:
        """How often the body runs; 1 where nothing says it, and `unknown` has it."""
        count = self.of(loop)
        if count is None:
            self._unknown[loop.name] = None
            return 1
        return count

    @property
    def unknown(self) -> tuple[str, ...]:
        """Names of the loops that were counted once because nothing says more."""
        return tuple(self._unknown)

    def found(self, loop: Instruction) -> int | None:
        """The count that follows from the program alone; None if none does."""
        answer = self._answer(loop)
        return answer if isinstance(answer, int) else None

    def why_unknown(self, loop: Instruction) -> str:
        """What nothing is known about: '%n (parameter)'; '' if the count is known."""
        answer = "" if self.of(loop) is not None else self._answer(loop)
        return answer if isinstance(answer, str) else ""

    def _answer(self, loop: Instruction) -> int | str:
        if loop not in self._found:
            try:
                self._found[loop] = self._iterations(loop)
            except NotKnownError as problem:
                self._found[loop] = str(problem)
            except RecursionError:
                self._found[loop] = "calls that are nested too deep"
        return self._found[loop]

    def _iterations(self, loop: Instruction) -> int:
        # Find the scalars that decide, and what each of them starts with.
        parts = loop_of(loop)
        first: dict[Path, int] = {}
        for path in parts.next:
            first[path] = self._start(loop, path, 0)
        # Solve it where everything grows by constants.
        evaluation = Evaluation([parts.condition, *parts.next.values()])
        solved = LinearLoop(first, parts.next, parts.condition).iterations()
        most = MOST_OPERATIONS // max(len(evaluation.nodes), 1)
        if solved is not None:
            most = solved[1]
        # Run what is not solved, and the iterations before the solution holds.
        ended = _run(parts, evaluation, first, most)
        if ended is not None:
            return ended
        if solved is not None:
            return solved[0]
        raise NotKnownError(f"no end within {most} iterations")

    # -- before the loop -----------------------------------------------------------

    def _start(self, loop: Instruction, path: Path, around: int) -> int:
        """The value of an element of the state before the first iteration."""
        return self._value(loop.computation, loop.operands[0], path, around)

    def _value(
        self, computation: Computation, node: Instruction, path: Path, around: int
    ) -> int:
        """The value of an element of an instruction, whenever its computation runs."""

        def parameter(inner: Instruction, path: Path) -> Expression:
            return State("", (inner.parameter_number, *path))

        expression = Scope(computation, parameter).of(node, path)
        evaluation = Evaluation([expression])
        state = {
            leaf.path: self._argument(computation, leaf.path[0], leaf.path[1:], around)
            for leaf in evaluation.nodes
            if isinstance(leaf, State)
        }
        return evaluation.run(state)[evaluation.places[id(expression)]]

    def _argument(
        self, computation: Computation, number: int, path: Path, around: int
    ) -> int:
        """The value of a parameter's element, the same at every call."""
        key = computation, number, path
        if key not in self._passed:
            # A call that leads back here is no answer.
            self._passed[key] = None
            self._passed[key] = self._common_argument(*key, around)
        found = self._passed[key]
        if found is None:
            raise NotKnownError(f"parameter {number} of %{computation.name}")
        return found

    def _common_argument(
        self, computation: Computation, number: int, path: Path, around: int
    ) -> int | None:
        if computation is self.module.entry or around >= _MOST_AROUND:
            return None
        if self._callers is None:
            self._callers = build_call_graph(self.module)
        callers = self._callers.callers_of(computation)
        if not 0 < len(callers) <= _MOST_CALLERS:
            return None
        found = {
            self._from_caller(caller, computation, number, path, around + 1)
            for caller in callers
        }
        return found.pop() if len(found) == 1 else None

    def _from_caller(
        self,
        caller: Instruction,
        computation: Computation,
        number: int,
        path: Path,
        around: int,
    ) -> int:
        """What one caller passes."""
        opcode, operands = caller.opcode, caller.operands
        if opcode == "while":
            # Every iteration has it only if the body hands it on.
            body = caller.called_computations[0]
            handed_on = state_scope(body).root(path)
            if not (isinstance(handed_on, State) and handed_on.path == path):
                raise NotKnownError(f"element {spelled(path)} of %{caller.name}")
        elif opcode == "conditional":
            callees = caller.called_computations
            if callees.count(computation) != 1:
                raise NotKnownError(f"%{caller.name} (conditional)")
            number = callees.index(computation) + 1
        elif opcode not in ("call", "fusion", "async-start"):
            raise NotKnownError(f"%{caller.name} ({opcode})")
        if number >= len(operands):
            raise NotKnownError(f"%{caller.name} ({opcode})")
        return self._value(caller.computation, operands[number], path, around)


def loop_of(loop: Instruction) -> Loop:
    """The condition of a loop, and the scalars that it depends on.

    Raises NotKnownError where something else than scalars decides.
    """
    callees = loop.called_computations
    if len(callees) != _CALLEES or not loop.operands:
        raise NotKnownError(f"%{loop.name} (while)")
    body, condition = map(state_scope, callees)
    decides = condition.root()
    if decides.type != "pred":
        raise NotKnownError("the condition")
    found: dict[Path, Expression] = {}
    waiting = _states([decides])
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        if len(found) >= _MOST_VARIABLES:
            raise NotKnownError("more scalars than are followed")
        found[path] = body.root(path)
        waiting += _states([found[path]])
    return Loop(decides, found)


def _states(expressions: list[Expression]) -> list[Path]:
    nodes = Evaluation(expressions).nodes
    return [node.path for node in nodes if isinstance(node, State)]


def _run(
    loop: Loop, evaluation: Evaluation, first: Mapping[Path, int], most: int
) -> int | None:
    """The iteration, of the first `most`, whose condition fails; None: a later one."""
    state = dict(first)
    condition = evaluation.places[id(loop.condition)]
    places = {path: evaluation.places[id(e)] for path, e in loop.next.items()}
    for iteration in range(most + 1):
        values = evaluation.run(state)
        if not values[condition]:
            return iteration
        following = {path: values[place] for path, place in places.items()}
        if following == state:
            raise NotKnownError("no end: an iteration changes nothing")
        state = following
    return None
