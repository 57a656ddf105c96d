"""The text of `hlo-passes tune`.

baseline    step 5.26 ms, exposed 1.05 ms (20.0%), memory 31.2 GiB
best        step 4.93 ms (-6.3%, range -8.4% to -1.9%, faster in 24 of 27 settings), ...
set         XLA_FLAGS="--xla_gpu_pipeline_all_gather=on"
each part   pipelined all-gather -4.1% alone, +4.3% without it
leave       combined all-gather off: 4.0 times the step
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Final

from hlo_passes.plurals import counted
from hlo_passes.scheduler.headline import beware
from hlo_passes.scheduler.simulation.units import bytes_text, share_text, time_text
from hlo_passes.scheduler.tuning.outcome import Outcome
from hlo_passes.scheduler.tuning.result import (
    Row,
    TuneResult,
    Verdict,
    unpriced_text,
)
from hlo_passes.scheduler.tuning.search import LEAST_GAIN

_WIDTH: Final = 12
#: From this factor on a change is told as a factor.
_TIMES: Final = 2.0
#: A bound that leaves less than this share of the step is reached.
_REACHED: Final = 0.05
#: Relative difference up to which two compilations gave the same step: rounding.
_SAME: Final = 1e-6


def report_text(result: TuneResult) -> str:
    """The whole text."""
    lines = [f"{result.name} on {result.machine}{beware(result.remarks)}"]
    lines += _steps(result)
    lines += _what_to_set(result)
    lines += _given_lists(result)
    lines += _levers(result)
    lines += _further(result)
    return report_of(lines, result, _notes(result))


def report_of(lines: Iterable[str], result: TuneResult, notes: Iterable[str]) -> str:
    """Lines and notes as a text; the first note is that somebody ended the search."""
    if result.search.interrupted:
        notes = ("interrupted: this is the best so far", *notes)
    return "".join(f"{line}\n" for line in (*lines, *(f"note: {n}" for n in notes)))


def label_line(label: str, text: str) -> str:
    """A line of the report, '' as its label for one that goes on."""
    return f"{label:{_WIDTH}}{text}".rstrip()


def _steps(result: TuneResult) -> Iterator[str]:
    yield label_line("baseline", f"step {_figures(result, result.baseline)}")
    if not result.search.best:
        yield label_line("best", f"the baseline: {nothing_helps(result)}")
        return
    best = result.best
    changes = result.changes
    held = ""
    if changes:
        low, high = min(changes), max(changes)
        held = (
            f", range {_percent(low)} to {_percent(high)}, "
            f"faster in {result.holds} of {len(changes)} settings"
        )
    search = result.search
    sure = "" if result.is_sure else "not sure: "
    if search.fits(best) and not search.fits(result.baseline):
        sure = "fits, where the baseline does not: "
    step = f"step {_figures(result, best, f' ({change_text(result.change)}{held})')}"
    yield label_line("best", sure + step)


def _figures(result: TuneResult, found: Outcome, change: str = "") -> str:
    exposed = share_text(found.exposed_us, found.step_us)
    memory = bytes_text(found.memory_bytes)
    limit = result.search.memory_bytes
    if limit is not None and not result.search.fits(found):
        memory += f", more than {bytes_text(limit)}"
    return (
        f"{time_text(found.step_us)}{change}, "
        f"exposed {time_text(found.exposed_us)} ({exposed}), memory {memory}"
    )


def nothing_helps(result: TuneResult) -> str:
    """Why the baseline is the best."""
    tried = len(result.search.tried) + len(
        [c for c in result.search.own if c not in result.search.tried]
    )
    return f"none of {tried} combinations is faster by {LEAST_GAIN:.2%}"


def _what_to_set(result: TuneResult) -> Iterator[str]:
    best = result.search.best
    if not best:
        return
    if result.is_compiled:
        others = "".join(f"{n}={v} " for n, v in result.variables.items())
        flags = f'XLA_FLAGS="{result.flags}"' if result.flags else ""
        yield label_line("set", f"{others}{flags}")
        yield label_line("", in_program_text(result))
        if result.alone is not None:
            yield label_line("", recompiled_text(result.alone, result.best))
    else:
        yield label_line("set", f'--passes="{result.pipelines.get(best, "")}"')
        if result.flags:
            yield label_line("", f'in XLA: XLA_FLAGS="{result.flags}"')
    if best.get("several streams"):
        yield label_line("", "its prices are those of `simulate --streams=2`")


def in_program_text(result: TuneResult) -> str:
    """How to set the best in the program, with `compiler_options` as Python."""
    pairs = (f"{json.dumps(n)}: {v!r}" for n, v in result.options.items())
    options = f"{{{', '.join(pairs)}}}".replace("'", '"')
    return f"or jax.jit(..., compiler_options={options})"


def is_same_step(one: Outcome, other: Outcome) -> bool:
    """Whether two compilations have the same step, but for rounding."""
    return one.is_done and abs(one.change_from(other)) <= _SAME


def recompiled_text(alone: Outcome, best: Outcome) -> str:
    """Whether the best's flags alone give the same step."""
    if not alone.is_done:
        return f"beware: with these flags alone, {alone.problem}"
    if is_same_step(alone, best):
        return "compiled again with these flags alone, in a new process: the same step"
    return (
        "beware: compiled again with these flags alone, in a new process, the step is "
        f"{time_text(alone.step_us)}"
    )


