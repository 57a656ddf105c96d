"""Random SPMD modules with a counted loop: HLO text that eight devices can run.

    draw = random.Random(7)
    made = loop_module(draw)
    made.text, made.iterations

Start, step, bound and direction of the counter are random, also such that the loop
never runs, that the last step jumps over the bound, or that XLA counts it wrongly.
One to three collectives, which passes over loops move, are stored, added up, gathered
or carried along, with chains of other operations between. All numbers are small
multiples of powers of two, so that sums of any order have the same bits.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Final

DEVICES: Final = 8
ROWS: Final = 6
MOST_ITERATIONS: Final = 7
#: All devices; the hosts 0-3 and 4-7; pairs across the hosts.
GROUPS: Final = ("{{0,1,2,3,4,5,6,7}}", "{{0,1,2,3},{4,5,6,7}}",
                 "{{0,4},{1,5},{2,6},{3,7}}")  # fmt: skip
_MEMBERS: Final = dict(zip(GROUPS, (8, 4, 2), strict=True))
_ROW: Final = "f32[1,8]"
_TABLE: Final = f"f32[{ROWS},8]"
_MIRRORED: Final = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE"}


@dataclass(frozen=True, slots=True)
class LoopModule:
    """A module, and what is known of its loop.

    Attributes:
        text: the module.
        iterations: how often the body runs.
        has_sums: whether all-reduces are added up.
    """

    text: str
    iterations: int
    has_sums: bool


@dataclass(slots=True)
class _Loop:
    """The body of the loop while it is written."""

    draw: random.Random
    kind: str
    body: list[str] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)
    starts: list[str] = field(default_factory=list)
    count: int = 0
    channels: int = 0

    def add(self, shape: str, right: str) -> str:
        """One instruction; its name with `%`."""
        self.count += 1
        name = f"%v{self.count}"
        self.body.append(f"{name} = {shape} {right}")
        return name

    def element(self, shape: str, start: str) -> tuple[str, int]:
        """A new element of the state: its value, and its place."""
        place = len(self.types)
        self.types.append(shape)
        self.starts.append(start)
        self.ends.append("")
        return self.add(shape, f"get-tuple-element(%state), index={place}"), place

    def constant(self, value: int) -> str:
        """An integer of the counter's type."""
        return self.add(f"{self.kind}[]", f"constant({value})")

    def groups(self) -> str:
        """Channel and groups of a collective."""
        self.channels += 1
        groups = self.draw.choice(GROUPS)
        return (
            f"channel_id={self.channels}, replica_groups={groups}, "
            "use_global_device_ids=true"
        )


def _iterations(start: int, step: int, bound: int, direction: str) -> int:
    holds = {
        "LT": lambda i: i < bound, "LE": lambda i: i <= bound,
        "GT": lambda i: i > bound, "GE": lambda i: i >= bound,
    }[direction]  # fmt: skip
    count = 0
    while holds(start) and count <= MOST_ITERATIONS:
        start, count = start + step, count + 1
    return count


def _counter(draw: random.Random) -> tuple[int, int, int, str]:
    """(start, step, bound, direction), often each row once."""
    if draw.random() < 0.4:
        return draw.choice(
            ((0, 1, ROWS, "LT"), (ROWS - 1, -1, 0, "GE"), (0, 1, ROWS - 1, "LE"))
        )
    step = draw.choice((1, 2, 3, -1, -2, -3))
    start = draw.randint(-3, 6)
    bound = start + step * draw.randint(0, MOST_ITERATIONS - 2) + draw.randint(-1, 1)
    return start, step, bound, draw.choice(("LT", "LE") if step > 0 else ("GT", "GE"))


def _formatted(loop: _Loop, value: str) -> str:
    """A chain of operations on a row of eight numbers."""
    draw = loop.draw
    for _ in range(draw.randint(0, 3)):
        form = draw.randrange(8)
        if form == 0:
            value = loop.add(_ROW, f"negate({value})")
        elif form == 1:
            value = loop.add(_ROW, f"multiply({value}, %halves)")
        elif form == 2:
            value = loop.add(_ROW, f"{draw.choice(('add', 'subtract'))}({value}, %row)")
        elif form == 3:
            flat = loop.add("f32[8]", f"reshape({value})")
            value = loop.add(_ROW, f"reshape({flat})")
        elif form == 4:
            turned = loop.add("f32[8,1]", f"transpose({value}), dimensions={{1,0}}")
            value = loop.add(_ROW, f"transpose({turned}), dimensions={{1,0}}")
        elif form == 5:
            wide = loop.add("f64[1,8]", f"convert({value})")
            value = loop.add(_ROW, f"convert({wide})")
        elif form == 6:
            left = loop.add("f32[1,4]", f"slice({value}), slice={{[0:1], [0:4]}}")
            right = loop.add("f32[1,4]", f"slice({value}), slice={{[0:1], [4:8]}}")
            value = loop.add(_ROW, f"concatenate({right}, {left}), dimensions={{1}}")
        else:
            pairs = ",".join(f"{{{k},{(k + 1) % DEVICES}}}" for k in range(DEVICES))
            loop.channels += 1
            value = loop.add(
                _ROW,
                f"collective-permute({value}), channel_id={loop.channels}, "
                f"source_target_pairs={{{pairs}}}",
            )
    return value


