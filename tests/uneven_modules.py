"""Random SPMD modules over an array whose rows do not divide among the devices.

    module = uneven_module(random.Random(7), devices=4)
    module.text(fill=5)          padding of the program is 5 wherever it has some
    module.inputs(fill=5)        so is that of the array's parts

The array is gathered and cut, summed over devices and cut into parts again, shifted to
the next device, reduced along its rows with its padding masked, and sent through two
all-to-alls. Only the array's own rows are results: they are the same for every filling.
Numbers are whole and small, so that no order of a sum changes a bit.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np

from hlo_passes.analysis.shard_extents import shard_extent, shard_rows

#: Blocks of columns are as many as devices.
_BLOCK = 2
_TYPES = {"f32": np.float32, "s32": np.int32}


@dataclass(frozen=True, slots=True)
class UnevenModule:
    """A module, but for what it is padded with.

    Attributes:
        rows: of the array.
        devices: that share it.
        kind: element type.
        template: HLO text with `{fill}` for each padding.
    """

    rows: int
    devices: int
    kind: str
    template: str

    @property
    def columns(self) -> int:
        """Of the array."""
        return _BLOCK * self.devices

    def text(self, fill: int) -> str:
        """The module with this padding."""
        return self.template.replace("{fill}", str(fill))

    def inputs(self, fill: int) -> list[np.ndarray]:
        """Parts of the array, and a whole array on each device, device by device."""
        numbers = np.random.default_rng(self.rows)
        each = shard_rows(self.rows, self.devices)
        parts = numbers.integers(-3, 4, (self.devices, each, self.columns))
        for device in range(self.devices):
            parts[device, shard_extent(self.rows, self.devices, device) :] = fill
        whole = numbers.integers(-3, 4, (self.devices, self.rows, self.columns))
        return [array.astype(_TYPES[self.kind]) for array in (parts, whole)]


@dataclass(slots=True)
class _Builder:
    """Lines of the entry; `part` is the value that is in parts."""

    rows: int
    devices: int
    kind: str
    draw: random.Random
    lines: list[str] = field(default_factory=list)
    count: int = 0
    channels: int = 0
    part: str = "part"

    @property
    def each(self) -> int:
        """Rows of a part."""
        return shard_rows(self.rows, self.devices)

    @property
    def shape(self) -> str:
        """Of a part."""
        return self.of(self.each)

    @property
    def group(self) -> str:
        """A channel and the group of all devices."""
        self.channels += 1
        group = ",".join(map(str, range(self.devices)))
        return f"channel_id={self.channels}, replica_groups={{{{{group}}}}}"

    @property
    def everybody(self) -> str:
        """`group`, of flattened ids."""
        return f"{self.group}, use_global_device_ids=true"

    def of(self, rows: int) -> str:
        """An array of so many rows."""
        return f"{self.kind}[{rows},{_BLOCK * self.devices}]"

    def add(self, shape: str, right: str) -> str:
        """An instruction; its name."""
        self.count += 1
        self.lines.append(f"  %v{self.count} = {shape} {right}")
        return f"v{self.count}"

    def combine(self, other: str) -> None:
        """The part with another one added, or the larger of both."""
        opcode = self.draw.choice(("add", "maximum", "subtract"))
        self.part = self.add(self.shape, f"{opcode}(%{self.part}, %{other})")

    def per_device(self, numbers: list[int]) -> str:
        """A number that each device has of its own."""
        listed = ",".join(map(str, numbers))
        table = self.add(f"s32[{self.devices}]", f"constant({{{listed}}})")
        device = self.add("u32[]", "partition-id()")
        one = self.add(
            "s32[1]", f"dynamic-slice(%{table}, %{device}), dynamic_slice_sizes={{1}}"
        )
        return self.add("s32[]", f"reshape(%{one})")

    def masked(self, value: str, extents: list[int], other: int) -> str:
        """A part with a number in all rows from a device's extent on."""
        shape = self.shape.replace(self.kind, "s32", 1)
        row = self.add(shape, "iota(), iota_dimension=0")
        end = self.per_device(extents)
        ends = self.add(shape, f"broadcast(%{end}), dimensions={{}}")
        mask = shape.replace("s32", "pred", 1)
        inside = self.add(mask, f"compare(%{row}, %{ends}), direction=LT")
        scalar = self.add(f"{self.kind}[]", f"constant({other})")
        others = self.add(self.shape, f"broadcast(%{scalar}), dimensions={{}}")
        return self.add(self.shape, f"select(%{inside}, %{value}, %{others})")

    def cut(self, whole: str) -> str:
        """Each device's part of a whole array."""
        scalar = self.add(f"{self.kind}[]", "constant({fill})")
        total = self.each * self.devices
        padded = self.add(
            self.of(total),
            f"pad(%{whole}, %{scalar}), padding=0_{total - self.rows}x0_0",
        )
        start = self.per_device([k * self.each for k in range(self.devices)])
        zero = self.add("s32[]", "constant(0)")
        return self.add(
            self.shape,
            f"dynamic-slice(%{padded}, %{start}, %{zero}), "
            f"dynamic_slice_sizes={{{self.each},{_BLOCK * self.devices}}}",
        )

    def gathered(self) -> str:
        """The array's own rows."""
        whole = self.add(
            self.of(self.each * self.devices),
            f"all-gather(%{self.part}), {self.everybody}, dimensions={{0}}",
        )
        columns = _BLOCK * self.devices
        return self.add(
            self.of(self.rows),
            f"slice(%{whole}), slice={{[0:{self.rows}], [0:{columns}]}}",
        )

    # -- what is done with the array ---------------------------------------------------

    def elementwise(self) -> None:
        """The same in each row."""
        self.part = self.add(self.shape, f"negate(%{self.part})")

    def gather_and_cut(self) -> None:
        """The whole array, in parts again."""
        whole = self.gathered()
        columns = _BLOCK * self.devices
        first, others = (
            self.add(
                self.of(end - begin),
                f"slice(%{whole}), slice={{[{begin}:{end}], [0:{columns}]}}",
            )
            for begin, end in ((0, 1), (1, self.rows))
        )
        turned = self.add(
            self.of(self.rows), f"concatenate(%{others}, %{first}), dimensions={{0}}"
        )
        self.combine(self.cut(turned))

    def sum_and_cut(self) -> None:
        """What all devices have of the array together, in parts."""
        reduction = self.draw.choice(("add", "maximum"))
        total = self.add(
            self.of(self.rows),
            f"all-reduce(%whole), {self.everybody}, to_apply=%{reduction}",
        )
        self.combine(self.cut(total))

    def shift(self) -> None:
        """The next device's part, without its padding."""
        pairs = [(k, (k + 1) % self.devices) for k in range(self.devices)]
        extents = [
            shard_extent(self.rows, self.devices, (k - 1) % self.devices)
            for k in range(self.devices)
        ]
        listed = ",".join(f"{{{a},{b}}}" for a, b in pairs)
        self.channels += 1
        moved = self.add(
            self.shape,
            f"collective-permute(%{self.part}), channel_id={self.channels}, "
            f"source_target_pairs={{{listed}}}",
        )
        self.combine(self.masked(moved, extents, 0))

    def reduce_rows(self) -> None:
        """The sum of all rows, in each row."""
        extents = [
            shard_extent(self.rows, self.devices, k) for k in range(self.devices)
        ]
        inside = self.masked(self.part, extents, 0)
        zero = self.add(f"{self.kind}[]", "constant(0)")
        row = f"{self.kind}[{_BLOCK * self.devices}]"
        total = self.add(
            row, f"reduce(%{inside}, %{zero}), dimensions={{0}}, to_apply=%add"
        )
        total = self.add(row, f"all-reduce(%{total}), {self.everybody}, to_apply=%add")
        self.combine(self.add(self.shape, f"broadcast(%{total}), dimensions={{1}}"))

    def there_and_back(self) -> None:
        """Columns of all devices, and back."""
        there = self.add(
            self.shape, f"all-to-all(%{self.part}), {self.group}, dimensions={{1}}"
        )
        negated = self.add(self.shape, f"negate(%{there})")
        self.part = self.add(
            self.shape, f"all-to-all(%{negated}), {self.group}, dimensions={{1}}"
        )


