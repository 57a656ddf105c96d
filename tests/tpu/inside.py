"""Passes inside XLA:TPU's compilation, program by program.

    python -m tests.tpu.inside --chips v5p:2x2x2 --passes schedule-improver

Every program is compiled now, alone and with the passes, in a process of its own. A row
says whether XLA:TPU took the result, whether the executable has the order given, and
the compiler's statistic of its own order beside that of the order given. It keeps
nothing but counts and these figures, for whoever runs it.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.modules import REPOSITORY
from tests.tpu.conformance import GRIDS, programs

_TIME_LIMIT_SECONDS = 1800
#: XLA's log has six digits of a figure.
_RELATIVE = 1e-5
HEAD = (
    "| program | chips | stage | taken | moved | in place | orders that stay "
    "| compiler's cycles | cycles of the order given |\n|" + "---|" * 9
)


def compiled(program: str, grid: str, stage: str, passes: str) -> dict[str, Any]:
    """What `hlo-passes compile --json` says; {'error': ...} where it fails."""
    target, topology = grid.split(":")
    command = [
        *(sys.executable, "-m", "hlo_passes", "compile", program, "--json"),
        *(f"--target={target}", f"--topology={topology}"),
        *(f"--stage={stage}", f"--passes={passes}"),
    ]
    try:
        run = subprocess.run(
            command,
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIME_LIMIT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"no answer within {_TIME_LIMIT_SECONDS} s"}
    if run.returncode < 0:
        return {"error": f"ended by signal {-run.returncode}"}
    if run.returncode:
        said = [line for line in run.stderr.splitlines() if "error[" in line]
        return {"error": (said or run.stderr.splitlines()[-1:] or ["no word"])[0][:200]}
    return json.loads(run.stdout)


def row(program: str, grid: str, stage: str, found: dict[str, Any]) -> str:
    """A line of the table."""
    cells = [program.rsplit("/", 1)[-1], grid, stage]
    inside = found.get("inside")
    if inside is None:
        return _line([*cells, found.get("error", "nothing asynchronous"), *"-----"])
    figures = inside["with_passes"]
    totals = [
        sum(each[k] for each in figures) for k in ("xla_total_cycles", "total_cycles")
    ]
    in_place = f"{inside['instructions_in_place']}/{inside['common_instructions']}"
    cells += ["yes", str(inside["moved_instructions"]), in_place]
    cells.append(", ".join(inside["order_stays"]) or "none")
    return _line([*cells, *(f"{total:.0f}" if figures else "-" for total in totals)])


def is_longer(found: dict[str, Any]) -> bool:
    """Whether the statistic calls a computation longer than the compiler's order.

    Of an order that is the compiler's own, they differ by the digits of its log.
    """
    inside = found.get("inside") or {}
    return bool(inside.get("moved_instructions")) and any(
        each["total_cycles"] > each["xla_total_cycles"] * (1 + _RELATIVE)
        for each in inside.get("with_passes", ())
    )


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.tpu.inside")
    parser.add_argument("--chips", default=GRIDS, metavar="CHIP:GRID,...")
    parser.add_argument("--only", default="", metavar="REGEX", help="of programs")
    parser.add_argument("--passes", default="schedule-improver")
    parser.add_argument("--stages", default="post-scheduler,pre-scheduler")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--table", default="", metavar="FILE.md")
    options = parser.parse_args()
    if importlib.util.find_spec("libtpu") is None:
        print("left out: libtpu is not installed (pip install 'hlo-passes[tpu-aot]')")
        return 0
    chosen = [program for program in programs() if re.search(options.only, program)]
    if not chosen:
        parser.error(f"--only={options.only} names none of the programs")
    jobs = [
        (program, grid, stage)
        for grid in options.chips.split(",")
        for stage in options.stages.split(",")
        for program in chosen
    ]
    lines, wrong = [HEAD], 0
    print(HEAD)
    with ThreadPoolExecutor(options.processes) as pool:
        results = pool.map(lambda job: compiled(*job, options.passes), jobs)
        for job, found in zip(jobs, results, strict=True):
            lines.append(row(*job, found))
            print(lines[-1], flush=True)
            wrong += "error" in found or is_longer(found)
    print(f"{len(jobs)} compilations with passes, {wrong} refused or longer")
    if options.table:
        pathlib.Path(options.table).write_text("".join(f"{line}\n" for line in lines))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
