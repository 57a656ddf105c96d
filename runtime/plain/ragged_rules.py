"""The rule for ragged all-to-alls, which XLA's CPU back end does not have.

    %r = f32[8,2] ragged-all-to-all(%x, %y, %o, %s, %p, %q), replica_groups={{0,1}}
    ->
    tables of the others, %o %s %p, by all-to-all       [2, updates] each
    rows of all: %x by all-to-all, put together         f32[2*rows,2]
    for each row of %r the update that lands there      p[k] <= row < p[k] + q[k]
    select(there is one, gather(rows of all), %y)

It also looks whether the tables fit together. The answer, a number of `ALARMS`, leaves
the module as one more result (`Builder.alarms`).
"""

from __future__ import annotations

from typing import Final

from hlo_passes.analysis.devices import members_of_each_group
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.shapes import Shape, array_shape
from hlo_passes.runtime.plain.builder import Builder, Operation, RaggedTables, Rule
from hlo_passes.runtime.plain.collective_rules import (
    carried_back,
    exchanged,
    in_carrier,
    operand_arrays,
)
from hlo_passes.runtime.plain.refusals import refuse
from hlo_passes.runtime.plain.values import Value

#: What can be wrong with the tables of a device, the worst last.
ALARMS: Final = (
    "two updates are written to one row of its output",
    "rows are written that its output does not have",
    "it receives another number of rows than the sender sends",
    "rows are sent that its input does not have",
    "a size is below zero",
)


def _ragged_all_to_all(builder: Builder, op: Operation) -> Value:
    source, output, *tables = operand_arrays(op)
    members = members_of_each_group(op.source, op.source.computation.module)
    if not members:
        refuse(op.source, "it has groups of different sizes")
    if tables[0].shape.element_count % members:
        refuse(op.source, "it has another number of updates than devices")
    if source.shape.dimensions[1:] != output.shape.dimensions[1:]:
        refuse(op.source, "its input and its output have rows of different shapes")
    if not tables[0].shape.element_count:
        return output
    return _Exchange(builder, op, source, output, tables, members).write()


