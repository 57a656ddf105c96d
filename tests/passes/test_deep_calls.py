"""Calls that nest deeply, and options that are out of range."""

from __future__ import annotations

import pytest

import hlo_passes
from hlo_passes.errors import PipelineSpecError
from hlo_passes.passes.framework.pipeline import Pipeline

_DEPTH = 1500


def _two_chains(innermost: tuple[str, str]) -> str:
    """Two chains of calls, `_DEPTH` deep; the entry calls and adds both."""
    lines = ["HloModule chains\n"]
    for chain, opcode in zip("ab", innermost, strict=True):
        for k in range(_DEPTH):
            value = f"call(%{chain}p{k}), to_apply=%{chain}{k - 1}"
            if k == 0:
                value = f"{opcode}(%{chain}p0)"
            lines.append(
                f"%{chain}{k} ({chain}p{k}: f32[8]) -> f32[8] {{\n"
                f"  %{chain}p{k} = f32[8]{{0}} parameter(0)\n"
                f"  ROOT %{chain}r{k} = f32[8]{{0}} {value}\n}}\n"
            )
    lines.append(
        "ENTRY %main (x: f32[8]) -> f32[8] {\n"
        "  %x = f32[8]{0} parameter(0)\n"
        f"  %y = f32[8]{{0}} call(%x), to_apply=%a{_DEPTH - 1}\n"
        f"  %z = f32[8]{{0}} call(%x), to_apply=%b{_DEPTH - 1}\n"
        "  ROOT %w = f32[8]{0} add(%y, %z)\n}"
    )
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("innermost", "merged"),
    [(("negate", "negate"), True), (("negate", "abs"), False)],
)
def test_deep_calls_are_compared_to_the_bottom(
    innermost: tuple[str, str], merged: bool
) -> None:
    """Neither depth of recursion nor quadratic work."""
    module = hlo_passes.parse(_two_chains(innermost))
    assert Pipeline.parse("hlo-cse").run(module).changed == merged
    y, z = module.entry.root.operands
    assert (y is z) == merged


@pytest.mark.parametrize("rounds", [0, -1])
def test_fixed_point_needs_a_round(rounds: int) -> None:
    """No rounds could never settle."""
    with pytest.raises(PipelineSpecError, match="at least 1 round") as caught:
        Pipeline.parse(f"fixed-point{{max-iterations={rounds}}}(hlo-cse)")
    assert caught.value.code == "U013"
