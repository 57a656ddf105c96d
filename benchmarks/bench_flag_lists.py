"""Lists of flags that others publish, beside what `tune` finds on programs.

    python -m benchmarks.bench_flag_lists [--budget=40] [PROGRAM@HOSTS ...]

prints two Markdown tables: the step with each list, and what `tune` says of each flag.
A program is FILE.py:FUNCTION; XLA's GPU compiler makes every module (the extra
`gpu-aot`). Flags that no lever sets are tried alone; levers have been by the search.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

from hlo_passes.scheduler.tuning.published import FLAGS, PUBLISHED
from hlo_passes.xla_release import xla_release

_PROGRAMS: Final = (
    "docs/tutorial/training.py:step@2",
    "corpus/held_out/transformer_block.py:transformer_scan@1",
    "corpus/held_out/pipeline_training.py:pipeline_training@2",
)
#: A change below this share of the step is none.
_LEAST: Final = 0.0005
#: How `tune` names the release that compiled, in what it says of the machine.
_RELEASE: Final = "XLA "


def alone() -> dict[str, str]:
    """Text for `--also` by what a row of the table is: each flag without a lever."""
    pairs = dict.fromkeys(pair for row in PUBLISHED.values() for pair in row.flags)
    return {
        f"{name}={value}": f"--{name}={value}"
        for name, value in pairs
        if not FLAGS[name].lever and FLAGS[name].releases
        if not FLAGS[name].chooses_kernels
    }


def tuned(program: str, hosts: str, budget: int, *options: str) -> dict[str, Any]:
    """What `tune --json` says, with every list and every flag without a lever."""
    also = [f"--also={text}" for text in (*PUBLISHED, *alone().values())]
    command = [
        *(sys.executable, "-m", "hlo_passes", "tune", program, "--json"),
        *(f"--hosts={hosts}", f"--budget={budget}", *also, *options),
    ]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(run.stdout)


def change_text(share: float | None) -> str:
    """'-6.3%'; '0' where nothing changes."""
    if share is None:
        return "refused"
    return f"{100.0 * share:+.1f}%" if abs(share) >= _LEAST else "0"


def lists_table(found: Sequence[dict[str, Any]]) -> Iterator[str]:
    """A row for the baseline, the best and each list."""
    yield _line("", *(f"{row['name']}, {row['machine']}" for row in found))
    yield _line(*["---"] * (1 + len(found)))
    yield _line("baseline", *(f"{r['baseline_step_us'] / 1000:.2f} ms" for r in found))
    yield _line("best that `tune` finds", *map(_best, found))
    for name in PUBLISHED:
        yield _line(f"`{name}`", *(_given(row, name) for row in found))


def _best(row: dict[str, Any]) -> str:
    change = row["best_step_us"] / row["baseline_step_us"] - 1.0
    levers = ", ".join(f"{name} {value}" for name, value in row["best"].items())
    return f"{change_text(change)}: {levers or 'the baseline'}"


def _given(row: dict[str, Any], name: str) -> str:
    """What a published list does."""
    return given_text(next(g for g in row["given_lists"] if g["name"] == name), row)


def given_text(given: dict[str, Any], row: dict[str, Any]) -> str:
    """The change with a list of flags, unless its step is not priced as the baseline's.

    An operation without a price takes a constant that is no time, or none.
    """
    others = [each for each in given["remarks"] if each not in row["remarks"]]
    if others and given["step_us"] is not None:
        return f"not comparable: {'; '.join(others)}"
    return change_text(given["change"])


def flags_table(found: Sequence[dict[str, Any]]) -> Iterator[str]:
    """A row for each flag: what its lever does, or the flag alone."""
    yield _line("flag", "lever", *(row["name"] for row in found))
    yield _line(*["---"] * (2 + len(found)))
    for flag, row in sorted(FLAGS.items()):
        if not row.releases:
            continue
        cells = [_said(each, flag, row.lever) for each in found]
        if any(cells):
            yield _line(f"`{flag}`", row.lever or row.why, *cells)


def _said(found: dict[str, Any], flag: str, lever: str) -> str:
    """What tune says of one flag for one program."""
    if lever:
        rows = [each for each in found["levers"] if each["name"] == lever]
        return "; ".join(_verdict(each, found) for each in rows) or "not tried"
    if FLAGS[flag].chooses_kernels:
        return "not priced"
    release = xla_release(found["machine"].partition(_RELEASE)[2])
    told = []
    for text, setting in alone().items():
        name, _, value = text.partition("=")
        if name != flag:
            continue
        if not FLAGS[name].is_in(release):
            told.append("XLA does not know it")
            continue
        given = next(
            g
            for g in found["given_lists"]
            if not g["name"] and g["xla_flags"].endswith(setting)
        )
        told.append(f"{value or 'empty'}: {given_text(given, found)}")
    return "; ".join(told)


def _verdict(row: dict[str, Any], found: dict[str, Any]) -> str:
    if row["verdict"] == "pointless":
        return f"not tried: {row['reason']}"
    if row["step_us"] is None:
        told = "not tried in this budget" if row["verdict"] == "untried" else ""
        told = told or row["verdict"]
        return f"{row['setting']}: {told}" if row["setting"] else told
    change = row["step_us"] / found["baseline_step_us"] - 1.0
    told = f"{row['setting']}: {change_text(change)}"
    return f"{told} (set)" if row["verdict"] == "set" else told


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> int:
    """Print both tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_flag_lists")
    parser.add_argument("programs", nargs="*", default=_PROGRAMS)
    parser.add_argument("--budget", type=int, default=40)
    parser.add_argument("--cache", default="", help="folder of what was compiled")
    options = parser.parse_args()
    cache = [f"--cache={options.cache}"] if options.cache else []
    found = []
    for each in options.programs:
        program, _, hosts = each.partition("@")
        row = tuned(program, hosts or "1", options.budget, *cache)
        found.append(row | {"name": program.rpartition("/")[2]})
    for line in (*lists_table(found), "", *flags_table(found)):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
