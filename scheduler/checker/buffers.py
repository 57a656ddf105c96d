"""Which parts of results are one value, and which values share one buffer.

    %t = (f32[8], f32[8]) tuple(%a, %b)          {0} is the value of %a
    %w = while(%t), body=%body                   its elements share the initial
                                                 values' buffers, and the body's
    %u = f32[8] dynamic-update-slice(%a, ...)    a new value in %a's buffer

A place is one node of one instruction's shape; here it is a number. There are two
forests of numbers: places joined in the first hold one value (it is forwarded from one
to the other), and places joined in the second also share one buffer (loops, branches,
updates in place, parameters returned as results).

It doubles `memory/buffers.py` on purpose: a judge that shares code with what it judges
shares its mistakes.

Source: openxla/xla `hlo_dataflow_analysis.cc`, `hlo_alias_analysis.cc`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final

from hlo_passes.ir.async_form import half, is_done, is_start, is_update, start_of
from hlo_passes.ir.calls import runs_callees
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.opcodes import facts
from hlo_passes.ir.shapes import Shape
from hlo_passes.scheduler.checker.in_place import Path, in_place_pairs

_FORWARDS_OPERAND: Final = frozenset(
    {"bitcast", "opt-barrier", "add-dependency", "domain"}
)
_POINTER_BYTES: Final = 8
_DYNAMIC_DIMENSION_BYTES: Final = 4
#: Threads whose computations run on the device; host code has its own memory.
_DEVICE_THREADS: Final = frozenset({"main", "parallel"})


def _has_counted_callees(caller: Instruction) -> bool:
    """Whether the memory of its callees counts; a fusion's body is its own affair."""
    calls = facts(caller.opcode).calls
    return calls in ("control-flow", "embedded") or caller.opcode == "async-start"


def device_callees(caller: Instruction) -> list[Computation]:
    """The computations that an instruction runs in the memory of the device."""
    if not _has_counted_callees(caller):
        return []
    return [
        callee
        for callee in caller.called_computations
        if callee.execution_thread in _DEVICE_THREADS
    ]


def nodes(shape: Shape) -> list[Shape]:
    """All nodes of a shape; a tuple comes before its elements."""
    if not shape.is_tuple:
        return [shape]
    found = [shape]
    for element in shape.elements:
        found += nodes(element)
    return found


class Layouts:
    """Numbers of the nodes of shapes; what is known of a tuple is kept."""

    def __init__(self) -> None:
        """Know nothing. Shapes are known by identity, so they are kept, too."""
        self._known: dict[int, tuple[Shape, list[int]]] = {}

    def _ends(self, shape: Shape) -> list[int]:
        """Of a tuple, the number of the node after each element; 1 comes first."""
        known = self._known.get(id(shape))
        if known is None:
            counts = map(self.node_count, shape.elements)
            known = (shape, list(accumulate(counts, initial=1)))
            self._known[id(shape)] = known
        return known[1]

    def node_count(self, shape: Shape) -> int:
        """Number of nodes of a shape."""
        return self._ends(shape)[-1] if shape.is_tuple else 1

    def node_at(self, shape: Shape, path: Path) -> int:
        """The number of the node at an index path among all nodes."""
        at = 0
        for k in path:
            at += self._ends(shape)[k]
            shape = shape.elements[k]
        return at

    def fits(self, shape: Shape, path: Path, part: Shape | None = None) -> bool:
        """Whether there is a node at a path, with the same form as `part`."""
        for k in path:
            if not shape.is_tuple or k >= len(shape.elements):
                return False
            shape = shape.elements[k]
        return part is None or self.node_count(shape) == self.node_count(part)


class _Forest:
    """Disjoint sets of numbers; the smallest number represents its set."""

    def __init__(self, parents: list[int]) -> None:
        self.parents = parents

    def find(self, number: int) -> int:
        parents = self.parents
        while parents[number] != number:
            parents[number] = parents[parents[number]]
            number = parents[number]
        return number

    def join(self, one: int, other: int) -> None:
        one, other = self.find(one), self.find(other)
        if one != other:
            self.parents[max(one, other)] = min(one, other)


