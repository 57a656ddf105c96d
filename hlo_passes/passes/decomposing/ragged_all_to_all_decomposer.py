"""Replaces a ragged all-to-all with a dense one that has rows of the greatest length.

Before:  %r = f32[8] ragged-all-to-all(%x, %y, %o, %s, %p, %q), replica_groups={{0,1}}
After:   %p = p of the other side, by all-to-all
         %a = f32[1,4] one row for each device: dynamic-slice(pad(%x), o[k])
         %t = (f32[1,4], f32[1,4]) all-to-all(%a, %b), replica_groups={{0,1}}
         for each k: select(p[k] <= place < p[k] + q[k], row k of %t, %y so far)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from hlo_passes.analysis.devices import members_of_each_group
from hlo_passes.errors import PassError
from hlo_passes.ir.attribute_values import in_print_order
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.shapes import Shape, array_shape, tuple_shape
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.constants import scalar, spread, zeros
from hlo_passes.passes.rewriting.each_collective import rewrite_each

_KEPT = ("channel_id", "replica_groups")


@dataclass(frozen=True, slots=True)
class RaggedAllToAllDecomposer(Pass):
    """Replace ragged all-to-alls with dense ones, and select the rows to keep.

    The dense all-to-all sends each update as a row that is as long as all rows of the
    input together. The sender knows the output offsets, so the devices exchange them
    first. The offsets must be s64; `ragged-all-to-all-canonicalizer` makes them so. XLA
    runs the pass if the switch
    `xla_gpu_unsupported_enable_ragged_all_to_all_decomposer` is on.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions, and in devices times updates of a ragged one.
    Source: openxla/xla `xla/backends/gpu/transforms/ragged_all_to_all_decomposer.cc`.
    """

    name: ClassVar[str] = "ragged-all-to-all-decomposer"
    needs_collectives: ClassVar[bool] = True

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit ragged all-to-alls in post order."""

        def decompose(ragged: Instruction) -> str:
            require_wide_offsets(ragged)
            members = members_of_each_group(ragged, module)
            if not members:
                return "has groups of different sizes"
            if ragged.operands[2].shape.dimensions[0] % members:
                return "has another number of updates than devices"
            _Decomposition(ragged, members).write()
            return ""

        return rewrite_each(
            module, "ragged-all-to-all", decompose, report, "decomposed"
        )


def require_wide_offsets(ragged: Instruction) -> None:
    """Raise PassError E025 unless offsets and sizes are s64."""
    if ragged.operands[2].shape.element_type != "s64":
        raise PassError(
            f"%{ragged.name} has offsets that are not s64",
            code="E025",
            location=ragged.location,
            hint="run ragged-all-to-all-canonicalizer before",
        )


