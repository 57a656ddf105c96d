"""Runs two iterations of a loop as one, or all of them.

Before:  while (10 times):  %y = all-gather(%x), channel_id=1
                            f(%y)
After:   while (5 times):   %y = all-gather(%x), channel_id=1
                            f(%y)
                            %y.1 = all-gather(%x.1), channel_id=2
                            f(%y.1)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from hlo_passes.analysis.call_graph import build_call_graph, computations_post_order
from hlo_passes.analysis.channels import next_channel_id
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.ir.gpu_config import gpu_config, known_trip_count
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.metadata import BackendConfig
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.loops.iteration_copies import (
    Copying,
    is_collective_opcode,
    only,
    peel,
    set_counts,
    shift_iterations,
    unroll_body,
)
from hlo_passes.passes.rewriting.cloning import call_copies
from hlo_passes.passes.rewriting.flattening import flatten_call_graph

#: The frontend attribute that chooses a strategy for one loop, and its values.
_WISH: Final = "_xla_loop_unroll_strategy"
_WISHES: Final = {"double-buffer": "double-buffer", "full": "full-unroll"}
#: How many iterations become one.
_FACTOR: Final = 2


@dataclass(frozen=True, slots=True)
class LoopDoubleBufferTransformer(Pass):
    """Run two iterations of a loop as one.

    The buffers and transfers of the two iterations then alternate. A loop must have a
    known trip count in its backend config (see `while-loop-trip-count-annotator`) and
    must run more than once. If the number of iterations is odd, one iteration runs
    before the loop. Copies of collectives get their own channel ids. Control edges make
    the second iteration wait for the first one, except for its collectives. Afterward,
    each call in the control flow has its own computation.

    XLA does some surprising things here:

    - It gives a channel id even to collectives that had none, and gives channel 0 to
      wrapped collectives.
    - It drops the control edges of the first iteration's result.
    - If it copies an inner loop, it leaves a copy of each fusion body that nothing
      calls.
    - In 0.10.2, it does not update the offsets of wrapped slices.

    Without XLA's quirks (`--no-xla-quirks`), the pass does none of this. If one
    computation has several loops, XLA first unrolls the loop that was made first. The
    text does not show that order, so channel ids may differ from XLA's.

    Ensures: trip count, start and step in the backend config are those of the new loop.
    Complexity: linear in instructions and in the control edges that are added: one from
        each element of the result to each reader of the state, as in XLA; with
        `full-unroll`, times the number of iterations.
    Source: openxla/xla `xla/backends/gpu/transforms/double_buffer_loop_unrolling.cc`.

    Attributes:
        strategy: `double-buffer`; `full-unroll` turns all iterations into one; `auto`
            doubles only loops with a collective in their body; `manual` follows the
            frontend attribute `_xla_loop_unroll_strategy` of each loop (`double-buffer`
            or `full`).
        most_instructions: leave a loop alone if its new body would have more
            instructions.
        most_control_edges: leave a loop alone if its new body would have more control
            edges between iterations.
        xla: the release of XLA to follow; none: the release that the run follows.
    """

    name: ClassVar[str] = "loop-double-buffer-transformer"

    strategy: Literal["double-buffer", "full-unroll", "auto", "manual"] = (
        "double-buffer"
    )
    most_instructions: int = 1_000_000
    most_control_edges: int = 4_000_000
    xla: str = ""

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Unroll each loop that was there at the start, inner ones first."""
        version = module.version
        loops = [
            instruction
            for computation in computations_post_order(module, fusions=False)
            for instruction in computation.instructions
            if instruction.opcode == "while"
        ]
        if not loops:
            return False
        graph = build_call_graph(module)
        release = context.release_for(module, self.xla)
        copying = Copying(
            next_channel_id(module),
            context.xla_quirks,
            release.shifts_wrapped_slices or not context.xla_quirks,
        )
        for loop in loops:
            wish = self._wish(loop)
            reason = self._reason_to_keep(loop, wish)
            if reason:
                report.remark(f"not unrolled: %{loop.name} {reason}")
                continue
            if len(graph.callers_of(loop.called_computations[0])) > 1:
                call_copies(loop)
            if wish == "full-unroll":
                _unroll_fully(loop, copying)
                report.count("loops-unrolled-fully")
            else:
                _double(loop, copying)
                report.count("loops-doubled")
        if module.version == version:
            return False
        flatten_call_graph(module, xla_quirks=context.xla_quirks)
        return True

    def _wish(self, loop: Instruction) -> str:
        """What to do with a loop; '' for nothing."""
        if self.strategy == "auto":
            body = loop.called_computations[0]
            has_collective = any(map(is_collective_opcode, body.instructions))
            return "double-buffer" if has_collective else ""
        if self.strategy == "manual":
            return _WISHES.get(loop.frontend_attributes.get(_WISH, "").lower(), "")
        return self.strategy

    def _reason_to_keep(self, loop: Instruction, wish: str) -> str:
        attribute = loop.frontend_attributes.get(_WISH)
        if attribute is not None and attribute.lower() not in _WISHES:
            return f"has the unknown {_WISH} {attribute!r}"
        count = known_trip_count(loop)
        if count is None:
            return "has no known trip count"
        if count < _FACTOR:
            return f"runs {('never', 'once')[count]}"
        if not wish:
            return (
                "has no collective in its body"
                if self.strategy == "auto"
                else f"has no {_WISH}"
            )
        body = loop.called_computations[0]
        if body.root is body.parameters[0]:
            return "has a body that does nothing"
        copies = count if wish == "full-unroll" else _FACTOR
        if copies * len(body.instructions) > self.most_instructions:
            return f"would have {copies * len(body.instructions)} instructions"
        readers = sum(e.user_count for e in body.parameters[0].users)
        edges = (copies - 1) * readers * len(body.root.operands)
        if edges > self.most_control_edges:
            return f"would have {edges} control edges"
        return ""


def _double(loop: Instruction, copying: Copying) -> None:
    """Make one iteration of two; of an odd number the first one runs before."""
    body = loop.called_computations[0]
    count = known_trip_count(loop)
    assert count is not None
    first = count % _FACTOR
    peel(loop, first, copying)
    iterations = unroll_body(body, _FACTOR, copying)
    shift_iterations(iterations, first, copying)
    restore_text_order(body)
    set_counts(loop, count // _FACTOR, first, _FACTOR)


def _unroll_fully(loop: Instruction, copying: Copying) -> None:
    """Make one iteration of all."""
    body = loop.called_computations[0]
    count = known_trip_count(loop)
    assert count is not None
    for number, instructions in enumerate(unroll_body(body, count, copying)):
        for instruction in instructions:
            copying.shift_slices(instruction, only(number))
    restore_text_order(body)
    config = dict(gpu_config(loop))
    config["known_trip_count"] = {"n": "1"}
    loop.backend_config = BackendConfig.of_json(config)
