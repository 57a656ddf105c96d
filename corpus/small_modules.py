"""Small HLO modules, one pattern each, that XLA's passes over collectives rewrite.

    modules()["own_part_of_sum_bf16_halves"]  ->  "HloModule ..."

Eight devices. Each function makes the variants of one pattern: element types, groups,
dimensions, spellings of the same offset, operations. `record_family.py` compiles them.
"""

from __future__ import annotations

import itertools
import pathlib
import random
import sys
from collections.abc import Iterator

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import small_loops

from tests.loop_modules import loop_module

DEVICES = 8
GROUPS = {
    "all": "{{0,1,2,3,4,5,6,7}}",
    "halves": "{{0,1,2,3},{4,5,6,7}}",
    "pairs": "{{0,1},{2,3},{4,5},{6,7}}",
    "across": "{{0,4},{1,5},{2,6},{3,7}}",
}
MEMBERS = {"all": 8, "halves": 4, "pairs": 2, "across": 2}
ALONE = "{" + ",".join(f"{{{k}}}" for k in range(DEVICES)) + "}"
RING = ",".join(f"{{{k},{(k + 1) % DEVICES}}}" for k in range(DEVICES))
#: How many random loops.
LOOPS = 160


class Text:
    """The entry of a module while it is written.

    Attributes:
        manual: as XLA's partitioner leaves alone; needed with `partition-id`, and
            where a collective with a channel becomes dead, which XLA else keeps.
        replicas: devices are replicas, not partitions.
    """

    def __init__(
        self, *, manual: bool = False, kinds: str = "f32", replicas: bool = False
    ) -> None:
        self.replicas = replicas
        self.lines: list[str] = []
        self.parameters: list[str] = []
        self.manual = manual
        self.channels = 0
        self.kinds = kinds

    def parameter(self, shape: str) -> str:
        name = f"%p{len(self.parameters)}"
        self.add(f"{shape} parameter({len(self.parameters)})", name)
        self.parameters.append(f"{name[1:]}: {shape}")
        return name

    def add(self, right: str, name: str = "") -> str:
        """An instruction; its name."""
        name = name or f"%v{len(self.lines)}"
        self.lines.append(f"{name} = {right}")
        return name

    def collective(self, right: str, groups: str) -> str:
        """A collective with a channel of its own."""
        self.channels += 1
        return self.add(
            f"{right}, channel_id={self.channels}, "
            f"replica_groups={GROUPS.get(groups, groups)}, use_global_device_ids=true"
        )

    def over_replicas(self, right: str, groups: str = "all") -> str:
        """A collective without a channel."""
        return self.add(f"{right}, replica_groups={GROUPS[groups]}")

    def permute(self, right: str, pairs: str) -> str:
        self.channels += 1
        return self.add(
            f"{right}, channel_id={self.channels}, source_target_pairs={{{pairs}}}"
        )

    def module(self, root: str, result: str) -> str:
        """The text; `root` is what it returns."""
        written = [
            f"  {'ROOT ' if line.startswith(f'{root} ') else ''}{line}"
            f"{', sharding={manual}' if self.manual else ''}"
            for line in self.lines
        ]
        applied = "".join(
            f"%{op}_{kind} (a.{op}{kind}: {kind}[], b.{op}{kind}: {kind}[]) -> "
            f"{kind}[] {{\n"
            f"  %a.{op}{kind} = {kind}[] parameter(0)\n"
            f"  %b.{op}{kind} = {kind}[] parameter(1)\n"
            f"  ROOT %r.{op}{kind} = {kind}[] {op}(%a.{op}{kind}, %b.{op}{kind})\n"
            "}\n\n"
            for kind in self.kinds.split()
            for op in ("add", "maximum", "minimum")
            if any(f"to_apply=%{op}_{kind}" in line for line in self.lines)
        )
        devices = "replica_count" if self.replicas else "num_partitions"
        return (
            f"HloModule small, {devices}={DEVICES}\n\n{applied}"
            f"ENTRY %main ({', '.join(self.parameters)}) -> {result} {{\n"
            + "\n".join(written)
            + "\n}\n"
        )


