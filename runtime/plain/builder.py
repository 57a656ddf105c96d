"""Rewrites a module in plain HLO, computation by computation, in text order.

    %f = f32[8] fusion(%a), calls=%g         ->  the instructions of %g
    %t = (f32[8]) tuple(%a); gte(%t)         ->  %a
    %c = f32[8,4]{0,1} copy(%a)              ->  %a        (layouts mean nothing here)
    %s = ... all-reduce-start(%a)            ->  nothing
    %d = f32[8] all-reduce-done(%s)          ->  the all-reduce, as a stand-in

Whatever XLA's CPU pipeline does not accept is refused by name. Each plain instruction
carries its position as metadata, `op_name="hlo_passes#17"`: when a scheduled module is
loaded, `runtime/restore.py` brings XLA's own result back into this order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.shapes import Shape, array_shape, tuple_shape
from hlo_passes.ir.small_values import parse_ints
from hlo_passes.runtime.plain.refusals import check_shape
from hlo_passes.runtime.plain.stand_ins import Collective
from hlo_passes.runtime.plain.values import (
    Value,
    array_leaves,
    arrays,
    plain_shape,
    tree,
)

#: The text before a position in `op_name`.
POSITION_MARK: Final = "hlo_passes#"

#: Attributes that say nothing about values.
_SILENT_ATTRIBUTES: Final = frozenset(
    [
        "metadata",
        "sharding",
        "backend_config",
        "frontend_attributes",
        "origin",
        "statistics",
        "async_execution_thread",
        "control-predecessors",
        "parameter_replication",
        "result_accuracy",
        "operand_precision",
        "sparsity_config",
    ]
)

#: What a ragged all-to-all says about its tables.
_ALARM: Final = array_shape("s32")
_PRODUCTS: Final = ("dot", "convolution")
_CALLEES: Final = ("to_apply", "select", "scatter")


@dataclass(frozen=True, slots=True)
class RaggedTables:
    """The offsets and sizes of a ragged all-to-all.

    Attributes:
        source: the instruction in the module that was loaded.
        tables: in plain form: where rows start, how many are sent, where they land,
            how many arrive; for each member of the group, and each update.
        members: of its groups.
        room: rows of its output.
        rows: of its input.
    """

    source: Instruction
    tables: tuple[Instruction, ...]
    members: int
    room: int
    rows: int


@dataclass(slots=True)
class PlainModule:
    """A plain module, and the collectives that were taken out of it.

    Attributes:
        module: entry with flat array parameters and a flat tuple as result.
        collectives: by the number that their stand-ins carry.
        is_scheduled: whether positions form an order to keep.
        ragged: the ragged all-to-alls. If there are any, the last result is not the
            source's: it says whether their tables fit (`ragged_rules.py`).
    """

    module: Module
    collectives: list[Collective] = field(default_factory=list)
    is_scheduled: bool = False
    ragged: list[RaggedTables] = field(default_factory=list)


@dataclass(slots=True)
class Operation:
    """One operation to write in plain form.

    It is usually an instruction of the source; for a done, what its start began.

    Attributes:
        source: the instruction, for names and messages.
        opcode: synchronous.
        shape: of the result, as in the source.
        operands: their values.
        attributes: texts by name.
    """

    source: Instruction
    opcode: str
    shape: Shape
    operands: tuple[Value, ...]
    attributes: Mapping[str, str]

    @property
    def dimension(self) -> int:
        """The one number of `dimensions`."""
        (number,) = parse_ints(self.attributes["dimensions"])
        return number


Rule: TypeAlias = "Callable[[Builder, Operation], Value]"


class Builder:
    """Writes plain computations; `rule_of` says how, by opcode.

    An opcode without a rule keeps its opcode and attributes, and takes arrays.
    """

    def __init__(self, source: Module, rule_of: Callable[[str], Rule | None]) -> None:
        """Start for one source module."""
        self.source = source
        self.rule_of = rule_of
        self.plain = PlainModule(Module(source.name), is_scheduled=source.is_scheduled)
        self.at: Computation = Computation("none")
        self.position = 0
        #: What the instructions before, in the computation being written, stand for.
        self.values: dict[Instruction, Value] = {}
        self._sends: dict[Computation, dict[int | None, list[Instruction]]] = {}
        self._regions: dict[Computation, str] = {}
        self._computation_count = 0
        #: s32 scalars of the computation being written: 0, or what is wrong.
        self.alarms: list[Instruction] = []
        self._watched: dict[Computation, bool] = {}

    # -- computations -------------------------------------------------------

    def entry(self) -> PlainModule:
        """Write the entry; returns the plain module."""
        source = self.source.entry
        for parameter in source.parameters:
            check_shape(parameter, parameter.shape)

        def body() -> Instruction:
            values: list[Value] = []
            count = 0
            for parameter in source.parameters:
                leaves = self._parameters(array_leaves(parameter.shape), "p", count)
                count += len(leaves)
                values.append(tree(parameter.shape, leaves))
            results = arrays(self.inline(source, values))
            return self.pack(
                results + (self.first_alarm() if self.plain.ragged else [])
            )

        self.plain.module.entry = self.computation("entry", body)
        return self.plain

    def region(self, source: Computation) -> str:
        """Write a computation that an opcode applies to elements; returns its name."""
        name = self._regions.get(source)
        if name is None:

            def body() -> Instruction:
                shapes = [plain_shape(p.shape) for p in source.parameters]
                made = self._parameters(shapes, "r", 0)
                leaves = arrays(self.inline(source, list(made)))
                return leaves[0] if len(leaves) == 1 else self.pack(leaves)

            name = self._regions[source] = self.computation(source.name, body).name
        return name

    def with_tuple_parameter(
        self,
        source: Computation,
        state: Shape,
        *,
        packed: bool = True,
        alarm_in: bool = False,
        alarm_out: bool = False,
    ) -> str:
        """Write a branch, body or condition with one flat tuple in.

        Args:
            source: with one parameter.
            state: shape of that parameter.
            packed: whether the result becomes a flat tuple.
            alarm_in: whether an alarm follows the state.
            alarm_out: whether an alarm follows the result.
        """

        def body() -> Instruction:
            shapes = array_leaves(state) + [_ALARM] * alarm_in
            (whole,) = self._parameters([tuple_shape(shapes)], "state", 0)
            leaves = [self.element(whole, k) for k in range(len(shapes))]
            if alarm_in:
                self.alarms.append(leaves.pop())
            result = arrays(self.inline(source, [tree(state, leaves)]))
            if not packed:
                return result[0]
            return self.pack(result + (self.first_alarm() if alarm_out else []))

        return self.computation(source.name, body).name

    def first_alarm(self) -> list[Instruction]:
        """A list of the first alarm of the computation being written, or of zero."""
        zero = self.constant(_ALARM, "0")
        found = zero
        for alarm in reversed(self.alarms):
            raised = self.array(
                "compare",
                _ALARM.with_element_type("pred"),
                (alarm, zero),
                {"direction": "NE"},
            )
            found = self.array("select", _ALARM, (raised, alarm, found))
        return [found]

    def is_watched(self, source: Computation) -> bool:
        """Whether a ragged all-to-all runs in a computation, or below it."""
        if source not in self._watched:
            self._watched[source] = any(
                i.opcode == "ragged-all-to-all"
                or any(map(self.is_watched, i.called_computations))
                for i in source.instructions
            )
        return self._watched[source]

    def computation(self, stem: str, body: Callable[[], Instruction]) -> Computation:
        """Add a computation that `body` writes; it returns the root."""
        self._computation_count += 1
        target = Computation(f"c{self._computation_count}_{stem}")
        target.module = self.plain.module
        outer, self.at = self.at, target
        alarms, self.alarms = self.alarms, []
        target.set_root(body())
        self.at, self.alarms = outer, alarms
        self.plain.module.add_computation(target)
        return target

    def _parameters(
        self, shapes: Iterable[Shape], stem: str, first: int
    ) -> list[Instruction]:
        return [
            self.at.new("parameter", shape, name=stem, literal=str(number))
            for number, shape in enumerate(shapes, first)
        ]

    def inline(self, source: Computation, arguments: Iterable[Value]) -> Value:
        """Write a computation's instructions here; returns the value of its root."""
        values: dict[Instruction, Value] = {}
        outer, self.values = self.values, values
        given = list(arguments)
        for parameter in source.parameters:
            values[parameter] = given[parameter.parameter_number]
        for instruction in source.instructions:
            if instruction.opcode == "parameter":
                continue
            operands = tuple(values[o] for o in instruction.operands)
            values[instruction] = self.write(
                Operation(
                    instruction,
                    instruction.opcode,
                    instruction.shape,
                    operands,
                    instruction.attributes,
                )
            )
        self.values = outer
        return values[source.root]

    def sends_of(self, source: Computation) -> dict[int | None, list[Instruction]]:
        """The sends of a computation by channel."""
        found = self._sends.get(source)
        if found is None:
            found = self._sends[source] = {}
            for instruction in source.instructions:
                if instruction.opcode == "send":
                    found.setdefault(instruction.channel_id, []).append(instruction)
        return found

    # -- instructions -------------------------------------------------------

    def write(self, operation: Operation) -> Value:
        """Write one operation by the rule of its opcode."""
        rule = self.rule_of(operation.opcode)
        if rule is not None:
            return rule(self, operation)
        check_shape(operation.source, operation.shape)
        return self.keep(operation, [a for v in operation.operands for a in arrays(v)])

    def keep(self, operation: Operation, operands: Iterable[Instruction]) -> Value:
        """Write one operation with its own opcode and attributes on plain arrays."""
        attributes = {
            name: text
            for name, text in operation.attributes.items()
            if name not in _SILENT_ATTRIBUTES
            # The rounding of a product; XLA's CPU back end has only one.
            and not (name == "algorithm" and operation.opcode in _PRODUCTS)
        }
        if attributes.pop("order", None) == "TOTAL":
            # This is jaxlib 0.12's spelling; both releases read the older word.
            attributes["type"] = "TOTALORDER"
        for name in _CALLEES:
            if name in attributes:
                callee = self.source.computation(attributes[name])
                assert callee is not None
                attributes[name] = "%" + self.region(callee)
        return self.emit(
            operation.opcode,
            operation.shape,
            operands,
            attributes,
            literal=operation.source.literal,
        )

    def emit(
        self,
        opcode: str,
        shape: Shape,
        operands: Iterable[Instruction],
        attributes: Mapping[str, str] | None = None,
        *,
        literal: str | None = None,
    ) -> Value:
        """Add a plain instruction; a tuple result is split at once."""
        leaves = array_leaves(shape)
        whole = self.array(
            opcode,
            tuple_shape(leaves) if shape.is_tuple else leaves[0],
            operands,
            attributes,
            literal=literal,
        )
        if not shape.is_tuple:
            return whole
        return tree(shape, [self.element(whole, k) for k in range(len(leaves))])

    def array(
        self,
        opcode: str,
        shape: Shape,
        operands: Iterable[Instruction],
        attributes: Mapping[str, str] | None = None,
        *,
        literal: str | None = None,
    ) -> Instruction:
        """Add a plain instruction with exactly this shape, with its position."""
        self.position += 1
        marked = {
            **(attributes or {}),
            "metadata": f'{{op_name="{POSITION_MARK}{self.position}"}}',
        }
        return self.at.new(opcode, shape, operands, marked, name="i", literal=literal)

    def pack(self, leaves: Iterable[Instruction]) -> Instruction:
        """A flat tuple of arrays."""
        leaves = tuple(leaves)
        return self.array("tuple", tuple_shape([x.shape for x in leaves]), leaves)

    def element(self, whole: Instruction, index: int) -> Instruction:
        """An array of a flat tuple."""
        return self.array(
            "get-tuple-element",
            whole.shape.elements[index],
            (whole,),
            {"index": str(index)},
        )

    def constant(self, shape: Shape, literal: str) -> Instruction:
        """A scalar constant, broadcast to the shape."""
        scalar = self.array("constant", shape.with_dimensions(()), (), literal=literal)
        if not shape.dimensions:
            return scalar
        return self.array(
            "broadcast", plain_shape(shape), (scalar,), {"dimensions": "{}"}
        )
