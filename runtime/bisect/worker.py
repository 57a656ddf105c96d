"""The process that runs modules for `hlo-passes bisect`, one pair after another.

    stdin   ["after.hlo", "before.hlo"]
    stdout  judgment {"is_bad": true, "what": "the results differ"}

It is called as `python -m hlo_passes.runtime.bisect.worker DEVICES SEED`.
"""

from __future__ import annotations

import json
import pathlib
import sys

from hlo_passes import runtime
from hlo_passes.errors import HloError
from hlo_passes.runtime import memory
from hlo_passes.runtime.bisect.judgment import GOOD, Judgment, bad, untried
from hlo_passes.runtime.bisect.oracles import ANSWER
from hlo_passes.runtime.compare import compare_outputs, require_same_signature
from hlo_passes.runtime.devices import topology_of
from hlo_passes.runtime.executable import load_plain
from hlo_passes.runtime.inputs import seeded_inputs
from hlo_passes.runtime.plain.legalize import plain_module
from hlo_passes.runtime.plain.refusals import require_valid
from hlo_passes.text.reader import parse

#: The results of both modules are in memory together.
_RUNS_HELD = 2


def answer(judgment: Judgment) -> None:
    """Write a judgment."""
    text = json.dumps({"is_bad": judgment.is_bad, "what": judgment.what})
    sys.stdout.write(f"{ANSWER}{text}\n")
    sys.stdout.flush()


def judge(after_path: str, before_path: str, seed: int) -> Judgment:
    """Run both; if `before` does not run, the result is unknown."""
    texts = [pathlib.Path(p).read_text() for p in (after_path, before_path)]
    after, before = (parse(text) for text in texts)
    try:
        require_valid(before)
        plain = plain_module(before)
        replicas, partitions = topology_of(before)
        need = memory.bytes_needed(plain, device_count=replicas * partitions)
        memory.require(_RUNS_HELD * need, before)
        first = load_plain(plain, before, replicas, partitions)
        inputs = seeded_inputs(
            plain, before, device_count=first.device_count, seed=seed
        )
        expected = first(*inputs)
    except HloError as refused:
        return untried(f"it cannot be run: {refused.code}")
    try:
        require_valid(after)
        second = load_plain(plain_module(after), after, *topology_of(after))
        require_same_signature(first, second)
        if compare_outputs(expected, second(*inputs)).bitwise_equal:
            return GOOD
    except HloError as refused:
        return bad(f"the result cannot be run: {refused.code}")
    # A module with other bits in every run says nothing.
    if not compare_outputs(expected, first(*inputs)).bitwise_equal:
        return untried("two runs of one module differ")
    return bad("the results differ")


def main() -> None:
    """Answer requests until stdin ends."""
    runtime.emulate(int(sys.argv[1]))
    answer(GOOD)
    for line in sys.stdin:
        after, before = json.loads(line)
        answer(judge(after, before, int(sys.argv[2])))


if __name__ == "__main__":
    main()
