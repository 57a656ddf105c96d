"""Planted faults: a legal schedule, one thing wrong in it, and proof that it is wrong.

Every mutator gives a `Mutant` (or None where the module has no place for such a fault):
the module in its mutated state, the code that the checker must report, and a `proof`
that judges the text alone, by `plain_reading`. `undo` brings the module back.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from hlo_passes.ir.async_form import work_of
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from tests.scheduler.checker import plain_reading as plain


@dataclass(frozen=True, slots=True)
class Mutant:
    """A module with a fault in it.

    Attributes:
        code: what the checker must say.
        proof: whether the fault is real, from the text before and after.
        undo: bring the module back into its old state.
        options: of the checker.
        compare: whether the checker is given the module as it was.
    """

    code: str
    proof: Callable[[str, str], bool]
    undo: Callable[[], None]
    options: dict[str, object] = field(default_factory=dict)
    compare: bool = False


Mutator = Callable[[random.Random, Module], Mutant | None]
_TRIES = 60


def _scheduled(module: Module) -> list[Computation]:
    """The entry, and what runs by itself: no bodies of fusions and reductions."""
    bodies = {
        callee
        for c in module.computations
        for i in c.instructions
        if i.opcode not in ("while", "conditional", "call")
        for callee in i.called_computations
    }
    return [c for c in module.computations if c not in bodies]


def _pick(draw: random.Random, module: Module) -> Computation:
    computations = [c for c in _scheduled(module) if len(c.instructions) > 3]
    weights = [len(c.instructions) for c in computations]
    return draw.choices(computations, weights)[0]


def _reorder(computation: Computation, order: list[Instruction]) -> Callable[[], None]:
    old = computation.instructions
    computation.set_order(order)
    return lambda: computation.set_order(old)


def _moved(
    computation: Computation, instruction: Instruction, before: Instruction
) -> list[Instruction]:
    rest = [i for i in computation.instructions if i is not instruction]
    rest.insert(rest.index(before), instruction)
    return rest


def _in(text: str, computation: Computation) -> list[plain.Line]:
    return plain.read(text)[computation.name]


Proof = Callable[[str, str], bool]


def _late_operand(computation: Computation, pair: tuple[str, str]) -> Proof:
    """(user, operand) are in the wrong order."""
    return lambda _, after: pair in plain.late_operands(_in(after, computation))


def _late_control(computation: Computation, pair: tuple[str, str]) -> Proof:
    """(successor, predecessor) do, and neither reads the other."""
    return lambda _, after: (
        pair in plain.late_controls(_in(after, computation))
        and pair not in plain.late_operands(_in(after, computation))
    )


def _more_in_flight(computation: Computation, wrapped: set[str], limit: int) -> Proof:
    """More than `limit` are, and the order is right otherwise."""
    return lambda _, after: (
        plain.most_in_flight(_in(after, computation), wrapped) > limit
        and not plain.late_operands(_in(after, computation))
    )


def _other_count(computation: Computation) -> Proof:
    """The computation has not as many instructions as before."""
    return lambda before, after: (
        len(_in(after, computation)) != len(_in(before, computation))
    )


def _other_line(computation: Computation, name: str) -> Proof:
    """The instruction reads otherwise than before."""

    def differs(before: str, after: str) -> bool:
        one, other = (
            [x.text for x in _in(t, computation) if x.name == name]
            for t in (before, after)
        )
        return one != other

    return differs


def _grouped(computation: Computation, at: int) -> Proof:
    """Of three lines the first and last are of a group, that between is not."""
    return lambda _, after: (
        [
            "_scheduling_group_id" in line.text
            for line in _in(after, computation)[at : at + 3]
        ]
        == [True, False, True]
    )


def user_before_operand(draw: random.Random, module: Module) -> Mutant | None:
    """C010: an instruction moves before something that it reads."""
    for _ in range(_TRIES):
        computation = _pick(draw, module)
        user = draw.choice(computation.instructions)
        if not user.operands or user.opcode.endswith("-done"):
            continue
        operand = draw.choice(user.operands)
        undo = _reorder(computation, _moved(computation, user, operand))
        pair = (user.name, operand.name)
        return Mutant(
            "C010",
            _late_operand(computation, pair),
            undo,
        )
    return None


def broken_control_edge(draw: random.Random, module: Module) -> Mutant | None:
    """C011: two neighbors that nothing orders get a control edge, and change places."""
    for _ in range(_TRIES):
        computation = _pick(draw, module)
        at = draw.randrange(len(computation.instructions) - 1)
        first, second = computation.instructions[at : at + 2]
        if first in (*second.operands, *second.control_predecessors):
            continue
        computation.add_control_edge(first, second)
        back = _reorder(computation, _moved(computation, second, first))

        def undo(a=first, b=second, back=back, computation=computation) -> None:
            back()
            computation.remove_control_edge(a, b)

        pair = (second.name, first.name)
        return Mutant(
            "C011",
            _late_control(computation, pair),
            undo,
        )
    return None


def done_before_start(draw: random.Random, module: Module) -> Mutant | None:
    """C020: a done moves before its start."""
    dones = [
        i
        for c in _scheduled(module)
        for i in c.instructions
        if i.opcode.endswith("-done") and i.operands[0].opcode.endswith("-start")
    ]
    if not dones:
        return None
    done = draw.choice(dones)
    computation, start = done.computation, done.operands[0]
    undo = _reorder(computation, _moved(computation, done, start))
    pair = (done.name, start.name)
    return Mutant(
        "C020",
        _late_operand(computation, pair),
        undo,
    )


def start_without_end(draw: random.Random, module: Module) -> Mutant | None:
    """C021: a start is there once more, and nothing ends it."""
    starts = [
        i
        for c in _scheduled(module)
        for i in c.instructions
        if i.opcode.endswith("-start") and not i.opcode.startswith("async")
    ]
    if not starts:
        return None
    start = draw.choice(starts)
    computation = start.computation
    fresh = computation.new(
        start.opcode, start.shape, start.operands, start.attributes, after=start
    )
    name = fresh.name

    def unended(_: str, after: str) -> bool:
        lines = _in(after, computation)
        return not any(name in line.operands for line in lines)

    return Mutant("C021", unended, lambda: computation.remove(fresh))


def _wrapped(computation: Computation) -> set[str]:
    """Names of generic halves around collectives."""
    found = set()
    for i in computation.instructions:
        if i.opcode in ("async-start", "async-done") and (
            work_of(i) in ("reduce-scatter", "all-to-all")
        ):
            found.add(i.name)
    return found


def too_much_in_flight(draw: random.Random, module: Module) -> Mutant | None:
    """C030: a start moves before the done that preceded it."""
    for computation in draw.sample(_scheduled(module), len(_scheduled(module))):
        wrapped = _wrapped(computation)
        collectives = [
            (k, i)
            for k, i in enumerate(computation.instructions)
            if plain._COLLECTIVE.fullmatch(i.opcode) or i.name in wrapped
        ]
        at = {i: k for k, i in enumerate(computation.instructions)}
        places = []
        for (_, done), (_, start) in itertools.pairwise(collectives):
            needed = (*start.operands, *start.control_predecessors)
            if (
                done.opcode.endswith("-done")
                and start.opcode.endswith("-start")
                and all(at[n] < at[done] for n in needed)
            ):
                places.append((done, start))
        if not places:
            continue
        done, start = draw.choice(places)
        limit = plain.most_in_flight(_in(module.to_text(), computation), wrapped)
        undo = _reorder(computation, _moved(computation, start, done))
        return Mutant(
            "C030",
            _more_in_flight(computation, wrapped, limit),
            undo,
            {"parallel_collective_overlap_limit": max(1, limit)},
        )
    return None


def lost_or_new_instruction(draw: random.Random, module: Module) -> Mutant | None:
    """C002: there is one instruction more than before."""
    for _ in range(_TRIES):
        computation = _pick(draw, module)
        source = draw.choice(computation.instructions)
        if not source.shape.is_array:
            continue
        fresh = computation.new("copy", source.shape, [source], after=source)
        undo = partial(computation.remove, fresh)
        return Mutant("C002", _other_count(computation), undo, compare=True)
    return None


def changed_instruction(draw: random.Random, module: Module) -> Mutant | None:
    """C003: an attribute, the operands or the control edges are others than before."""
    for _ in range(_TRIES):
        computation = _pick(draw, module)
        victim = draw.choice(computation.instructions)
        change = draw.choice([_other_channel, _other_operands, _new_control])
        undo = change(computation, victim)
        if undo is not None:
            proof = _other_line(computation, victim.name)
            return Mutant("C003", proof, undo, compare=True)
    return None


def _other_channel(
    computation: Computation, victim: Instruction
) -> Callable[[], None] | None:
    old = victim.attributes.get("channel_id")
    if old is None:
        return None
    victim.set_attribute("channel_id", str(int(old) + 1))
    return partial(victim.set_attribute, "channel_id", old)


def _other_operands(
    computation: Computation, victim: Instruction
) -> Callable[[], None] | None:
    operands = victim.operands
    if len(operands) < 2 or operands[0] is operands[1]:
        return None
    computation.set_operands(victim, (operands[1], operands[0], *operands[2:]))
    return partial(computation.set_operands, victim, operands)


def _new_control(
    computation: Computation, victim: Instruction
) -> Callable[[], None] | None:
    earlier = computation.instructions[0]
    if earlier is victim or earlier in victim.control_predecessors:
        return None
    computation.add_control_edge(earlier, victim)
    return partial(computation.remove_control_edge, earlier, victim)


def stranger_in_group(draw: random.Random, module: Module) -> Mutant | None:
    """C070: two neighbors become a scheduling group, and a third goes between."""
    for _ in range(_TRIES):
        computation = _pick(draw, module)
        if len(computation.instructions) < 4:
            continue
        at = draw.randrange(len(computation.instructions) - 2)
        three = computation.instructions[at : at + 3]
        if any(
            i.opcode not in ("fusion", "custom-call", "copy", "add", "dot")
            and not i.opcode.endswith(("-start", "-done"))
            for i in three
        ):
            continue
        members = (three[0], three[2])
        old = [m.attributes.get("frontend_attributes") for m in members]
        for member in members:
            member.set_attribute("frontend_attributes", '{_scheduling_group_id="7"}')

        def undo(members=members, old=old) -> None:
            for member, text in zip(members, old, strict=True):
                member.set_attribute("frontend_attributes", text)

        return Mutant(
            "C070",
            _grouped(computation, at),
            undo,
            {"scheduling_groups": True},
        )
    return None


def without_schedule(draw: random.Random, module: Module) -> Mutant | None:
    """C001: the header no longer says that there is a schedule."""
    module.set_attribute("is_scheduled", None)
    return Mutant(
        "C001",
        lambda _, after: "is_scheduled" not in after.split("\n", 1)[0],
        lambda: module.set_attribute("is_scheduled", "true"),
    )


#: Faults of any scheduled module.
MUTATORS: dict[str, Mutator] = {
    function.__name__.replace("_", "-"): function
    for function in (
        without_schedule,
        lost_or_new_instruction,
        changed_instruction,
        user_before_operand,
        broken_control_edge,
        done_before_start,
        start_without_end,
        too_much_in_flight,
        stranger_in_group,
    )
}


def legal_neighbors(draw: random.Random, module: Module) -> Callable[[], None] | None:
    """Swap two neighbors that nothing orders; None where there are none.

    Halves of asynchronous operations stay where they are, so no limit is concerned.
    """
    for _ in range(_TRIES):
        computation = _pick(draw, module)
        at = draw.randrange(len(computation.instructions) - 1)
        first, second = computation.instructions[at : at + 2]
        if first in (*second.operands, *second.control_predecessors):
            continue
        if any(i.opcode.endswith(("-start", "-done")) for i in (first, second)):
            continue
        return _reorder(computation, _moved(computation, second, first))
    return None