def _operand(loop: _Loop) -> str:
    """A row that the iteration computes."""
    other = loop.draw.choice(("%row", "%halves", "%carried"))
    return loop.add(_ROW, f"{loop.draw.choice(('add', 'multiply'))}(%row, {other})")


def _reduced(loop: _Loop, value: str) -> str:
    """An all-reduce, or a reduce-scatter of several rows, of a row's shape."""
    draw = loop.draw
    if draw.random() < 0.7:
        kind = draw.choice(("add", "add", "maximum"))
        to_apply = f"to_apply=%{kind}_of"
        return loop.add(_ROW, f"all-reduce({value}), {loop.groups()}, {to_apply}")
    groups = loop.groups()
    members = next(n for g, n in _MEMBERS.items() if g in groups)
    rows = ", ".join([value] * members)
    many = loop.add(f"f32[{members},8]", f"concatenate({rows}), dimensions={{0}}")
    return loop.add(
        _ROW, f"reduce-scatter({many}), {groups}, dimensions={{0}}, to_apply=%add_of"
    )


def _store(loop: _Loop) -> None:
    """A row of a buffer in each iteration."""
    draw = loop.draw
    buffer, place = loop.element(_TABLE, draw.choice(("%in", "%zeros")))
    value = _formatted(loop, _reduced(loop, _operand(loop)))
    index = "%i"
    if draw.random() < 0.5:
        scaled = loop.add(
            f"{loop.kind}[]", f"multiply(%i, {loop.constant(draw.randint(-2, 2))})"
        )
        more = loop.constant(draw.randint(-1, 7))
        index = loop.add(
            f"{loop.kind}[]", f"{draw.choice(('add', 'subtract'))}({more}, {scaled})"
        )
    stored = loop.add(
        _TABLE, f"dynamic-update-slice({buffer}, {value}, {index}, %none)"
    )
    if draw.random() < 0.2:
        again = _formatted(loop, _reduced(loop, _operand(loop)))
        at = loop.constant(draw.randint(0, ROWS - 1))
        stored = loop.add(
            _TABLE, f"dynamic-update-slice({stored}, {again}, {at}, %none)"
        )
    loop.ends[place] = stored


def _sum(loop: _Loop) -> None:
    """A row that is added up."""
    total, place = loop.element(_ROW, loop.draw.choice(("%halves.1", "%nought")))
    value = loop.add(
        _ROW, f"all-reduce({_operand(loop)}), {loop.groups()}, to_apply=%add_of"
    )
    if loop.draw.random() < 0.3:
        turned = loop.add("f32[8,1]", f"transpose({value}), dimensions={{1,0}}")
        value = loop.add(_ROW, f"reshape({turned})")
    loop.ends[place] = loop.add(_ROW, f"add({total}, {value})")


def _scattered_sum(loop: _Loop) -> None:
    """A reduce-scatter that is added up."""
    draw = loop.draw
    groups = loop.groups()
    members = next(n for g, n in _MEMBERS.items() if g in groups)
    total, place = loop.element(_ROW, draw.choice(("%halves.1", "%nought")))
    rows = ", ".join([_operand(loop)] * members)
    many = loop.add(f"f32[{members},8]", f"concatenate({rows}), dimensions={{0}}")
    part = loop.add(
        _ROW, f"reduce-scatter({many}), {groups}, dimensions={{0}}, to_apply=%add_of"
    )
    loop.ends[place] = loop.add(_ROW, f"add({part}, {total})")


def _gather(loop: _Loop) -> None:
    """An all-gather of this iteration's row of the input, that the next one needs."""
    before, place = loop.element("f32[8,8]", "%large")
    value = loop.draw.choice(("%row", "%row", _operand(loop)))
    loop.channels += 1
    gathered = loop.add(
        "f32[8,8]",
        f"all-gather({value}), channel_id={loop.channels}, "
        f"replica_groups={GROUPS[0]}, use_global_device_ids=true, dimensions={{0}}",
    )
    loop.ends[place] = loop.add("f32[8,8]", f"subtract({gathered}, {before})")