class _Exchange:
    """Writes one ragged all-to-all."""

    def __init__(
        self,
        builder: Builder,
        op: Operation,
        source: Instruction,
        output: Instruction,
        tables: list[Instruction],
        members: int,
    ) -> None:
        self.builder, self.op = builder, op
        self.source, self.output = source, output
        self.members = members
        self.rows, self.room = source.shape.dimensions[0], output.shape.dimensions[0]
        updates = tables[0].shape.element_count // members
        self.square = array_shape("s64", (members, updates))
        self.given = tables
        self.tables = [self._wide(table) for table in tables]

    def write(self) -> Value:
        """The output with all rows that arrive; looks at the tables on the way."""
        starts, sizes, places, received = self.tables
        their_starts, their_sizes, here = self._of_the_senders([starts, sizes, places])
        # Which row of all rows of all members lands on each row of the output, plus
        # one; zero where none does.
        first = self._binary(
            "multiply", self._iota(self.square, 0), self._all(self.rows)
        )
        first = self._binary("add", first, their_starts)
        table = array_shape("s64", (self.room, self.square.element_count))
        row = self._iota(table, 0)
        low = self._along_rows(here, table)
        inside = self._is(row, "GE", low)
        high = self._binary("add", low, self._along_rows(received, table))
        inside = self._binary("and", inside, self._is(row, "LT", high))
        behind = self._binary("subtract", first, here)
        behind = self._binary("add", behind, self._all(1))
        chosen = self._binary("add", row, self._along_rows(behind, table))
        chosen = self._select(inside, chosen, self._all(0, table))
        best = self._reduced("maximum", chosen, (1,))
        hits = self._reduced("add", self._converted(inside, "s64"), (1,))
        self._watch(
            (
                self._is(hits, "GT", self._all(1, hits.shape)),
                self._reaches_outside(here, received, self.room),
                self._is(their_sizes, "NE", received),
                self._reaches_outside(starts, sizes, self.rows),
                self._is(self._binary("minimum", sizes, received), "LT", self._all(0)),
            )
        )
        if not (self.rows and self.output.shape.element_count):
            return self.output
        return self._taken(best)

    def _taken(self, best: Instruction) -> Value:
        """Rows of all by number from one on; those of the output for zero."""
        builder, shape = self.builder, self.output.shape
        (moved,) = in_carrier(builder, [self.source])
        parts = exchanged(builder, self.op, [moved] * self.members)
        everything = builder.array(
            "concatenate",
            moved.shape.with_dimensions(
                (self.members * self.rows, *moved.shape.dimensions[1:])
            ),
            parts,
            {"dimensions": "{0}"},
        )
        zero = self._all(0, best.shape)
        one = self._all(1, best.shape)
        index = self._binary("maximum", self._binary("subtract", best, one), zero)
        column = builder.array("reshape", array_shape("s64", (self.room, 1)), (index,))
        others = shape.dimensions[1:]
        offsets = ",".join(str(k) for k in range(1, shape.rank))
        picked = builder.array(
            "gather",
            moved.shape.with_dimensions(shape.dimensions),
            (everything, column),
            {
                "offset_dims": f"{{{offsets}}}",
                "collapsed_slice_dims": "{0}",
                "start_index_map": "{0}",
                "index_vector_dim": "1",
                "slice_sizes": f"{{{','.join(map(str, (1, *others)))}}}",
            },
        )
        flags = builder.array(
            "broadcast",
            array_shape("pred", shape.dimensions),
            (self._is(best, "GT", zero),),
            {"dimensions": "{0}"},
        )
        (kept,) = in_carrier(builder, [self.output])
        result = builder.array("select", picked.shape, (flags, picked, kept))
        (result,) = carried_back(builder, [result], [shape])
        return result

    def _of_the_senders(self, tables: list[Instruction]) -> list[Instruction]:
        """Row k of each table as member k has it for this device."""
        builder, (members, updates) = self.builder, self.square.dimensions
        width = len(tables) * updates
        together = self._joined(tables, 1)
        line = array_shape("s64", (1, width))
        rows = [
            self._cut(together, line, f"[{k}:{k + 1}], [0:{width}]")
            for k in range(members)
        ]
        arrived = self._joined(exchanged(builder, self.op, rows), 0)
        return [
            self._cut(
                arrived,
                self.square,
                f"[0:{members}], [{k * updates}:{(k + 1) * updates}]",
            )
            for k in range(len(tables))
        ]

    # -- what is wrong -------------------------------------------------------------

    def _watch(self, wrong: tuple[Instruction, ...]) -> None:
        """Leave the number of the worst alarm that is true anywhere; 0 for none."""
        builder = self.builder
        builder.plain.ragged.append(
            RaggedTables(self.op.source, tuple(self.given), self.members, self.room,
                         self.rows)
        )  # fmt: skip
        first = (len(builder.plain.ragged) - 1) * len(ALARMS) + 1
        scalar = array_shape("s32")
        code = builder.constant(scalar, "0")
        for number, flags in enumerate(wrong, first):
            ones = self._converted(flags, "s32")
            raised = self._reduced("maximum", ones, tuple(range(ones.shape.rank)))
            is_raised = self._is(raised, "GT", builder.constant(scalar, "0"))
            code = self._select(is_raised, builder.constant(scalar, str(number)), code)
        builder.alarms.append(code)

    def _reaches_outside(
        self, starts: Instruction, sizes: Instruction, rows: int
    ) -> Instruction:
        """Where rows from `starts` on are not all among so many."""
        ends = self._binary("add", starts, sizes)
        low = self._is(starts, "LT", self._all(0))
        high = self._is(ends, "GT", self._all(rows))
        some = self._is(sizes, "GT", self._all(0))
        return self._binary("and", some, self._binary("or", low, high))

    # -- pieces --------------------------------------------------------------------

    def _wide(self, table: Instruction) -> Instruction:
        reshaped = table
        if table.shape.dimensions != self.square.dimensions:
            reshaped = self.builder.array(
                "reshape",
                self.square.with_element_type(table.shape.element_type),
                (table,),
            )
        return self._converted(reshaped, "s64")

    def _converted(self, value: Instruction, to: str) -> Instruction:
        if value.shape.element_type == to:
            return value
        return self.builder.array(
            "convert", value.shape.with_element_type(to), (value,)
        )

    def _joined(self, parts: list[Instruction], dimension: int) -> Instruction:
        if len(parts) == 1:
            return parts[0]
        sizes = list(parts[0].shape.dimensions)
        sizes[dimension] *= len(parts)
        return self.builder.array(
            "concatenate",
            array_shape("s64", tuple(sizes)),
            parts,
            {"dimensions": f"{{{dimension}}}"},
        )

    def _cut(self, value: Instruction, shape: Shape, ranges: str) -> Instruction:
        return self.builder.array("slice", shape, (value,), {"slice": f"{{{ranges}}}"})

    def _all(self, number: int, shape: Shape | None = None) -> Instruction:
        return self.builder.constant(shape or self.square, str(number))

    def _iota(self, shape: Shape, dimension: int) -> Instruction:
        return self.builder.array("iota", shape, (), {"iota_dimension": str(dimension)})

    def _along_rows(self, numbers: Instruction, table: Shape) -> Instruction:
        """A number for each update, on every row of the output."""
        line = array_shape("s64", table.dimensions[1:])
        flat = self.builder.array("reshape", line, (numbers,))
        return self.builder.array("broadcast", table, (flat,), {"dimensions": "{1}"})

    def _binary(self, opcode: str, one: Instruction, other: Instruction) -> Instruction:
        return self.builder.array(opcode, one.shape, (one, other))

    def _is(self, one: Instruction, direction: str, other: Instruction) -> Instruction:
        flags = one.shape.with_element_type("pred")
        return self.builder.array(
            "compare", flags, (one, other), {"direction": direction}
        )

    def _select(
        self, flags: Instruction, one: Instruction, other: Instruction
    ) -> Instruction:
        return self.builder.array("select", one.shape, (flags, one, other))

    def _reduced(
        self, opcode: str, value: Instruction, dimensions: tuple[int, ...]
    ) -> Instruction:
        """All along some dimensions; zero where there is nothing."""
        builder, kind = self.builder, value.shape.element_type
        scalar = array_shape(kind)

        def body() -> Instruction:
            pair = [
                builder.at.new("parameter", scalar, name="r", literal=str(k))
                for k in range(2)
            ]
            return builder.array(opcode, scalar, pair)

        name = builder.computation(opcode, body).name
        left = tuple(
            size for k, size in enumerate(value.shape.dimensions) if k not in dimensions
        )
        return builder.array(
            "reduce",
            array_shape(kind, left),
            (value, builder.constant(scalar, "0")),
            {
                "dimensions": f"{{{','.join(map(str, dimensions))}}}",
                "to_apply": f"%{name}",
            },
        )


RULES: Final[dict[str, Rule]] = {"ragged-all-to-all": _ragged_all_to_all}
