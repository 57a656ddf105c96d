"""Says which buffers are in memory registered for collectives, as XLA's colors do.

Before:  %c = f32[8]{0} copy(%p)
         %r = f32[8]{0} all-reduce(%c), ..., to_apply=%add
         ROOT %n = f32[8]{0} negate(%r)
After:   %c = f32[8]{0:S(7)} copy(%p)                 (XLA 0.10.2 and 0.11 write S(1))
         %r = f32[8]{0:S(7)} all-reduce(%c), ..., to_apply=%add
         ROOT %n = f32[8]{0} negate(%r)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from hlo_passes.errors import PipelineSpecError
from hlo_passes.ir.async_form import (
    is_collective,
    is_done,
    is_start,
    is_update,
    start_of,
    work_of,
    wrapped_instruction,
)
from hlo_passes.ir.gpu_config import collective_config
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.shapes import BITS, Shape, tuple_shape
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.scheduler.memory.buffer_colors import (
    Path,
    PlannedCopy,
    Wish,
    color,
    planned_copies,
)
from hlo_passes.scheduler.memory.buffer_sizes import memory_space, parts_of
from hlo_passes.scheduler.memory.buffers import Buffers, build_buffers
from hlo_passes.whole_numbers import whole_number

#: Collectives whose buffers can be registered.
_REGISTERED: Final = frozenset(
    """all-reduce all-gather reduce-scatter collective-permute all-to-all
    ragged-all-to-all""".split()
)
_RAGGED: Final = "ragged-all-to-all"
#: The operand that a ragged all-to-all writes into.
_RAGGED_OUTPUT: Final = 1
_SYMMETRIC: Final = "COLLECTIVES_SYMMETRIC_MEMORY"
#: What a filter calls all collectives, and two without room for an NCCL kernel.
_ALL: Final = "all"
_KINDS: Final = (_ALL, *sorted(_REGISTERED | {"collective-broadcast"}))
#: Custom calls of kernels written in Mosaic, and what their config says of multicast.
_MOSAIC: Final = frozenset({"mosaic_gpu", "mosaic_gpu_v2"})
_MULTICAST: Final = "multimem_parameters"
#: Frontend attributes of a custom call: `{0:1,2:1}`, number and memory space.
_OF_OPERANDS: Final = "operands_memory_spaces"
_OF_RESULTS: Final = "results_memory_spaces"
_SPACE: Final = re.compile(r"(\d+)\s*:\s*(\d+)")


@dataclass(frozen=True, slots=True)
class _Filter:
    """One entry of the filter: which collectives may use symmetric memory."""

    kind: str
    most_bytes: int | None
    element_type: str

    def takes(self, collective: Instruction) -> bool:
        shape = collective.shape
        if is_start(collective) and len(shape.elements) > 1:
            shape = shape.elements[1] if shape.is_tuple else shape
        operands = collective.operands
        return (
            self.kind in (_ALL, work_of(collective))
            and (self.most_bytes is None or shape.byte_size <= self.most_bytes)
            and (
                not self.element_type
                or (
                    bool(operands)
                    and operands[0].shape.element_type == self.element_type
                )
            )
        )


@dataclass(frozen=True, slots=True)
class GpuMemorySpaceAssignment(Pass):
    """Write the memory space of collectives' buffers into shapes, as XLA does.

    XLA has no pass of this name. Its buffer assignment gives every buffer a color. It
    writes the color into the shapes of the text that it prints last: 0 for device
    memory, 1 (7 from 0.12 on) for memory that was registered for collectives. A buffer
    is in registered memory if any value that shares it

    - is read or made by a collective that notes symmetric memory
      (`collective-backend-assigner`),
    - is read or made by an all-reduce, all-gather, reduce-scatter, collective-permute,
      all-to-all or ragged all-to-all for which user buffers or symmetric buffers are
      switched on,
    - is the output of a ragged all-to-all with a barrier by NCCL (the default from XLA
      0.11 on),
    - is read or made by a Mosaic kernel that multicasts, or
    - is one for which a custom call asks in `operands_memory_spaces` or
      `results_memory_spaces`.

    What a fusion does inside does not count.

    The caller's arguments, constants and results cannot be in registered memory. XLA
    copies them first, in the same place, and so does this pass.

    If two different spaces are asked for a buffer (host memory and registered memory),
    the pass leaves the buffer as it is, and a remark names who asks. XLA stops there.

    Requires: a scheduled module; otherwise copies have no place in an order.
    Ensures: a second run changes nothing.
    Complexity: linear in instructions and parts of shapes.
    Source: openxla/xla `xla/service/gpu/gpu_memory_space_assignment.cc`
    (DetermineBufferColor), `xla/service/gpu/gpu_compiler.cc`
    (GpuCollectiveBufferAnalysis), `xla/service/buffer_assignment.cc`.

    Attributes:
        enable_nccl_user_buffers: register the buffers of all collectives.
        enable_nccl_symmetric_buffers: register the buffers of all collectives,
            symmetrically.
        enable_nccl_symmetric_buffers_for_collectives: register the buffers of some
            collectives, symmetrically. Entries are separated by blanks. Each names a
            kind or `all`, the most bytes of its result, and the type of its operands,
            as in `all-reduce:8388608:f32`. From XLA 0.11 on.
        ragged_all_to_all_use_barrier_with_nccl: register what ragged all-to-alls write;
            none: as the release does.
        inserts_copies: copy arguments, constants and results first.
        xla: the release of XLA to follow; none: the release that the run follows.
    """

    name: ClassVar[str] = "gpu-memory-space-assignment"
    needs_collectives: ClassVar[bool] = False

    enable_nccl_user_buffers: bool = False
    enable_nccl_symmetric_buffers: bool = False
    enable_nccl_symmetric_buffers_for_collectives: tuple[str, ...] = ()
    ragged_all_to_all_use_barrier_with_nccl: bool | None = None
    inserts_copies: bool = True
    xla: str = ""

    def __post_init__(self) -> None:
        """Refuse filters that cannot be read (U013)."""
        self._filters()

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Copy what cannot be registered, then write the spaces."""
        release = context.release_for(module, self.xla)
        if self.ragged_all_to_all_use_barrier_with_nccl is None:
            by_release = release.ragged_barrier_is_by_nccl
            told = replace(self, ragged_all_to_all_use_barrier_with_nccl=by_release)
            return told.run(module, context, report)
        version = module.version
        space = release.collective_memory_space
        buffers = build_buffers(module)
        if self.inserts_copies:
            made = sum(
                _copy_parts(copy.instruction, copy.paths)
                for copy in self.planned_copies(buffers, space)
            )
            if made:
                report.count("copies-added", made)
                buffers = build_buffers(module)
        found = color(buffers, self.wishes(buffers, space))
        for conflict in found.conflicts:
            report.remark(f"not assigned: {conflict.text}")
        _write(buffers, found.spaces, report)
        return module.version != version

    # -- who asks ------------------------------------------------------------

    def wishes(self, buffers: Buffers, space: int) -> Iterator[Wish]:
        """What is asked for, in the order of the text.

        Args:
            buffers: of the module.
            space: the number of the memory that is registered.
        """
        flow = buffers.flow
        filters = self._filters()
        for n, instruction in enumerate(flow.reached.instructions):
            # A space that a shape has already counts where the value is made.
            start = flow.start[n]
            for k, part in enumerate(parts_of(instruction.shape).shapes):
                b = buffers.of_value.get(start + k)
                if b is not None and memory_space(part):
                    yield Wish(b, memory_space(part), instruction)
            for position, asked in self._asked(buffers, n, filters, space):
                for b in buffers.at(position):
                    yield Wish(b, asked, instruction)

    def _asked(
        self, buffers: Buffers, n: int, filters: tuple[_Filter, ...], space: int
    ) -> Iterator[tuple[int, int]]:
        """(position of an array, memory space) that an instruction asks for."""
        instruction = buffers.flow.reached.instructions[n]
        if instruction.opcode == "custom-call":
            yield from _asked_by_call(buffers, instruction, space)
        if self._registers(instruction, filters):
            for one in dict.fromkeys((instruction, *instruction.operands)):
                for position in array_positions(buffers, one):
                    yield position, space
        elif (
            self.ragged_all_to_all_use_barrier_with_nccl
            and work_of(instruction) == _RAGGED
        ):
            if not is_done(instruction) and not is_update(instruction):
                output = instruction.operands[_RAGGED_OUTPUT]
                for position in array_positions(buffers, output):
                    yield position, space
            if not is_start(instruction):
                for position in array_positions(buffers, instruction):
                    yield position, space

    def _registers(
        self, instruction: Instruction, filters: tuple[_Filter, ...]
    ) -> bool:
        """Whether it needs all its operands and results in registered memory."""
        if collective_config(instruction).get("collectives_mode") == _SYMMETRIC:
            return True
        if not is_collective(instruction) or is_update(instruction):
            return False
        if work_of(instruction) not in _REGISTERED:
            return False
        if self.enable_nccl_user_buffers or self.enable_nccl_symmetric_buffers:
            return True
        if not filters:
            return False
        collective = wrapped_instruction(start_of(instruction))
        return any(each.takes(collective) for each in filters)

    def _filters(self) -> tuple[_Filter, ...]:
        return tuple(
            self._filter(text)
            for text in self.enable_nccl_symmetric_buffers_for_collectives
        )

    def _filter(self, text: str) -> _Filter:
        kind, *rest = text.split(":")
        plain = {k.replace("-", ""): k for k in _KINDS} | {"allcollectives": _ALL}
        known = plain.get(kind.lower().replace("-", "").replace("_", ""))
        limit, element_type = (*rest, "", "")[:2]
        element_type = element_type.lower()
        if (
            known is None
            or len(rest) > 2
            or (limit and whole_number(limit) is None)
            or (element_type and element_type not in BITS)
        ):
            raise PipelineSpecError(
                f"{self.name}: cannot read the filter {text}",
                code="U013",
                hint=f"one of {', '.join(_KINDS)}, then :BYTES and :TYPE if wanted",
            )
        return _Filter(known, whole_number(limit), element_type)

    # -- copies --------------------------------------------------------------

    def planned_copies(self, buffers: Buffers, space: int) -> tuple[PlannedCopy, ...]:
        """Arguments, constants and results of buffers that will be registered."""
        flow, filters = buffers.flow, self._filters()
        wanted = {
            b
            for n in range(len(flow.reached.instructions))
            for position, asked in self._asked(buffers, n, filters, space)
            if asked == space
            for b in buffers.at(position)
        }
        return planned_copies(buffers, wanted)