def _own_offset(t: Text, groups: str, size: int, form: str) -> str:
    """Where the part of this device begins, in one of several spellings."""
    device = t.add("u32[] partition-id()")
    member = {
        "all": lambda d: d,
        "halves": lambda d: d % 4,
        "pairs": lambda d: d % 2,
        "across": lambda d: d // 4,
    }[groups]
    if form == "product":
        if groups == "all":
            own = device
        elif groups == "across":
            four = t.add("u32[] constant(4)")
            own = t.add(f"u32[] divide({device}, {four})")
        else:
            count = t.add(f"u32[] constant({MEMBERS[groups]})")
            own = t.add(f"u32[] remainder({device}, {count})")
        factor = t.add(f"u32[] constant({size})")
        return t.add(f"u32[] multiply({own}, {factor})")
    scale = size if form == "table" else 1
    table = ",".join(str(member(d) * scale) for d in range(DEVICES))
    listed = t.add(f"s32[8]{{0}} constant({{{table}}})")
    entry = t.add(
        f"s32[1]{{0}} dynamic-slice({listed}, {device}), dynamic_slice_sizes={{1}}"
    )
    own = t.add(f"s32[] reshape({entry})")
    if form == "table":
        return own
    factor = t.add(f"s32[] constant({size})")
    return t.add(f"s32[] multiply({own}, {factor})")


def _part(
    t: Text, value: str, kind: str, size: int, other: int, at: str, dim: int
) -> tuple[str, str]:
    """A slice of `size` rows or columns; its name and shape."""
    zero = t.add(
        "u32[] constant(0)" if "u32[] " in _line(t, at) else "s32[] constant(0)"
    )
    sizes = (size, other) if dim == 0 else (other, size)
    shape = f"{kind}[{sizes[0]},{sizes[1]}]{{1,0}}"
    starts = f"{at}, {zero}" if dim == 0 else f"{zero}, {at}"
    name = t.add(
        f"{shape} dynamic-slice({value}, {starts}), "
        f"dynamic_slice_sizes={{{sizes[0]},{sizes[1]}}}"
    )
    return name, shape


def _line(t: Text, name: str) -> str:
    return next(line for line in t.lines if line.startswith(f"{name} "))


def _square(kind: str, rows: int, columns: int) -> str:
    return f"{kind}[{rows},{columns}]{{1,0}}"


def own_part_of_sum() -> Iterator[tuple[str, str]]:
    """Each device reads its own part of a sum."""
    for groups, form, dim in itertools.product(
        GROUPS, ("product", "table", "index"), (0, 1)
    ):
        for kind, op in (("f32", "add"), ("bf16", "maximum"), ("s32", "minimum")):
            if kind != "f32" and (form, dim) != ("table", 0):
                continue
            t = Text(manual=True, kinds=kind)
            count = MEMBERS[groups]
            whole = (count * 3, 4) if dim == 0 else (4, count * 3)
            x = t.parameter(_square(kind, *whole))
            s = t.collective(
                f"{_square(kind, *whole)} all-reduce({x}), to_apply=%{op}_{kind}",
                groups,
            )
            at = _own_offset(t, groups, 3, form)
            part, shape = _part(t, s, kind, 3, 4, at, dim)
            yield f"own_part_{groups}_{form}_{dim}_{kind}", t.module(part, shape)


