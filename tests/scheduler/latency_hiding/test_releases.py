"""Where the XLA of jax 0.12 schedules otherwise than that of 0.10."""

from __future__ import annotations

import pytest

import hlo_passes
from hlo_passes.scheduler import make_estimator
from hlo_passes.scheduler.latency_hiding.driver import schedule_module
from hlo_passes.scheduler.latency_hiding.settings import SchedulerSettings

TEXT = """\
HloModule m, is_scheduled=true, num_partitions=8

fill {{
  zero = f32[] constant(0)
  ROOT filled = f32[{elements}] broadcast(zero), dimensions={{}}
}}

negated {{
  given = f32[{elements}] parameter(0)
  ROOT negative = f32[{elements}] negate(given)
}}

small {{
  given.1 = f32[8] parameter(0)
  ROOT absolute = f32[8] abs(given.1)
}}

ENTRY main {{
  p = f32[8] parameter(0)
  large = f32[{elements}] fusion(), kind=kLoop, calls=fill
  start = (f32[8], f32[64]) all-gather-start(p), channel_id=1, replica_groups={{{{0,1,2,3,4,5,6,7}}}}, dimensions={{0}}, use_global_device_ids=true
  one = f32[8] fusion(p), kind=kLoop, calls=small
  user = f32[{elements}] fusion(large), kind=kLoop, calls=negated
  done = f32[64] all-gather-done(start)
  ROOT t = (f32[8], f32[{elements}], f32[64]) tuple(one, user, done)
}}
"""
MIB_ELEMENTS = 1 << 18


def scheduled(elements: int, xla: str) -> tuple[list[str], set[str]]:
    """(order of the entry, reasons of its decisions)."""
    module = hlo_passes.parse(TEXT.format(elements=elements), filename="m.hlo")
    result = schedule_module(
        module,
        make_estimator("gpu-approximate"),
        SchedulerSettings(xla=xla),
        log_decisions=True,
    )
    order = [i.name for i in module.entry.instructions]
    return order, {decision.reason for decision in result.decisions}


def test_large_fill_waits_for_its_user() -> None:
    order, reasons = scheduled(MIB_ELEMENTS, "0.12")
    assert "kForceEarly" in reasons
    assert order.index("user") == order.index("large") + 1


@pytest.mark.parametrize(
    ("elements", "xla"),
    [(MIB_ELEMENTS, "0.10.2"), (MIB_ELEMENTS, "0.11"), (MIB_ELEMENTS - 1, "0.12")],
)
def test_fill_like_anything_else(elements: int, xla: str) -> None:
    _, reasons = scheduled(elements, xla)
    assert "kForceEarly" not in reasons
