"""A rule of the scheduler, and an estimator of its costs."""

from dataclasses import dataclass

from hlo_passes.ir.instruction import Instruction
from hlo_passes.pricing import Pricing
from hlo_passes.scheduler.hardware.target import target
from hlo_passes.scheduler.latency.estimate import Estimate
from hlo_passes.scheduler.latency_hiding.rule import by_number

#: Bottom-up, the more expensive of two candidates comes first: later in the program.
MOST_EXPENSIVE = by_number(
    "most-expensive",
    "kMostExpensive",
    "the more expensive one",
    lambda state, node: state.graph.cost[node],
)


@dataclass(frozen=True)
class ByBytes:
    """Every instruction takes as long as memory takes for its result."""

    bytes_per_us: float
    name: str = "by-bytes"

    def node_cost(self, instruction: Instruction) -> Estimate | None:
        """Microseconds that an instruction takes."""
        return Estimate(instruction.shape.byte_size / self.bytes_per_us, self.name)

    def latency(self, start: Instruction, user: Instruction) -> Estimate | None:
        """Microseconds from a start to its done; None: the next estimator answers."""
        del start, user
        return None


def by_bytes(pricing: Pricing) -> ByBytes:
    """The estimator for the GPU that `--target` names."""
    return ByBytes(target(pricing.target).memory_bandwidth_bytes_per_s / 1e6)
