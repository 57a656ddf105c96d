"""Writes how often a loop runs into its backend config.

Before:  %w = (s32[], f32[8]) while(%start), condition=%below_126, body=%add_1
         %i = s32[] get-tuple-element(%w), index=0        readers of %i
After:   %w = ..., backend_config={"known_trip_count":{"n":"126"},"known_init_step":
              {"init":"0","step":"1"},"known_induction_variable":{"tuple_index":"0"},
              "dynamic_variables":[]}
         %constant = s32[] constant(126)                  readers of %constant
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from hlo_passes.analysis.call_graph import computations_post_order
from hlo_passes.analysis.host_offload import moves_slice
from hlo_passes.analysis.scalar_expressions import in_range, wrapped
from hlo_passes.analysis.trip_counts import TripCounts
from hlo_passes.analysis.while_loop_patterns import (
    LoopRange,
    induction_variable,
    loop_range,
    signed_integer,
    start_constant,
    xla_trip_count,
)
from hlo_passes.ir.gpu_config import gpu_config, has_gpu_config
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.metadata import BackendConfig
from hlo_passes.ir.module import Module
from hlo_passes.ir.shapes import array_shape
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.xla_release import XlaRelease

#: All that the backend config of a loop may hold, in the order of XLA's message.
_FIELDS: Final = (
    "known_trip_count",
    "known_init_step",
    "known_induction_variable",
    "dynamic_variables",
)
#: Where the indices of a slice begin among its operands.
_FIRST_INDEX: Final = {"dynamic-slice": 1, "dynamic-update-slice": 2}
#: Terms of a sum that are looked at.
_MOST_TERMS: Final = 1000
_ARITHMETIC: Final = frozenset({"add", "divide", "multiply", "subtract"})


@dataclass(frozen=True, slots=True)
class WhileLoopTripCountAnnotator(Pass):
    """Write a loop's trip count, counter, start and step into its backend config.

    Other passes need these numbers, for example `loop-double-buffer-transformer`. The
    pass recognizes the same loops as XLA: one scalar of the state (the induction
    variable) decides when the loop ends. Either this scalar grows by a constant, or its
    end is found within 128 iterations. Readers of the scalar's last value read a
    constant instead. If a loop moves slices to or from the host, the pass also lists
    the other scalars that choose the slices. XLA miscounts some loops (`i > 10`).
    Without XLA's quirks (`--no-xla-quirks`), the pass leaves out such a count. XLA's
    interpreter also runs loops over floating-point types; this pass does not count
    them.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions, plus 128 iterations of a loop's condition.
    Source: openxla/xla `xla/hlo/transforms/while_loop_trip_count_annotator.cc`.

    Attributes:
        xla: the release of XLA to follow; none: the release that the run follows.
    """

    name: ClassVar[str] = "while-loop-trip-count-annotator"

    xla: str = ""

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit every loop, callees first."""
        version = module.version
        release = context.release_for(module, self.xla)
        judge = None if context.xla_quirks else TripCounts(module)
        for loop in list(_loops(module)):
            index = induction_variable(loop, release)
            if index is None:
                report.remark(
                    f"not annotated: no scalar alone decides when %{loop.name} ends"
                )
                continue
            if not has_gpu_config(loop) or set(gpu_config(loop)) - set(_FIELDS):
                report.remark(
                    f"not annotated: the backend config of %{loop.name} is not that of "
                    "a loop"
                )
                continue
            _annotate(loop, index, release, judge, report)
        return module.version != version


def _loops(module: Module) -> Iterator[Instruction]:
    for computation in computations_post_order(module, fusions=False):
        for instruction in computation.instructions:
            if instruction.opcode == "while":
                yield instruction