def array_positions(buffers: Buffers, instruction: Instruction) -> Iterator[int]:
    """Positions of the arrays of a result; tables of pointers are left out."""
    flow = buffers.flow
    start = flow.start[flow.reached.number[instruction]]
    for k, is_table in enumerate(parts_of(instruction.shape).is_tuple):
        if not is_table:
            yield start + k


def _asked_by_call(
    buffers: Buffers, call: Instruction, space: int
) -> Iterator[tuple[int, int]]:
    """(position, memory space) that a custom call asks for."""
    flow = buffers.flow
    attributes = call.frontend_attributes
    for number, asked in _spaces(attributes.get(_OF_OPERANDS, "")):
        if number < len(call.operands):
            yield flow.position(call.operands[number], ()), asked
    for number, asked in _spaces(attributes.get(_OF_RESULTS, "")):
        path = (number,) if call.shape.is_tuple else ()
        if path in parts_of(call.shape).offsets and (path or number == 0):
            yield flow.position(call, path), asked
    target = call.attributes.get("custom_call_target", "").strip('"')
    if target in _MOSAIC and _MULTICAST in call.attributes.get("backend_config", ""):
        for one in dict.fromkeys((call, *call.operands)):
            for position in array_positions(buffers, one):
                yield position, space


def _spaces(text: str) -> Iterator[tuple[int, int]]:
    for match in _SPACE.finditer(text):
        operand, space = whole_number(match[1]), whole_number(match[2])
        if operand is not None and space:
            yield operand, space


