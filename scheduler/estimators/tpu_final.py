"""`tpu-final`: the estimates that XLA:TPU leaves in the final module.

    fusion(...), backend_config={"window_config":{"estimated_cycles":"1000",...},...}

They are made after tiling and memory-space assignment and are nearer to the chip's peak
rates than what the compiler's scheduler works with, `tpu-log`: the two differ by
`DIFFERENCE` on matrix products. A collective's latency is its bytes over the links that
it uses; that of a copy between HBM and VMEM its bytes over the bandwidth of HBM:

    permute               operands / one link one way
    all-gather            results / two directions of one ring
    all-reduce            twice its operands / the same: summed in parts, then gathered
    others                operands / the same
    copy-start, copy      bytes to and from HBM / a device's share of its bandwidth

The same holds for collectives in fusions and on SparseCores; an all-reduce of which
each device keeps a slice gathers nothing. No fixed latency is added, as the compiler
adds none, and what shares links or HBM does not slow down.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hlo_passes.analysis.sent_bytes import passing_bytes
from hlo_passes.ir.async_form import (
    half,
    is_collective,
    is_start,
    work_of,
    wrapped_instruction,
)
from hlo_passes.ir.calls import runs_callees
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.tpu_config import estimated_cycles
from hlo_passes.scheduler.estimators.base import LOW
from hlo_passes.scheduler.latency.collectives import kernel_collective
from hlo_passes.scheduler.latency.estimate import Estimate
from hlo_passes.scheduler.tpu.chips import Chip
from hlo_passes.scheduler.tpu.continuations import half_of_cut
from hlo_passes.scheduler.tpu.costs import NAME as TPU_LOG
from hlo_passes.scheduler.tpu.dma import FREE_CALLS, hbm_bytes, is_dma
from hlo_passes.scheduler.tpu.sparse_core import offloaded_collective
from hlo_passes.scheduler.tpu.unpriced import may_take_time

TPU_FINAL: Final = "tpu-final"
#: How much the two estimators of TPUs differ on a fusion with a matrix product, as
#: measured for docs/tpu.md.
DIFFERENCE: Final = "0.65 to 5.9 times"
_LINKS: Final = "tpu-final/ici"
_MEMORY: Final = "tpu-final/hbm"
_US_PER_S: Final = 1e6
#: Of what an all-reduce sends, if each device keeps a slice of the sum.
_LESS: Final = 0.5


@dataclass(frozen=True, slots=True)
class TpuFinalEstimator:
    """Cycles of the final module, and bytes over links.

    Attributes:
        part: the chip.
    """

    part: Chip
    name: str = TPU_FINAL

    def node_cost(self, instruction: Instruction) -> Estimate | None:
        """The estimate that the module holds; None for work that has none."""
        cycles = estimated_cycles(instruction)
        if cycles is not None:
            return Estimate(self.part.us(cycles), self.name)
        if half(instruction) or half_of_cut(instruction) or not _runs(instruction):
            return Estimate(0.0, self.name)
        return self._of_collective(instruction) or self._over_hbm(instruction)

    def latency(self, start: Instruction, user: Instruction) -> Estimate | None:
        """Bytes over links or HBM; 1 cycle if nothing is in flight, None: unknown."""
        del user
        found = self._of_collective(start)
        if found is not None:
            return found
        if is_dma(start):
            return self._over_hbm(start)
        return None if is_start(start) else Estimate(self.part.us(LOW), self.name)

    def _of_collective(self, instruction: Instruction) -> Estimate | None:
        """Of a collective, also in a fusion or on a SparseCore; None of other work."""
        if is_collective(instruction):
            return self._over_links(wrapped_instruction(instruction))
        inside = kernel_collective(instruction) or offloaded_collective(instruction)
        if inside is None:
            return None
        return self._over_links(inside, share=_LESS if _keeps_a_slice(inside) else 1)

    def _over_hbm(self, copy: Instruction) -> Estimate | None:
        """Of a copy, or the start of one; None if it leaves HBM alone or the chip."""
        moved = hbm_bytes(copy)
        if not moved:
            return None
        speed = self.part.hbm_bytes_per_s / self.part.devices_per_chip
        return Estimate(moved / speed * _US_PER_S, _MEMORY)

    def _over_links(self, collective: Instruction, share: float = 1) -> Estimate:
        directions = 1 if work_of(collective) == "collective-permute" else 2
        speed = self.part.ici_bytes_per_s * directions
        passing = passing_bytes(collective) * share
        return Estimate(passing / speed * _US_PER_S, _LINKS)


def _keeps_a_slice(inside: Instruction) -> bool:
    """Whether a kernel sums in parts and does not gather them: a reduce-scatter."""
    users = inside.users
    return (
        inside.opcode == "all-reduce"
        and inside is not inside.computation.root
        and bool(users)
        and all(user.opcode == "dynamic-slice" for user in users)
    )


def _runs(instruction: Instruction) -> bool:
    """Whether it may take time of the cores; callees of loops and calls do that."""
    if runs_callees(instruction):
        return False
    target = instruction.attributes.get("custom_call_target")
    is_copy = instruction.opcode == "copy"  # a cycle in the scheduler's log alone
    return target not in FREE_CALLS and (is_copy or may_take_time(instruction))


def other_estimator_note(names: str) -> tuple[str, ...]:
    """A note that the other estimator of TPUs may say otherwise; () for other names.

    Args:
        names: of the estimators that gave the prices, joined by '+'.
    """
    pair = _asked_and_other(names)
    if pair is None:
        return ()
    return (
        f"{pair[1]}, the other estimator of TPUs, may give something very different: "
        f"{DIFFERENCE} on fusions with a matrix product; ask both",
    )


def range_premise(names: str) -> str:
    """The end of a range: by whose costs it holds; '' for prices of GPUs.

    Args:
        names: as for `other_estimator_note`.
    """
    pair = _asked_and_other(names)
    if pair is None:
        return ""
    return f"; settings of {pair[0]} alone, {pair[1]} may lie outside"


def _asked_and_other(names: str) -> tuple[str, str] | None:
    """The estimator of TPUs among these names, and the other one."""
    asked = names.split("+")
    if TPU_FINAL in asked:
        return TPU_FINAL, TPU_LOG
    return (TPU_LOG, TPU_FINAL) if TPU_LOG in asked else None