def _annotate(
    loop: Instruction,
    index: int,
    release: XlaRelease,
    judge: TripCounts | None,
    report: Report,
) -> None:
    """Annotate one loop; `judge` leaves out the counts that XLA gets wrong."""
    # Count by the range of the variable, else by whatever XLA finds.
    values = loop_range(loop, index)
    is_ranged = values is not None and _is_representable(values)
    if values is not None and is_ranged:
        distance = wrapped("s64", values.last - values.first)
        quotient = abs(distance) // values.step
        count: int | None = (quotient if distance >= 0 else -quotient) + 1
    else:
        values, count = None, xla_trip_count(loop, index, release)
    if count is not None and judge is not None and count != judge.found(loop):
        report.remark(f"not counted: %{loop.name} does not run {count} times")
        values = count = None
    # Write the config, whose numbers are texts as in every message of 64 bits.
    config: dict[str, Any] = {}
    if count is not None:
        config["known_trip_count"] = {"n": str(count)}
        report.count("loops-counted")
    if values is not None:
        config["known_init_step"] = _line(values.first, values.step)
    config["known_induction_variable"] = {"tuple_index": str(index)}
    config["dynamic_variables"] = [
        _variable(loop, element, index, values)
        for element in sorted(_slice_elements(loop))
    ]
    if config != gpu_config(loop):
        written = (
            dict(sorted(config.items())) if release.config_is_alphabetical else config
        )
        loop.backend_config = BackendConfig.of_json(written)
        report.count("loops-annotated")
    # Whoever reads the last value reads a constant.
    if values is not None and count is not None:
        _forward(loop, index, values.first + values.step * count, report)


def _is_representable(values: LoopRange) -> bool:
    return (
        values.first >= 0
        and in_range("s64", values.first)
        and values.last >= 0
        and in_range("s64", values.last)
    )


def _forward(loop: Instruction, index: int, last: int, report: Report) -> None:
    for element in loop.users:
        if element.tuple_index_or_none != index or not (
            element.users or element.is_root
        ):
            continue
        kind = element.shape.element_type
        constant = loop.computation.new(
            "constant",
            array_shape(kind, ()),
            literal=str(wrapped(kind, last)),
            after=element,
        )
        loop.computation.replace_uses(element, constant)
        if element in loop.computation.spelled_elements:
            # Its text was that of its readers.
            loop.computation.remove(element)
        report.count("last-values-forwarded")


# -- scalars that choose slices on the host ----------------------------------------


def _slice_elements(loop: Instruction) -> set[int]:
    """Elements of the state that choose slices, if one moves to or from the host."""
    body = loop.called_computations[0].instructions
    if not any(map(moves_slice, body)):
        return set()
    found: set[int] = set()
    for instruction in body:
        begin = _FIRST_INDEX.get(instruction.opcode)
        if begin is not None:
            for operand in instruction.operands[begin:]:
                found |= _elements_below(operand)
    return found


def _elements_below(index: Instruction) -> set[int]:
    found: set[int] = set()
    seen: set[Instruction] = set()
    work = [index]
    while work:
        instruction = work.pop()
        if instruction in seen:
            continue
        seen.add(instruction)
        if instruction.opcode == "get-tuple-element":
            found.add(instruction.tuple_index)
        elif instruction.opcode == "copy" or instruction.opcode in _ARITHMETIC:
            work += instruction.operands
    return found


def _variable(
    loop: Instruction, element: int, index: int, values: LoopRange | None
) -> Mapping[str, str]:
    """One entry of `dynamic_variables`: where it starts and its step, if known."""
    entry = {"tuple_index": str(element)}
    body, start = loop.called_computations[0], loop.operands[0]
    found = None
    if element < len(body.root.operands):
        found = _sum(body.root.operands[element], body.parameters[0])
    first = start_constant(start, element)
    if found is None or found[0] is None or first is None:
        return entry
    source, step = found
    if source == element:
        return entry | _line(first, step)
    # A variable that follows the counting one, an iteration late.
    if values is None or source != index:
        return entry
    is_late = first == values.first - values.step + step
    return entry | _line(first, values.step) if is_late else entry


def _line(first: int, step: int) -> dict[str, str]:
    return {"init": str(first), "step": str(step)}


def _sum(root: Instruction, state: Instruction) -> tuple[int | None, int] | None:
    """(element, constant) of a sum of constants and at most one element of `state`."""
    element: int | None = None
    constant, budget = 0, _MOST_TERMS
    work = [(root, 1)]
    while work:
        term, sign = work.pop()
        budget -= 1
        if term.opcode == "get-tuple-element" and term.operands[0] is state:
            if element is not None or sign < 0:
                return None
            element = term.tuple_index
        elif term.opcode == "constant":
            value = signed_integer(term)
            if value is None:
                return None
            constant += sign * value
        elif term.opcode in ("add", "subtract") and budget > 0:
            left, right = term.operands
            work += [
                (left, sign),
                (right, -sign if term.opcode == "subtract" else sign),
            ]
        else:
            return None
    return element, constant
