"""The vision transformer of the documentation, small, with and without the pass."""

from __future__ import annotations

import pytest

from docs.uneven import vit
from hlo_passes import Pipeline, runtime
from hlo_passes.passes.framework.base import PassContext


@pytest.mark.parametrize("tokens", [5, 13, 16])
def test_it_computes_the_same_bits(host_devices, tokens: int) -> None:
    """Fewer tokens than devices, a prime, and a number that divides."""
    jitted, arguments = vit.program(
        host_devices(8), images=2, tokens=tokens, width=16, blocks=2, dtype="float32"
    )
    before = runtime.lower(jitted, *arguments)
    after = before.clone()
    made = Pipeline.parse(
        "uneven-reduce-scatter-creator{always=true}", PassContext(xla_quirks=False)
    ).run(after)
    opcodes = [i.opcode for i in after.entry.instructions]
    assert made.changed == (tokens % 8 > 0)
    assert opcodes.count("reduce-scatter") == 2 * made.changed
    rings = Pipeline.parse("collective-ring-decomposer{always=true,kinds=all-gather}")
    rings.run(after)
    assert runtime.compare(before, after).bitwise_equal
