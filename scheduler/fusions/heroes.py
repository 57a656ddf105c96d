"""The instruction that decides which kernel a fusion becomes.

    root = f32[64,128] convert(%t)
    %t   = bf16[64,128] transpose(%p)     the hero: everything below is elementwise

Source: openxla/xla `codegen/ir_emission_utils.cc`, `gpu/ir_emission_utils.cc`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from hlo_passes.ir.instruction import Instruction
from hlo_passes.scheduler.fusions.fused_graph import (
    FusedGraph,
    is_elementwise,
    reshape_is_bitcast,
    transpose_is_bitcast,
)
from hlo_passes.scheduler.fusions.transpose import is_tiled_transpose

_MOST_OPERANDS: Final = 3
#: Matches that are kept: of more than one, none decides.
_MOST_MATCHES: Final = 2

_Matches = tuple[Instruction, ...]
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class _Behind:
    """What the operands of an instruction lead to, through intermediate ops.

    Attributes:
        bottom: the end of the way through ops of one operand.
        transposes: tiled ones, no more than two; itself if it is one.
        concatenates: likewise.
    """

    bottom: Instruction
    transposes: _Matches
    concatenates: _Matches


class Heroes:
    """The heroes of the results of one fusion.

    What is found for one result is kept for the others: all results together take as
    many steps as the fusion has edges.
    """

    def __init__(self, graph: FusedGraph) -> None:
        """Look at nothing yet."""
        self._graph = graph
        self._behind: dict[Instruction, _Behind] = {}
        #: Whether an instruction feeds only intermediate ops.
        self._feeds: dict[Instruction, bool] = {}

    def of(self, root: Instruction) -> Instruction:
        """The hero of a result; the result itself if there is none."""
        _settle(root, self._behind, self._sources, self._found_behind)
        hero = self._behind[root].bottom
        behind = self._behind[hero]
        # The only match that intermediate ops lead to, if all its users are such ops.
        for matches in (behind.transposes, behind.concatenates):
            if len(matches) == 1 and self._feeds_only_intermediates(matches[0]):
                return matches[0]
        return hero if hero.opcode == "reduce" else root

    def _sources(self, instruction: Instruction) -> list[Instruction]:
        if not is_intermediate(instruction, _MOST_OPERANDS):
            return []
        return [o for o in instruction.operands if self._graph.contains(o)]

    def _found_behind(
        self, instruction: Instruction, sources: list[Instruction]
    ) -> _Behind:
        behind = [self._behind[source] for source in sources]
        is_last = not behind or len(instruction.operands) > 1
        bottom = instruction if is_last else behind[0].bottom
        transposes = concatenates = (instruction,)
        if not is_tiled_transpose(instruction):
            transposes = _joined(each.transposes for each in behind)
        if instruction.opcode != "concatenate":
            concatenates = _joined(each.concatenates for each in behind)
        return _Behind(bottom, transposes, concatenates)

    def _feeds_only_intermediates(self, hero: Instruction) -> bool:
        users = self._graph.users

        def feeds(_: Instruction, read_by: Iterable[Instruction]) -> bool:
            return all(
                (user.opcode == "tuple" or is_intermediate(user, _MOST_OPERANDS))
                and self._feeds[user]
                for user in read_by
            )

        _settle(hero, self._feeds, users, feeds)
        return self._feeds[hero]


def is_intermediate(instruction: Instruction, most_operands: int) -> bool:
    """Whether it works element by element in place, without a new order in memory."""
    if not 1 <= len(instruction.operands) <= most_operands:
        return False
    opcode = instruction.opcode
    if opcode == "copy":
        return instruction.shape == instruction.operands[0].shape
    if is_elementwise(instruction) or opcode == "bitcast":
        return True
    if opcode == "reshape":
        return reshape_is_bitcast(instruction)
    return opcode == "transpose" and transpose_is_bitcast(instruction)


def _joined(found: Iterable[_Matches]) -> _Matches:
    """All of these matches, no more than two."""
    return tuple(dict.fromkeys(m for some in found for m in some))[:_MOST_MATCHES]


_Next = TypeVar("_Next", list[Instruction], tuple[Instruction, ...])


def _settle(
    start: Instruction,
    known: dict[Instruction, _Answer],
    leads_to: Callable[[Instruction], _Next],
    answer: Callable[[Instruction, _Next], _Answer],
) -> None:
    """Answer for an instruction, after all that it leads to, where nothing is known."""
    next_of: dict[Instruction, _Next] = {}
    stack = [start]
    while stack:
        instruction = stack[-1]
        if instruction in known:
            stack.pop()
        elif instruction in next_of:
            known[instruction] = answer(instruction, next_of.pop(instruction))
            stack.pop()
        else:
            next_of[instruction] = found = leads_to(instruction)
            stack += [each for each in found if each not in known]
