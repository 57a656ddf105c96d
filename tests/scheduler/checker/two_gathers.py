"""Two all-gathers, the second of what runs beside the first, and other orders of them."""

from __future__ import annotations

import hlo_passes
from hlo_passes.ir.module import Module
from hlo_passes.scheduler.checker.schedule_checker import check_schedule

GATHER = "replica_groups={{0,1}}, dimensions={0}, use_global_device_ids=true"
TWO = f"""HloModule m, is_scheduled=true, num_partitions=2

ENTRY %main {{
  %p = f32[8] parameter(0)
  %begin = (f32[8], f32[16]) all-gather-start(%p), channel_id=1, {GATHER}
  %work = f32[8] negate(%p)
  %end = f32[16] all-gather-done(%begin)
  %begin2 = (f32[8], f32[16]) all-gather-start(%work), channel_id=2, {GATHER}
  %end2 = f32[16] all-gather-done(%begin2)
  ROOT %r = f32[16] add(%end, %end2)
}}
"""


def ordered(text: str, *names: str) -> Module:
    """The module with these instructions of its entry first, in that order."""
    module = hlo_passes.parse(text, filename="m.hlo")
    by_name = {i.name: i for i in module.entry.instructions}
    chosen = [by_name[name] for name in names]
    rest = [i for i in module.entry.instructions if i not in chosen]
    module.entry.set_order([*chosen, *rest])
    return module


def codes(module: Module, **options: object) -> list[tuple[str, str]]:
    """Code and instruction of each finding."""
    return [(f.code, f.instruction) for f in check_schedule(module, **options)]
