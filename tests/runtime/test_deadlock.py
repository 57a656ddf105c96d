"""What XLA's log says of a deadlock, in words. No device starts."""

from __future__ import annotations

import pytest

from hlo_passes.runtime import deadlock
from hlo_passes.runtime.plain.stand_ins import Collective

LOG = """\
I0000 00:00:1 7 collective_thunk.cc:140] Rendezvous: rank=0, key=RendezvousKey{run_id=RunId: RUN, global_devices=[0,1], num_local_participants=2, collective_op_kind=cross_module, op_id=1}
E0000 00:00:1 7 rendezvous.cc:99] This thread has been waiting for `all reduce RendezvousKey{run_id=RunId: RUN, global_devices=[0,1], num_local_participants=2, collective_op_kind=cross_module, op_id=1}` for 1 seconds and may be stuck.
F0000 00:00:1 7 rendezvous.cc:120] Termination timeout for `all reduce` exceeded.
"""


def reduction(name: str) -> Collective:
    return Collective("all-reduce", {"channel_id": "1"}, "add", "f32", name)


@pytest.mark.parametrize("run", ["1101538194", "-1101538194"])
def test_the_number_of_a_run_has_a_sign(run: str) -> None:
    log = LOG.replace("RUN", run)
    assert deadlock.is_deadlock(log)
    assert deadlock.describe(deadlock.stuck(log), [reduction("r")]) == (
        "deadlock: %r (all-reduce) waits for device 1 of 0,1"
    )


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (0, "deadlock: some devices wait for others, and XLA's log does not say where"),
        (1, "deadlock: some devices wait for others in %r0 (all-reduce)"),
        (
            2,
            "deadlock: some devices wait for others, and XLA's log does not say in "
            "which of %r0 (all-reduce), %r1 (all-reduce)",
        ),
        (
            7,
            "deadlock: some devices wait for others, and XLA's log does not say in "
            "which of %r0 (all-reduce), %r1 (all-reduce), %r2 (all-reduce), "
            "%r3 (all-reduce), %r4 (all-reduce) and 2 more",
        ),
    ],
)
def test_a_log_without_a_place(count: int, said: str) -> None:
    collectives = [reduction(f"r{k}") for k in range(count)]
    assert deadlock.describe((), collectives) == said
