"""Runs transfers beside the parts of a matrix product if that shortens the step.

Before:  %g = f32[64,32] all-gather(%x), replica_groups={{0,1}}, dimensions={0}, ...
         %d = f32[64,16] dot(%g, %w), ...
After:   %p = f32[32,32] collective-permute(%x), source_target_pairs={{0,1},{1,0}}
         %a = f32[32,16] dot(%x, %w), ...
         %u = f32[64,16] dynamic-update-slice(%zeros, %a, %me * 32, 0)
         %b = f32[32,16] dot(%p, %w), ...
         %d = f32[64,16] dynamic-update-slice(%u, %b, (%me + 1) % 2 * 32, 0)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import ClassVar, Final, Literal

from hlo_passes.analysis.channels import next_channel_id
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.passes.decomposing.matmul_chains import (
    MATMUL_FORMS,
    MatmulForm,
    trips_of,
    write_matmul,
)
from hlo_passes.passes.decomposing.matmul_sites import KINDS, Site, site_of
from hlo_passes.passes.framework.base import PassContext, Report
from hlo_passes.scheduler.hardware.machine import machine_of
from hlo_passes.scheduler.passes.chain_choice import (
    LEAST_BOTH_WAYS,
    ChainChoice,
    collectives_of,
    found_in,
)
from hlo_passes.scheduler.passes.priced_chains import ChainTrials, Key, Step, key_of
from hlo_passes.scheduler.passes.priced_pass import PricedRewrite
from hlo_passes.scheduler.simulation.units import time_text
from hlo_passes.scheduler.sums import sequential_sum

_PERMUTE: Final = "collective-permute"


@dataclass(frozen=True, slots=True)
class CollectiveMatmul(PricedRewrite):
    """Cut dots and their collectives into parts that overlap if the step gets shorter.

    If a dot reads an all-gather, the all-gather becomes a ring of permutes, and the dot
    becomes one dot for each shard: while one shard is multiplied, the next one travels.
    If a reduce-scatter reads a dot, it becomes a ring of sums: while one sum travels,
    the device multiplies the part that is added to it. Several dots may read one
    all-gather. If other instructions read it too, the pass puts its result together
    from the shards. `bidirectional` sends shards both ways at once.

    The ring runs inside the fast domain, such as a host of eight H100s or the 72 GPUs
    of an NVL72. If a group has several domains, the ring runs once for each domain. In
    each round, one permute goes to the next domain while the parts of the round before
    are multiplied.

    The pass decides by price, as `collective-ring-decomposer` does. It schedules and
    simulates the module with each chain in turn, the most exposed collective first. A
    chain stays if the step gets shorter twice: by `simulate`, and with prices that
    never fall as bytes rise. Small dots use a GPU worse than a large one, and each
    permute has a latency, so the pass leaves most dots alone. Remarks say what each
    refused chain would cost. `always` writes all chains, without asking.

    The pass leaves these alone:

    - groups that cross replicas and partitions, have different sizes, omit devices, or
      have unlike parts in the domains;
    - collectives along a batch dimension of the dot;
    - dots with control edges, and dots that others read besides a reduce-scatter;
    - all-gathers and reduce-scatters of more than one array, and asynchronous ones.

    If the dots keep the gathered dimension, no bit changes: each element is the same
    sum of the same products. (A library may add these up in another order for fewer
    rows.) All other floating-point sums come in this order:

    - A dot that sums over the gathered dimension adds its parts as they arrive: its own
      part, then the parts of the devices before it. With `bidirectional`, the parts of
      the device before and of the device after take turns. So the sums of two devices
      may differ.
    - Block b of a reduce-scatter is the sum, from left to right, of the members b+1,
      b+2, ..., b-1, b of its ring. `bidirectional` adds b-n/2, ..., b, and then the sum
      of b+(n-1)/2, ..., b+1. The sums of domains are added from the domain after the
      owner's to the owner's.

    Such a sum differs from the sum in any other order by at most 2 g times the sum of
    the absolute values of its n parts, with g = (n-1) u / (1 - (n-1) u) and u = 2^-24
    for f32, 2^-8 for bf16. The parts of a sum over the gathered dimension are rounded
    to the type of the dot, which adds another such bound. Integers keep every bit.

    Requires: an unscheduled module and no file of costs by name, unless `always`.
    Ensures: the step does not get longer, whether `gpu-schedule` or, unless
        `after-xla=false`, `xla-gpu` schedules it and `simulate` measures it.
    Complexity: `gpu-schedule`, `xla-gpu` and `simulate`, for each chain that is tried.
    Source: this project; XLA makes such loops while it partitions, without a price.

    Attributes:
        form: form of the rings. `cheapest` tries both; with `always`, it means the
            ring.
        unroll: `all` writes out every step. `none` writes a loop where steps are alike,
            in groups of one domain. `cheapest` tries both; with `always`, it means
            `all`.
        kinds: kinds of collectives, separated by blanks.
        domain: number of devices that a fast fabric joins, with ids that follow one
            another; 0: the machine's number.
        min_gain: least share of the step that a chain must save.
    """

    name: ClassVar[str] = "collective-matmul"
    left: ClassVar[str] = "nothing cut"
    needs_collectives: ClassVar[bool] = True
    reorders_sums: ClassVar[bool] = True

    form: Literal["cheapest", "ring", "bidirectional"] = "cheapest"
    unroll: Literal["cheapest", "all", "none"] = "cheapest"
    kinds: tuple[str, ...] = KINDS
    domain: int = 0

    def __post_init__(self) -> None:
        """Refuse values out of range (U013)."""
        unknown = [kind for kind in self.kinds if kind not in KINDS]
        if unknown:
            raise ValueError(f"kinds must be of {' '.join(KINDS)}, not {unknown[0]}")
        if self.domain < 0:
            raise ValueError("domain must be 0 or more")
        PricedRewrite.__post_init__(self)

    def rewrite(self, module: Module, context: PassContext, report: Report) -> None:
        """Find what can be cut; then cut what pays."""
        domain = self.domain or machine_of(module, context.pricing).partition_size
        found = self._sites(module, domain, report)
        if not found:
            return
        channels = count(next_channel_id(module))
        if self.always:
            for key in found:
                self._write_always(module, key, domain, channels, report)
            return
        trials = ChainTrials(module, context.pricing, self.schedule)
        _Choice(self, module, trials, found, channels, report, domain).run("not cut")

    def _sites(self, module: Module, domain: int, report: Report) -> dict[Key, Site]:
        found: dict[Key, Site] = {}
        for collective, place in collectives_of(module, self.kinds):
            site = site_of(collective, domain)
            if site and place:
                site = place
            if isinstance(site, Site):
                found[key_of(collective)] = site
            elif site:
                report.remark(f"not cut: %{collective.name} {site}")
        return found

    def _write_always(
        self,
        module: Module,
        key: Key,
        domain: int,
        channels: Iterator[int],
        report: Report,
    ) -> None:
        collective = found_in(module, key)
        opcode, computation = collective.opcode, collective.computation
        # Another one may have cut its dots.
        site = site_of(collective, domain)
        if not isinstance(site, Site):
            report.remark(f"not cut: %{collective.name} {site or _CUT}")
            return
        form, loop = self.forms(site)[0]
        new = write_matmul(site, form, channels, loop=loop)
        restore_text_order(computation)
        _count(report, opcode, new)

    def forms(self, site: Site) -> list[tuple[MatmulForm, bool]]:
        """Forms to try, each unrolled or as a loop."""
        wanted = MATMUL_FORMS if self.form == "cheapest" else (self.form,)
        if len(site.levels.near[0]) < LEAST_BOTH_WAYS:
            wanted = ("ring",)
        found: list[tuple[MatmulForm, bool]] = []
        for form in wanted:
            if self.unroll != "none" or not trips_of(site, form):
                found.append((form, False))
            if self.unroll != "all" and trips_of(site, form):
                found.append((form, True))
        return found


#: Why a collective stays whose dots another one has cut.
_CUT: Final = "is no longer beside a dot"


def _count(report: Report, opcode: str, new: list[Instruction]) -> None:
    report.count(f"{opcode}s-cut")
    report.count("permutes-made", sum(i.opcode == _PERMUTE for i in new))
    report.count("dots-made", sum(i.opcode == "dot" for i in new))


@dataclass(frozen=True, slots=True)
class _Form:
    """A form of one site."""

    form: MatmulForm
    loop: bool


@dataclass(frozen=True, slots=True)
class _Price:
    """What a form costs.

    Attributes:
        parts_us: of the dots, all together.
        permutes_us: all together.
        hides: whether a part takes as long as a permute.
    """

    parts_us: float
    permutes_us: float
    hides: bool

    def least_us(self, in_flight: int, hiding_us: float) -> float:
        """How long it takes at least.

        Where a part cannot hide a permute, XLA's scheduler gives two parts to one and
        leaves none for the next.
        """
        transfers = max(0.0, self.permutes_us / in_flight - hiding_us)
        beside = 0.0 if self.hides else transfers / 2
        return max(self.parts_us + beside, transfers)


@dataclass(slots=True)
class _Choice(ChainChoice[CollectiveMatmul, Site, _Form]):
    """Decides by the prices of parts and permutes, then by steps."""

    domain: int
    _prices: dict[tuple[object, ...], _Price] = field(default_factory=dict)

    def promising(self, key: Key, now: Step) -> list[_Form] | str:
        """The forms whose parts and permutes can take less than what is there."""
        collective = found_in(self.module, key)
        site = site_of(collective, self.domain)
        if not isinstance(site, Site):
            return site or _CUT
        self.left[key] = site
        row, hiding = now.rows[key], now.hiding_us(key)
        whole = sequential_sum(self.trials.compute_us(p.dot) for p in site.products)
        in_flight = self.options.parallel_collective_overlap_limit
        found: list[_Form] = []
        said = ""
        for form, loop in self.options.forms(site):
            price = self._price_of(key, site, form)
            if price.least_us(in_flight, hiding) < whole + row.exposed_us:
                found.append(_Form(form, loop))
            said = said or (
                f"stays: the parts of its dots cost {time_text(price.parts_us)} and "
                f"their permutes {time_text(price.permutes_us)}, the dots "
                f"{time_text(whole)} and the {row.opcode} {time_text(row.exposed_us)}; "
                f"{time_text(hiding)} of other compute can hide permutes"
            )
        return found or said

    def words(self, form: _Form) -> str:
        """`the ring`, `the two rings as a loop`."""
        words = "the ring" if form.form == "ring" else "the two rings"
        return f"{words} as a loop" if form.loop else words

    def write(
        self,
        collective: Instruction,
        site: Site,
        form: _Form,
        channels: Iterator[int],
    ) -> list[Instruction]:
        """Write the chain."""
        if collective is not site.collective:
            found = site_of(collective, self.domain)
            assert isinstance(found, Site), "a copy has what the module has"
            site = found
        return write_matmul(site, form.form, channels, loop=form.loop)

    def count(self, opcode: str, new: list[Instruction]) -> None:
        """Count permutes and parts."""
        _count(self.report, opcode, new)

    def _price_of(self, key: Key, site: Site, form: MatmulForm) -> _Price:
        """What all parts of the dots cost, and all permutes."""
        like = (
            site.collective.opcode,
            site.members,
            form,
            tuple(
                (p.side, p.result, *(i.shape.text for i in (p.dot, *p.dot.operands)))
                for p in site.products
            ),
        )
        if like not in self._prices:
            _, new = self.rewritten(key, _Form(form, loop=False))
            parts = [self.trials.compute_us(i) for i in new if i.opcode == "dot"]
            permutes = [self.trials.fair_us(i) for i in new if i.opcode == _PERMUTE]
            sums = sequential_sum(parts), sequential_sum(permutes)
            hides = sums[1] / len(permutes) <= sums[0] / len(parts)
            self._prices[like] = _Price(*sums, hides)
        return self._prices[like]
