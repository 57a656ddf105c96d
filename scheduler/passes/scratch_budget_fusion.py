"""Fuses elementwise instructions while their live values fit into a scratch memory.

Before:  %m = f32[1024] multiply(%x, %y)
         %e = f32[1024] exponential(%m)
         %a = f32[1024] add(%e, %m)
After:   %fused_a (param_0: f32[1024], param_1: f32[1024]) -> f32[1024] {
           %m.1 = multiply(%param_0, %param_1)       in scratch: x, y, m: 12 bytes
           %e.1 = exponential(%m.1)                              m, e:     8 bytes
           ROOT %a.1 = add(%e.1, %m.1)                           e, m, a: 12 bytes
         }
         %loop_add_fusion = f32[1024] fusion(%x, %y), kind=kLoop, calls=%fused_a
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import ClassVar

from hlo_passes.analysis.call_graph import build_call_graph
from hlo_passes.analysis.module_state import require_priceable
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.scheduler.hardware.target import target
from hlo_passes.scheduler.latency.durations import us_of_ticks
from hlo_passes.scheduler.scratch_fusion.choice import Division, divide
from hlo_passes.scheduler.scratch_fusion.kernels import (
    Kernels,
    Prices,
    likeness,
    scratch_bits,
    tile_bytes,
)
from hlo_passes.scheduler.scratch_fusion.parts import (
    Numbers,
    Part,
    is_candidate,
    parts_of,
    reason_to_stay,
)
from hlo_passes.scheduler.scratch_fusion.rewrite import Successors, rewrite
from hlo_passes.scheduler.simulation.units import time_text


@dataclass(frozen=True, slots=True)
class ScratchBudgetFusion(Pass):
    """Fuse elementwise instructions while their live values fit into a scratch memory.

    A fusion computes an array tile by tile. Scratch holds the values that are live, for
    each element of a tile:

    - an array that the fusion reads, from the first instruction that reads it to the
      last one;
    - a value that the fusion computes, from there to the last instruction of the fusion
      that reads it.

    The operands and the result of one instruction are in scratch together. Whatever is
    written to memory leaves scratch at once. A pred takes a byte. Scalars, broadcasts
    of scalars and iotas take nothing. A fusion needs the sum at the widest point, times
    the elements of a tile (or of the array, if it is smaller). The pass takes the order
    of evaluation that makes this sum smallest, and writes the body in that order. No
    fusion needs more than `scratch-bytes`.

    In the example, every fusion needs three values. With scratch for only two values, 8
    bytes per element, nothing is fused. If more values are alive than scratch holds,
    there are several fusions, cut where that is cheapest. A value that two of them need
    is loaded, or computed twice.

    A part of a computation is a set of connected elementwise instructions with one
    size, layout, sharding and frontend attributes. No path goes out of a part and back.
    The pass divides a part into fusions. A value that goes from one fusion to the next
    is written and loaded, or computed in both, whichever is cheaper. Instructions with
    control edges, scalars, copies, maps and everything that is not elementwise stay,
    and so do collectives. Each fusion repeats the broadcasts of scalars and the iotas
    that it reads.

    Prices come from XLA's model for kernels, in which a plain instruction is its own
    loop kernel. The model does not count launches, so the real gain is rather larger.
    The pass finds the cheapest division if a part has at most `exact-limit` kernels to
    choose from. Otherwise, it takes the best cuts of one order and improves them value
    by value. Remarks say where. A part stays as it is if no division is cheaper.

    A fusion has the metadata, the origin, the sharding and the frontend attributes of
    its result. If it has several results, it has the metadata of the last one, and the
    elements of its tuple have those of what they replace. The instructions inside a
    fusion keep theirs.

    Requires: an unscheduled module before copy insertion.
    Ensures: the kernels do not cost more than before; values keep every bit; a second
        run changes nothing.
    Complexity: for each distinct part `exact-limit` prices, and that many steps from
        each of 4,096 states; elsewhere 24 prices for each instruction and 500 tries.
        Joining parts walks over up to 2,000 instructions for each edge that is left.
    Source: this project; XLA fuses by rules, without a scratch memory.

    Attributes:
        scratch_bytes: scratch for one tile; 49,152 is the shared memory that a block of
            threads has on all of NVIDIA's GPUs (CUDA C++ Programming Guide, "Technical
            Specifications per Compute Capability").
        tile_elements: elements that a fusion computes at a time; 512 is what a block of
            XLA's loop kernel computes: 128 threads, four elements each.
        exact_limit: the most kernels of a part (what they compute, and what of that
            they write) for which the pass compares all divisions; 0: it never does.
    """

    name: ClassVar[str] = "scratch-budget-fusion"

    scratch_bytes: int = 49152
    tile_elements: int = 512
    exact_limit: int = 6561

    def __post_init__(self) -> None:
        """Refuse values out of range (U013)."""
        if self.scratch_bytes < 0 or self.exact_limit < 0:
            raise ValueError("scratch-bytes and exact-limit must be 0 or more")
        if self.tile_elements < 1:
            raise ValueError("tile-elements must be 1 or more")

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit computations.

        Raises WrongStateError S017, S018 for a module that no GPU can run.
        """
        require_priceable(module)
        if module.is_scheduled:
            report.remark(
                "nothing fused: the module is scheduled; its copies also keep values "
                "from overwriting each other"
            )
            return False
        version = module.version
        graph = build_call_graph(module)
        search = _Search(self, Prices(target(context.pricing.target)), report)
        for computation in graph.post_order:
            if not graph.is_fusion_body(computation) and not graph.is_async_body(
                computation
            ):
                search.run(computation)
        if search.ticks != search.ticks_before:
            report.details[self.name] = {
                "kernels_us": us_of_ticks(search.ticks),
                "kernels_us_before": us_of_ticks(search.ticks_before),
            }
        return module.version != version