def _given_lists(result: TuneResult) -> Iterator[str]:
    """Each list that the user gave, against the baseline."""
    for tried in result.lists:
        found = tried.outcome
        told = f"{tried.given.label(result.release)}: "
        if found.is_done and not result.search.compares(found):
            told += f"not priced: {unpriced_text(found, result.baseline)}"
        elif found.is_done:
            change = change_text(found.change_from(result.baseline))
            changes = found.changes_from(result.baseline)
            held = ""
            if changes:
                held = f", range {_percent(min(changes))} to {_percent(max(changes))}"
            told += f"step {_figures(result, found, f' ({change}{held})')}"
            told += beware(found.remarks)
            if result.beats_the_best(found):
                told += "; faster than the best, take this list"
        else:
            told += found.problem
        if outside := tried.given.kernel_choices():
            names = ", ".join(outside)
            told += (
                f"; without what chooses kernels, which only a GPU can time: {names}"
            )
        if tried.unknown:
            names = ", ".join(tried.unknown)
            told += f"; left out, as XLA {result.release} does not know it: {names}"
        yield label_line("given list", told)


def _levers(result: TuneResult) -> Iterator[str]:
    rows = result.rows
    yield from _listed("each part", _parts(result, rows))
    yield from _listed("no gain", map(_changed, _of(rows, "helps alone")))
    yield from _listed("leave", map(_changed, _worst(_of(rows, "leave"))))
    yield from _listed("memory", map(_changed, _of(rows, "too much memory")))
    yield from _listed("no effect", (row.text for row in _of(rows, "no effect")))
    yield from without_step(rows)


def without_step(rows: list[Row]) -> Iterator[str]:
    """Lines of the levers that failed, cannot be priced or were not tried."""
    verdicts: tuple[Verdict, ...] = ("failed", "not priced")
    for verdict in verdicts:
        told = (f"{row.text}: {row.why}" for row in _of(rows, verdict))
        yield from _listed(verdict, told)
    left = [*_of(rows, "untried"), *_of(rows, "pointless")]
    yield from _listed("not tried", _by_reason(left))


def _listed(label: str, texts: Iterable[str]) -> Iterator[str]:
    texts = list(texts)
    if texts:
        yield label_line(label, "; ".join(texts))


def _of(rows: Iterable[Row], verdict: Verdict) -> list[Row]:
    return [row for row in rows if row.verdict == verdict]


def _worst(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: -row.change)


def _parts(result: TuneResult, rows: list[Row]) -> Iterator[str]:
    for row in _of(rows, "set"):
        alone = "" if row.outcome is None else f" {change_text(row.change)} alone"
        without = result.without(row.lever)
        told = "" if without is None else f", {change_text(without)} without it"
        yield f"{row.text}{alone}{told}"