def own_part_of_gather() -> Iterator[tuple[str, str]]:
    """Each device reads its own part of a gather, or the part of another."""
    for groups, dim in itertools.product(GROUPS, (0, 1)):
        t = Text(manual=True)
        mine = (3, 4) if dim == 0 else (4, 3)
        whole = (3 * MEMBERS[groups], 4) if dim == 0 else (4, 3 * MEMBERS[groups])
        x = t.parameter(_square("f32", *mine))
        g = t.collective(
            f"{_square('f32', *whole)} all-gather({x}), dimensions={{{dim}}}", groups
        )
        part, shape = _part(
            t, g, "f32", 3, 4, _own_offset(t, groups, 3, "product"), dim
        )
        yield f"own_gathered_{groups}_{dim}", t.module(part, shape)
    for shift, dim in itertools.product((1, 2, 3, 5, 7), (0, 1)):
        t = Text(manual=True)
        mine = (3, 4) if dim == 0 else (4, 3)
        whole = (24, 4) if dim == 0 else (4, 24)
        x = t.parameter(_square("f32", *mine))
        g = t.collective(
            f"{_square('f32', *whole)} all-gather({x}), dimensions={{{dim}}}", "all"
        )
        device = t.add("u32[] partition-id()")
        table = ",".join(str((d + shift) % DEVICES * 3) for d in range(DEVICES))
        listed = t.add(f"s32[8]{{0}} constant({{{table}}})")
        entry = t.add(
            f"s32[1]{{0}} dynamic-slice({listed}, {device}), dynamic_slice_sizes={{1}}"
        )
        at = t.add(f"s32[] reshape({entry})")
        part, shape = _part(t, g, "f32", 3, 4, at, dim)
        yield f"other_gathered_{shift}_{dim}", t.module(part, shape)


def padded_gather() -> Iterator[tuple[str, str]]:
    """The first or last device of each group reads all of a padded gather."""
    for side, groups, more, kind in itertools.product(
        ("low", "high"), ("all", "halves", "across"), (0, 2), ("f32", "bf16")
    ):
        t = Text(manual=True)
        count = MEMBERS[groups]
        gathered, window = 3 * count, 3 * count + more
        rest = count * window - gathered
        x = t.parameter(f"{kind}[3]{{0}}")
        g = t.collective(
            f"{kind}[{gathered}]{{0}} all-gather({x}), dimensions={{0}}", groups
        )
        zero = t.add(f"{kind}[] constant(0)")
        padding = f"{rest}_0" if side == "low" else f"0_{rest}"
        p = t.add(f"{kind}[{count * window}]{{0}} pad({g}, {zero}), padding={padding}")
        at = _own_offset(t, groups, window, "table")
        d = t.add(
            f"{kind}[{window}]{{0}} dynamic-slice({p}, {at}), "
            f"dynamic_slice_sizes={{{window}}}"
        )
        yield (
            f"padded_{side}_{groups}_{more}_{kind}",
            t.module(d, f"{kind}[{window}]{{0}}"),
        )


def alike_on_replicas() -> Iterator[tuple[str, str]]:
    """Sums over replicas, of what is the same on all of them."""
    for (kind, op), groups, source in itertools.product(
        (
            ("f32", "add"),
            ("bf16", "add"),
            ("s32", "add"),
            ("f32", "maximum"),
            ("s32", "minimum"),
        ),
        ("all", "halves", "across"),
        ("summed", "counted", "constant"),
    ):
        t = Text(kinds=kind, replicas=True)
        shape = f"{kind}[16,4]{{1,0}}"
        x = t.parameter(shape)
        if source == "summed":
            value = t.over_replicas(f"{shape} all-reduce({x}), to_apply=%{op}_{kind}")
        elif source == "counted":
            value = t.add(f"{shape} iota(), iota_dimension=0")
        else:
            number = t.add(f"{kind}[] constant(3)")
            value = t.add(f"{shape} broadcast({number}), dimensions={{}}")
        value = t.add(f"{shape} negate({value})")
        again = t.over_replicas(
            f"{shape} all-reduce({value}), to_apply=%{op}_{kind}", groups
        )
        r = t.add(f"{shape} multiply({again}, {x})")
        yield f"alike_{source}_{kind}_{op}_{groups}", t.module(r, shape)