class Buffers:
    """Values and buffers of the computations that run in the program's memory."""

    def __init__(self, module: Module) -> None:
        """Walk the computations reachable from the entry, callers first."""
        self.module = module
        self.computations = dict.fromkeys(_reachable(module))
        self._layouts = Layouts()
        self.first: dict[Instruction, int] = {}
        self._shapes: list[Shape] = []
        for computation in self.computations:
            for instruction in computation.instructions:
                self.first[instruction] = len(self._shapes)
                self._shapes += nodes(instruction.shape)
        self._values = _Forest(list(range(len(self._shapes))))
        self._shared: list[tuple[int, int]] = []
        self._carried: list[tuple[int, int, int]] = []
        self._without_table: list[int] = []
        for computation in self.computations:
            for instruction in computation.instructions:
                self._read(instruction)
        self._settle_loops()
        self._read_header()
        joined = _Forest(list(self._values.parents))
        for one, other in self._shared:
            joined.join(one, other)
        self.value_of = [self._values.find(k) for k in range(len(self._shapes))]
        self.buffer_of = [joined.find(k) for k in range(len(self._shapes))]
        self._sizes = {self.buffer_of[k]: 0 for k in self._without_table}

    def places(self, instruction: Instruction) -> range:
        """Numbers of the places of a result; the first is the whole."""
        first = self.first[instruction]
        return range(first, first + self._layouts.node_count(instruction.shape))

    def size_bytes(self, buffer: int) -> int:
        """Bytes of a buffer, those of its first place; 0 in other memory spaces."""
        known = self._sizes.get(buffer)
        if known is None:
            known = self._sizes[buffer] = _bytes(self._shapes[buffer])
        return known

    # -- reading ----------------------------------------------------------------

    def _read(self, instruction: Instruction) -> None:
        opcode = instruction.opcode
        operands = instruction.operands
        if opcode in _FORWARDS_OPERAND:
            self._forward(instruction, (), operands[0], ())
        elif opcode == "get-tuple-element":
            self._forward(instruction, (), operands[0], (instruction.tuple_index,))
        elif opcode == "tuple":
            for k, operand in enumerate(operands):
                self._forward(instruction, (k,), operand, ())
        elif opcode == "copy":
            for k in range(len(instruction.shape.elements)):
                self._forward(instruction, (k,), operands[0], (k,))
        elif runs_callees(instruction) and not self._owns_callees(instruction):
            pass  # a body with several callers has its own memory
        elif opcode == "while":
            self._read_loop(instruction)
        elif opcode == "conditional":
            for number, branch in enumerate(instruction.called_computations):
                self._bind(branch, operands[number + 1 : number + 2])
                self._share(instruction, (), branch.root, ())
        elif opcode == "call":
            (callee, *_) = instruction.called_computations
            self._bind(callee, operands)
            self._forward(instruction, (), callee.root, ())
        elif half(instruction):
            self._read_half(instruction)
        if opcode == "async-start":
            return  # a later step may name what it writes in place
        for operand, source, target in in_place_pairs(instruction):
            self._share(instruction, target, operands[operand], source)

    def _read_loop(self, loop: Instruction) -> None:
        """Let the carried value be new, unless the body passes it on unchanged."""
        body, condition = loop.called_computations
        at, start = self.first[loop], self.first[loop.operands[0]]
        carried, root = self.first[body.parameters[0]], self.first[body.root]
        tested = self.first[condition.parameters[0]]
        for k in range(self._layouts.node_count(loop.shape)):
            self._values.join(at + k, carried + k)
            self._values.join(at + k, tested + k)
            self._carried.append((at + k, start + k, root + k))

    def _settle_loops(self) -> None:
        """Let a carried value be its initial one if the body changes nothing."""
        find = self._values.find
        for carried, start, root in reversed(self._carried):
            if find(root) == find(carried):
                self._values.join(carried, start)
            self._shared += ((carried, start), (carried, root))

    def _read_half(self, instruction: Instruction) -> None:
        opcode, operands = instruction.opcode, instruction.operands
        shape = instruction.shape
        if opcode in ("send", "recv-done"):
            self._forward(
                instruction, (0,), operands[0], () if opcode == "send" else (0,)
            )
        elif opcode == "copy-start":
            self._forward(instruction, (1,), operands[0], ())
        elif opcode == "copy-done":
            self._forward(instruction, (), operands[0], (0,))
        elif opcode == "all-reduce-done":
            self._forward(instruction, (), operands[0], ())
        elif opcode in ("all-gather-start", "collective-permute-start"):
            for k, operand in enumerate(operands[: _operands_kept(shape)]):
                path = (0,) if len(operands) == 1 else (0, k)
                if self._layouts.fits(shape, path, operand.shape):
                    self._forward(instruction, path, operand, ())
            if opcode == "collective-permute-start" and len(operands) > 1:
                # XLA makes no table of its operands, as all-gather-start does.
                place = self.first[instruction] + self._layouts.node_at(shape, (0,))
                self._without_table.append(place)
        elif opcode in ("all-gather-done", "collective-permute-done"):
            self._forward_arrays(instruction, (), operands[0], (1,))
        elif opcode not in ("all-reduce-start", "recv", "send-done"):
            self._read_generic(instruction)

    def _read_generic(self, instruction: Instruction) -> None:
        """Read async-start, -update, -done, and sugar, whose callee is an adder."""
        operands = instruction.operands
        start = start_of(instruction)
        bound = 0
        if not is_start(instruction):
            whole: Path = () if is_update(instruction) else (1,)
            self._forward_arrays(instruction, (), operands[0], whole)
            bound = _operands_kept(operands[0].shape)
            operands = operands[1:]
        if not is_done(instruction):
            for k, operand in enumerate(operands):
                self._forward_arrays(instruction, (0, bound + k), operand, ())
        if start.opcode != "async-start":
            return
        for number, source, target in in_place_pairs(start):
            if bound <= number < bound + len(operands):
                self._share(start, target, operands[number - bound], source)
        if self._owns_callees(start):
            (callee, *_) = start.called_computations
            result: Path = () if is_done(instruction) else (1,)
            self._forward_arrays(instruction, result, callee.root, ())
            self._bind(callee, operands, bound)

    def _read_header(self) -> None:
        entry = self.module.entry
        parameters = entry.parameters
        for alias in self.module.input_output_aliases:
            self._share(
                entry.root, alias.output, parameters[alias.parameter], alias.path
            )

    # -- joining ----------------------------------------------------------------

    def _pairs(
        self, one: Instruction, path: Path, other: Instruction, other_path: Path
    ) -> Iterator[tuple[int, int]]:
        """Pairs of places under two paths."""
        if not self._layouts.fits(one.shape, path) or not self._layouts.fits(
            other.shape, other_path
        ):
            return
        a = self.first[one] + self._layouts.node_at(one.shape, path)
        b = self.first[other] + self._layouts.node_at(other.shape, other_path)
        count = min(
            self._layouts.node_count(one.shape.at(path)),
            self._layouts.node_count(other.shape.at(other_path)),
        )
        for k in range(count):
            yield a + k, b + k

    def _forward(
        self, one: Instruction, path: Path, other: Instruction, other_path: Path
    ) -> None:
        for a, b in self._pairs(one, path, other, other_path):
            self._values.join(a, b)

    def _share(
        self, one: Instruction, path: Path, other: Instruction, other_path: Path
    ) -> None:
        self._shared += self._pairs(one, path, other, other_path)

    def _forward_arrays(
        self, one: Instruction, path: Path, other: Instruction, other_path: Path
    ) -> None:
        """Forward everything except tuples: a start or done has its own tables."""
        if not self._layouts.fits(one.shape, path) or not self._layouts.fits(
            other.shape, other_path
        ):
            return
        part = other.shape.at(other_path)
        for leaf, _ in one.shape.at(path).leaves():
            if self._layouts.fits(part, leaf):
                self._forward(one, (*path, *leaf), other, (*other_path, *leaf))

    def _bind(
        self, callee: Computation, operands: Sequence[Instruction], first: int = 0
    ) -> None:
        """Pass operands to the parameters of a callee, beginning at a number."""
        for parameter, operand in zip(
            callee.parameters[first:], operands, strict=False
        ):
            self._forward(parameter, (), operand, ())

    def _owns_callees(self, caller: Instruction) -> bool:
        return all(
            len(self.module.callers(callee)) == 1
            for callee in caller.called_computations
        )


def _reachable(module: Module) -> Iterator[Computation]:
    """The entry and what runs in its memory, callers before callees."""
    seen = {module.entry}
    work = [module.entry]
    for computation in work:
        yield computation
        for instruction in computation.instructions:
            if _has_counted_callees(instruction):
                for callee in instruction.called_computations:
                    if callee not in seen:
                        seen.add(callee)
                        work.append(callee)


def _operands_kept(shape: Shape) -> int:
    """The number of operands that a native start keeps in element 0 of its shape."""
    if not shape.is_tuple or not shape.elements:
        return 0
    first = shape.elements[0]
    return len(first.elements) if first.is_tuple else 1


def _bytes(shape: Shape) -> int:
    if shape.is_tuple:
        return _POINTER_BYTES * len(shape.elements)
    if shape.layout is not None and shape.layout.memory_space:
        return 0
    extra = _DYNAMIC_DIMENSION_BYTES * shape.rank if shape.is_dynamic else 0
    return shape.byte_size + extra if shape.is_array else 0
