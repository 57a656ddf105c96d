"""Write the table of rules into docs/scheduler.md.

python docs/generate_scheduler.py            write it
python docs/generate_scheduler.py --check    exit 1 when it is stale
"""

from __future__ import annotations

import argparse
import pathlib

from hlo_passes.scheduler.latency_hiding.rules import RULES

PAGE = pathlib.Path(__file__).resolve().parent / "scheduler.md"
BEGIN, END = "<!-- rules -->\n", "<!-- end of rules -->"


def table() -> str:
    """The rules in XLA's order."""
    lines = ["| # | name | XLA's reason | asked if | is placed sooner |"]
    lines.append("|---|---|---|---|---|")
    lines += [
        f"| {k} | `{rule.name}` | {rule.reason} | {rule.condition or 'always'} | "
        f"{rule.prefers} |"
        for k, rule in enumerate(RULES, 1)
    ]
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """The page with its table as it must be."""
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + table() + END + rest.partition(END)[2]


def main() -> int:
    """Write or check."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true")
    text = PAGE.read_text(encoding="utf-8")
    if parser.parse_args().check:
        return int(text != page(text))
    PAGE.write_text(page(text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
