"""Modules with a dot beside an all-gather or a reduce-scatter, of any groups."""

from __future__ import annotations

from dataclasses import dataclass

_CONTRACT = "lhs_contracting_dims={%d}, rhs_contracting_dims={%d}"


@dataclass(frozen=True)
class Matmul:
    """One collective and its dots.

    Attributes:
        kind: all-gather or reduce-scatter.
        groups: of partitions or replicas.
        side: the operand of the dot that is gathered, or cut.
        sums: whether the dot sums over what is gathered.
        shared: whether a second dot and a negation read what is gathered.
        by: `partitions` or `replicas`.
        type: of all arrays.
        rows, depth, width: of a shard, of what is summed, of the other operand.
    """

    kind: str
    groups: tuple[tuple[int, ...], ...]
    side: int = 0
    sums: bool = False
    shared: bool = False
    by: str = "partitions"
    type: str = "f32"
    rows: int = 2
    depth: int = 3
    width: int = 4

    @property
    def size(self) -> int:
        """Devices of a group."""
        return len(self.groups[0])

    @property
    def devices(self) -> int:
        """All devices."""
        return self.size * len(self.groups)

    def shape(self, *sizes: int) -> str:
        """`f32[2,3]`, in reverse where the other operand comes first."""
        return f"{self.type}[{','.join(map(str, sizes))}]"

    def text(self) -> str:
        """The module."""
        whole = self.rows * self.size
        listed = ",".join(f"{{{','.join(map(str, g))}}}" for g in self.groups)
        more = f"replica_groups={{{listed}}}"
        header = "replica_count"
        if self.by == "partitions":
            more = f"channel_id=1, {more}, use_global_device_ids=true"
            header = "num_partitions"
        header = f"HloModule m, {header}={self.devices}\n"
        make = self._gathered if self.kind == "all-gather" else self._scattered
        return header + make(whole, more)

    def _pair(self, cut: str, other: str) -> str:
        return f"%{cut}, %{other}" if self.side == 0 else f"%{other}, %{cut}"

    def _dims(self, cut: int, other: int) -> str:
        return _CONTRACT % ((cut, other) if self.side == 0 else (other, cut))

    def _result(self, rows: int) -> str:
        sizes = (rows, self.width)
        return self.shape(*(sizes if self.side == 0 else sizes[::-1]))

    def _gathered(self, whole: int, more: str) -> str:
        x, g = self.shape(self.rows, self.depth), self.shape(whole, self.depth)
        if self.sums:
            w, d = self.shape(whole, self.width), self._result(self.depth)
            dims = self._dims(0, 0)
        else:
            w, d = self.shape(self.depth, self.width), self._result(whole)
            dims = self._dims(1, 0)
        results, extra = [("d", d)], ""
        if self.shared:
            extra = f"""  %e = {d} dot({self._pair("g", "v")}), {dims}
  %n = {g} negate(%g)
"""
            results += [("e", d), ("n", g)]
        made = f"({', '.join(shape for _, shape in results)})"
        return f"""
ENTRY %main (x: {x}, w: {w}, v: {w}) -> {made} {{
  %x = {x} parameter(0)
  %w = {w} parameter(1)
  %v = {w} parameter(2)
  %g = {g} all-gather(%x), {more}, dimensions={{0}}
  %d = {d} dot({self._pair("g", "w")}), {dims}
{extra}  ROOT %t = {made} tuple({", ".join("%" + name for name, _ in results)})
}}
"""

    def _scattered(self, whole: int, more: str) -> str:
        x, w = self.shape(whole, self.depth), self.shape(self.depth, self.width)
        d, r = self._result(whole), self._result(self.rows)
        scalar = self.shape()
        return f"""
%add (a: {scalar}, b: {scalar}) -> {scalar} {{
  %a = {scalar} parameter(0)
  %b = {scalar} parameter(1)
  ROOT %r = {scalar} add(%a, %b)
}}

ENTRY %main (x: {x}, w: {w}) -> {r} {{
  %x = {x} parameter(0)
  %w = {w} parameter(1)
  %d = {d} dot({self._pair("x", "w")}), {self._dims(1, 0)}
  ROOT %y = {r} reduce-scatter(%d), {more}, dimensions={{{self.side}}}, to_apply=%add
}}
"""


def sequence_parallel(
    devices: int, tokens: int, width: int, hidden: int, type: str = "bf16"
) -> str:
    """One block: gather the tokens, two dots, scatter the tokens.

    Args:
        devices: that share tokens and hidden columns.
        tokens: rows of all devices.
        width: columns of a token.
        hidden: columns between the two dots, of all devices.
        type: of all arrays.
    """
    whole, part = f"{type}[{tokens},{width}]", f"{type}[{tokens // devices},{width}]"
    up, down = (
        f"{type}[{width},{hidden // devices}]",
        f"{type}[{hidden // devices},{width}]",
    )
    middle = f"{type}[{tokens},{hidden // devices}]"
    groups = f"replica_groups={{{{{','.join(map(str, range(devices)))}}}}}"
    more = f"{groups}, use_global_device_ids=true, dimensions={{0}}"
    dims = _CONTRACT % (1, 0)
    return f"""HloModule m, num_partitions={devices}

%add (a: {type}[], b: {type}[]) -> {type}[] {{
  %a = {type}[] parameter(0)
  %b = {type}[] parameter(1)
  ROOT %r = {type}[] add(%a, %b)
}}

ENTRY %main (x: {part}, up: {up}, down: {down}) -> {part} {{
  %x = {part} parameter(0)
  %up = {up} parameter(1)
  %down = {down} parameter(2)
  %g = {whole} all-gather(%x), channel_id=1, {more}
  %h = {middle} dot(%g, %up), {dims}
  %t = {middle} tanh(%h)
  %y = {whole} dot(%t, %down), {dims}
  ROOT %s = {part} reduce-scatter(%y), channel_id=2, {more}, to_apply=%add
}}
"""