_REDUCTION = """
%{name} (a.{name}: {kind}[], b.{name}: {kind}[]) -> {kind}[] {{
  %a.{name} = {kind}[] parameter(0)
  %b.{name} = {kind}[] parameter(1)
  ROOT %r.{name} = {kind}[] {name}(%a.{name}, %b.{name})
}}
"""


def uneven_module(draw: random.Random, devices: int, rows: int = 0) -> UnevenModule:
    """A module for so many devices; without `rows` their number is drawn, from 1 on."""
    rows = rows or draw.randint(1, 3 * devices + 1)
    builder = _Builder(rows, devices, draw.choice(tuple(_TYPES)), draw)
    kinds = (
        builder.elementwise,
        builder.gather_and_cut,
        builder.sum_and_cut,
        builder.sum_and_cut,
        builder.shift,
        builder.reduce_rows,
        builder.there_and_back,
    )
    for _ in range(draw.randint(1, 4)):
        draw.choice(kinds)()
    root = builder.gathered()
    kind, part, whole = builder.kind, builder.shape, builder.of(rows)
    reductions = "".join(
        _REDUCTION.format(name=n, kind=kind) for n in ("add", "maximum")
    )
    lines = "\n".join(builder.lines)
    lines = lines.replace(f"  %{root} =", f"  ROOT %{root} =")
    return UnevenModule(
        rows,
        devices,
        kind,
        f"""HloModule uneven, num_partitions={devices}
{reductions}
ENTRY %main (part: {part}, whole: {whole}) -> {whole} {{
  %part = {part} parameter(0)
  %whole = {whole} parameter(1)
{lines}
}}
""",
    )
