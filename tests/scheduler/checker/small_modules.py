"""Small scheduled modules: the lines of an entry, with a reduction to name."""

from __future__ import annotations

import hlo_passes
from hlo_passes.scheduler.checker.schedule_checker import check_schedule

ADD = """%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %s = f32[] add(%x, %y)
}
"""
GROUPS = "replica_groups={{0,1}}, to_apply=%add"


def small_module(entry: str, *computations: str) -> hlo_passes.Module:
    """A scheduled module; `entry` has a line per instruction."""
    lines = "\n".join(f"  {line}" for line in entry.strip().splitlines())
    head = "HloModule m, is_scheduled=true, replica_count=2\n"
    body = "\n".join((head, ADD, *computations))
    return hlo_passes.parse(f"{body}\nENTRY %main {{\n{lines}\n}}\n")


def codes(module: hlo_passes.Module, **options: object) -> list[tuple[str, str]]:
    return [(f.code, f.instruction) for f in check_schedule(module, **options)]
