"""The interface of estimators, and what all of them ask about an instruction.

    node_cost(instruction)    how long it holds its resource, us
    latency(start, user)      from a start to its done (or to any user), us

An estimator that has no price returns None, and the next one of a stack is asked.
Source: openxla/xla `latency_hiding_scheduler.h`, LatencyEstimator.
"""

from __future__ import annotations

from typing import Final, Protocol

from hlo_passes.ir.async_form import half, is_collective, is_transfer, start_of
from hlo_passes.ir.instruction import Instruction
from hlo_passes.scheduler.fusions.fused_graph import transpose_is_bitcast
from hlo_passes.scheduler.latency.collectives import wrapped_collective
from hlo_passes.scheduler.latency.estimate import Estimate

#: XLA's abstract costs and latencies; they are compared with microseconds unchanged.
LOW: Final = 1.0
MEDIUM: Final = 1000.0
HIGH: Final = 5000.0

#: Models whose microseconds are abstract constants of XLA, and no model at all.
COARSE: Final = ("approximate", "gpu-approximate", "none")
#: What an instruction costs that no estimator knows.
UNKNOWN: Final = Estimate(0.0, "none", "no estimator of the stack knows it")
#: How a model's name ends where it has no better answer than a constant.
_CONSTANT: Final = "/constant"
#: What XLA takes for what it believes to be fused, and for kernels without a model.
NEXT_TO_NOTHING_US: Final = 0.01

#: Thirty years: what a file says beyond is a mistake, and sums would overflow a float.
MOST_US: Final = 1e15

_NOPS: Final = frozenset(
    "get-tuple-element bitcast constant parameter tuple partition-id replica-id "
    "opt-barrier".split()
)
_NS_PER_US: Final = 1000.0


class Estimator(Protocol):
    """The one interface of all estimators."""

    @property
    def name(self) -> str:
        """The name that `--estimator` takes."""
        ...

    def node_cost(self, instruction: Instruction) -> Estimate | None:
        """Cost of an instruction; None if this estimator does not know it."""
        ...

    def latency(self, start: Instruction, user: Instruction) -> Estimate | None:
        """Latency of the edge between two instructions; None if unknown."""
        ...


def is_constant(model: str) -> bool:
    """Whether a model's answers are constants: nothing knows the instruction."""
    return model in COARSE or model.endswith(_CONSTANT)


def is_guess(model: str, reason: str) -> bool:
    """Whether a time is a constant for want of a price."""
    return model in COARSE or (model.endswith(_CONSTANT) and reason != "")


def has_no_price(model: str, reason: str, us: float) -> bool:
    """Whether a step may be made of a time that is a constant for want of a price.

    What XLA believes to be fused away has a constant, too, next to nothing.
    """
    least = 0.0 if model in COARSE else NEXT_TO_NOTHING_US
    return us > least and is_guess(model, reason)


def least_us(estimator: Estimator, instruction: Instruction) -> float:
    """What a kernel takes at least whose price leaves out its bytes, us.

    It has next to nothing for want of a price, or is a matrix product. 0 for any other
    instruction, and for an estimator that cannot tell.
    """
    ask = getattr(estimator, "least_us", None)
    return 0.0 if ask is None else ask(instruction)


def is_nop(instruction: Instruction) -> bool:
    """Whether it generates no code."""
    opcode = instruction.opcode
    if opcode in _NOPS:
        return True
    return opcode == "transpose" and transpose_is_bitcast(instruction)


def is_async_collective(instruction: Instruction) -> bool:
    """Start or done of a collective, or a point-to-point op."""
    role = half(instruction)
    if role not in ("start", "done"):
        return False
    if is_transfer(instruction) or is_collective(instruction):
        return True
    # From XLA 0.12 on a wrapped fusion may be a collective, too.
    start = start_of(instruction)
    return start.opcode == "async-start" and wrapped_collective(start) is not None


def latency_of_metadata(instruction: Instruction) -> float | None:
    """Microseconds from the frontend attribute `latency_metadata`, which holds ns."""
    if "latency_metadata" not in instruction.attributes.get("frontend_attributes", ""):
        return None
    text = instruction.frontend_attributes.get("latency_metadata", "")
    try:
        return int(text) / _NS_PER_US
    except ValueError:
        return None