def _by_reason(rows: list[Row]) -> Iterator[str]:
    """Levers by what makes them pointless."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        reasons.setdefault(row.why, []).append(row.lever)
    for why, levers in reasons.items():
        yield f"{', '.join(levers)} ({why})"


def _changed(row: Row) -> str:
    return f"{row.text} {change_text(row.change)}"


def _further(result: TuneResult) -> Iterator[str]:
    if result.improved is not None:
        change = change_text(result.improved.change_from(result.best))
        where = (
            'runtime.install("schedule-improver", stage="post-scheduler", '
            'platforms="cuda")'
            if result.installs
            else "schedule-improver; jax 0.12 takes it into its compilation"
        )
        yield label_line("and then", f"our order in place of XLA's: {change} ({where})")
    yield from _plugged_in(result)
    bound = result.baseline
    left = 1.0 - bound.bound_us / result.best.step_us if result.best.step_us else 0.0
    told = f"{time_text(bound.bound_us)} ({bound.bound_by})"
    if left < _REACHED:
        yield label_line("bound", f"{told}: the best is within {_REACHED:.0%} of it")
    else:
        yield label_line(
            "bound",
            f"{told}: no flag goes below it with these bytes and flops; "
            f"{share_text(left, 1.0)} of the best step is above it",
        )
    yield from _in_program(result)


def _plugged_in(result: TuneResult) -> Iterator[str]:
    """What each of our passes inside XLA's compilation makes of the best."""
    label = "our passes"
    for each in result.plugged_in:
        found = each.outcome
        if not found.is_done:
            told = f"XLA stops: {found.problem}"
        elif not each.changes:
            told = "changes nothing"
        elif not result.search.compares(found):
            told = f"not priced: {unpriced_text(found, result.baseline)}"
        else:
            change = found.change_from(result.best)
            told = f"step {_figures(result, found, f' ({change_text(change)})')}"
            if change <= -LEAST_GAIN:
                told += f"; {each.install}"
        yield label_line(label, f"{each.lever.name}: {told}")
        label = ""


def _in_program(result: TuneResult) -> Iterator[str]:
    """What no flag does, with the most that it can give."""
    label = "program"
    for each in result.in_program:
        if each.bound_us is None:
            most = "it changes what is moved or computed, so that bound does not hold"
        else:
            change = min(0.0, each.bound_us / result.best.step_us - 1.0)
            most = f"at most {_percent(change)}, to {time_text(each.bound_us)}"
            most += f" ({each.bound_by})"
        yield label_line(
            label,
            f"{each.name}, not tried: {each.what}; {each.exposed_text}; {most}",
        )
        label = ""


def _notes(result: TuneResult) -> Iterator[str]:
    search = result.search
    yield (
        f"all times are predicted ({result.model}); nothing ran on a GPU; the range "
        "is that of simulate: latencies and kernels each times 0.7 to 1.3, compute up "
        "to 20% slower beside a collective"
    )
    source = (
        "compiled by XLA as far as the schedule"
        if result.is_compiled
        else "made by our own passes, which leave out XLA's fusion and memory passes"
    )
    others = len([c for c in search.own if c not in search.tried])
    more = f", and {counted(others, 'order')} by our scheduler" if others else ""
    yield (
        f"{len(search.tried)} of {search.budget} combinations {source}"
        f"{more}, in {result.seconds:.0f} s"
        + (
            f" ({counted(result.compilations, 'compilation')})"
            if result.is_compiled
            else ""
        )
        + why_unspent(result)
    )


def why_unspent(result: TuneResult) -> str:
    """Why a part of the budget is left, for the end of a note; '' if none is."""
    why = result.search.unspent
    return f"; {why}" if why else ""


def change_text(change: float) -> str:
    """'-6.3%', or '4.0 times the step' where it is far longer."""
    if 1.0 + change >= _TIMES:
        return f"{1.0 + change:.1f} times the step"
    return _percent(change)


def _percent(change: float) -> str:
    return f"{100.0 * change:+.1f}%"
