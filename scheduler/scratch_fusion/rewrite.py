"""Writes the fusions of a part into its computation.

%e = exponential(%m)           ->   %e_fusion = fusion(%x, %y), calls=%fused_e
readers of %e                  ->   readers of the fusion, or of its element
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.passes.rewriting.cloning import element_of
from hlo_passes.passes.rewriting.copies import derive
from hlo_passes.scheduler.scratch_fusion.kernels import Kernel, Kernels, write_fusion
from hlo_passes.scheduler.scratch_fusion.parts import Part

#: Original -> what stands for it now.
Successors = dict[Instruction, Instruction]


def rewrite(
    kernels: Kernels,
    chosen: Sequence[Kernel],
    computation: Computation,
    successors: Successors,
) -> None:
    """Put kernels in place of the instructions of a part.

    Args:
        kernels: of the part; they know the orders of evaluation.
        chosen: those that compute it, in an order in which they can run.
        computation: of the part. Its text order is not restored.
        successors: of instructions that are gone; this part's are added.
    """
    part = kernels.part
    for kernel in chosen:
        if not kernel.is_fusion:
            continue
        _, order = kernels.narrowest(kernel.nodes)
        results = tuple(sorted(kernel.outputs))
        fusion = write_fusion(
            part,
            order,
            kernel.outputs,
            computation,
            lambda value: successors.get(value, value),
            before=part.nodes[results[-1]],
        )
        _describe(fusion, [part.nodes[node] for node in results])
        for place, node in enumerate(results):
            value = fusion
            if len(results) > 1:
                value = element_of(fusion, place, before=part.nodes[results[-1]])
                _hand_on(value, part.nodes[node])
            successors[part.nodes[node]] = value
            computation.replace_uses(part.nodes[node], value)
    _remove(part, chosen, computation)


def _describe(fusion: Instruction, results: Sequence[Instruction]) -> None:
    if len(results) == 1:
        _hand_on(fusion, results[0])
        return
    derive(fusion, results[-1])
    sharding = results[0].attributes.get("sharding")
    if sharding is not None:
        fusion.set_attribute("sharding", f"{{{', '.join([sharding] * len(results))}}}")


def _hand_on(new: Instruction, old: Instruction) -> None:
    derive(new, old)
    new.set_attribute("origin", old.attributes.get("origin"))


def _remove(part: Part, chosen: Sequence[Kernel], computation: Computation) -> None:
    """Remove what no kernel leaves as it is, users first, and what is dead then."""
    plain = {n for kernel in chosen if not kernel.is_fusion for n in kernel.nodes}
    for node in sorted(part.everything - plain, reverse=True):
        computation.remove_with_dead_operands(part.nodes[node])
