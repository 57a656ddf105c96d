"""Values across calls: loops, branches, calls, wrapped asynchronous computations.

    w = while(t), body=%body, condition=%cond
        part k unchanged by the body: w, the parameters and the root all hold t's value
        part k changed:               w and the parameters hold new values
                                      (phis), which share memory with t's and the root's

Source: openxla/xla `xla/hlo/analysis/hlo_dataflow_analysis.cc`, `hlo_alias_analysis.cc`
(Aug 2026).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hlo_passes.ir.async_form import half, wrapped_computation
from hlo_passes.scheduler.memory.buffer_sizes import parts_of
from hlo_passes.scheduler.memory.value_table import ValueTable

if TYPE_CHECKING:
    from hlo_passes.ir.computation import Computation
    from hlo_passes.ir.instruction import Instruction


def while_values(table: ValueTable, instruction: Instruction, base: int) -> list[int]:
    """Values of a loop; binds and merges those of its body and condition."""
    body, condition = instruction.called_computations
    initial = table.of(instruction.operands[0])
    root = [table.resolve(v) for v in table.of(body.root)]
    parameter = _first_of_parameter(table, body)
    tested = _first_of_parameter(table, condition)
    flattened = table.has_one_caller(body) and table.has_one_caller(condition)
    kept = _unchanged(initial, root, parameter) if flattened else set()
    found: list[int] = []
    for k, value in enumerate(initial):
        if k in kept:
            found.append(value)
            table.passed_on.append(value)
            table.bind_value(parameter + k, value)
            table.bind_value(tested + k, value)
            continue
        found.append(base + k)
        for phi in (base + k, parameter + k, tested + k):
            table.phis.add(phi)
            table.merge(base + k, phi)
        table.merge(base + k, value)
        table.merge(base + k, root[k])
    return found


def _unchanged(initial: list[int], root: list[int], parameter: int) -> set[int]:
    """Parts that keep their initial value forever.

    A part may take another unchanged part's value if both began with the same one.
    """
    count = len(initial)
    kept = set(range(count))
    while True:
        changed = set()
        for k in kept:
            source = root[k] - parameter
            if 0 <= source < count:
                holds = source in kept and initial[source] == initial[k]
            else:
                holds = root[k] == initial[k]
            if not holds:
                changed.add(k)
        if not changed:
            return kept
        kept -= changed


def conditional_values(
    table: ValueTable, instruction: Instruction, base: int
) -> list[int]:
    """Values of a conditional; binds the parameters of its branches."""
    branches = instruction.called_computations
    for branch, operand in zip(branches, instruction.operands[1:], strict=True):
        for parameter in branch.parameters:
            table.bind(parameter, table.of(operand))
    roots = [[table.resolve(v) for v in table.of(b.root)] for b in branches]
    found: list[int] = []
    for k, values in enumerate(zip(*roots, strict=True)):
        if len(set(values)) == 1:
            found.append(values[0])
            table.passed_on.append(values[0])
            continue
        found.append(base + k)
        table.phis.add(base + k)
        for value in values:
            table.merge(base + k, value)
    return found


def call_values(table: ValueTable, instruction: Instruction, base: int) -> list[int]:
    """Values of a call: those of the callee's root."""
    del base  # a call defines no value
    (callee,) = instruction.called_computations
    for parameter in callee.parameters:
        operand = instruction.operands[parameter.parameter_number]
        table.bind(parameter, table.of(operand))
    return [table.resolve(v) for v in table.of(callee.root)]


def async_start_values(
    table: ValueTable, instruction: Instruction, base: int
) -> list[int]:
    """Values of a generic start: ((operands), results, contexts...).

    A start has its own tables and contexts; {0,k} hold the operands, {1..} the results
    of the wrapped computation. Sugar (reduce-scatter-start) makes the results itself.
    """
    found = list(range(base, base + parts_of(instruction.shape).count))
    _pass_operands(table, instruction, found, _bound_operands(instruction))
    _bind_parameters(table, instruction, instruction.operands, 0)
    callee = wrapped_computation(instruction)
    if callee is not None:
        if callee.root.opcode == "dynamic-update-slice":
            # It counts as in place: the result is in the operand's memory.
            _place(table, instruction, found, (1,), instruction.operands[0], ())
        else:
            _place(table, instruction, found, (1,), callee.root, ())
    return found


def async_update_values(
    table: ValueTable, instruction: Instruction, base: int
) -> list[int]:
    """Values of a step between start and done: it has its own tables only."""
    found = list(range(base, base + parts_of(instruction.shape).count))
    chain = instruction.operands[0]
    parts = parts_of(instruction.shape)
    for k in range(1, len(instruction.shape.elements)):
        if (k,) in parts.offsets:
            _place(table, instruction, found, (k,), chain, (k,))
    operands = _bound_operands(instruction)
    late = instruction.operands[1:]
    _bind_parameters(table, instruction, late, len(operands) - len(late))
    _pass_operands(table, instruction, found, operands)
    return found


def async_done_values(
    table: ValueTable, instruction: Instruction, base: int
) -> list[int]:
    """Values of a done: its own tables, and the arrays of the wrapped computation."""
    found = list(range(base, base + parts_of(instruction.shape).count))
    wrapped = wrapped_computation(instruction)
    if wrapped is not None:
        _place(table, instruction, found, (), wrapped.root, ())
    else:
        _place(table, instruction, found, (), instruction.operands[0], (1,))
    return found


def _first_of_parameter(table: ValueTable, computation: Computation) -> int:
    return table.first(computation.parameters[0])


def _bound_operands(instruction: Instruction) -> list[Instruction]:
    """Operands bound from the start of the chain up to this step."""
    steps = [instruction]
    while half(steps[-1]) in ("update", "done"):
        steps.append(steps[-1].operands[0])
    bound = list(steps.pop().operands)
    for step in reversed(steps):
        bound += step.operands[1:]
    return bound


def _bind_parameters(
    table: ValueTable,
    step: Instruction,
    operands: Sequence[Instruction],
    first_number: int,
) -> None:
    """Bind parameters of the wrapped computation to what one step brings for them."""
    callee = wrapped_computation(step)
    for parameter in () if callee is None else callee.parameters:
        at = parameter.parameter_number - first_number
        if 0 <= at < len(operands):
            table.bind(parameter, table.of(operands[at]))


def _pass_operands(
    table: ValueTable,
    instruction: Instruction,
    found: list[int],
    operands: list[Instruction],
) -> None:
    for k, operand in enumerate(operands):
        _place(table, instruction, found, (0, k), operand, ())


def _place(
    table: ValueTable,
    target: Instruction,
    found: list[int],
    path: tuple[int, ...],
    source: Instruction,
    source_path: tuple[int, ...],
) -> None:
    """Put the values of a part of `source` at `path`; tuples keep their own tables."""
    offsets = parts_of(target.shape).offsets
    source_parts = parts_of(source.shape)
    if source_path not in source_parts.offsets:
        return
    low, high = source_parts.span(source_path)
    values = table.of(source)
    for k in range(low, high):
        if source_parts.is_tuple[k]:
            continue
        at = offsets.get((*path, *source_parts.paths[k][len(source_path) :]))
        if at is not None:
            found[at] = table.resolve(values[k])