class _Decomposition:
    """Writes one ragged all-to-all anew."""

    def __init__(self, ragged: Instruction, members: int) -> None:
        self.ragged = ragged
        self.computation: Computation = ragged.computation
        self.members = members
        self.updates = ragged.operands[2].shape.dimensions[0] // members
        self.longest = ragged.operands[0].shape.dimensions[0]

    def write(self) -> None:
        computation, ragged = self.computation, self.ragged
        output_offsets = self._exchanged(ragged.operands[4])
        rows = [self._rows_for(member) for member in range(self.members)]
        received = self._all_to_all(tuple_shape([row.shape for row in rows]), rows)
        result = self._placed(received, output_offsets)
        computation.replace_uses(ragged, result)
        computation.remove_with_dead_operands(ragged)

    def _new(
        self,
        opcode: str,
        shape: Shape,
        operands: tuple[Instruction, ...],
        attributes: Mapping[str, str] | None = None,
    ) -> Instruction:
        return self.computation.new(opcode, shape, operands, attributes)

    def _all_to_all(
        self, shape: Shape, operands: list[Instruction], **more: str
    ) -> Instruction:
        attributes = {n: t for n, t in self.ragged.attributes.items() if n in _KEPT}
        attributes = in_print_order({**attributes, **more}, "all-to-all")
        return self._new("all-to-all", shape, tuple(operands), attributes)

    def _exchanged(self, offsets: Instruction) -> Instruction:
        """The output offsets for what this device receives."""
        shape = offsets.shape
        square = array_shape(shape.element_type, (self.members, self.updates))
        table = self._new("reshape", square, (offsets,))
        sent = self._all_to_all(square, [table], dimensions="{0}")
        return self._new(
            "reshape", array_shape(shape.element_type, shape.dimensions), (sent,)
        )

    def _rows_for(self, member: int) -> Instruction:
        """[updates, longest, ...]: what a device is sent, and what follows it."""
        source, offsets = self.ragged.operands[0], self.ragged.operands[2]
        one = array_shape(source.shape.element_type, (1, *source.shape.dimensions))
        sizes = ",".join(map(str, source.shape.dimensions))
        rows: list[Instruction] = []
        for update in range(self.updates):
            starts = self._starts(offsets, member * self.updates + update, source)
            row = self._new(
                "dynamic-slice",
                source.shape,
                (self._padded(source), *starts),
                {"dynamic_slice_sizes": f"{{{sizes}}}"},
            )
            rows.append(self._new("reshape", one, (row,)))
        return self._new(
            "concatenate",
            one.with_dimensions((self.updates, *source.shape.dimensions)),
            tuple(rows),
            {"dimensions": "{0}"},
        )

    def _placed(self, received: Instruction, offsets: Instruction) -> Instruction:
        """The output with every received row where it belongs."""
        output, sizes = self.ragged.operands[1], self.ragged.operands[5]
        padded = self._padded(output)
        for number in range(self.members * self.updates):
            member, update = divmod(number, self.updates)
            starts = self._starts(offsets, number, padded)
            shape = received.shape.elements[member]
            rows = self._new(
                "get-tuple-element", shape, (received,), {"index": str(member)}
            )
            row = self._row(rows, update)
            moved = self._new(
                "dynamic-update-slice",
                padded.shape,
                (zeros(self.computation, padded.shape), row, *starts),
            )
            here = self._is_within(
                self._number(offsets, number), self._number(sizes, number), padded.shape
            )
            padded = self._new("select", padded.shape, (here, moved, padded))
        ranges = ", ".join(f"[0:{size}]" for size in output.shape.dimensions)
        return self._new("slice", output.shape, (padded,), {"slice": f"{{{ranges}}}"})

    def _padded(self, value: Instruction) -> Instruction:
        """Longer by one row of the greatest length, so that each row fits in."""
        rows, *others = value.shape.dimensions
        padding = "x".join([f"0_{self.longest}", *("0_0" for _ in others)])
        return self._new(
            "pad",
            value.shape.with_dimensions((rows + self.longest, *others)),
            (value, scalar(self.computation, value.shape.element_type, 0)),
            {"padding": padding},
        )

    def _starts(
        self, offsets: Instruction, number: int, value: Instruction
    ) -> list[Instruction]:
        zero = scalar(self.computation, "s64", 0)
        return [self._number(offsets, number), *([zero] * (value.shape.rank - 1))]

    def _number(self, numbers: Instruction, place: int) -> Instruction:
        """An element of a table, as a scalar."""
        kind = numbers.shape.element_type
        one = self._new(
            "slice",
            array_shape(kind, (1,)),
            (numbers,),
            {"slice": f"{{[{place}:{place + 1}]}}"},
        )
        return self._new("reshape", array_shape(kind), (one,))

    def _row(self, rows: Instruction, place: int) -> Instruction:
        _, *others = rows.shape.dimensions
        ranges = ", ".join([f"[{place}:{place + 1}]", *(f"[0:{n}]" for n in others)])
        one = self._new(
            "slice",
            rows.shape.with_dimensions((1, *others)),
            (rows,),
            {"slice": f"{{{ranges}}}"},
        )
        shape = array_shape(rows.shape.element_type, tuple(others))
        return self._new("reshape", shape, (one,))

    def _is_within(
        self, start: Instruction, size: Instruction, shape: Shape
    ) -> Instruction:
        """Where the first index is in [start, start + size)."""
        places = array_shape("s64", shape.dimensions)
        flags = array_shape("pred", shape.dimensions)
        place = self._new("iota", places, (), {"iota_dimension": "0"})
        low, length = spread(start, places), spread(size, places)
        high = self._new("add", places, (low, length))
        after = self._new("compare", flags, (place, low), {"direction": "GE"})
        before = self._new("compare", flags, (place, high), {"direction": "LT"})
        return self._new("and", flags, (after, before))
