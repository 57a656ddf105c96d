"""The process that runs modules for `hlo-passes bisect`, one pair after another.

    stdin   ["after.hlo", "before.hlo"]
    stdout  judgment {"seconds": 0.4}                      the untouched module ran
    stdin   go on
    stdout  judgment {"seconds": 0.5}                      other bits: once more
    stdout  judgment {"is_bad": true, "what": "the results differ"}

The parent measures, and ends this process where it does not want to go on or has
waited too long. It is called as `python -m hlo_passes.runtime.bisect.worker DEVICES
SEED`.
"""

from __future__ import annotations

import json
import os
import pathlib
import queue
import sys
import threading
import time
from typing import Any

from hlo_passes import runtime
from hlo_passes.errors import HloError
from hlo_passes.runtime import memory
from hlo_passes.runtime.bisect.judgment import GOOD, Judgment, bad, untried
from hlo_passes.runtime.bisect.oracles import ANSWER
from hlo_passes.runtime.comparison import compare_outputs, require_same_signature
from hlo_passes.runtime.devices import topology_of
from hlo_passes.runtime.executable import load_plain
from hlo_passes.runtime.inputs import seeded_inputs
from hlo_passes.runtime.plain.legalize import plain_module
from hlo_passes.runtime.plain.refusals import require_valid
from hlo_passes.text.reader import parse

#: The results of both modules are in memory together.
_RUNS_HELD = 2


def answer(fields: dict[str, Any]) -> None:
    """Write an answer."""
    sys.stdout.write(f"{ANSWER}{json.dumps(fields)}\n")
    sys.stdout.flush()


def _said(judgment: Judgment) -> dict[str, Any]:
    return {"is_bad": judgment.is_bad, "what": judgment.what}


class _Requests:
    """The lines of stdin; this process ends with them, whatever it is doing."""

    def __init__(self) -> None:
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin:
            self._lines.put(line.strip())
        os._exit(0)

    def next(self) -> str:
        """The next line."""
        return self._lines.get()


def judge(
    after_path: str, before_path: str, seed: int, requests: _Requests
) -> Judgment:
    """Run both; if `before` does not run, the result is unknown."""
    texts = [pathlib.Path(p).read_text() for p in (after_path, before_path)]
    after, before = (parse(text) for text in texts)
    # Run the untouched module, and say how long it took.
    start = time.perf_counter()
    try:
        require_valid(before)
        plain = plain_module(before)
        replicas, partitions = topology_of(before)
        need = memory.bytes_needed(plain, device_count=replicas * partitions)
        memory.require(_RUNS_HELD * need, before.name)
        first = load_plain(plain, before, replicas, partitions)
        inputs = seeded_inputs(
            plain, before, device_count=first.device_count, seed=seed
        )
        expected = first(*inputs)
    except HloError as refused:
        return untried(f"it cannot be run: {refused.code}")
    answer({"seconds": time.perf_counter() - start})
    requests.next()
    # Run the result of the passes.
    start = time.perf_counter()
    try:
        require_valid(after)
        second = load_plain(plain_module(after), after, *topology_of(after))
        require_same_signature(first, second)
        if compare_outputs(expected, second(*inputs)).bitwise_equal:
            return GOOD
    except HloError as refused:
        return bad(f"the result cannot be run: {refused.code}")
    # A module with other bits in every run says nothing.
    answer({"seconds": time.perf_counter() - start})
    if not compare_outputs(expected, first(*inputs)).bitwise_equal:
        return untried("two runs of one module differ")
    return bad("the results differ")


def main() -> None:
    """Answer requests until stdin ends."""
    runtime.emulate(int(sys.argv[1]))
    requests = _Requests()
    answer(_said(GOOD))
    while True:
        after, before = json.loads(requests.next())
        answer(_said(judge(after, before, int(sys.argv[2]), requests)))


if __name__ == "__main__":
    main()
