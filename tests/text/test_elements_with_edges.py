"""An element that its readers spell has a line once a control edge names it."""

from __future__ import annotations

import hlo_passes

TEXT = """HloModule m

ENTRY %main {
  %p = (f32[2], f32[2]) parameter(0)
  %a = f32[2] negate(%p#0)
  ROOT %r = f32[2] add(%a, %p#0)
}
"""


def test_a_control_edge_from_an_element_can_be_read_again() -> None:
    module = hlo_passes.parse(TEXT)
    _, element, negated, _ = module.entry.instructions
    module.entry.add_control_edge(element, negated)
    again = hlo_passes.parse(module.to_text()).entry
    assert [i.opcode for i in again.instructions] == [
        "parameter", "get-tuple-element", "negate", "add",
    ]  # fmt: skip
    assert again.instructions[2].control_predecessors == (again.instructions[1],)
