"""Which parameter of the program a value is a copy of, or is an update of.

    %w = f32[64,8] parameter(3), metadata={op_name="params['up']"}
    %c = bf16[64,8] convert(%w)
    %g = bf16[64,64] all-gather(%c)            %g reads params['up']
    %r = f32[64,8] reduce-scatter(%gradient)
    ROOT %u = f32[64,8] subtract(%w, %r)       %r updates params['up']

A value reads a parameter if nothing but moves, conversions, slices and scaling by
scalars lie between them, through tuples, loops, calls, branches, fusions and
asynchronous operations. It updates the parameter whose buffer the step's result takes
(`input_output_alias`) if it becomes that result element by element; without an alias,
in a step that has a backward pass, the one that it meets element by element on its way
to a result. Of several (an optimizer keeps averages beside its weights) it is one that
an all-gather reads, then the one with the shortest name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hlo_passes.analysis.reachable_fold import ReachableFold
from hlo_passes.ir.async_form import start_of, work_of, wrapped_computation
from hlo_passes.ir.opcodes import facts
from hlo_passes.ir.tpu_calls import joins_parts
from hlo_passes.ir.windows import parse_slice

if TYPE_CHECKING:
    from hlo_passes.ir.computation import Computation
    from hlo_passes.ir.instruction import Instruction
    from hlo_passes.ir.module import Module

#: A value: an instruction, and the place in its result if that is a tuple. A place
#: that ends with `_PIECE, start, limit` is that stretch of a list of elements.
Value = tuple["Instruction", tuple[int, ...]]
_PIECE: Final = -1

#: Their first operand is the same data, moved.
_MOVES: Final = frozenset(
    "add-dependency bitcast copy domain dynamic-slice opt-barrier pad reshape reverse "
    "slice transpose".split()
)
#: With scalars for their other operands, they keep what the first one is.
_SCALES: Final = frozenset(
    "bitcast-convert clamp convert divide maximum minimum multiply negate "
    "reduce-precision round-nearest-afz round-nearest-even stochastic-convert".split()
)
#: Collectives whose result holds the operands' elements as they are.
_MOVING_COLLECTIVES: Final = frozenset(
    "all-gather all-to-all collective-broadcast collective-permute".split()
)
#: Their elements are the same wherever one looks.
_UNIFORM: Final = frozenset(("broadcast", "constant"))
#: Of longer concatenations no piece is followed: each meets all slices of the list.
_MOST_PIECES: Final = 32
#: How JAX names what belongs to a backward pass.
_BACKWARD: Final = "transpose("


@dataclass(frozen=True, slots=True)
class _Ways:
    """Where the ways back from a value end.

    Attributes:
        parameter: the entry's parameter at which some end.
        is_mixed: some end at another parameter, or at data made on the way.
    """

    parameter: Instruction | None = None
    is_mixed: bool = False


@dataclass(frozen=True, slots=True)
class _Onward:
    """What a value comes to on its way to results of the step.

    Attributes:
        is_result: it becomes one.
        aliased: the parameter whose buffer the result takes; the best of several.
        beside: a parameter that an elementwise operation combines it with; the best.
    """

    is_result: bool = False
    aliased: Instruction | None = None
    beside: Instruction | None = None


_PLAIN: Final = _Onward()


class ParameterPaths:
    """Answers about one module as it is now; all together are linear in its size."""

    def __init__(self, module: Module) -> None:
        """Nothing is looked at before the first question."""
        self._module = module
        self._backward = ReachableFold(self._look_back, _both_ways)
        self._forward = ReachableFold(self._look_on, self._join_onward)
        self._forward_beside = ReachableFold(self._look_beside, self._join_onward)
        self._ranks: dict[Instruction, tuple[bool, int, int]] = {}
        self._gathered: frozenset[Instruction] | None = None
        self._has_backward_pass: bool | None = None
        self._operand_positions: dict[Instruction, dict[Instruction, list[int]]] = {}
        self._users: dict[Instruction, dict[int | None, list[Instruction]]] = {}
        self._aliased: dict[tuple[int, ...], int] | None = None
        self._parameters: dict[Computation, Sequence[Instruction]] = {}

    def read(self, value: Instruction) -> Instruction | None:
        """The entry's parameter that a value is a copy of; None for anything else."""
        ways = self._backward.of((value, ()))
        return None if ways.is_mixed else ways.parameter

    def updated(
        self, result: Instruction, place: tuple[int, ...] = ()
    ) -> Instruction | None:
        """The entry's parameter that a value updates; `place` is of its tuple."""
        onward = self._forward.of((result, place))
        if onward.is_result and onward.aliased is None and self._is_training():
            return self._forward_beside.of((result, place)).beside
        return onward.aliased

    def pieces(self, value: Instruction) -> list[tuple[int, ...]]:
        """The places of the lists that a list joins one after the other; [] for none.

        This is how XLA combines all-reduces into one of a single array.
        """
        callee = next(iter(_inside(value)), None)
        joined = value if callee is None else callee.root
        places = (_place_of_piece(joined, k) for k in range(len(joined.operands)))
        return [place for place in places if place]

    # -- from a value back to a parameter ------------------------------------------

    def _look_back(self, value: Value) -> tuple[_Ways, list[Value]]:
        instruction = value[0]
        if instruction.opcode == "parameter" and instruction.computation.is_entry:
            return _Ways(instruction), []
        before = self._before(*value)
        return _Ways(is_mixed=not before), before

    def _before(self, value: Instruction, place: tuple[int, ...]) -> list[Value]:
        """Where the data of a value was just before; nothing if it is new data."""
        opcode, operands = value.opcode, value.operands
        if opcode == "parameter":
            return self._given(value, place)
        if opcode == "get-tuple-element":
            return [(operands[0], (value.tuple_index, *place))]
        if opcode == "tuple":
            return [(operands[place[0]], place[1:])] if place else []
        if opcode == "while":
            body = value.called_computations[0]
            return [(operands[0], place), (body.root, place)]
        row = facts(opcode)
        if row.half == "done" and row.spelling != "transfer":
            return [(start_of(value), place)] if start_of(value) is not value else []
        if inside := _inside(value):
            return [(callee.root, place) for callee in inside]
        work = work_of(value)
        if work in _MOVING_COLLECTIVES:
            if len(operands) == 1:
                return [(operands[0], ())]
            return [(operands[place[0]], place[1:])] if place else []
        if work in _MOVES:
            return [(operands[0], place)]
        if work in _SCALES:
            whole = [o for o in operands if o.opcode not in _UNIFORM]
            return [(whole[0], ())] if len(whole) == 1 else []
        if joins_parts(value):
            return [(part, ()) for part in operands]
        return []

    def _given(self, parameter: Instruction, place: tuple[int, ...]) -> list[Value]:
        """What callers give to a parameter."""
        computation = parameter.computation
        found: list[Value] = []
        for caller in self._module.callers(computation):
            if caller.opcode == "while":
                body = caller.called_computations[0]
                found += [(caller.operands[0], place), (body.root, place)]
                continue
            inside = _inside(caller)
            if computation not in inside:
                return []  # it is applied to elements
            first = parameter.parameter_number
            if caller.opcode == "conditional":
                branches = [k for k, c in enumerate(inside, 1) if c is computation]
                found += [(caller.operands[k], place) for k in branches]
            else:
                found.append((caller.operands[first], place))
        return found

    # -- from a value on to results ------------------------------------------------

    def _look_on(self, value: Value) -> tuple[_Onward, list[Value]]:
        instruction, place = value
        computation = instruction.computation
        onward = _PLAIN
        after: list[Value] = []
        if computation.root is instruction:
            if computation.is_entry:
                onward = _Onward(is_result=True, aliased=self._aliased_with(place))
            after += self._returned(computation, place)
        for user in self._users_of(instruction, place):
            for k in self._positions(user, instruction):
                after += self._after(user, k, place)
        return onward, after

    def _look_beside(self, value: Value) -> tuple[_Onward, list[Value]]:
        """The same, with the parameters that meet the value element by element."""
        onward, after = self._look_on(value)
        instruction, place = value
        for user in self._users_of(instruction, place):
            for k in self._positions(user, instruction):
                for parameter in self._beside(user, k):
                    onward = self._join_onward(onward, _Onward(beside=parameter))
        return onward, after

    def _join_onward(self, one: _Onward, other: _Onward) -> _Onward:
        if one is other or other is _PLAIN:
            return one
        if one is _PLAIN:
            return other
        return _Onward(
            one.is_result or other.is_result,
            self._better(one.aliased, other.aliased),
            self._better(one.beside, other.beside),
        )

    def _better(
        self, one: Instruction | None, other: Instruction | None
    ) -> Instruction | None:
        """The parameter to name: one that is gathered, with the shortest name."""
        if one is None or other is None or one is other:
            return one or other
        return min(one, other, key=self._rank)

    def _rank(self, parameter: Instruction) -> tuple[bool, int, int]:
        """The smaller, the better a parameter is to be named."""
        rank = self._ranks.get(parameter)
        if rank is None:
            is_gathered = parameter in self._gathered_parameters()
            length = len(parameter.metadata.op_name)
            rank = (not is_gathered, length, parameter.parameter_number)
            self._ranks[parameter] = rank
        return rank

    def _users_of(
        self, instruction: Instruction, place: tuple[int, ...]
    ) -> Iterator[Instruction]:
        """The users that see a place of a result; large tuples are asked often."""
        sorted_users = self._users.get(instruction)
        if sorted_users is None:
            sorted_users = self._users[instruction] = {}
            for user in instruction.users:
                is_element = user.opcode == "get-tuple-element"
                index = user.tuple_index if is_element else None
                sorted_users.setdefault(index, []).append(user)
        yield from sorted_users.get(None, ())
        if place:
            yield from sorted_users.get(place[0], ())

    def _aliased_with(self, output: tuple[int, ...]) -> Instruction | None:
        """The parameter whose buffer a result of the step takes."""
        numbers = self._aliases()
        found: Instruction | None = None
        for length in range(len(output) + 1):
            if output[:length] in numbers:
                number = numbers[output[:length]]
                parameter = self._parameter(self._module.entry, number)
                found = self._better(found, parameter)
        return found

    def _positions(self, user: Instruction, operand: Instruction) -> list[int]:
        """At which positions a user has an operand; large tuples are asked often."""
        found = self._operand_positions.get(user)
        if found is None:
            found = self._operand_positions[user] = {}
            for k, each in enumerate(user.operands):
                found.setdefault(each, []).append(k)
        return found[operand]

    def _aliases(self) -> dict[tuple[int, ...], int]:
        """Parameters whose buffers the step's results take, by place in the result."""
        if self._aliased is None:
            found = self._module.input_output_aliases
            self._aliased = {alias.output: alias.parameter for alias in found}
        return self._aliased

    def _parameter(self, computation: Computation, number: int) -> Instruction:
        """A parameter by number; a computation is asked once for its list."""
        if computation not in self._parameters:
            self._parameters[computation] = computation.parameters
        return self._parameters[computation][number]

    def _returned(
        self, computation: Computation, place: tuple[int, ...]
    ) -> Iterator[Value]:
        """The results of callers that a computation's result becomes."""
        for caller in self._module.callers(computation):
            is_body = (
                caller.opcode == "while"
                and computation is caller.called_computations[0]
            )
            if is_body or computation in _inside(caller):
                yield caller, place

    def _after(
        self, user: Instruction, k: int, place: tuple[int, ...]
    ) -> Iterator[Value]:
        """Where the data of operand `k` is after its user."""
        opcode = user.opcode
        if opcode == "get-tuple-element":
            if place[:1] == (user.tuple_index,):
                yield user, place[1:]
            return
        if opcode == "tuple":
            yield user, (k, *place)
            return
        if opcode == "while":
            yield self._parameter(user.called_computations[0], 0), place
            return
        row = facts(opcode)
        if row.half == "done":
            yield user, place
            return
        if inside := _inside(user):
            for number, callee in enumerate(inside, 1):
                if opcode != "conditional":
                    yield self._parameter(callee, k), place
                elif number == k:
                    yield self._parameter(callee, 0), place
            return
        work = work_of(user)
        if _PIECE in place:
            yield from _after_piece(user, work, place)
        elif joined := _place_of_piece(user, k):
            yield user, joined
        elif facts(work).is_collective:
            yield user, (k,) if len(user.operands) > 1 else ()
        elif (work in _MOVES and k == 0) or (work == "dynamic-update-slice" and k < 2):
            yield user, place
        elif facts(work).is_elementwise:
            yield user, ()

    def _beside(self, user: Instruction, k: int) -> set[Instruction]:
        """Parameters that an elementwise operation combines with operand `k`."""
        if not facts(user.opcode).is_elementwise:
            return set()
        others = (o for j, o in enumerate(user.operands) if j != k)
        found = {self.read(o) for o in others if o.opcode not in _UNIFORM}
        return {parameter for parameter in found if parameter is not None}

    def _gathered_parameters(self) -> frozenset[Instruction]:
        """The parameters that all-gathers read."""
        if self._gathered is None:
            found = {
                self.read(operand)
                for computation in self._module.computations
                for instruction in computation.instructions
                if instruction.opcode in ("all-gather", "all-gather-start")
                for operand in instruction.operands
            }
            self._gathered = frozenset(p for p in found if p is not None)
        return self._gathered

    def _is_training(self) -> bool:
        """Whether any instruction belongs to a backward pass."""
        if self._has_backward_pass is None:
            self._has_backward_pass = any(
                instruction.mentions(_BACKWARD)
                for computation in self._module.computations
                for instruction in computation.instructions
            )
        return self._has_backward_pass