def alike_everywhere() -> Iterator[tuple[str, str]]:
    """Collectives of one device, and sums of what was summed."""
    for kind, op in itertools.product(
        ("f32", "bf16", "s32", "f64"), ("add", "maximum", "minimum")
    ):
        t = Text(manual=True, kinds=kind)
        x = t.parameter(f"{kind}[16,4]{{1,0}}")
        s = t.collective(
            f"{kind}[16,4]{{1,0}} all-reduce({x}), to_apply=%{op}_{kind}", ALONE
        )
        r = t.add(f"{kind}[16,4]{{1,0}} negate({s})")
        yield f"alone_sum_{kind}_{op}", t.module(r, f"{kind}[16,4]{{1,0}}")
        for groups in GROUPS:
            if (kind, groups) not in {("f32", g) for g in GROUPS} | {
                ("s32", "all"),
                ("bf16", "halves"),
            }:
                continue
            t = Text(manual=True, kinds=kind)
            x = t.parameter(f"{kind}[16,4]{{1,0}}")
            to_apply = f"to_apply=%{op}_{kind}"
            s = t.collective(f"{kind}[16,4]{{1,0}} all-reduce({x}), {to_apply}", "all")
            n = t.add(f"{kind}[16,4]{{1,0}} negate({s})")
            a = t.collective(f"{kind}[16,4]{{1,0}} all-reduce({n}), {to_apply}", groups)
            r = t.add(f"{kind}[16,4]{{1,0}} multiply({a}, {s})")
            yield (
                f"summed_again_{kind}_{op}_{groups}",
                t.module(r, f"{kind}[16,4]{{1,0}}"),
            )
    for dim in (0, 1):
        t = Text(manual=True)
        x = t.parameter("f32[16,4]{1,0}")
        s = t.collective(
            f"f32[16,4]{{1,0}} all-gather({x}), dimensions={{{dim}}}", ALONE
        )
        r = t.add(f"f32[16,4]{{1,0}} negate({s})")
        yield f"alone_gather_{dim}", t.module(r, "f32[16,4]{1,0}")
        t = Text(manual=True)
        x = t.parameter("f32[16,4]{1,0}")
        s = t.collective(
            f"f32[16,4]{{1,0}} reduce-scatter({x}), dimensions={{{dim}}}, "
            "to_apply=%add_f32",
            ALONE,
        )
        r = t.add(f"f32[16,4]{{1,0}} negate({s})")
        yield f"alone_scatter_{dim}", t.module(r, "f32[16,4]{1,0}")


def sums_of_sums() -> Iterator[tuple[str, str]]:
    """A sum over some devices, of a sum over others."""
    for (first, second), op in itertools.product(
        (
            ("pairs", "{{0,2},{1,3},{4,6},{5,7}}"),
            ("halves", "across"),
            ("across", "halves"),
            ("across", "{{0,2},{1,3},{4,6},{5,7}}"),
        ),
        ("add", "maximum", "minimum"),
    ):
        t = Text()
        x = t.parameter("f32[16]{0}")
        a = t.collective(f"f32[16]{{0}} all-reduce({x}), to_apply=%{op}_f32", first)
        b = t.collective(f"f32[16]{{0}} all-reduce({a}), to_apply=%{op}_f32", second)
        key = "".join(c for c in second if c.isalnum())
        yield f"folded_{first}_{key}_{op}", t.module(b, "f32[16]{0}")


