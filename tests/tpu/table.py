"""What a comparison with XLA:TPU gave, as a Markdown table: counts, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tests.tpu.child import EDGES
from tests.tpu.judge import Verdict

HEAD = (
    "| {first} | compiled | modules as they were | final modules simulated "
    "| without estimates | their operations without a price | their all-gathers in fusions, both halves "
    "| with a schedule | orders "
    "| decisions "
    "| placements with equal memory | figures of the statistics "
    "| more figures within the rounding of costs | simulated "
    "| steps as by the statistic "
    "| seconds of the compiler | seconds of ours |"
)


def by_chip(verdict: Verdict) -> str:
    """'v5e 2x4'."""
    return " ".join(verdict.chips)


def by_program(verdict: Verdict) -> str:
    """The file and function, without the folder."""
    return verdict.program


def by_flags(verdict: Verdict) -> str:
    """The flags that were given, or that there were none."""
    edges = (EDGES,) if verdict.has_edges else ()
    return ", ".join((*verdict.flags, *edges)) or "defaults"


def table(
    first: str, verdicts: Iterable[Verdict], key: Callable[[Verdict], str]
) -> str:
    """A row for each value of the key, in the order in which they come first."""
    groups: dict[str, list[Verdict]] = {}
    for each in verdicts:
        groups.setdefault(key(each), []).append(each)
    head = HEAD.format(first=first)
    lines = [head, "|" + "---|" * (head.count("|") - 1)]
    lines += [_row(name, group) for name, group in groups.items()]
    return "".join(f"{line}\n" for line in lines)


def tables(verdicts: list[Verdict]) -> str:
    """By chip, by program and by flags, and what parts each comparison that is not equal."""
    parts = [
        table("chips", verdicts, by_chip),
        table("program", verdicts, by_program),
        table("flags", verdicts, by_flags),
    ]
    apart = [v for v in verdicts if v.differences]
    if apart:
        lines = ["| compilation | the first difference |", "|---|---|"]
        lines += [f"| {v.name} | {v.differences[0]} |" for v in apart]
        parts.append("".join(f"{line}\n" for line in lines))
    if left := [v for v in verdicts if v.left_open]:
        lines = ["| compilation | left open by the digits of the log |", "|---|---|"]
        lines += [f"| {v.name} | {v.left_open[0]} |" for v in left]
        parts.append("".join(f"{line}\n" for line in lines))
    none = [v for v in verdicts if not v.modules]
    if none:
        lines = ["| not compiled | why |", "|---|---|"]
        lines += [f"| {v.name} | {v.outcome} |" for v in none]
        parts.append("".join(f"{line}\n" for line in lines))
    return "\n".join(parts)


def _row(name: str, group: list[Verdict]) -> str:
    compared = [v for v in group if not v.outcome]

    def of(one: str, other: str, among: list[Verdict]) -> str:
        counts = (sum(getattr(v, field) for v in among) for field in (one, other))
        return "{}/{}".format(*counts)

    cells = (
        name,
        f"{sum(bool(v.modules) for v in group)}/{len(group)}",
        of("round_trips", "modules", group),
        str(sum(v.priced for v in group)),
        str(sum(v.without_estimates for v in group)),
        str(sum(v.unpriced for v in group)),
        of("whole", "cut", group),
        str(len(compared)),
        of("orders", "rounds", compared),
        of("equal_decisions", "decisions", compared),
        of("equal_steps", "steps", compared),
        of("equal_figures", "figures", compared),
        str(sum(v.figures_within for v in compared)),
        str(sum(v.step_us is not None for v in compared)),
        of("is_same_step", "has_step", compared),
        f"{sum(v.seconds for v in group):.0f}",
        f"{sum(v.own_seconds for v in group):.1f}",
    )
    return f"| {' | '.join(cells)} |"
