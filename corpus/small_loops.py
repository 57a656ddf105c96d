"""Small HLO modules, each with one counted loop around collectives that XLA moves.

    stored_rows()    sums that each iteration stores: pipelined forward, or moved out
    read_rows()      gathers of a row of the input: pipelined backward
    added_sums()     sums that are added up: moved out of the loop
    sent_rows()      permutes: decomposed into send and recv

Eight devices. XLA does not partition these, whatever the header of its dump says: for a
pass that leaves dead collectives, `record_family.py` takes `num_partitions` from it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

DEVICES = 8
ROWS = 16
ROW = "f32[1,8]"
TABLE = f"f32[{ROWS},8]"
#: (type, start, step, bound, direction) of the counter.
COUNTERS = (
    ("s32", 0, 1, 8, "LT"),
    ("s32", 7, -1, 0, "GE"),
    ("s64", 0, 2, 12, "LT"),
    ("s32", 1, 1, 6, "LE"),
    ("s32", 14, -3, 2, "GT"),
)
GROUPS = (
    ("{{0,1,2,3,4,5,6,7}}", 8),
    ("{{0,1,2,3},{4,5,6,7}}", 4),
    ("{{0,4},{1,5},{2,6},{3,7}}", 2),
)
_REDUCTION = """%{op}_{kind} (a.{op}{kind}: {kind}[], b.{op}{kind}: {kind}[]) -> \
{kind}[] {{
  %a.{op}{kind} = {kind}[] parameter(0)
  %b.{op}{kind} = {kind}[] parameter(1)
  ROOT %c.{op}{kind} = {kind}[] {op}(%a.{op}{kind}, %b.{op}{kind})
}}