def sums_joined() -> Iterator[tuple[str, str]]:
    """Sums, or scattered sums, that are added."""
    joined = {"add": "add", "maximum": "maximum", "minimum": "minimum"}
    for op, kind, groups in itertools.product(
        joined, ("f32", "s32"), ("all", "halves", "across")
    ):
        t = Text(kinds=kind)
        x, y = t.parameter(f"{kind}[16]{{0}}"), t.parameter(f"{kind}[16]{{0}}")
        a, b = (
            t.collective(
                f"{kind}[16]{{0}} all-reduce({v}), to_apply=%{op}_{kind}", groups
            )
            for v in (x, y)
        )
        r = t.add(f"{kind}[16]{{0}} {op}({a}, {b})")
        yield f"joined_{op}_{kind}_{groups}", t.module(r, f"{kind}[16]{{0}}")
        count = MEMBERS[groups]
        t = Text(kinds=kind)
        x, y = (t.parameter(f"{kind}[{count * 2},4]{{1,0}}") for _ in range(2))
        a, b = (
            t.collective(
                f"{kind}[2,4]{{1,0}} reduce-scatter({v}), dimensions={{0}}, "
                f"to_apply=%{op}_{kind}",
                groups,
            )
            for v in (x, y)
        )
        r = t.add(f"{kind}[2,4]{{1,0}} {op}({a}, {b})")
        yield (
            f"scatters_joined_{op}_{kind}_{groups}",
            t.module(r, f"{kind}[2,4]{{1,0}}"),
        )
    for count in (3, 4, 5):
        t = Text()
        values = [t.parameter("f32[32]{0}") for _ in range(count)]
        total = ""
        for v in values:
            s = t.collective(
                f"f32[4]{{0}} reduce-scatter({v}), dimensions={{0}}, to_apply=%add_f32",
                "all",
            )
            total = t.add(f"f32[4]{{0}} add({total}, {s})") if total else s
        yield f"scatters_in_a_row_{count}", t.module(total, "f32[4]{0}")


def gathers_joined() -> Iterator[tuple[str, str]]:
    """Operations on two gathers."""
    for kind, op in (
        *itertools.product(("f32", "s32"), ("add", "multiply", "maximum", "minimum")),
        ("s32", "and"),
        ("s32", "or"),
        ("u8", "xor"),
        ("bf16", "add"),
    ):
        for groups in ("all", "across"):
            t = Text(manual=True)
            count = MEMBERS[groups]
            x, y = (t.parameter(f"{kind}[3,4]{{1,0}}") for _ in range(2))
            a, b = (
                t.collective(
                    f"{kind}[{3 * count},4]{{1,0}} all-gather({v}), dimensions={{0}}",
                    groups,
                )
                for v in (x, y)
            )
            shape = f"{kind}[{3 * count},4]{{1,0}}"
            r = t.add(f"{shape} {op}({a}, {b})")
            yield f"gathers_{op}_{kind}_{groups}", t.module(r, shape)


def spread_then_gathered() -> Iterator[tuple[str, str]]:
    """A gather of a broadcast."""
    for (dims, where), kind in itertools.product(
        (
            ("8,3", 0),
            ("8,3", 1),
            ("3,8", 0),
            ("3,8", 1),
            ("2,3,8", 0),
            ("2,3,8", 1),
            ("2,3,8", 2),
        ),
        ("f32", "bf16"),
    ):
        sizes = [int(d) for d in dims.split(",")]
        kept = sizes.index(8)
        t = Text()
        x = t.parameter(f"{kind}[8]{{0}}")
        order = ",".join(str(k) for k in reversed(range(len(sizes))))
        b = t.add(f"{kind}[{dims}]{{{order}}} broadcast({x}), dimensions={{{kept}}}")
        sizes[where] *= DEVICES
        shape = f"{kind}[{','.join(map(str, sizes))}]{{{order}}}"
        g = t.collective(f"{shape} all-gather({b}), dimensions={{{where}}}", "all")
        yield f"spread_{dims.replace(',', 'x')}_{where}_{kind}", t.module(g, shape)


def thin_gathers() -> Iterator[tuple[str, str]]:
    """Gathers of what has dimensions of size one."""
    shapes = (
        ("1,4,6", 1),
        ("4,1,6", 0),
        ("4,6,1", 0),
        ("4,6,1", 1),
        ("1,4,1,6", 1),
        ("1,1,4", 2),
        ("4,1,1", 0),
        ("1,4,6,1", 2),
        ("2,1,4,1", 0),
        ("2,1,4,1", 2),
        ("1,2,1,4,1", 3),
        ("4,1", 0),
    )
    for (dims, where), kind, groups in itertools.product(
        shapes, ("f32", "bf16"), ("all", "across")
    ):
        sizes = [int(d) for d in dims.split(",")]
        order = ",".join(str(k) for k in reversed(range(len(sizes))))
        t = Text()
        x = t.parameter(f"{kind}[{dims}]{{{order}}}")
        sizes[where] *= MEMBERS[groups]
        shape = f"{kind}[{','.join(map(str, sizes))}]{{{order}}}"
        g = t.collective(f"{shape} all-gather({x}), dimensions={{{where}}}", groups)
        yield (
            f"thin_{dims.replace(',', 'x')}_{where}_{kind}_{groups}",
            t.module(g, shape),
        )


