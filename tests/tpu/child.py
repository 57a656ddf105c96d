"""The process of one compilation: `python -m tests.tpu.child PROGRAM CHIP GRID OUT FLAGS`.

With `control-edges` among the flags, control edges out of starts are put in
(`control_edges`). It writes what the compiler said, and its modules, to the folder OUT of the caller, who
throws it away: nothing of it may be kept.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import sys

from hlo_passes.errors import HloError
from hlo_passes.runtime.tpu_aot import (
    ask_for_log,
    grid_to_compile_for,
    require_library,
)
from hlo_passes.runtime.tpu_program import compile_for_tpu
from tests.tpu.control_edges import edges_from_starts

#: Among the flags: no flag of the compiler.
EDGES = "control-edges"


def main() -> int:
    program, target, topology, out, *given = sys.argv[1:]
    topology, _, slices = topology.partition("*")
    folder = pathlib.Path(out)
    flags = [flag for flag in given if flag != EDGES]
    grid = grid_to_compile_for(target, topology, int(slices or 1))
    try:
        if EDGES in given:
            require_library(target)
            ask_for_log()
        with edges_from_starts() if EDGES in given else contextlib.nullcontext():
            found = compile_for_tpu(program, grid, flags=flags, with_log=True)
    except HloError as problem:
        (folder / "error.txt").write_text(str(problem))
        return 1
    for stage, text in found.texts.items():
        (folder / f"{stage}.hlo").write_text(text)
    (folder / "log.txt").write_text(found.said)
    costs = found.costs().to_json() if found.log.rounds else {}
    (folder / "costs.json").write_text(json.dumps(costs))
    (folder / "seconds.txt").write_text(f"{found.seconds:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
