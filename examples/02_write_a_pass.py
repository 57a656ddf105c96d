"""A pass of your own, in twenty lines.

python examples/02_write_a_pass.py
"""

from dataclasses import dataclass
from typing import ClassVar

import hlo_passes


@dataclass(frozen=True, slots=True)
class RemoveTrivialReshape(hlo_passes.ComputationPass):
    """Drop reshapes that change nothing.

    Before:  r = f32[8]{0} reshape(p)     # p is f32[8]{0}
    After:   every user of r reads p
    """

    name: ClassVar[str] = "remove-trivial-reshape"

    def run_on_computation(self, computation, context, report):
        """Replace each by its operand."""
        for i in computation.instructions:
            if i.opcode != "reshape" or i.shape != i.operands[0].shape:
                continue
            if computation.replace(i, i.operands[0]):
                report.count("reshapes-removed")
            else:
                report.remark(f"not removed: %{i.name} has control edges")


TEXT = """HloModule m

ENTRY %e (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  %r = f32[8]{0} reshape(%p)
  ROOT %n = f32[8]{0} negate(%r)
}
"""

module = hlo_passes.parse(TEXT)
result = hlo_passes.Pipeline((RemoveTrivialReshape(),)).run(module)
print(module.to_text())
print(result.passes[0].statistics)