def _carry(loop: _Loop) -> None:
    """A row that the next iteration permutes: nothing to pipeline."""
    value, place = loop.element(_ROW, "%halves.1")
    loop.channels += 1
    pairs = ",".join(f"{{{k},{(k + 3) % DEVICES}}}" for k in range(DEVICES))
    moved = loop.add(
        _ROW,
        f"collective-permute({value}), channel_id={loop.channels}, "
        f"source_target_pairs={{{pairs}}}",
    )
    loop.ends[place] = loop.add(_ROW, f"add({moved}, %row)")


def _invariant(loop: _Loop) -> None:
    """An operation on what never changes, and an element that hands on a constant."""
    weight, place = loop.element(_ROW, "%halves.1")
    loop.ends[place] = weight
    total, at = loop.element(_ROW, "%halves.1")
    square = loop.add(_ROW, f"multiply({weight}, {weight})")
    loop.ends[at] = loop.add(_ROW, f"maximum({total}, {square})")


def _hand_on(loop: _Loop) -> None:
    """Rows that move from element to element, and are used when they arrive."""
    first, place = loop.element(_ROW, "%halves.1")
    for _ in range(loop.draw.randint(1, 2)):
        before = first
        first, at = loop.element(_ROW, "%nought")
        loop.ends[at] = before
    loop.ends[place] = loop.add(_ROW, f"subtract(%row, {first})")


def _constant(loop: _Loop) -> None:
    """A factor that the state holds, though it is a constant."""
    factor, place = loop.element("f32[]", "%half.1")
    loop.ends[place] = factor
    total, at = loop.element(_ROW, "%halves.1")
    wide = loop.add(_ROW, f"broadcast({factor}), dimensions={{}}")
    part = loop.add(_ROW, f"multiply({wide}, %row)")
    loop.ends[at] = loop.add(_ROW, f"maximum({total}, {part})")


def _weight(loop: _Loop) -> str:
    """A row that never changes."""
    weight, place = loop.element(_ROW, loop.draw.choice(("%halves.1", "%nought")))
    loop.ends[place] = weight
    return weight


def _alike(loop: _Loop) -> str:
    """A collective of what never changes, with some operations before."""
    value = loop.draw.choice((_weight(loop), "%halves"))
    for _ in range(loop.draw.randint(0, 2)):
        value = loop.add(_ROW, loop.draw.choice((f"negate({value})",
                                                 f"multiply({value}, %halves)")))  # fmt: skip
    return _reduced(loop, value)


def _invariant_sum(loop: _Loop) -> None:
    """One or two collectives, one of the other, that are the same in each iteration."""
    total, place = loop.element(_ROW, "%halves.1")
    value = _alike(loop)
    if loop.draw.random() < 0.4:
        both = loop.add(_ROW, f"add({value}, %halves)")
        again = loop.add(
            _ROW, f"all-reduce({both}), {loop.groups()}, to_apply=%maximum_of"
        )
        value = loop.add(_ROW, f"subtract({again}, {loop.draw.choice((value, both))})")
    loop.ends[place] = loop.add(_ROW, f"maximum({total}, {value})")


def _invariant_gather(loop: _Loop) -> None:
    """An all-gather of what never changes, beside one element that does."""
    before, place = loop.element("f32[8,8]", "%large")
    loop.channels += 1
    gathered = loop.add(
        "f32[8,8]",
        f"all-gather({_weight(loop)}), channel_id={loop.channels}, "
        f"replica_groups={GROUPS[0]}, use_global_device_ids=true, dimensions={{0}}",
    )
    loop.ends[place] = loop.add("f32[8,8]", f"subtract({gathered}, {before})")


def _recomputed(loop: _Loop) -> None:
    """An element that each iteration computes alike; perhaps something reads it."""
    before, place = loop.element(_ROW, "%nought")
    value = _alike(loop) if loop.draw.random() < 0.7 else "%halves"
    loop.ends[place] = value
    if loop.draw.random() < 0.6:
        total, at = loop.element(_ROW, "%nought")
        read = loop.draw.choice((before, value))
        loop.ends[at] = loop.add(_ROW, f"maximum({total}, {read})")


def _same_start(loop: _Loop) -> None:
    """An element that begins with what each iteration computes for the next one."""
    before, place = loop.element(_ROW, "%halves.1")
    loop.ends[place] = "%halves"
    total, at = loop.element(_ROW, "%nought")
    value = loop.add(_ROW, f"all-reduce({before}), {loop.groups()}, to_apply=%add_of")
    loop.ends[at] = loop.add(_ROW, f"maximum({total}, {value})")