def narrow_values() -> Iterator[tuple[str, str]]:
    """Conversions before and after a collective, with and without a scale."""
    for way, (narrow, wide), opcode in itertools.product(
        ("widened", "narrowed"),
        (("f8e4m3fn", "bf16"), ("s8", "s32"), ("bf16", "f32")),
        ("all-gather", "all-to-all", "collective-permute"),
    ):
        for scaled in ("", "multiply", "divide"):
            if scaled and narrow != "f8e4m3fn":
                continue
            t = Text()
            source, sent, end = (
                (narrow, wide, wide) if way == "widened" else (wide, wide, narrow)
            )
            value = t.parameter(f"{source}[16,4]{{1,0}}")
            if way == "widened":
                value = t.add(f"{wide}[16,4]{{1,0}} convert({value})")
                if scaled:
                    scale = t.add(f"{wide}[] constant(3)")
                    spread = t.add(
                        f"{wide}[16,4]{{1,0}} broadcast({scale}), dimensions={{}}"
                    )
                    value = t.add(f"{wide}[16,4]{{1,0}} {scaled}({value}, {spread})")
            rows = 128 if opcode == "all-gather" else 16
            shape = f"{sent}[{rows},4]{{1,0}}"
            if opcode == "collective-permute":
                value = t.permute(f"{shape} collective-permute({value})", RING)
            else:
                value = t.collective(
                    f"{shape} {opcode}({value}), dimensions={{0}}", "all"
                )
            if way == "narrowed":
                if scaled:
                    numbers = [t.add(f"{wide}[] constant({n})") for n in (3, -448, 448)]
                    scale, low, high = (
                        t.add(f"{shape} broadcast({n}), dimensions={{}}")
                        for n in numbers
                    )
                    value = t.add(f"{shape} {scaled}({value}, {scale})")
                    value = t.add(f"{shape} clamp({low}, {value}, {high})")
                value = t.add(f"{narrow}[{rows},4]{{1,0}} convert({value})")
            name = f"{way}_{narrow}_{opcode.replace('-', '_')}_{scaled or 'plain'}"
            yield name, t.module(value, f"{end}[{rows},4]{{1,0}}")


def several_sums() -> Iterator[tuple[str, str]]:
    """All-reduces of several values, and of sixteen-bit integers."""
    for sizes, kind, groups in itertools.product(
        ((8, 4), (3, 3, 3), (16, 1, 5, 2)),
        ("f32", "bf16"),
        ("all", "halves", "across", "pairs"),
    ):
        t = Text(kinds=kind)
        values = [t.parameter(f"{kind}[{n},2]{{1,0}}") for n in sizes]
        shape = f"({', '.join(f'{kind}[{n},2]{{1,0}}' for n in sizes)})"
        s = t.collective(
            f"{shape} all-reduce({', '.join(values)}), to_apply=%add_{kind}", groups
        )
        key = "_".join(map(str, sizes))
        yield f"several_{key}_{kind}_{groups}", t.module(s, shape)
    for kind, opcode in itertools.product(
        ("s16", "u16"), ("all-reduce", "reduce-scatter")
    ):
        for op in ("add", "maximum"):
            t = Text(kinds=kind)
            x = t.parameter(f"{kind}[16]{{0}}")
            more = ", dimensions={0}" if opcode == "reduce-scatter" else ""
            shape = f"{kind}[{2 if more else 16}]{{0}}"
            s = t.collective(
                f"{shape} {opcode}({x}){more}, to_apply=%{op}_{kind}", "all"
            )
            yield f"sixteen_bits_{kind}_{opcode[:4]}_{op}", t.module(s, shape)