"""
_HOLDS = {
    "LT": lambda i, bound: i < bound,
    "LE": lambda i, bound: i <= bound,
    "GT": lambda i, bound: i > bound,
    "GE": lambda i, bound: i >= bound,
}


@dataclass
class Loop:
    """A loop while it is written: element 0 counts, element 1 is the input.

    Attributes:
        counter: a row of `COUNTERS`.
        which: chooses groups, and where is stored.
        manual: as XLA's partitioner leaves alone; some passes want its mark.
    """

    counter: tuple[str, int, int, int, str]
    which: int = 0
    manual: bool = False
    types: list[str] = field(default_factory=list)
    starts: list[str] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)
    body: list[str] = field(default_factory=list)
    channels: int = 0

    def __post_init__(self) -> None:
        """Count, and read a row."""
        kind, _, step, _, _ = self.counter
        self.i = self.element(f"{kind}[]", "%first")
        self.source = self.element(TABLE, "%input")
        self.none = self.constant(0)
        self.ends[0] = self.add(f"{kind}[]", f"add({self.i}, {self.constant(step)})")
        if self.manual:
            # What never changes would leave the loop on the way to XLA, and its
            # sharding not.
            self.ends[1] = self.add(TABLE, f"negate({self.source})")

    def add(self, shape: str, right: str) -> str:
        name = f"%v{len(self.body)}"
        self.body.append(f"{name} = {shape} {right}")
        return name

    def element(self, shape: str, start: str) -> str:
        """A new element of the state, unchanged unless its end is set."""
        place = len(self.types)
        self.types.append(shape)
        self.starts.append(start)
        value = self.add(shape, f"get-tuple-element(%state), index={place}")
        self.ends.append(value)
        return value

    def constant(self, value: int) -> str:
        return self.add(f"{self.counter[0]}[]", f"constant({value})")

    def row(self) -> str:
        """The row of the input that the counter says."""
        return self.add(
            ROW,
            f"dynamic-slice({self.source}, {self.i}, {self.none}), "
            "dynamic_slice_sizes={1,8}",
        )

    def spread(self, shape: str, number: str) -> str:
        kind = shape.partition("[")[0]
        value = self.add(f"{kind}[]", f"constant({number})")
        return self.add(shape, f"broadcast({value}), dimensions={{}}")

    def groups(self) -> tuple[str, int]:
        """Channel and groups of a collective, and the members of one."""
        self.channels += 1
        groups, members = GROUPS[(self.which + self.channels) % len(GROUPS)]
        return (
            f"channel_id={self.channels}, replica_groups={groups}, "
            "use_global_device_ids=true"
        ), members

    def all_reduce(self, value: str, shape: str = ROW, op: str = "add") -> str:
        kind = shape.partition("[")[0]
        return self.add(
            shape, f"all-reduce({value}), {self.groups()[0]}, to_apply=%{op}_{kind}"
        )

    def reduce_scatter(self, value: str) -> str:
        """Of as many equal rows as a group has members."""
        groups, members = self.groups()
        many = self.add(
            f"f32[{members},8]",
            f"concatenate({', '.join([value] * members)}), dimensions={{0}}",
        )
        return self.add(
            ROW,
            f"reduce-scatter({many}), {groups}, dimensions={{0}}, to_apply=%add_f32",
        )

    def store(self, buffer: str, value: str, index: str) -> str:
        return self.add(
            TABLE, f"dynamic-update-slice({buffer}, {value}, {index}, {self.none})"
        )

    def text(self) -> str:
        """The module: its entry runs the loop and returns all of its result."""
        kind, start, step, bound, direction = self.counter
        count = 0
        while _HOLDS[direction](start + count * step, bound):
            count += 1
        state = f"({', '.join(self.types)})"
        body = "\n".join(f"  {line}" for line in self.body)
        reductions = "".join(
            _REDUCTION.format(op=op, kind=number)
            for op in ("add", "maximum")
            for number in ("f32", "bf16", "f64", "s32")
            if f"to_apply=%{op}_{number}" in body
        )
        config = (
            f'{{"known_trip_count":{{"n":"{count}"}},'
            f'"known_init_step":{{"init":"{start}","step":"{step}"}},'
            '"known_induction_variable":{"tuple_index":"0"},"dynamic_variables":[]}'
        )
        starts = {"%first": f"{kind}[] constant({start})"}
        places = range(len(self.types))
        results = "\n".join(
            f"  %r{k} = {self.types[k]} get-tuple-element(%loop), index={k}"
            for k in places
        )
        returned = [f"%r{k}" for k in places]
        if self.manual:
            # Who reads the loop reads its elements.
            returned = [f"%n{k}" for k in places]
            results = "\n".join(
                f"{line}\n  %n{k} = {self.types[k]} negate(%r{k})"
                for k, line in enumerate(results.splitlines())
            )
        zeros = [
            f"  %zero_{name} = {name}[] constant(0)\n"
            for name in sorted({t.partition("[")[0] for t in self.types[1:]})
        ]
        inits = []
        for k, (shape, value) in enumerate(zip(self.types, self.starts, strict=True)):
            if value == "%zeros":
                zero = f"%zero_{shape.partition('[')[0]}"
                inits.append(
                    f"  %start_{k} = {shape} broadcast({zero}), dimensions={{}}\n"
                )
        named = [
            f"%start_{k}" if value == "%zeros" else value
            for k, value in enumerate(self.starts)
        ]
        written = (
            f"HloModule small, num_partitions={DEVICES}\n\n{reductions}"
            f"%body (state: {state}) -> {state} {{\n"
            f"  %state = {state} parameter(0)\n{body}\n"
            f"  ROOT %after = {state} tuple({', '.join(self.ends)})\n}}\n\n"
            f"%condition (state.1: {state}) -> pred[] {{\n"
            f"  %state.1 = {state} parameter(0)\n"
            f"  %i.1 = {kind}[] get-tuple-element(%state.1), index=0\n"
            f"  %bound = {kind}[] constant({bound})\n"
            f"  ROOT %on = pred[] compare(%i.1, %bound), direction={direction}\n}}\n\n"
            f"ENTRY %main (input: {TABLE}) -> {state} {{\n"
            f"  %input = {TABLE} parameter(0)\n"
            f"  %first = {starts['%first']}\n"
            f"{''.join(zeros)}{''.join(inits)}"
            f"  %start = {state} tuple({', '.join(named)})\n"
            f"  %loop = {state} while(%start), condition=%condition, body=%body, "
            f"backend_config={config}\n{results}\n"
            f"  ROOT %result = {state} tuple({', '.join(returned)})\n"
            "}\n"
        )
        return _as_manual(written) if self.manual else written


def _as_manual(text: str) -> str:
    """The module with `sharding={manual}` on everything outside reductions."""
    lines = []
    for line in text.splitlines():
        shape = line.partition(" = ")[2]
        applied = ".add" in line or ".maximum" in line
        if not shape or applied:
            lines.append(line)
            continue
        count = shape.partition(")")[0].count(", ") + 1
        is_tuple = shape.startswith("(")
        each = ", ".join(["{manual}"] * count)
        lines.append(f"{line}, sharding={f'{{{each}}}' if is_tuple else '{manual}'}")
    return "\n".join(lines) + "\n"


def _formatted(loop: Loop, value: str, form: str) -> str:
    """A row after a chain of operations."""
    if form == "scaled":
        return loop.add(ROW, f"multiply({value}, {loop.spread(ROW, '0.5')})")
    if form == "turned":
        turned = loop.add("f32[8,1]", f"transpose({value}), dimensions={{1,0}}")
        flat = loop.add("f32[8]", f"reshape({turned})")
        return loop.add(ROW, f"reshape({flat})")
    if form == "widened":
        wide = loop.add("f64[1,8]", f"convert({value})")
        wide = loop.add("f64[1,8]", f"add({wide}, {loop.spread('f64[1,8]', '3')})")
        return loop.add(ROW, f"convert({wide})")
    if form == "cut":
        left = loop.add("f32[1,4]", f"slice({value}), slice={{[0:1], [0:4]}}")
        zero = loop.add("f32[]", "constant(0)")
        return loop.add(ROW, f"pad({left}, {zero}), padding=0_0x2_2")
    if form == "sent":
        loop.channels += 1
        pairs = ",".join(f"{{{k},{(k + 1) % DEVICES}}}" for k in range(DEVICES))
        return loop.add(
            ROW,
            f"collective-permute({value}), channel_id={loop.channels}, "
            f"source_target_pairs={{{pairs}}}",
        )
    return value


def _index(loop: Loop) -> str:
    """Where to store: the counter, or counted from the other end."""
    if loop.which % 3 == 1:
        last = loop.constant(ROWS - 1)
        return loop.add(f"{loop.counter[0]}[]", f"subtract({last}, {loop.i})")
    if loop.which % 3 == 2:
        return loop.add(f"{loop.counter[0]}[]", f"add({loop.i}, {loop.constant(1)})")
    return loop.i


def stored_rows() -> Iterator[tuple[str, str]]:
    """Each iteration stores what it reduced, after a chain of operations."""
    chains = ("plain", "scaled", "turned", "widened", "cut", "sent")
    ways = ("sum", "scatter", "both", "shared")
    for which, (way, form, k) in enumerate(
        itertools.product(ways, chains, range(len(COUNTERS)))
    ):
        loop = Loop(COUNTERS[k], which)
        row = loop.row()
        index, buffer = _index(loop), ""
        for kind in ("sum", "scatter") if way in ("both", "shared") else (way,):
            if not buffer or way != "shared":
                buffer = loop.element(TABLE, "%zeros" if which % 2 else "%input")
            value = loop.add(ROW, f"multiply({row}, {row})")
            reduce = loop.all_reduce if kind == "sum" else loop.reduce_scatter
            value = _formatted(loop, reduce(value), form)
            if way == "shared":
                # Both are parts of what is stored.
                row = value
                if kind == "sum":
                    continue
            loop.ends[-1] = loop.store(buffer, value, index)
        yield f"stored_{way}_{form}_{k}", loop.text()


def read_rows() -> Iterator[tuple[str, str]]:
    """Each iteration gathers a row of the input, and adds it to what it carries."""
    for which, (form, k) in enumerate(
        itertools.product(("plain", "scaled", "turned", "widened", "cut"), range(5))
    ):
        loop = Loop(COUNTERS[k], which)
        wide = "f32[8,8]"
        before = loop.element(wide, "%zeros")
        value = _formatted(loop, loop.row(), form)
        loop.channels += 1
        gathered = loop.add(
            wide,
            f"all-gather({value}), channel_id={loop.channels}, "
            f"replica_groups={GROUPS[0][0]}, use_global_device_ids=true, "
            "dimensions={0}",
        )
        loop.ends[-1] = loop.add(wide, f"subtract({gathered}, {before})")
        yield f"read_{form}_{k}", loop.text()


def added_sums() -> Iterator[tuple[str, str]]:
    """Each iteration adds a sum to a total."""
    for which, (form, kind, twice) in enumerate(
        itertools.product(
            ("plain", "turned", "wider", "spread", "cut"),
            ("f32", "bf16", "s32"),
            (False, True),
        )
    ):
        loop = Loop(COUNTERS[which % len(COUNTERS)], which, manual=True)
        row = loop.row()
        shape = f"{kind}[1,8]"
        for _ in range(1 + twice):
            value = loop.add(shape, f"convert({row})") if kind != "f32" else row
            value = loop.all_reduce(value, shape)
            into = shape
            if form == "turned":
                turned = loop.add(
                    f"{kind}[8,1]", f"transpose({value}), dimensions={{1,0}}"
                )
                into = f"{kind}[8]"
                value = loop.add(into, f"reshape({turned})")
            elif form == "wider":
                into = "f64[1,8]"
                value = loop.add(into, f"convert({value})")
            elif form == "spread":
                flat = loop.add(f"{kind}[8]", f"reshape({value})")
                into = f"{kind}[4,8]"
                value = loop.add(into, f"broadcast({flat}), dimensions={{1}}")
            elif form == "cut":
                into = f"{kind}[1,4]"
                value = loop.add(into, f"slice({value}), slice={{[0:1], [2:6]}}")
            total = loop.element(into, "%zeros")
            added = f"add({value}, {total})" if which % 2 else f"add({total}, {value})"
            loop.ends[-1] = loop.add(into, added)
        yield f"added_{form}_{kind}_{'twice' if twice else 'once'}", loop.text()


def kept_rows() -> Iterator[tuple[str, str]]:
    """Each iteration stores its sum; all of them are small enough for one sum."""
    for which, form in enumerate(("plain", "flat", "wider", "twice")):
        loop = Loop(COUNTERS[0], 3 * which, manual=True)
        row = loop.row()
        for _ in range(1 + (form == "twice")):
            buffer = loop.element(TABLE, "%zeros")
            value = loop.all_reduce(row, op="maximum" if which % 2 else "add")
            if form == "flat":
                value = loop.add("f32[8]", f"reshape({value})")
                value = loop.add(ROW, f"reshape({value})")
            if form == "wider":
                value = loop.add("f64[1,8]", f"convert({value})")
                value = loop.add(ROW, f"convert({value})")
            loop.ends[-1] = loop.store(buffer, value, loop.i)
        yield f"kept_{form}", loop.text()


def sent_rows() -> Iterator[tuple[str, str]]:
    """Each iteration sends what it carries, or what it computes."""
    ways = {
        "line": "{0,1},{1,2},{2,3},{3,4},{4,5},{5,6},{6,7}",
        "back": "{7,6},{6,5},{5,4},{4,3},{3,2},{2,1},{1,0}",
        "ring": ",".join(f"{{{k},{(k + 1) % DEVICES}}}" for k in range(DEVICES)),
        "across": "{0,4},{1,5},{2,6},{3,7}",
    }
    for (name, pairs), carried, k in itertools.product(
        ways.items(), (True, False), (0, 2)
    ):
        loop = Loop(COUNTERS[k])
        value = loop.element(ROW, "%zeros")
        row = loop.row()
        sent = value if carried else loop.add(ROW, f"multiply({value}, {row})")
        loop.channels += 1
        moved = loop.add(
            ROW,
            f"collective-permute({sent}), channel_id={loop.channels}, "
            f"source_target_pairs={{{pairs}}}",
        )
        loop.ends[-1] = loop.add(ROW, f"add({moved}, {row})")
        yield f"sent_{name}_{'carried' if carried else 'computed'}_{k}", loop.text()