@dataclass(slots=True)
class _Search:
    """Divides the parts of a module; equal ones are divided once.

    Attributes:
        settings: the pass.
        prices: of kernels.
        report: of the pass.
        ticks_before: of all that was divided.
        ticks: of its kernels now.
    """

    settings: ScratchBudgetFusion
    prices: Prices
    report: Report
    ticks_before: int = 0
    ticks: int = 0
    _known: dict[Hashable, Division] = field(default_factory=dict)

    def run(self, computation: Computation) -> None:
        """Fuse until nothing pays: around new fusions, other parts hang together."""
        for instruction in computation.instructions:
            reason = reason_to_stay(instruction) if is_candidate(instruction) else ""
            if reason:
                self.report.remark(f"not fused: %{instruction.name} {reason}")
        while True:
            successors: Successors = {}
            remarks = [
                self._divide(part, computation, successors)
                for part in parts_of(computation)
            ]
            if not successors:
                break
            restore_text_order(computation)
        for remark in filter(None, remarks):
            self.report.remark(f"not fused: {remark}")

    def _divide(
        self, part: Part, computation: Computation, successors: Successors
    ) -> str:
        """Rewrite a part if that pays; else why it does not."""
        settings = self.settings
        bits = scratch_bits(part, settings.scratch_bytes, settings.tile_elements)
        kernels = Kernels(part, self.prices, bits)
        key = likeness(part, range(len(part.nodes)), part.kept)
        division = self._known.get(key)
        if division is None:
            division = self._known[key] = divide(kernels, settings.exact_limit)
        elif not division.is_exact:
            kernels.lay_out()
        before = sum(self.prices.plain(node) for node in part.nodes)
        if division.ticks >= before:
            return self._reason(kernels, division, before)
        if len(division.kernels) > 1 or not division.is_exact:
            self.report.remark(self._cut(kernels, division))
        self.ticks_before += before
        self.ticks += division.ticks
        self._count(part, division)
        rewrite(kernels, division.kernels, computation, successors)
        return ""

    def _count(self, part: Part, division: Division) -> None:
        fusions = [k for k in division.kernels if k.is_fusion]
        self.report.count("fusions-made", len(fusions))
        fused = {node for kernel in fusions for node in kernel.nodes}
        self.report.count("instructions-fused", len(fused))
        again = sum(len(k.nodes) for k in division.kernels) - len(part.nodes)
        if again:
            self.report.count("instructions-computed-again", again)
        between = len(loaded(part, division))
        if between:
            self.report.count("values-loaded-again", between)

    def _reason(self, kernels: Kernels, division: Division, before: int) -> str:
        part = kernels.part
        bound = (
            "no fusions are" if division.is_exact else "no fusions were found that are"
        )
        return (
            f"{_named(part)}: {time_text(us_of_ticks(before))} as they are, {bound} "
            f"cheaper{self._scratch(kernels)}"
        )

    def _scratch(self, kernels: Kernels) -> str:
        """What one fusion of all would need, where there is less."""
        part, settings = kernels.part, self.settings
        if kernels.fits(part.everything):
            return ""
        needed, _ = kernels.narrowest(part.everything)
        return (
            f"; all in one need {tile_bytes(part, needed, settings.tile_elements)} of "
            f"{settings.scratch_bytes} bytes of scratch"
        )

    def _cut(self, kernels: Kernels, division: Division) -> str:
        part, count = kernels.part, len(division.kernels)
        proof = "the cheapest" if division.is_exact else "not proven to be the cheapest"
        if count == 1:
            return f"in one fusion, {proof}: {_named(part)}"
        values = sorted(loaded(part, division))
        cut = " ".join(f"%{part.nodes[node].name}" for node in values)
        memory = f" with {cut} in memory" if cut else ""
        return (
            f"not in one fusion: {_named(part)}, but in {count} kernels{memory}, "
            f"{proof}{self._scratch(kernels)}"
        )


def loaded(part: Part, division: Division) -> Numbers:
    """Values that one kernel writes and another one loads."""
    loads = (part.loads_of_others(kernel.nodes) for kernel in division.kernels)
    return frozenset(value for some in loads for value in some)


def _named(part: Part) -> str:
    others = len(part.nodes) - 1
    return f"%{part.nodes[0].name}" + (f" and {others} more" if others else "")