def _both_ways(one: _Ways, other: _Ways) -> _Ways:
    """The ways of two values taken together."""
    if one == other:
        return one
    differ = None not in (one.parameter, other.parameter) and (
        one.parameter is not other.parameter
    )
    return _Ways(
        one.parameter or other.parameter, one.is_mixed or other.is_mixed or differ
    )


def _place_of_piece(joined: Instruction, k: int) -> tuple[int, ...]:
    """Where operand `k` of a concatenation of lists is in it; () for anything else."""
    is_list = joined.opcode == "concatenate" and len(joined.shape.dimensions) == 1
    if not is_list or len(joined.operands) > _MOST_PIECES:
        return ()
    sizes = [operand.shape.dimensions[0] for operand in joined.operands[: k + 1]]
    return _PIECE, sum(sizes[:k]), sum(sizes)


def _after_piece(
    user: Instruction, work: str, place: tuple[int, ...]
) -> Iterator[Value]:
    """Where a stretch of a list is after its user: whole, or cut out exactly."""
    if work == "slice":
        ranges = parse_slice(user.attributes.get("slice", "{}")).dimensions
        if ranges == ((*place[1:], 1),):
            yield user, ()
        return
    is_list = len(user.shape.dimensions) == 1
    if work == "all-reduce" or (
        is_list and (facts(work).is_elementwise or work in ("bitcast", "copy"))
    ):
        yield user, place


def _inside(caller: Instruction) -> tuple[Computation, ...]:
    """The computations whose parameters are the caller's operands, in order.

    Those of a conditional have one parameter each, the operand after the index.
    """
    row = facts(caller.opcode)
    if row.calls == "control-flow" and caller.opcode != "while":
        return caller.called_computations
    if row.calls in ("fused", "async"):
        wrapped = wrapped_computation(caller)
        return caller.called_computations[:1] if wrapped is None else (wrapped,)
    return ()
