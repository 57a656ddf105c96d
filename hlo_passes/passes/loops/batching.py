"""One operation for all iterations of a loop, with the iterations as first dimension.

    %t = f32[4,2] transpose(%x), dimensions={1,0}         in each of 8 iterations
    %t.1 = f32[8,4,2] transpose(%all_x), dimensions={0,2,1}                once

Source: openxla/xla `xla/service/collective_pipeliner.cc` (`TransformFormattingOp`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.metadata import FrontendAttributes
from hlo_passes.ir.opcodes import facts
from hlo_passes.ir.shapes import Layout, Shape, array_shape
from hlo_passes.ir.small_values import parse_small
from hlo_passes.passes.loops.pipelined_stores import sliced_dimension
from hlo_passes.passes.loops.pipelining import FIRST_INDEX, Copying, constant
from hlo_passes.passes.rewriting.cloning import Copies, clone_instruction

#: Operations whose attributes say nothing about dimensions.
_AS_THEY_ARE: Final = frozenset(
    {"all-reduce", "collective-permute", "convert", "reshape"}
)
_OTHERS: Final = frozenset(
    {"all-gather", "broadcast", "concatenate", "dynamic-slice", "dynamic-update-slice",
     "pad", "reduce", "slice", "transpose"}
)  # fmt: skip
#: Their first operand may be one number for all elements.
_CHOOSING: Final = frozenset({"select", "clamp"})
_OF_ALL_GATHER: Final = (
    "channel_id",
    "replica_groups",
    "constrain_layout",
    "dimensions",
    "use_global_device_ids",
)
_GROUP_KEY: Final = "collective_group_key"
#: A custom call that demands a layout.
_DEMANDS_LAYOUT: Final = '"LayoutConstraint"'
_DEMANDED: Final = "operand_layout_constraints"


def full_shape(count: int, shape: Shape) -> Shape:
    """The shape of `count` values, one after the other in memory."""
    assert shape.layout is not None
    inside = (d + 1 for d in shape.layout.minor_to_major)
    layout = Layout((*inside, 0))
    return array_shape(shape.element_type, (count, *shape.dimensions), layout)


def zeros(
    computation: Computation, shape: Shape, before: Instruction | None
) -> Instruction:
    """Zeros of a shape: a constant, and its broadcast unless it is a scalar."""
    zero = constant(computation, shape.element_type, 0, before=before)
    if not shape.rank:
        return zero
    return computation.new(
        "broadcast", shape, [zero], {"dimensions": "{}"}, before=before
    )


def why_not_batched(operation: Instruction) -> str:
    """Why an operation cannot run once for all iterations, '' if it can."""
    opcode = operation.opcode
    if not operation.shape.is_array:
        return "returns no array"
    if opcode in _CHOOSING and len({o.shape.rank for o in operation.operands}) > 1:
        return "chooses by one number"
    if opcode == "reduce":
        if len(operation.operands) != 2 or operation.operands[1].opcode != "constant":
            return "starts from something computed"
        return ""
    if facts(opcode).is_elementwise or opcode in _AS_THEY_ARE or opcode in _OTHERS:
        return ""
    if operation.attributes.get("custom_call_target") == _DEMANDS_LAYOUT:
        return ""
    return "has no form for all iterations"


@dataclass(slots=True)
class Batching:
    """Writes operations for all iterations.

    Attributes:
        count: how many iterations there are.
        computation: where to write.
        before: what is written goes before this one in text order.
        values: what replaces the values of the body, in all iterations.
        varying: the operations whose results differ between iterations.
        copying: how copies receive channels.
    """

    count: int
    computation: Computation
    before: Instruction
    values: Copies
    copying: Copying
    varying: set[Instruction] = field(default_factory=set)

    def add(self, operation: Instruction) -> None:
        """Write one operation; its operands are known."""
        if operation in self.values:
            return
        if operation not in self.varying and operation.opcode != "broadcast":
            copy = clone_instruction(
                operation,
                self.computation,
                self._operands(operation),
                before=self.before,
            )
            self.copying.give_channel(copy)
            self.values[operation] = copy
            return
        if operation.opcode in _OTHERS:
            self.values[operation] = self._rewritten(operation)
            return
        copy = clone_instruction(
            operation, self.computation, self._operands(operation), before=self.before
        )
        self.computation.set_shape(copy, self._full(operation.shape))
        demanded = operation.attributes.get(_DEMANDED)
        if demanded is not None:
            shapes = map(self._full, parse_small("shape_list", demanded))
            copy.set_attribute(_DEMANDED, f"{{{', '.join(s.text for s in shapes)}}}")
        self.values[operation] = copy

    def _full(self, shape: Shape) -> Shape:
        return full_shape(self.count, shape)

    def _operands(self, operation: Instruction) -> list[Instruction]:
        """The operands in all iterations; constants are repeated where others vary."""
        found: list[Instruction] = []
        for place, operand in enumerate(operation.operands):
            if operand.opcode != "constant":
                found.append(self.values[operand])
                continue
            copy = clone_instruction(operand, self.computation, (), before=self.before)
            is_number = (
                (operation.opcode in ("pad", "reduce") and place == 1)
                or (operation.opcode == "dynamic-slice" and place > 0)
                or operation not in self.varying
            )
            found.append(copy if is_number else self.repeated(copy))
        return found

    def repeated(self, value: Instruction) -> Instruction:
        """The same value for every iteration."""
        return self._new(
            "broadcast",
            self._full(value.shape),
            [value],
            _dimensions(range(1, value.shape.rank + 1)),
        )

    def _new(
        self,
        opcode: str,
        shape: Shape,
        operands: Iterable[Instruction],
        attributes: dict[str, str],
    ) -> Instruction:
        return self.computation.new(
            opcode, shape, operands, attributes, before=self.before
        )

    def _rewritten(self, operation: Instruction) -> Instruction:
        opcode, shape = operation.opcode, self._full(operation.shape)
        attributes = operation.attributes
        if opcode == "dynamic-update-slice":
            return self._scattered(operation)
        operands = self._operands(operation)
        dimensions = [d + 1 for d in operation.integers("dimensions")]
        if opcode == "all-gather":
            kept = {n: attributes[n] for n in _OF_ALL_GATHER if n in attributes}
            kept |= _dimensions(dimensions)
            gathered = self._new(opcode, shape, operands, kept)
            key = operation.frontend_attributes.get(_GROUP_KEY)
            if key is not None:
                gathered.frontend_attributes = FrontendAttributes.of({_GROUP_KEY: key})
            return gathered
        if opcode == "broadcast":
            is_number = not operands[0].shape.rank
            given = _dimensions([] if is_number else [0, *dimensions])
        elif opcode == "transpose":
            given = _dimensions([0, *dimensions])
        elif opcode == "reduce":
            given = _dimensions(dimensions) | {"to_apply": attributes["to_apply"]}
        elif opcode == "slice":
            _, _, rest = attributes["slice"].partition("{")
            given = {"slice": f"{{[0:{self.count}], {rest}"}
        elif opcode == "pad":
            given = {"padding": f"0_0x{attributes['padding'].strip()}"}
        elif opcode == "dynamic-slice":
            kind = operation.operands[1].shape.element_type
            zero = constant(self.computation, kind, 0, before=self.before)
            operands.insert(1, zero)
            sizes = (self.count, *operation.integers("dynamic_slice_sizes"))
            given = {"dynamic_slice_sizes": _list(sizes)}
        else:
            given = _dimensions(dimensions)
        return self._new(opcode, shape, operands, given)

    def _scattered(self, store: Instruction) -> Instruction:
        """A store at another place in each iteration."""
        dimension = sliced_dimension(store)
        assert dimension is not None
        base, update, *indices = self._operands(store)
        inside = dimension + 1
        sizes = [n for k, n in enumerate(update.shape.dimensions) if k != inside]
        squeezed = array_shape(update.shape.element_type, tuple(sizes))
        update = self._new("reshape", squeezed, [update], {})
        place = indices[dimension]
        kind = store.operands[FIRST_INDEX + dimension].shape.element_type
        column = array_shape(kind, (self.count, 1))
        numbers = self._new(
            "iota", array_shape(kind, (self.count,)), [], {"iota_dimension": "0"}
        )
        columns = [
            self._new("reshape", column, [values], {}) for values in (numbers, place)
        ]
        places = self._new(
            "concatenate",
            array_shape(kind, (self.count, 2)),
            columns,
            _dimensions([1]),
        )
        return self._new(
            "scatter",
            base.shape,
            [base, places, update],
            {
                "update_window_dims": _list(range(1, squeezed.rank)),
                "inserted_window_dims": _list((0, inside)),
                "scatter_dims_to_operand_dims": _list((0, inside)),
                "index_vector_dim": "1",
                "indices_are_sorted": "true",
                "unique_indices": "true",
                "to_apply": f"%{self._assignment(base.shape.element_type).name}",
            },
        )

    def _assignment(self, kind: str) -> Computation:
        """A computation that returns its second argument."""
        module = self.computation.module
        assign = Computation(module.fresh_computation_name("dus_assign"))
        module.add_computation(assign, before=self.computation)
        scalar = array_shape(kind, ())
        assign.new("parameter", scalar, name="lhs", literal="0")
        assign.set_root(assign.new("parameter", scalar, name="rhs", literal="1"))
        return assign


def _list(values: Iterable[int]) -> str:
    return f"{{{','.join(map(str, values))}}}"


def _dimensions(values: Iterable[int]) -> dict[str, str]:
    return {"dimensions": _list(values)}
