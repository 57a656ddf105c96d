"""Overlaps ragged dispatch, experts and combination if that makes the step shorter.

Before:  %d = f32[64,8] ragged-all-to-all(%x, %zeros, %o, %s, %p, %q), ...
         %h = f32[4,16,8] dot(reshape(%d), %w), lhs_batch_dims={0}, ...
         %c = f32[48,8] ragged-all-to-all(reshape(%h), %none, ...), ...
After:   %d.0, %d.1 = f32[32,8] ragged-all-to-all(...)   rows of experts 0, 1 and 2, 3
         %h.0, %h.1 = f32[2,16,8] dot(...)
         %c.0 = f32[48,8] ragged-all-to-all(reshape(%h.0), %none, ...)
         %c = f32[48,8] ragged-all-to-all(reshape(%h.1), %c.0, ...)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import ClassVar, Final

from hlo_passes.analysis.channels import next_channel_id
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.passes.decomposing.ragged_chunks import Site, site_of, write_chunks
from hlo_passes.passes.framework.base import PassContext, Report
from hlo_passes.scheduler.passes.chain_choice import (
    ChainChoice,
    collectives_of,
    found_in,
)
from hlo_passes.scheduler.passes.priced_chains import ChainTrials, Key, Step, key_of
from hlo_passes.scheduler.passes.priced_pass import PricedRewrite

_RAGGED: Final = "ragged-all-to-all"
#: Numbers of chunks that are tried.
_TRIED: Final = (2, 4, 8)


@dataclass(frozen=True, slots=True)
class RaggedAllToAllChunker(PricedRewrite):
    """Cut sparse mixtures of experts into chunks if the simulated step gets shorter.

    The pass looks for three things in a row: a ragged all-to-all (the dispatch), what
    is computed row by row from the rows that arrive (the experts), and the ragged
    all-to-all that sends the results on (the combination). It cuts all three into
    chunks of rows. While the experts of one chunk work, the rows of the next chunk
    arrive, and the rows of the chunk before leave. If a device has several experts,
    chunks consist of whole experts (the pass cuts along the largest dimension that all
    values in between share). Otherwise, chunks consist of rows. If these do not divide
    evenly, the first chunks are longer.

    No row changes, whatever the tables say. Each chunk takes from each update what
    lands on its rows, and an extra all-to-all sends the new sizes to the receivers.
    Dots keep their sums, but a library may add up k products in another order if there
    are fewer rows. Such sums differ by at most 2 g times the sum of the absolute
    values, with g = k u / (1 - k u) and u = 2^-24 for f32. If anything else reads the
    rows or the experts' results, the pass puts them together for it.

    The pass leaves alone experts that mix rows, and ragged all-to-alls with control
    edges, unsigned offsets or groups of different sizes. If several combinations follow
    a dispatch, the first one in text order counts.

    The pass decides by price, as `collective-ring-decomposer` does, the most exposed
    dispatch first. XLA has no price for a ragged all-to-all, so the pass simulates
    steps with `--extended`. That price is an all-to-all of the smaller of the two
    buffers, times the latency option `ragged_imbalance`. New collectives are charged
    the most that any collective of at most their size costs. Everything that is
    computed row by row is charged as kernels, before and after. Chunks need no
    `_scheduling_group_id`, and they lose the group ids of the old instructions.
    `always` cuts whatever can be cut, without a price.

    Requires: an unscheduled module and no file of costs by name, unless `always`.
    Ensures: the step does not get longer, whether `gpu-schedule` or, unless
        `after-xla=false`, `xla-gpu` schedules it and `simulate --extended` measures it.
    Complexity: `gpu-schedule` and `simulate`, for each number of chunks that is tried.
    Source: this project; XLA has no such pass.

    Attributes:
        chunks: number of chunks, at most the number of experts. 0 tries 2, 4 and 8;
            with `always`, it means 2.
        always: cut whatever can be cut, without a price.
        min_gain: least share of the step that chunks must save.
    """

    name: ClassVar[str] = "ragged-all-to-all-chunker"
    left: ClassVar[str] = "nothing cut"
    needs_collectives: ClassVar[bool] = True
    reorders_sums: ClassVar[bool] = True

    chunks: int = 0

    def __post_init__(self) -> None:
        """Refuse values out of range (U013)."""
        if self.chunks < 0 or self.chunks == 1:
            raise ValueError("chunks must be 0, or 2 or more")
        PricedRewrite.__post_init__(self)

    def rewrite(self, module: Module, context: PassContext, report: Report) -> None:
        """Find what can be cut; then cut what pays."""
        found = self._sites(module, report)
        if not found:
            return
        channels = count(next_channel_id(module))
        if self.always:
            for key in found:
                self._write_always(module, key, channels, report)
            return
        priced = replace(context.pricing, extended=True)
        trials = ChainTrials(module, context.pricing, self.schedule, reports=priced)
        for site in found.values():
            trials.added |= {key_of(i) for i in site.cuts.values if i.opcode != _RAGGED}
        _Choice(self, module, trials, found, channels, report).run("not cut")

    def _sites(self, module: Module, report: Report) -> dict[Key, Site]:
        found: dict[Key, Site] = {}
        for collective, place in collectives_of(module, (_RAGGED,)):
            site = place or site_of(collective)
            if isinstance(site, Site):
                found[key_of(collective)] = site
            elif site:
                report.remark(f"not cut: %{collective.name} {site}")
        return found

    def _write_always(
        self, module: Module, key: Key, channels: Iterator[int], report: Report
    ) -> None:
        dispatch = found_in(module, key)
        # Another one may have cut what follows it.
        site = site_of(dispatch)
        if isinstance(site, Site):
            computation = dispatch.computation
            new = write_chunks(site, self.numbers(site)[0], channels)
            restore_text_order(computation)
            _count(report, new)

    def numbers(self, site: Site) -> list[int]:
        """Numbers of chunks to try."""
        units = site.cuts.units
        wanted = (self.chunks,) if self.chunks else _TRIED
        return [k for k in wanted if k <= units] or [units]


def _count(report: Report, new: list[Instruction]) -> None:
    report.count("dispatches-cut")
    report.count("ragged-all-to-alls-made", sum(i.opcode == _RAGGED for i in new))


@dataclass(slots=True)
class _Choice(ChainChoice[RaggedAllToAllChunker, Site, int]):
    """Decides by steps; a number of chunks is a form."""

    def promising(self, key: Key, now: Step) -> list[int] | str:
        """All numbers, as long as there is something to hide under."""
        site = site_of(found_in(self.module, key))
        if not isinstance(site, Site):
            return site or "is no longer followed by a combination"
        self.left[key] = site
        return self.options.numbers(site)

    def words(self, form: int) -> str:
        """`4 chunks`."""
        return f"{form} chunks"

    def write(
        self, collective: Instruction, site: Site, form: int, channels: Iterator[int]
    ) -> list[Instruction]:
        """Write the chunks."""
        if collective is not site.dispatch:
            found = site_of(collective)
            assert isinstance(found, Site), "a copy has what the module has"
            site = found
        return write_chunks(site, form, channels)

    def count(self, opcode: str, new: list[Instruction]) -> None:
        """Count dispatches and ragged all-to-alls."""
        _count(self.report, new)
