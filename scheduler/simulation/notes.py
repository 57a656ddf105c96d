"""Notes for readers of simulated numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hlo_passes.scheduler.latency.estimate import share_remarks
from hlo_passes.scheduler.simulation.prices import Prices
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.simulation.surroundings import Surroundings
from hlo_passes.scheduler.simulation.units import time_text

ESTIMATES: Final = "all times are estimates"
#: Text in the notes that limit how far the headline's numbers can be trusted.
_NO_TIMES: Final = "abstract constants"
#: How the note of loops that count once begins.
_COUNTED_ONCE: Final = "trip counts are not known, 1 was used"
#: Loops that a line names.
_MOST_NAMED: Final = 3


def concerns_headline(note: str) -> bool:
    """Whether a note belongs to the headline: some of its terms are not real times."""
    return _NO_TIMES in note or concerns_loops(note)


def concerns_loops(note: str) -> bool:
    """Whether a note says that loops count once; a report's first line says it, too."""
    return note.startswith(_COUNTED_ONCE)


def once_remark(loops: Sequence[str]) -> tuple[str, ...]:
    """What a report's first line says of loops that count once; () where none does."""
    if not loops:
        return ()
    names = ", ".join(f"%{name}" for name in loops[:_MOST_NAMED])
    if len(loops) > _MOST_NAMED:
        names += f" and {len(loops) - _MOST_NAMED} more"
    how = "runs is not known, it counts"
    if len(loops) > 1:
        how = "run is not known, each counts"
    return (f"how often {names} {how} once (--trip-count=%{loops[0]}=N)",)


def remarks_of(prices: Prices) -> tuple[str, ...]:
    """For the first line: how many operations have no price, or a wrong one."""
    found = []
    count = prices.unpriced
    if count:
        found.append(f"no price for {count} operation" + "s" * (count != 1))
    found += share_remarks(prices.inflated)
    return tuple(found)


def notes_of(
    rules: Rules,
    prices: Prices,
    surroundings: Surroundings,
    *,
    device: int | None,
    is_scheduled: bool,
) -> tuple[str, ...]:
    """Notes without a full stop; `device` is the one shown if devices differ."""
    notes = [ESTIMATES]
    # Name prices that are poor.
    for model, count in sorted(prices.abstract.items()):
        notes.append(
            f"{count} {'operation has' if count == 1 else 'operations have'} no better "
            f"price than XLA's {_NO_TIMES} ({model}), which are not microseconds"
        )
    if prices.fusions:
        what = "fusion takes" if prices.fusions == 1 else "fusions take"
        notes.append(
            f"{prices.fusions} asynchronous {what} as long as on the compute stream; "
            "XLA's own estimate has a constant for any"
        )
    if prices.unknown:
        what = "operation has" if prices.unknown == 1 else "operations have"
        notes.append(f"{prices.unknown} {what} no price: 0 was taken for each")
    if prices.absent:
        notes.append(
            f"the costs lack {prices.absent} of the starts and synchronous "
            "collectives: 0 was taken for each"
        )
    if prices.whole:
        names = ", ".join(f"%{each.name}" for each in [*prices.whole][:_MOST_NAMED])
        if len(prices.whole) > _MOST_NAMED:
            names += f" and {len(prices.whole) - _MOST_NAMED} more"
        notes.append(
            f"the compiler's log has only a cost of {names}, not of what runs inside: "
            "collectives there are not shown"
        )
    if late := surroundings.sent_to_slices(prices.arrivals_us):
        what = "transfer arrives" if len(late) == 1 else "transfers arrive"
        notes.append(
            f"{len(late)} {what} at another slice up to {time_text(max(late))} later, "
            "by the compiler's log: the step does not count that, nor does the "
            "compiler's statistic"
        )
    if count := surroundings.cut_in_two:
        what = "begins or ends" if count == 1 else "begin or end"
        notes.append(
            f"{count} fusion{'s' * (count != 1)} {what} a collective whose other half "
            "is not in the same computation: it takes its time at its end, and hides "
            "nothing"
        )
    # Name facts about the module that were assumed.
    if not is_scheduled:
        notes.append("the module is not scheduled; its text order was used")
    if loops := surroundings.counted_once:
        names = ", ".join(f"%{name}" for name in loops)
        notes.append(f"{_COUNTED_ONCE}: {names}")
    # Say which devices are shown.
    if device is not None:
        notes.append(
            f"collectives leave devices out, so {surroundings.device_count} devices "
            f"were simulated; device {device} is shown, the last one to end"
        )
    elif surroundings.leaves_out:
        notes.append(
            "links are shared, so one device represents all, though some "
            "collectives leave devices out"
        )
    # Name the rules that were chosen.
    if rules.share_links:
        notes.append("collectives in flight on one kind of link share it evenly")
    if rules.contention:
        notes.append(
            f"compute loses {100.0 * rules.contention:g}% of its speed while "
            "communication is in flight"
        )
    if rules.xla_statistic:
        notes.append("counted as XLA's statistic: loops and calls take their node cost")
    return tuple(notes)
