"""XLA's own figures on XLA's schedules, before and after its scheduler.

Without queues and by XLA's rules the simulator gives XLA's wasted and total time and its
memory pressure peak. Its own rules differ in four things only, which bound how far the
two exposures may lie apart: a start and a done take no time, a start's time is not
truncated, a loop takes as long as its body, and what is asynchronous on its own thread
(which XLA's scheduler does not count) is waited for.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import hlo_passes
from hlo_passes.scheduler.estimators.base import Estimator
from hlo_passes.scheduler.hardware.topology import Topology
from hlo_passes.scheduler.latency_hiding.statistics import WASTE_KINDS
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.simulation.simulate import simulate_with
from hlo_passes.scheduler.simulation.timeline import Timeline
from hlo_passes.scheduler.simulation.timeline_data import COMPUTE_LANE
from tests.modules import CORPUS, SHARED
from tests.scheduler.conformance.recordings import Recording, find_recordings
from tests.scheduler.conformance.setting import setting_of

#: XLA prints six digits.
RELATIVE = 1e-3
#: Node cost of a start or done under every estimator of XLA's.
HALF_US = 1.0
#: Recordings of the corpus that are tried; `SHARED` has its own, larger ones.
ARCHIVES = (
    "0.10.2/fsdp_mlp", "0.10.2/ring_attention_grad", "0.10.2/host_offload",
    "0.12.0.1/grouped_reductions", "0.12.0.1/control_flow",
)  # fmt: skip


def recordings() -> Iterator[Recording]:
    for name in ARCHIVES:
        yield from find_recordings(CORPUS / "schedules" / f"{name}.tar.xz")
    for model in ("llama31_70b_bf16_16x8", "llama3_8b_cp_bf16_1x4"):
        if (SHARED / "golden" / model).is_dir():
            yield from find_recordings(SHARED / "golden" / model)


RECORDINGS = list(recordings())


def simulate_it(text: str, estimator: Estimator, rules: Rules) -> Timeline:
    module = hlo_passes.parse(text)
    return simulate_with(module, "h100_sxm", Topology(1, 1, 8), estimator, rules)


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda r: r.name)
def test_without_queues_it_is_xlas_statistic(recording: Recording, side: str) -> None:
    estimator = setting_of(recording).estimator
    text = recording.before if side == "before" else recording.after
    timeline = simulate_it(text, estimator, Rules(xla_statistic=True))
    plain = simulate_it(text, estimator, Rules(streams=0))
    for name, want in recording.statistics[side].items():
        times = timeline.computations[name]
        rows = [row for row in timeline.collectives if row.computation == name]
        wasted = dict.fromkeys(WASTE_KINDS.values(), 0.0)
        for row in rows:
            wasted[WASTE_KINDS[row.opcode]] += row.exposed_us
        for kind, us in wasted.items():
            assert us == pytest.approx(want[f"wasted cycles for {kind}"], RELATIVE), (
                kind
            )
        assert sum(wasted.values()) == pytest.approx(
            want["total wasted cycles"], RELATIVE
        )
        assert times.step_time_us == pytest.approx(want["total cycles"], RELATIVE)
        assert times.peak_memory_bytes == want["memory pressure peak (bytes)"]
        _assert_related(timeline, plain, name)


def _assert_related(xla: Timeline, plain: Timeline, name: str) -> None:
    """The simulator's own exposure is XLA's, give or take what the rules differ in.

    Per pair: the truncation (below 1 us) and the cost of every start and done, which
    in XLA's count hide latency. A loop or branch in the window hides as much more as it
    takes longer than its node cost, and so does a wait for something else; where there
    is one, ours is not greater.
    """
    # XLA's count leaves out collectives that are kernels.
    counted = {row.name for row in xla.collectives if row.computation == name}
    all_rows = [row for row in plain.collectives if row.computation == name]
    rows = [row for row in all_rows if row.name in counted]
    kernels_us = sum(row.exposed_us for row in all_rows if row.name not in counted)
    ours = sum(row.exposed_us for row in rows)
    theirs = sum(row.exposed_us for row in xla.collectives if row.computation == name)
    halves = [
        span
        for span in xla.spans
        if span.computation == name
        and span.lane == COMPUTE_LANE
        and span.opcode.endswith(("-start", "-done"))
    ]
    calls = [s for s in plain.spans if s.computation == name and s.kind in _CALLS]
    slack = len(rows) * (1.0 + HALF_US * len(halves))
    assert ours <= theirs + slack + 1e-6 * theirs
    others = plain.computations[name].other_exposed_us + kernels_us
    if halves and not calls and not others:
        assert ours >= theirs - len(rows) - 1e-6 * theirs


_CALLS = ("loop", "call", "conditional")
