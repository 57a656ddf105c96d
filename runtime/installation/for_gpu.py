"""Refuses, at `pre-scheduler`, what makes XLA's GPU compiler abort later.

    body of a while:  %c = (f32[8], f32[4]) all-reduce(%a, %b), ...
    anywhere:         %b = f32[4,8] bitcast(%p)
    anywhere:         %n = f32[8] negate(%p), control-predecessors={%m}
    anywhere:         %f = (f32[8], f32[8]) fusion(%p), kind=kLoop, calls=%both

At `pre-scheduler` most of XLA's passes are still to run on a GPU's module. One of them
moves all-reduces out of loops, assumes that every all-reduce has one array, and aborts
the process for a combined one (jax 0.12.0.1; `while_loop_all_reduce_code_motion.cc`).
Layout assignment is also later, and refuses a bitcast, which depends on layouts, and a
fusion of several results, to whose root it gives none.
Fusion can abort the process over a control edge (`hlo_dfs_reachability.cc`: it did for
one from a hyperbolic tangent to an exponential, not for every one), and a collective
with one cannot be replaced.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo_passes.errors import PassError
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module


class NotForGpuError(PassError):
    """The passes made an operation that makes XLA's GPU compiler abort."""

    default_code = "E051"


def require_for_gpu(module: Module) -> None:
    """Refuse what XLA cannot compile if a pass made it; E051."""
    lines = module.source.text.splitlines() if module.source else []
    bodies: dict[Computation, None] = {}
    for computation in module.computations:
        for instruction in computation.instructions:
            if instruction.opcode == "bitcast" and not instruction.line:
                raise NotForGpuError(
                    f"%{instruction.name} = bitcast(...) comes before XLA's "
                    "layout assignment, which refuses it",
                    hint="with combine-by-dim=true the all-gather combiner does not "
                    "make it",
                )
            if (
                instruction.opcode == "fusion"
                and not instruction.line
                and instruction.shape.is_tuple
            ):
                raise NotForGpuError(
                    f"%{instruction.name} = fusion(...) has several results and comes "
                    "before XLA's layout assignment, which refuses it",
                    hint="leave fusion to XLA, which makes its own later",
                )
            _require_no_new_edges(instruction, lines)
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
                    f"%{body.name} has several operands: passes of XLA after this "
                    "stage abort the process because of it",
                    hint="leave loops to XLA's own combiner, which runs later",
                )


def _require_no_new_edges(instruction: Instruction, lines: Sequence[str]) -> None:
    """Refuse edges to an instruction that had none; E051."""
    before = instruction.control_predecessors
    if not before:
        return
    if instruction.line and "control-predecessors" in lines[instruction.line - 1]:
        return
    raise NotForGpuError(
        f"%{instruction.name} = {instruction.opcode}(...) must wait for "
        f"%{before[0].name}: XLA's fusion comes after this stage, and may abort "
        "the process because of control edges",
        hint="loop-multi-buffer{control-edges=false} makes none",
    )
