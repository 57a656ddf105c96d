"""What a program has, so that levers without effect on it are not tried.

facts = facts_of(module, topology)
facts.lacks(("looped", "all-gather"))     'no all-gather is in a loop'
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Final

from hlo_passes.ir.async_form import (
    half,
    is_start,
    is_transfer,
    wrapped_instruction,
)
from hlo_passes.ir.calls import runs_callees, scheduled_computations
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.scheduler.hardware.topology import Topology
from hlo_passes.scheduler.latency.collectives import collective_begun
from hlo_passes.scheduler.latency.gemm import gemm_of
from hlo_passes.scheduler.tuning.lever import Lever, Need, Quantity
from hlo_passes.scheduler.tuning.levers import LEVERS

#: What a send or a recv was before XLA took it apart.
_OF_TRANSFERS: Final = "collective-permute"
#: Collectives that a product may be cut up for.
_OF_PRODUCTS: Final = frozenset({"all-gather", "reduce-scatter"})
_TWO: Final = 2
#: What is missing, in words; {} is the kind.
_LACKS: Final[dict[Quantity, str]] = {
    "any": "it has no {}",
    "two": "it has fewer than two {}s in one computation",
    "looped": "no {} is in a loop",
    "loops": "it has no loop",
    "products": "no matrix product is next to an all-gather or a reduce-scatter",
    "hosts": "all GPUs are in one NVLink domain",
    "async": "nothing but collectives is asynchronous",
}


@dataclass(frozen=True, slots=True)
class ProgramFacts:
    """What a program has.

    Attributes:
        kinds: of its collectives, sends and recvs counted as permutes; those that are
            combined count for each operand.
        together: by kind, the most in one computation; '' for all kinds.
        looped: kinds in the bodies of loops.
        loops: their number.
        has_products: whether it has a matrix product.
        has_async_work: whether something else than a collective is asynchronous.
        crosses_domains: whether the machine has several NVLink domains.
    """

    kinds: frozenset[str]
    together: tuple[tuple[str, int], ...]
    looped: frozenset[str]
    loops: int
    has_products: bool
    has_async_work: bool
    crosses_domains: bool

    def lacks(self, need: Need) -> str:
        """What a program lacks of a need, as a clause; '' if it has it."""
        quantity, kind = need
        has: dict[Quantity, bool] = {
            "any": kind in self.kinds if kind else bool(self.kinds),
            "two": dict(self.together).get(kind, 0) >= _TWO,
            "looped": self._is_looped(kind),
            "loops": self.loops > 0,
            "products": self.has_products and bool(self.kinds & _OF_PRODUCTS),
            "hosts": self.crosses_domains,
            "async": self.has_async_work,
        }
        return "" if has[quantity] else _LACKS[quantity].format(kind or "collective")

    def _is_looped(self, kind: str) -> bool:
        # What pipelines all-reduces runs before reduce-scatters are made of them.
        kinds = {kind, "reduce-scatter"} if kind == "all-reduce" else {kind}
        return bool(self.looped & kinds) if kind else bool(self.looped)

    def pointless(self, lever: Lever) -> str:
        """Why a lever changes nothing here, '' if it may."""
        return next(filter(None, map(self.lacks, lever.needs)), "")

    def dropped(self) -> dict[str, str]:
        """Why each lever that changes nothing here does not."""
        reasons = {name: self.pointless(lever) for name, lever in LEVERS.items()}
        return {name: reason for name, reason in reasons.items() if reason}


def facts_of(module: Module, topology: Topology) -> ProgramFacts:
    """What a module has, scheduled or not.

    Complexity: linear in instructions.
    """
    return facts_from(
        module,
        _kinds,
        has_products=any(
            gemm_of(instruction) is not None
            for computation in scheduled_computations(module)
            for instruction in computation.instructions
        ),
        has_async_work=any(
            is_start(instruction) and not _communicates(instruction)
            for computation in scheduled_computations(module)
            for instruction in computation.instructions
        ),
        crosses_domains=topology.partitions > 1,
    )


def facts_from(
    module: Module,
    kinds_of: Callable[[Computation], Iterable[str]],
    *,
    has_products: bool,
    has_async_work: bool,
    crosses_domains: bool,
) -> ProgramFacts:
    """What a module has, counted.

    Args:
        module: scheduled or not.
        kinds_of: the kind of each collective that begins in a computation.
        has_products: as in `ProgramFacts`, which has the next two, too.
        has_async_work: see there.
        crosses_domains: see there.
    """
    kinds: set[str] = set()
    most: Counter[str] = Counter()
    loops: list[Instruction] = []
    for computation in scheduled_computations(module):
        here = Counter(kinds_of(computation))
        kinds |= set(here)
        here[""] = sum(here.values())
        for kind, count in here.items():
            most[kind] = max(most[kind], count)
        loops += (i for i in computation.instructions if i.opcode == "while")
    return ProgramFacts(
        kinds=frozenset(kinds),
        together=tuple(sorted(most.items())),
        looped=frozenset(
            kind for each in _computations_of_loops(loops) for kind in kinds_of(each)
        ),
        loops=len(loops),
        has_products=has_products,
        has_async_work=has_async_work,
        crosses_domains=crosses_domains,
    )


def _computations_of_loops(loops: list[Instruction]) -> list[Computation]:
    """What loops run, also by what their bodies call."""
    reached: dict[Computation, None] = {}
    for loop in loops:
        reached |= dict.fromkeys(loop.called_computations)
    work = list(reached)
    for computation in work:
        for instruction in computation.instructions:
            if runs_callees(instruction):
                new = [c for c in instruction.called_computations if c not in reached]
                reached |= dict.fromkeys(new)
                work += new
    return work


def _kinds(computation: Computation) -> Iterator[str]:
    """The kind of each collective that begins here, of a combined one several times."""
    for instruction in computation.instructions:
        if kind := _kind(instruction):
            yield from repeat(kind, _members(instruction))


def _kind(instruction: Instruction) -> str:
    """The kind of a collective that begins here, '' for anything else."""
    if half(instruction) not in ("", "start"):
        return ""
    if is_transfer(instruction):
        return _OF_TRANSFERS
    return collective_begun(instruction)


def _communicates(start: Instruction) -> bool:
    return is_transfer(start) or collective_begun(start) != ""


def _members(instruction: Instruction) -> int:
    """How many collectives were combined into one."""
    return max(1, len(wrapped_instruction(instruction).operands))
