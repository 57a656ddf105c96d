"""The reader of the scheduler's log, on lines written by hand."""

from __future__ import annotations

from hlo_passes.scheduler.tpu.log import read_log

SAID = """\
TensorCore frequency: 1000 MHz
Statistics before scheduling
For computation: main, module m
Total wasted cycles: 6
Total cycles: 10
Just built graph:
Instr: %s = all-gather-start(%p), dimensions={0}
Predecessors:
Edge: p latency: 1
Successors:
Edge: d latency: 8.5
Edge: f latency: 1
Edge: e latency: 1
Resources:
Resource: kAllGather usage: kResourceRelease
Cost: 1
Instr: %d = all-gather-done(%s)
Cost: 1
Instr: %e = all-gather-done(%t)
Cost: 1
Instr: %f = fusion(%p), kind=kLoop
Cost: 12
Initial memory pressure for main: 0
current memory usage: 100. Current limit: 4096
Choosing from ready (d) Reason: First Candidate
Choosing from ready (d) vs (f) Reason: kScheduleDone
Memory pressure before schedule: 0
Memory pressure after schedule: 64
Memory peak after schedule: 64
Scheduled: d
Instr: %d = all-gather-done(%s)
Cost: 99
New order
%s = all-gather-start(%p)
%f = fusion(%p)
ROOT %d = all-gather-done(%s)
Total time: 20
Statistics after scheduling
For computation: main, module m
Total wasted cycles: 0
"""


def test_a_log() -> None:
    begin = "I0101 00:00:00.000000     1 latency_hiding_scheduler.cc:1] "
    log = read_log(["of somebody else\n", *(begin + s for s in SAID.splitlines())])
    (only,) = log.rounds
    assert only.computation == "main"
    assert only.cost_cycles == {"s": 1.0, "d": 1.0, "e": 1.0, "f": 12.0}
    # The done of another start is a control successor, no end of this one.
    assert only.latency_cycles == {"s": 8.5}
    assert only.resources == {"s": (("kAllGather", "kResourceRelease"),)}
    assert only.decisions == [("d", "", "first"), ("d", "f", "kScheduleDone")]
    assert only.memory_bytes == [(0, 64, 64)]
    assert only.placed == ["d"]
    assert only.order == ["s", "f", "d"]
    assert log.mhz == 1000.0
    assert log.memory_limit_bytes == 4096
    assert log.statistics["before"]["main"] == {
        "total wasted cycles": 6.0,
        "total cycles": 10.0,
    }
    assert log.statistics["after"]["main"]["total wasted cycles"] == 0.0


def test_a_log_without_a_scheduler() -> None:
    log = read_log(["nothing"])
    assert not log.rounds
    assert log.mhz is None