def sums_beside() -> Iterator[tuple[str, str]]:
    """Sums of several values, which XLA combines."""
    for sizes, kind, groups in itertools.product(
        ((8, 4), (3, 3, 3)), ("f32", "bf16"), ("all", "halves", "across")
    ):
        t = Text(kinds=kind)
        shapes = [f"{kind}[{n},2]{{1,0}}" for n in sizes]
        read = []
        for shape in shapes:
            x = t.parameter(shape)
            s = t.collective(f"{shape} all-reduce({x}), to_apply=%add_{kind}", groups)
            read.append(t.add(f"{shape} negate({s})"))
        shape = f"({', '.join(shapes)})"
        result = t.add(f"{shape} tuple({', '.join(read)})")
        key = "_".join(map(str, sizes))
        yield f"beside_{key}_{kind}_{groups}", t.module(result, shape)


def permutes() -> Iterator[tuple[str, str]]:
    """Rings of many steps and sizes, alone and in a row."""
    for step, kind in itertools.product(range(1, 8), ("f32", "bf16")):
        t = Text()
        x = t.parameter(f"{kind}[64,32]{{1,0}}")
        pairs = ",".join(f"{{{k},{(k + step) % 8}}}" for k in range(8))
        s = t.permute(f"{kind}[64,32]{{1,0}} collective-permute({x})", pairs)
        n = t.add(f"{kind}[64,32]{{1,0}} negate({s})")
        yield f"ring_{step}_{kind}", t.module(n, f"{kind}[64,32]{{1,0}}")
    lists = {
        "line": "{0,1},{1,2},{2,3},{3,4},{4,5},{5,6},{6,7}",
        "back": "{7,6},{6,5},{5,4},{4,3},{3,2},{2,1},{1,0}",
        "half_rings": "{0,1},{1,2},{2,3},{3,0},{4,5},{5,6},{6,7},{7,4}",
        "one_edge": "{0,1}",
        "two_edges": "{0,1},{4,5}",
        "swap": "{0,1},{1,0}",
        "fan": "{0,7},{1,6},{2,5}",
        "back_ring": "{0,7},{1,0},{2,1},{3,2},{4,3},{5,4},{6,5},{7,6}",
    }
    for (name, pairs), kind in itertools.product(lists.items(), ("f32", "s8")):
        t = Text()
        x = t.parameter(f"{kind}[64,32]{{1,0}}")
        s = t.permute(f"{kind}[64,32]{{1,0}} collective-permute({x})", pairs)
        n = t.add(f"{kind}[64,32]{{1,0}} negate({s})")
        yield f"permute_{name}_{kind}", t.module(n, f"{kind}[64,32]{{1,0}}")


def loops() -> Iterator[tuple[str, str]]:
    """Counted loops of every start, step, bound and direction.

    XLA does not partition these, whatever the header of its dump says: for a pass that
    leaves dead collectives, `record_family.py` takes `num_partitions` from it.
    """
    for seed in range(LOOPS):
        yield f"loop_{seed}", loop_module(random.Random(28000 + seed)).text


#: Setting of `record_family.py` -> what is compiled with it.
BY_VARIANT = {
    "plain": (
        own_part_of_sum,
        own_part_of_gather,
        padded_gather,
        alike_everywhere,
        sums_of_sums,
        sums_joined,
        gathers_joined,
        spread_then_gathered,
        thin_gathers,
        narrow_values,
        several_sums,
        sums_beside,
        alike_on_replicas,
        small_loops.added_sums,
        small_loops.kept_rows,
    ),
    "transfers": (permutes, small_loops.sent_rows),
    "loops": (loops, small_loops.stored_rows, small_loops.read_rows),
}


def modules(variant: str) -> dict[str, str]:
    """Name -> text of what a setting compiles."""
    return {name: text for make in BY_VARIANT.get(variant, ()) for name, text in make()}


if __name__ == "__main__":
    for each in BY_VARIANT:
        for label in modules(each):
            sys.stdout.write(f"{each} {label}\n")
