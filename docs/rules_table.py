"""The table of rules in docs/scheduler.md, made from the rules themselves."""

from __future__ import annotations

from hlo_passes.scheduler.latency_hiding.rules import RULES

BEGIN, END = "<!-- rules -->\n", "<!-- end of rules -->"


def table() -> str:
    """The rules in XLA's order."""
    lines = ["| # | name | XLA's reason | applies if | places first |"]
    lines.append("|---|---|---|---|---|")
    lines += [
        f"| {k} | `{rule.name}` | {rule.reason} | {rule.condition or 'always'} | "
        f"{rule.prefers} |"
        for k, rule in enumerate(RULES, 1)
    ]
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """The page `text` with a fresh table."""
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + table() + END + rest.partition(END)[2]
