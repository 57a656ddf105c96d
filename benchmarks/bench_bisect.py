"""How long `hlo-passes bisect` takes to reduce planted miscompiles of a real model.

    python -m benchmarks.bench_bisect [--module=FILE]

Each row plants one wrong pass among right ones and runs modules on emulated devices.
"""

from __future__ import annotations

import argparse
import pathlib

import hlo_passes
from hlo_passes.runtime.bisect.oracles import CrashOracle, Oracle, RunOracle
from hlo_passes.runtime.bisect.search import bisect
from hlo_passes.runtime.devices import topology_of
from tests.modules import SHARED, read_text
from tests.reduction.wrong_passes import CommuteOperands, FailOnDots

_MODULE = SHARED / "corpus" / "llama3_8b_cp_bf16_1x4.hlo.gz"
_PLANTED = {
    "operands of remainder swapped": CommuteOperands("remainder"),
    "operands of divide swapped": CommuteOperands("divide"),
    "operands of subtract swapped": CommuteOperands("subtract"),
    "operands of power swapped": CommuteOperands("power"),
    "a pass that raises": FailOnDots(),
}


def main() -> None:
    """Print a row per planted pass."""
    parser = argparse.ArgumentParser(description="Time hlo-passes bisect.")
    parser.add_argument("--module", type=pathlib.Path, default=_MODULE)
    options = parser.parse_args()
    module = hlo_passes.parse(read_text(options.module))
    right = hlo_passes.Pipeline.parse("hlo-cse,hlo-dce,tuple-simplifier").passes
    replicas, partitions = topology_of(module)
    print(f"{module.instruction_count} instructions")
    for name, wrong in _PLANTED.items():
        pipeline = hlo_passes.Pipeline((*right[:2], wrong, *right[2:]))
        oracle: Oracle = (
            CrashOracle()
            if isinstance(wrong, FailOnDots)
            else RunOracle(replicas * partitions, 0)
        )
        try:
            found = bisect(module, pipeline, oracle)
        finally:
            oracle.close()
        print(
            f"{name:32} {found.module.instruction_count:3} instructions "
            f"{found.trials:4} trials {found.seconds:6.1f} s  {found.what}"
        )


if __name__ == "__main__":
    main()
