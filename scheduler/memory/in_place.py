"""Operands whose memory a result must reuse.

    u = f32[8] dynamic-update-slice(x, y, i)       u is where x was
    f = fusion(x, y), calls=%fused                 so is f, if the root of fused is
                                                   an in-place op on x's parameter

These are must-alias pairs only: `sharing` has what XLA may share but need not.

Source: openxla/xla `xla/hlo/analysis/alias_info.cc`, `xla/service/gpu/alias_info.cc`
(Aug 2026).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from hlo_passes.ir.async_form import half, start_of
from hlo_passes.ir.header_values import parse_output_aliasing
from hlo_passes.scheduler.memory.buffer_sizes import parts_of

if TYPE_CHECKING:
    from hlo_passes.ir.instruction import Instruction

Path = tuple[int, ...]

_ALIASING: Final = "output_to_operand_aliasing"

#: Instructions that may have pairs; all others have none.
IN_PLACE_OPCODES: Final = frozenset(
    """dynamic-update-slice scatter all-reduce-start set-dimension-size
    ragged-all-to-all collective-permute collective-permute-start custom-call fusion
    async-start async-update async-done""".split()
)

#: Ops that a trace through a fusion passes: they move no data on a GPU.
_NO_OPS: Final = frozenset({"bitcast", "reshape"})


class InPlacePair(NamedTuple):
    """Part `output_path` of the result is where a part of an operand was."""

    operand: int
    operand_path: Path
    output_path: Path


def in_place_pairs(instruction: Instruction) -> list[InPlacePair]:
    """The pairs of an instruction, in XLA's order."""
    opcode = instruction.opcode
    if opcode == "fusion":
        return [*_fusion_pairs(instruction), *_annotated(instruction)]
    if opcode in ("dynamic-update-slice", "set-dimension-size"):
        return [InPlacePair(0, (), ())]
    if opcode == "ragged-all-to-all":
        return [InPlacePair(1, (), ())]
    if opcode in ("scatter", "all-reduce-start"):
        count = len(instruction.operands)
        if opcode == "scatter":
            # operands, indices, updates
            count //= 2
        if count == 1:
            return [InPlacePair(0, (), ())]
        return [InPlacePair(k, (), (k,)) for k in range(count)]
    if opcode in ("collective-permute", "collective-permute-start"):
        return _permute_pairs(instruction)
    if opcode == "custom-call":
        return _annotated(instruction)
    if opcode.startswith("async-"):
        return _async_pairs(instruction)
    return []


def _annotated(instruction: Instruction) -> list[InPlacePair]:
    """The pairs that `output_to_operand_aliasing` states."""
    if not instruction.mentions(_ALIASING):
        return []
    text = instruction.attributes.get(_ALIASING)
    if text is None:
        return []
    return [
        InPlacePair(operand, path, output)
        for output, operand, path in parse_output_aliasing(text).aliases
    ]


def _permute_pairs(instruction: Instruction) -> list[InPlacePair]:
    """Pairs of an in-place permute, which writes into operand 1, a tuple by parts."""
    if "slice_sizes" not in instruction.attributes or len(instruction.operands) != 4:
        return []
    result: Path = (1,) if instruction.opcode == "collective-permute-start" else ()
    destination = instruction.operands[1].shape
    pairs = [InPlacePair(1, (), result)]
    if destination.is_tuple:
        pairs += [
            InPlacePair(1, (k,), (*result, k)) for k in range(len(destination.elements))
        ]
    return pairs


def _async_pairs(instruction: Instruction) -> list[InPlacePair]:
    """The annotated pairs of a start, for the operands that this step binds."""
    role = half(instruction)
    annotated = _annotated(start_of(instruction))
    offsets = parts_of(instruction.shape).offsets
    if role == "start":
        count = len(instruction.operands)
        return [p for p in annotated if p.operand < count and p.output_path in offsets]
    if role == "done":
        # The result at {1,...} of the chain belongs to the done.
        return [
            InPlacePair(0, (0, p.operand, *p.operand_path), p.output_path[1:])
            for p in annotated
            if p.output_path[:1] == (1,) and p.output_path[1:] in offsets
        ]
    bound_before = 0
    step = instruction.operands[0]
    while half(step) == "update":
        bound_before += len(step.operands) - 1
        step = step.operands[0]
    bound_before += len(step.operands)
    found = []
    for pair in annotated:
        operand = pair.operand - bound_before + 1
        if 0 < operand < len(instruction.operands) and pair.output_path in offsets:
            found.append(InPlacePair(operand, pair.operand_path, pair.output_path))
    return found


# -- inside fusions ---------------------------------------------------------


def _fusion_pairs(fusion: Instruction) -> list[InPlacePair]:
    """Pairs that the fused computation implies without annotations."""
    bodies = fusion.called_computations
    if not bodies:
        return []
    root = bodies[0].root
    if root.opcode not in _LEADS_ON:
        return []
    parts = parts_of(fusion.shape)
    leaves = [
        path
        for path, is_tuple in zip(parts.paths, parts.is_tuple, strict=True)
        if not is_tuple
    ]
    found = []
    for leaf in leaves:
        source, path = _trace(root, leaf)
        if source.opcode not in IN_PLACE_OPCODES:
            continue
        pairs = (
            _fusion_pairs(source)
            if source.opcode == "fusion"
            else in_place_pairs(source)
        )
        for pair in pairs:
            if pair.output_path != path:
                continue
            written, written_path = _trace_in_place(
                source.operands[pair.operand], pair.operand_path
            )
            if written.opcode == "parameter":
                found.append(InPlacePair(written.parameter_number, written_path, leaf))
    return found


#: Roots from which a trace may reach an in-place op.
_LEADS_ON: Final = IN_PLACE_OPCODES | _NO_OPS | {"tuple", "get-tuple-element"}


def _trace(instruction: Instruction, path: Path) -> tuple[Instruction, Path]:
    """Where a part comes from: through tuples, then elements, then no-ops."""
    while instruction.opcode == "tuple" and path:
        instruction, path = instruction.operands[path[0]], path[1:]
    while instruction.opcode == "get-tuple-element":
        instruction, path = (
            instruction.operands[0],
            (instruction.tuple_index, *path),
        )
    while not path and instruction.opcode in _NO_OPS:
        instruction = instruction.operands[0]
    return instruction, path


def _trace_in_place(instruction: Instruction, path: Path) -> tuple[Instruction, Path]:
    """Trace like `_trace`, and also through one nested fusion that works in place."""
    source, path = _trace(instruction, path)
    if source.opcode == "fusion":
        for pair in in_place_pairs(source):
            if source.opcode == "fusion" and pair.output_path == path:
                source, path = _trace(source.operands[pair.operand], pair.operand_path)
    return source, path
