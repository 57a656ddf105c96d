"""Random programs: elementwise instructions around products, collectives and copies."""

from __future__ import annotations

import random
from collections.abc import Sequence

#: Unary opcodes that `tests/runtime/evaluator.py` knows.
EXACT = ("negate",)
#: Of each array.
ELEMENTS = 64
_SIZES = "[8,8]"
_BINARY = ("add", "subtract", "multiply", "maximum", "minimum")


def program(
    rng: random.Random,
    devices: int,
    *,
    length: int = 24,
    unary: Sequence[str] = EXACT,
    control_edges: bool = True,
) -> str:
    """The text of a module of so many partitions."""
    lines: list[str] = []
    types: dict[str, str] = {}

    def add(kind: str, text: str) -> str:
        name = f"i{len(lines)}"
        lines.append(f"%{name} = {kind}{_SIZES} {text}")
        types[name] = kind
        return name

    def some(kind: str) -> str:
        known = [name for name, each in types.items() if each == kind]
        return f"%{rng.choice(known[-6:])}"

    parameters = [
        add(kind, f"parameter({k})") for k, kind in enumerate(("f32", "f32", "bf16"))
    ]
    lines.append("%two = f32[] constant(2)")
    lines.append("%half = f32[] constant(0.5)")
    add("pred", f"compare({some('f32')}, {some('f32')}), direction=LT")
    while len(lines) < length:
        kind = rng.choice(("f32", "f32", "f32", "bf16"))
        match rng.choice(("unary", "binary", "binary", "binary", "binary", "free", "type",
                          "choice", "clamp", "edge", "far")):  # fmt: skip
            case "unary":
                add(kind, f"{rng.choice(unary)}({some(kind)})")
            case "binary":
                edge = ""
                if control_edges and rng.random() < 0.05:
                    edge = f", control-predecessors={{%{rng.choice(list(types))}}}"
                add(kind, f"{rng.choice(_BINARY)}({some(kind)}, {some(kind)}){edge}")
            case "free" if rng.random() < 0.5:
                add(
                    "f32", f"broadcast(%{rng.choice(('two', 'half'))}), dimensions={{}}"
                )
            case "free":
                add("f32", "iota(), iota_dimension=1")
            case "type":
                other = "bf16" if kind == "f32" else "f32"
                add(kind, f"convert({some(other)})")
            case "choice" if rng.random() < 0.5:
                add("pred", f"compare({some(kind)}, {some(kind)}), direction=GE")
            case "choice":
                add(kind, f"select({some('pred')}, {some(kind)}, {some(kind)})")
            case "clamp":
                add("f32", f"clamp(%half, {some('f32')}, %two)")
            case "edge":
                add(kind, f"copy({some(kind)})")
            case _ if rng.random() < 0.5:
                pairs = ",".join(f"{{{k},{(k + 1) % devices}}}" for k in range(devices))
                add(kind, f"collective-permute({some(kind)}), source_target_pairs={{{pairs}}}, "
                    f"channel_id={len(lines)}")  # fmt: skip
            case _:
                add(kind, f"transpose({some(kind)}), dimensions={{1,0}}")
    results = rng.sample(list(types), 3)
    results += [list(types)[-1]]
    shapes = ", ".join(f"{types[name]}{_SIZES}" for name in results)
    named = ", ".join(f"%{name}" for name in results)
    lines.append(f"ROOT %t = ({shapes}) tuple({named})")
    arguments = ", ".join(f"{name}: {types[name]}{_SIZES}" for name in parameters)
    inside = "\n  ".join(lines)
    return (
        f"HloModule random, num_partitions={devices}\n\n"
        f"ENTRY %main ({arguments}) -> ({shapes}) {{\n  {inside}\n}}\n"
    )