#: What a body may compute that is the same in each iteration.
_INVARIANT: Final = (_invariant_gather, _invariant_sum, _recomputed, _same_start)
#: What a body may do besides, that nothing can pipeline.
_OTHERS: Final = (_carry, _constant, _hand_on, _invariant)


def loop_module(draw: random.Random, *, invariants: bool = False) -> LoopModule:
    """A module whose entry runs one loop, and returns all of its result.

    With `invariants`, iterations also compute some things alike.
    """
    kind = draw.choice(("s32", "s32", "s64", "s8"))
    start, step, bound, direction = _counter(draw)
    count = _iterations(start, step, bound, direction)
    loop = _Loop(draw, kind)
    # The counter, the input, and a row that the body changes.
    loop.types, loop.starts = (
        [f"{kind}[]", _TABLE, _ROW],
        ["%first", "%in", "%halves.1"],
    )
    loop.ends = ["%next", "%source", "%changed"]
    # Do what passes move, and perhaps more.
    moved = [draw.choice((_store, _store, _gather, _sum, _scattered_sum))
             for _ in range(draw.randint(1, 3))]  # fmt: skip
    for write in (*moved, *draw.sample(_OTHERS, k=draw.randint(0, 2))):
        write(loop)
    for write in draw.choices(_INVARIANT, k=draw.randint(1, 3) if invariants else 0):
        write(loop)
    loop.body.append(f"%changed = {_ROW} subtract(%halves, %carried)")
    return LoopModule(
        _text(loop, (start, step, bound, direction), count),
        count,
        _sum in moved or _scattered_sum in moved,
    )


def _text(loop: _Loop, counter: tuple[int, int, int, str], count: int) -> str:
    """The module around the loop."""
    start, step, bound, direction = counter
    draw, kind = loop.draw, loop.kind
    compared = f"compare(%i.1, %bound), direction={direction}"
    if draw.random() < 0.5:
        compared = f"compare(%bound, %i.1), direction={_MIRRORED[direction]}"
    state = f"({', '.join(loop.types)})"
    body = "\n".join(f"  {line}" for line in loop.body)
    config = f'"known_trip_count":{{"n":"{count}"}}'
    if draw.random() < 0.7:
        config += (
            f',"known_init_step":{{"init":"{start}","step":"{step}"}},'
            '"known_induction_variable":{"tuple_index":"0"},"dynamic_variables":[]'
        )
    places = range(len(loop.types))
    results = "\n".join(
        f"  %r{k} = {loop.types[k]} get-tuple-element(%loop), index={k}" for k in places
    )
    added = draw.choice(("add(%i, %step)", "add(%step, %i)"))
    return f"""HloModule m, num_partitions={DEVICES}

%add_of (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %both = f32[] add(%a, %b)
}}

%maximum_of (c: f32[], d: f32[]) -> f32[] {{
  %c = f32[] parameter(0)
  %d = f32[] parameter(1)
  ROOT %larger = f32[] maximum(%c, %d)
}}

%body (state: {state}) -> {state} {{
  %state = {state} parameter(0)
  %i = {kind}[] get-tuple-element(%state), index=0
  %step = {kind}[] constant({step})
  %next = {kind}[] {added}
  %none = {kind}[] constant(0)
  %half = f32[] constant(0.5)
  %halves = {_ROW} broadcast(%half), dimensions={{}}
  %source = {_TABLE} get-tuple-element(%state), index=1
  %carried = {_ROW} get-tuple-element(%state), index=2
  %row = {_ROW} dynamic-slice(%source, %i, %none), dynamic_slice_sizes={{1,8}}
{body}
  ROOT %after = {state} tuple({", ".join(loop.ends)})
}}

%condition (state.1: {state}) -> pred[] {{
  %state.1 = {state} parameter(0)
  %i.1 = {kind}[] get-tuple-element(%state.1), index=0
  %bound = {kind}[] constant({bound})
  ROOT %goes_on = pred[] {compared}
}}

ENTRY %main (in: {_TABLE}, large: f32[8,8]) -> {state} {{
  %in = {_TABLE} parameter(0)
  %large = f32[8,8] parameter(1)
  %first = {kind}[] constant({start})
  %half.1 = f32[] constant(0.5)
  %halves.1 = {_ROW} broadcast(%half.1), dimensions={{}}
  %zero = f32[] constant(0)
  %zeros = {_TABLE} broadcast(%zero), dimensions={{}}
  %nought = {_ROW} broadcast(%zero), dimensions={{}}
  %start = {state} tuple({", ".join(loop.starts)})
  %loop = {state} while(%start), condition=%condition, body=%body, backend_config={{{config}}}
{results}
  ROOT %result = {state} tuple({", ".join(f"%r{k}" for k in places)})
}}
"""