def _write(buffers: Buffers, found: dict[int, int], report: Report) -> None:
    """Give every array of a buffer the space that was found for it."""
    flow = buffers.flow
    for n, instruction in enumerate(flow.reached.instructions):
        start = flow.start[n]
        spaces = [
            max((found.get(b, 0) for b in buffers.at(start + k)), default=0)
            for k in range(parts_of(instruction.shape).count)
        ]
        if not any(space > 0 for space in spaces):
            continue
        shape = _with_spaces(instruction.shape, iter(spaces))
        if shape != instruction.shape:
            instruction.computation.set_shape(instruction, shape)
            report.count("instructions-changed")


def _with_spaces(shape: Shape, spaces: Iterator[int]) -> Shape:
    """The shape with the memory space of each part, in pre-order."""
    space = next(spaces)
    if shape.is_tuple:
        return tuple_shape([_with_spaces(e, spaces) for e in shape.elements])
    if shape.layout is None or space <= 0:
        return shape
    return shape.with_layout(replace(shape.layout, memory_space=space))


def _copy_parts(instruction: Instruction, paths: frozenset[Path]) -> int:
    """Let all readers read a copy of some parts of an instruction, placed after it."""
    computation = instruction.computation
    readers = instruction.users
    was_root = instruction is computation.root
    last = instruction
    copies: list[Instruction] = []

    def after_last(
        opcode: str, shape: Shape, operands: tuple[Instruction, ...], **rest: str
    ) -> Instruction:
        nonlocal last
        last = computation.new(opcode, shape, operands, rest, after=last)
        return last

    def part_of(one: Instruction, path: Path) -> Instruction:
        if not one.shape.is_tuple:
            if path not in paths:
                return one
            copies.append(after_last("copy", one.shape, (one,)))
            return copies[-1]
        elements = [
            after_last("get-tuple-element", element, (one,), index=str(k))
            for k, element in enumerate(one.shape.elements)
        ]
        parts = tuple(part_of(e, (*path, k)) for k, e in enumerate(elements))
        return after_last("tuple", one.shape, parts)

    whole = part_of(instruction, ())
    for reader in readers:
        computation.replace_operand(reader, instruction, whole)
    if was_root:
        computation.set_root(whole)
    return len(copies)
