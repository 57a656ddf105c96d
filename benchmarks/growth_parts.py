"""What the made-up modules of the growth benchmark are put together from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

SHAPE: Final = "f32[8]{0}"
_ADD: Final = (
    "%add (x: f32[], y: f32[]) -> f32[] {\n  %x = f32[] parameter(0)\n"
    "  %y = f32[] parameter(1)\n  ROOT %sum = f32[] add(%x, %y)\n}\n"
)
REDUCES: Final = "replica_groups=[1,8]<=[8], use_global_device_ids=true, to_apply=%add"
SWAP: Final = "source_target_pairs={{0,1},{1,0}}"
PARAMETER: Final = f"%p = {SHAPE} parameter(0)"


def module_of(lines: Sequence[str], *bodies: str, partitions: int = 8) -> str:
    """A scheduled module; the last line is the entry's root."""
    *others, root = lines
    entry = "\n".join(f"  {line}" for line in (*others, f"ROOT {root}"))
    return "\n".join(
        (
            f"HloModule grown, is_scheduled=true, num_partitions={partitions}\n",
            _ADD,
            *bodies,
            f"ENTRY %main {{\n{entry}\n}}\n",
        )
    )


def tuple_of(names: Sequence[str], shape: str = SHAPE) -> str:
    """`%all`, a tuple of these instructions."""
    shapes = ", ".join([shape] * len(names))
    return f"%all = ({shapes}) tuple({', '.join(f'%{name}' for name in names)})"


def all_reduce(k: int, operand: str, suffix: str = "") -> str:
    """The right side of an all-reduce over all devices."""
    return f"{SHAPE} all-reduce{suffix}(%{operand}), channel_id={k + 1}, {REDUCES}"


def names_of(stem: str, count: int) -> list[str]:
    """`stem.0`, `stem.1` and so on."""
    return [f"{stem}.{k}" for k in range(count)]


def pair(k: int, operand: str) -> tuple[str, str]:
    """An asynchronous all-reduce: start and done."""
    return (
        f"%s.{k} = {all_reduce(k, operand, '-start')}",
        f"%d.{k} = {SHAPE} all-reduce-done(%s.{k})",
    )


def body_of(name: str, collective: int | None = None) -> str:
    """A computation of one instruction: a collective, if it has a number."""
    work = f"{SHAPE} negate(%x.{name})"
    if collective is not None:
        work = all_reduce(collective, f"x.{name}")
    return (
        f"%{name} {{\n  %x.{name} = {SHAPE} parameter(0)\n"
        f"  ROOT %n.{name} = {work}\n}}\n"
    )
