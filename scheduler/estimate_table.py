"""An estimate as text: most expensive first, totals by kind, and what is unknown.

node us  latency us  times  model          instruction
  1.000     310.200    126  sol/ring       %all-gather-start in %layer

Prices are of one execution. What is most expensive, and the totals, are of a step.
What has no price but a constant of XLA comes last, with a `?`, and is in no total.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from hlo_passes.scheduler.estimators.base import is_guess
from hlo_passes.scheduler.headline import beware
from hlo_passes.scheduler.module_costs import EstimateReport, EstimateRow
from hlo_passes.scheduler.place_text import place_lines
from hlo_passes.scheduler.simulation.notes import once_remark
from hlo_passes.scheduler.sums import sequential_sum

DEFAULT_ROWS: Final = 20


def table_text(report: EstimateReport, rows: int = DEFAULT_ROWS) -> str:
    """The table and its totals as one text."""
    ranked = sorted(report.rows, key=lambda r: (_is_unknown(r), -_weight(r)))
    costliest = ranked[:rows]
    shown = [row for row in costliest if _weight(row) > 0]
    remarks = (*report.remarks, *once_remark(report.counted_once))
    parts = [
        report.state.headline + beware(remarks),
        report.machine_line,
        "",
        *([*_rows_text(shown), ""] if rows else []),
        *_totals_text(report.rows),
        *_unknown_text(report.rows),
    ]
    return "\n".join(parts) + "\n"


def _weight(row: EstimateRow) -> float:
    return row.executions * max(row.node_cost_us, row.latency_us or 0.0)


def _is_unknown(row: EstimateRow) -> bool:
    """Whether the row has an abstract constant in place of a price."""
    return is_guess(row.model, row.reason)


def _us(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _columns(lines: Sequence[Sequence[str]], right: int) -> list[str]:
    """Lines with aligned columns; the first `right` columns are flush right."""
    if not lines:
        return []
    widths = [max(len(line[k]) for line in lines) for k in range(len(lines[0]))]
    return [
        "  ".join(
            cell.rjust(width) if k < right else cell.ljust(width)
            for k, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]


def _rows_text(rows: Sequence[EstimateRow]) -> list[str]:
    repeats = any(row.executions != 1 for row in rows)
    padding = " " * any(map(_is_unknown, rows))
    times = ("times",) if repeats else ()
    lines = [("node us", "latency us", *times, "model", "instruction")]
    lines += [
        (
            _flagged(row.node_cost_us, row, padding),
            _flagged(row.latency_us, row, padding),
            *([str(row.executions)] if repeats else []),
            row.model,
            f"%{row.name} {row.opcode} in %{row.computation}"
            + "".join(f"  {place}" for place in place_lines(row.place))
            + (f"  ({row.reason})" if row.reason else ""),
        )
        for row in rows
    ]
    return _columns(lines, right=2 + repeats)


def _totals_text(rows: Iterable[EstimateRow]) -> list[str]:
    totals: dict[str, list[float]] = {}
    for row in rows:
        if _is_unknown(row):
            continue
        total = totals.setdefault(row.opcode, [0, 0.0, 0.0])
        total[0] += 1
        total[1] += row.executions * row.node_cost_us
        total[2] += row.executions * (row.latency_us or 0.0)
    ranked = sorted(totals.items(), key=lambda item: (-max(item[1][1:]), item[0]))
    lines = [("count", "node us", "latency us", "kind")]
    lines += [
        (str(int(count)), _us(node), _us(latency), opcode)
        for opcode, (count, node, latency) in ranked
        if node or latency
    ]
    return _columns(lines, right=3)


def _unknown_text(rows: Sequence[EstimateRow]) -> list[str]:
    priced = [row for row in rows if _weight(row) > 0]
    unknown = [row for row in priced if _is_unknown(row)]
    if not unknown:
        return ["", f"unknown: none of {len(priced)} instructions that cost something"]
    reasons: dict[str, int] = {}
    for row in unknown:
        reason = row.reason or f"{row.model} has abstract constants only"
        reasons[reason] = reasons.get(reason, 0) + 1
    share = 100.0 * len(unknown) / len(priced)
    lines = [
        "",
        f"unknown: {len(unknown)} of {len(priced)} ({share:.1f}%); their numbers (?) "
        "are XLA's abstract constants, not microseconds, and in no total",
    ]
    lines += [f"  {count} x {reason}" for reason, count in sorted(reasons.items())]
    return lines


def comparison_text(reports: Sequence[EstimateReport]) -> str:
    """Collectives and totals of several targets side by side, in us."""
    names = [report.target for report in reports]
    remarks = dict.fromkeys(remark for report in reports for remark in report.remarks)
    heads = [
        reports[0].state.headline
        + beware((*remarks, *once_remark(reports[0].counted_once)))
    ]
    heads += [report.machine_line for report in reports]
    # Collectives first that some target has a price for.
    pairs = [
        rows
        for rows in zip(*(report.rows for report in reports), strict=True)
        if rows[0].latency_us is not None
    ]
    pairs.sort(key=lambda rows: all(map(_is_unknown, rows)))
    lines: list[tuple[str, ...]] = [(*names, "instruction")]
    lines += [(*map(_marked, rows), f"%{rows[0].name}") for rows in pairs]
    lines.append(("",) * (len(names) + 1))
    # Sums of what has a price.
    priced = [
        [row for row in report.rows if not _is_unknown(row)] for report in reports
    ]
    nodes = [sequential_sum(r.executions * r.node_cost_us for r in p) for p in priced]
    latencies = [
        sequential_sum(r.executions * (r.latency_us or 0.0) for r in p) for p in priced
    ]
    lines.append((*map(_us, nodes), "node costs of a step"))
    lines.append((*map(_us, latencies), "latencies of a step"))
    text = "\n".join(_columns(lines, right=len(names)))
    marks = (
        "* ours, where XLA's model does not apply; ? an abstract constant, in no total"
    )
    return "\n".join([*heads, "", text, "", marks]) + "\n"


def _flagged(us: float | None, row: EstimateRow, padding: str = "") -> str:
    """Microseconds, with a `?` for a constant and the padding for a price."""
    if us is None:
        return ""
    return _us(us) + ("?" if _is_unknown(row) else padding)


def _marked(row: EstimateRow) -> str:
    """A latency among those of other targets."""
    if row.model.startswith("extended") and not _is_unknown(row):
        return f"{_us(row.latency_us)}*"
    return _flagged(row.latency_us, row)
