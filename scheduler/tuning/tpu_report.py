"""The text of `hlo-passes tune` for a TPU: both statistics in columns.

                                  compiler             simulated             memory
baseline                        810.21 ms             816.30 ms             3.2 GiB
best                            790.02 ms  -2.5%      797.11 ms  -2.4%      3.2 GiB
set         LIBTPU_INIT_ARGS="--xla_tpu_...=true"
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hlo_passes.plurals import counted
from hlo_passes.scheduler.headline import beware
from hlo_passes.scheduler.simulation.units import bytes_text, time_text
from hlo_passes.scheduler.tuning.outcome import Outcome
from hlo_passes.scheduler.tuning.report import (
    change_text,
    in_program_text,
    label_line,
    nothing_helps,
    recompiled_text,
    report_of,
    why_unspent,
    without_step,
)
from hlo_passes.scheduler.tuning.result import Row, Verdict
from hlo_passes.scheduler.tuning.search import LEAST_GAIN
from hlo_passes.scheduler.tuning.tpu_result import TpuTuneResult, simulated_change

_NAME_WIDTH: Final = 44
_HEADS: Final[dict[Verdict, str]] = {
    "set": "set",
    "helps alone": "no gain with the best",
    "leave": "leave",
    "too much memory": "too much memory",
    "no effect": "no effect",
}


def tpu_report_text(result: TpuTuneResult) -> str:
    """The whole text."""
    lines = [
        f"{result.name} on {result.machine}, libtpu {result.libtpu}"
        f"{beware(result.remarks)}"
    ]
    lines += _steps(result)
    lines += _what_to_set(result)
    lines += _levers(result)
    return report_of(lines, result, _notes(result))


def _steps(result: TpuTuneResult) -> Iterator[str]:
    yield _columns("step", ("compiler", "", "exposed", "simulated", "", "memory"))
    yield _row("baseline", result, result.baseline)
    if result.search.best:
        yield _row("best", result, result.best)
    else:
        yield label_line("best", f"the baseline: {nothing_helps(result)}")
    search = result.search
    if search.memory_bytes is not None and not search.fits(result.best):
        which = "the best" if search.best else "the baseline"
        needed, most = result.best.memory_bytes, search.memory_bytes
        told = f"{bytes_text(needed)} is more than {bytes_text(most)}"
        yield label_line("", f"even {which} does not fit: {told}")


def _columns(name: str, cells: tuple[str, ...]) -> str:
    widths = (12, 9, 11, 12, 9, 11)
    text = "".join(f"{c:>{w}}" for c, w in zip(cells, widths, strict=True))
    return f"{name:{_NAME_WIDTH}}{text}".rstrip()


def _row(name: str, result: TpuTuneResult, found: Outcome) -> str:
    """Both steps of one combination, and what they changed."""
    is_baseline = found is result.baseline
    ours = found.steps_us[-1]
    changes = (
        found.change_from(result.baseline),
        simulated_change(found, result.baseline),
    )
    texts = ["" if is_baseline else change_text(each) for each in changes]
    return _columns(
        name,
        (
            time_text(found.step_us),
            texts[0],
            time_text(found.exposed_us),
            time_text(ours),
            texts[1],
            bytes_text(found.memory_bytes),
        ),
    )


def _what_to_set(result: TpuTuneResult) -> Iterator[str]:
    if not result.search.best:
        return
    for text in _doubts(result):
        yield label_line("", text)
    if result.search.fits(result.best) and not result.search.fits(result.baseline):
        yield label_line("", "it fits, where the baseline does not")
    yield label_line("set", f'LIBTPU_INIT_ARGS="{result.flags}"')
    yield label_line("", in_program_text(result))
    for text in _recompiled(result):
        yield label_line("", text)


def _doubts(result: TpuTuneResult) -> Iterator[str]:
    """What says that the gain may be another one."""
    yield from result.doubts
    if abs(result.work_change) >= LEAST_GAIN:
        yield (
            f"of the change, {change_text(result.work_change)} is work that the "
            "scheduler prices otherwise in other fusions; the rest is communication "
            "that nothing hides"
        )
    if result.final_change is not None and result.final_change < -LEAST_GAIN:
        yield result.final_text


def _recompiled(result: TpuTuneResult) -> Iterator[str]:
    found = result.recompiled
    if found is None:
        return
    yield recompiled_text(found.outcome, result.best)
    if found.problem:
        yield f"beware: compiled to the end, {found.problem}"
        return
    told = "compiled to the end, too"
    if found.computations:
        told += (
            f": the same statistic in {found.equal} of the {found.computations} "
            "computations with something asynchronous"
        )
    else:
        told += ": nothing is asynchronous"
    if found.needed_bytes:
        needed, has = bytes_text(found.needed_bytes), bytes_text(result.chip_bytes)
        told += f"; it takes {needed} of a device's {has}"
    yield told


def _levers(result: TpuTuneResult) -> Iterator[str]:
    rows = result.rows
    for verdict, head in _HEADS.items():
        found = [row for row in rows if row.verdict == verdict]
        if verdict == "no effect":
            texts = [row.text for row in found if not _moves_simulated(result, row)]
            found = [row for row in found if _moves_simulated(result, row)]
            if texts:
                yield label_line(head, "; ".join(texts))
        for row in found:
            if row.outcome is not None:
                yield _row(f"  {head}: {row.text}"[:_NAME_WIDTH], result, row.outcome)
    together = [r.text for r in rows if r.verdict == "set" and r.outcome is None]
    if together:
        told = f"set together, not measured alone: {'; '.join(together)}"
        yield label_line("", told)
    without = {name: result.without(name) for name in result.search.best.levers}
    for name, change in without.items():
        if change is not None:
            yield label_line("", f"without {name}: {change_text(change)}")
    unknown = [name for name, change in without.items() if change is None]
    if unknown:
        told = f"the best was not measured without {', without '.join(unknown)}"
        yield label_line("", told)
    yield from without_step(rows)


def _moves_simulated(result: TpuTuneResult, row: Row) -> bool:
    return abs(result.simulated_row(row)) >= LEAST_GAIN


def _notes(result: TpuTuneResult) -> Iterator[str]:
    search = result.search
    yield (
        "all times are estimates: `compiler` is the statistic of the compiler's own "
        "scheduler, over the loops, by which the best is chosen; `simulated` is our "
        "simulation with its costs; nothing ran on a TPU"
    )
    yield (
        f"{len(search.tried)} of {search.budget} combinations compiled as far as the "
        f"schedule, in {result.seconds:.0f} s "
        f"({counted(result.compilations, 'compilation')}){why_unspent(result)}"
    )
