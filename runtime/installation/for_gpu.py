"""What XLA's GPU compiler goes on to do behind `pre-scheduler`, and dies of.

    body of a while:  %c = (f32[8], f32[4]) all-reduce(%a, %b), ...
    anywhere:         %b = f32[4,8] bitcast(%p)

At `pre-scheduler` a GPU's module has most of XLA's passes before it. One of them moves
all-reduces out of loops, takes every all-reduce for one of an array, and ends the
process over a combined one (jax 0.12.0.1; `while_loop_all_reduce_code_motion.cc`).
Layout assignment comes later too, and refuses a bitcast, which speaks of layouts.
"""

from __future__ import annotations

from hlo_passes.errors import PassError
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.module import Module


class NotForGpuError(PassError):
    """The passes made something that XLA's GPU compiler dies of."""

    default_code = "E051"


def require_for_gpu(module: Module) -> None:
    """Refuse bitcasts, and combined reductions in loops, that passes made; E051."""
    bodies: dict[Computation, None] = {}
    for computation in module.computations:
        for instruction in computation.instructions:
            if instruction.opcode == "bitcast" and not instruction.line:
                raise NotForGpuError(
                    f"%{instruction.name} = bitcast(...) stands in front of XLA's "
                    "layout assignment, which refuses it",
                    hint="combine-by-dim=true keeps the all-gather combiner from it",
                )
            if instruction.opcode == "while":
                bodies |= dict.fromkeys(instruction.called_computations)
    for body in bodies:
        for instruction in body.instructions:
            if (
                instruction.opcode in ("all-reduce", "reduce-scatter")
                and not instruction.line  # made by a pass
                and instruction.shape.is_tuple
            ):
                raise NotForGpuError(
                    f"%{instruction.name} = {instruction.opcode}(...) in the loop body "
                    f"%{body.name} has several operands: passes of XLA's behind this "
                    "stage end the process over it",
                    hint="leave loops to XLA's own combiner, which runs later",
                )
