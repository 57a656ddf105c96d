"""The pass of the package: a value that is negated twice is the value itself.

Before:  %n = f32[8] negate(%p)
         %m = f32[8] negate(%n)
After:   %p, for every reader of %m
"""

from dataclasses import dataclass
from typing import ClassVar

import hlo_passes


@dataclass(frozen=True, slots=True)
class DoubleNegation(hlo_passes.ComputationPass):
    """Replace a value that is negated twice by the value itself.

    Attributes:
        limit: replace at most so many in a computation.
    """

    name: ClassVar[str] = "double-negation"
    limit: int = 1000

    def run_on_computation(self, computation, context, report):
        """Replace each by the operand of its operand."""
        done = 0
        for outer in computation.instructions:
            inner = outer.operands[0] if outer.opcode == "negate" else None
            if inner is None or inner.opcode != "negate" or done == self.limit:
                continue
            if computation.replace(outer, inner.operands[0]):
                report.count("negations-removed")
                done += 1
