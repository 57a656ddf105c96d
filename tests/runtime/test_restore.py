"""What XLA compiled is brought back into the order of the loaded module."""

from __future__ import annotations

import hlo_passes
from hlo_passes.runtime.plain.builder import POSITION_MARK
from hlo_passes.runtime.restore import bring_into_order


def _at(position: int) -> str:
    return f'metadata={{op_name="{POSITION_MARK}{position}"}}'


def test_a_parameter_with_a_late_position_does_not_delay_a_collective() -> None:
    """XLA gave the parameter of a loop's condition the name of a later instruction."""
    module = hlo_passes.parse(f"""\
HloModule m

%add (a: s32[], b: s32[]) -> s32[] {{
  %a = s32[] parameter(0)
  %b = s32[] parameter(1)
  ROOT %sum = s32[] add(%a, %b)
}}

ENTRY %e (p: s32[]) -> s32[] {{
  %one = s32[] constant(1)
  %second = s32[] all-reduce(%one), replica_groups={{}}, to_apply=%add, {_at(90)}
  %p = s32[] parameter(0), {_at(101)}
  %first = s32[] all-reduce(%p), replica_groups={{}}, to_apply=%add, {_at(87)}
  ROOT %both = s32[] add(%first, %second), {_at(95)}
}}
""")
    bring_into_order(module.entry)
    names = [i.name for i in module.entry.instructions]
    assert names == ["one", "p", "first", "second", "both"]
