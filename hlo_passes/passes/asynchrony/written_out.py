"""Writes sugar out: the operation that a start begins gets its own computation.

    Before:  %s = ((f32[8], s32[]), f32[4]) dynamic-slice-start(%x, %i),
                              dynamic_slice_sizes={4}
             %d = f32[4] dynamic-slice-done(%s)
    After:   %async_wrapped { ROOT %async_op = f32[4] dynamic-slice(%async_param,
                              %async_param.1), dynamic_slice_sizes={4} }
             %s = ((f32[8], s32[]), f32[4]) async-start(%x, %i), calls=%async_wrapped
             %d = f32[4] async-done(%s)

Source: openxla/xla `xla/hlo/parser/hlo_parser.cc`, CreateAsyncWrappedComputation and
ParseInstructionRhs (Aug 2026).
"""

from __future__ import annotations

from typing import Final

from hlo_passes.ir.async_form import half, work_of
from hlo_passes.ir.attribute_values import in_print_order
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.passes.asynchrony.async_wrapping import MAIN_THREAD, set_thread
from hlo_passes.passes.rewriting.replacement import take_place
from hlo_passes.verify.async_pairs import sugar_signature

_THREAD: Final = "async_execution_thread"
_ALIASING: Final = "output_to_operand_aliasing"
#: What XLA reads at a half for the operation, too; the last half that has it wins.
_OF_BOTH: Final = (
    "frontend_attributes", "statistics", "origin", "metadata", "backend_config",
)  # fmt: skip
#: Operations that have an aliasing of their own.
_ALIASING_INSIDE: Final = frozenset({"fusion", "custom-call"})


def write_out(start: Instruction) -> Instruction:
    """Turn a start in sugar into an `async-start`; make its updates and done generic.

    Returns the operation, which is the root of the new computation. The halves keep
    their names.
    """
    halves = _halves_of(start)
    operation = _operation(halves)
    of_start = _own_attributes(operation.opcode).union(_OF_BOTH)
    for old in halves:
        opcode = f"async-{half(old)}"
        attributes = dict(old.attributes)
        if old is start:
            attributes = {n: t for n, t in attributes.items() if n in of_start}
            attributes["calls"] = f"%{operation.computation.name}"
        computation, name = old.computation, old.name
        new = computation.new(
            opcode,
            old.shape,
            old.operands,
            in_print_order(attributes, opcode),
            before=old,
        )
        take_place(old, new)
        computation.rename(new, name)
    return operation


def _halves_of(start: Instruction) -> list[Instruction]:
    """A start, its updates and its done, in order."""
    halves = [start]
    while True:
        following = [u for u in halves[-1].users if half(u) in ("update", "done")]
        if not following:
            return halves
        halves.append(following[0])


def _own_attributes(opcode: str) -> frozenset[str]:
    """What a start in sugar of an opcode has, and what it starts has not."""
    own = frozenset({_THREAD, "sharding"})
    return own if opcode in _ALIASING_INSIDE else own | {_ALIASING}


def _operation(halves: list[Instruction]) -> Instruction:
    """The operation in a new computation of parameters and itself."""
    start, opcode = halves[0], work_of(halves[0])
    signature = sugar_signature(start)
    assert signature is not None
    module = start.computation.module
    wrapper = Computation(module.fresh_computation_name("async_wrapped"))
    module.add_computation(wrapper, before=start.computation)
    parameters = [
        wrapper.new("parameter", shape, name="async_param", literal=str(k))
        for k, shape in enumerate(signature.parameters)
    ]
    outside = _own_attributes(opcode)
    attributes = {n: t for n, t in start.attributes.items() if n not in outside}
    for later in halves[1:]:
        attributes |= {n: t for n, t in later.attributes.items() if n in _OF_BOTH}
    operation = wrapper.new(
        opcode,
        signature.result,
        parameters,
        in_print_order(attributes, opcode),
        name="async_op",
    )
    wrapper.set_root(operation)
    set_thread(wrapper, start.attributes.get(_THREAD, "").strip('"') or MAIN_THREAD)
    return operation
