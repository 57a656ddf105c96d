"""Faults for which a module is made: devices in a cycle, memory, overwritten values.

Every case is HLO text (one per device where devices run different modules), the
checker's options, the code it must report, or '' where the case is legal. What is wrong
follows from how the case is made.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Case:
    """One schedule, and the verdict that it deserves."""

    code: str
    text: str
    options: dict[str, object] = field(default_factory=dict)


Maker = Callable[[random.Random], Case]

_ADD = """%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(%x, %y)
}
"""


def _groups(draw: random.Random, devices: int, size: int) -> str:
    ids = draw.sample(range(devices), devices)
    rows = [ids[k : k + size] for k in range(0, devices, size)]
    return "{" + ",".join("{" + ",".join(map(str, row)) + "}" for row in rows) + "}"


def _module(devices: int, computations: str, entry: list[str]) -> str:
    lines = "\n".join(f"  {line}" for line in entry)
    return (
        f"HloModule m, is_scheduled=true, num_partitions={devices}\n\n{_ADD}\n"
        f"{computations}\nENTRY %main (p: f32[8]) -> f32[8] {{\n"
        f"  %p = f32[8] parameter(0)\n{lines}\n}}\n"
    )


def _all_reduce(
    name: str, operand: str, channel: int, groups: str, form: str
) -> list[str]:
    tail = (
        f"channel_id={channel}, replica_groups={groups}, use_global_device_ids=true, "
        "to_apply=%add"
    )
    if form == "sync":
        return [f"%{name} = f32[8] all-reduce(%{operand}), {tail}"]
    return [
        f"%{name}.s = f32[8] all-reduce-start(%{operand}), {tail}",
        f"%{name} = f32[8] all-reduce-done(%{name}.s)",
    ]


def _branch(name: str, collectives: list[tuple[int, str]], form: str) -> str:
    lines = [f"  %{name}.p = f32[8] parameter(0)"]
    value = f"{name}.p"
    for channel, groups in collectives:
        made = _all_reduce(f"{name}.c{channel}", value, channel, groups, form)
        lines += [f"  {line}" for line in made]
        value = f"{name}.c{channel}"
    lines.append(f"  ROOT %{name}.r = f32[8] negate(%{value})")
    return f"%{name} ({name}.p: f32[8]) -> f32[8] {{\n" + "\n".join(lines) + "\n}\n"


def _choice(devices: int, taken: list[bool]) -> list[str]:
    table = ", ".join("true" if t else "false" for t in taken)
    return [
        "%id = u32[] partition-id()",
        f"%table = pred[{devices}] constant({{{table}}})",
        "%one = pred[1] dynamic-slice(%table, %id), dynamic_slice_sizes={1}",
        "%which = pred[] reshape(%one)",
        "ROOT %r = f32[8] conditional(%which, %p, %p), true_computation=%yes, "
        "false_computation=%no",
    ]


def _taken(draw: random.Random, devices: int) -> list[bool]:
    taken = [draw.random() < 0.5 for _ in range(devices)]
    taken[0], taken[-1] = True, False
    return taken


def branches_in_other_orders(draw: random.Random) -> Case:
    """C040: collectives of everybody, in another order on some devices."""
    devices = draw.choice((2, 4, 8))
    everybody = "{{" + ",".join(map(str, range(devices))) + "}}"
    collectives = [(c, everybody) for c in range(1, draw.randint(3, 6))]
    other = collectives[:]
    while other == collectives:
        draw.shuffle(other)
    form = draw.choice(("sync", "async"))
    return Case(
        "C040",
        _module(
            devices,
            _branch("yes", collectives, form) + "\n" + _branch("no", other, form),
            _choice(devices, _taken(draw, devices)),
        ),
    )


def branches_in_one_order(draw: random.Random) -> Case:
    """Legal: both branches come to the same collectives in one order."""
    devices = draw.choice((2, 4, 8))
    size = draw.choice([s for s in (2, 4, 8) if devices % s == 0])
    collectives = [
        (c, _groups(draw, devices, size)) for c in range(1, draw.randint(3, 6))
    ]
    forms = [draw.choice(("sync", "async")) for _ in range(2)]
    return Case(
        "",
        _module(
            devices,
            _branch("yes", collectives, forms[0]) + "\n"
            + _branch("no", collectives, forms[1]),
            _choice(devices, _taken(draw, devices)),
        ),
    )  # fmt: skip


def one_never_comes(draw: random.Random) -> Case:
    """C041: a collective of everybody, in a branch that not everybody takes."""
    devices = draw.choice((2, 4, 8))
    everybody = "{{" + ",".join(map(str, range(devices))) + "}}"
    shared = [(c, everybody) for c in range(1, draw.randint(2, 5))]
    form = draw.choice(("sync", "async"))
    return Case(
        "C041",
        _module(
            devices,
            _branch("yes", [*shared, (9, everybody)], form) + "\n"
            + _branch("no", shared, form),
            _choice(devices, _taken(draw, devices)),
        ),
    )  # fmt: skip


def _transfer(pairs: list[tuple[int, int]], order: tuple[str, ...]) -> list[str]:
    text = "{" + ",".join(f"{{{a},{b}}}" for a, b in pairs) + "}"
    marks = (
        'channel_id=1, frontend_attributes={_xla_send_recv_source_target_pairs="'
        f'{text}"}}'
    )
    lines = {
        "send": f"%s = (f32[8], u32[], token[]) send(%p, %k), {marks}",
        "send-done": f"%sd = token[] send-done(%s), {marks}",
        "recv": f"%v = (f32[8], u32[], token[]) recv(%k), {marks}",
        "recv-done": f"%vd = (f32[8], token[]) recv-done(%v), {marks}",
    }
    return [
        "%k = token[] after-all()",
        *(lines[word] for word in order),
        "ROOT %r = f32[8] get-tuple-element(%vd), index=0",
    ]


_SEND_FIRST = ("send", "send-done", "recv", "recv-done")
_BOTH_OPEN = (
    ("recv", "send", "send-done", "recv-done"),
    ("send", "recv", "recv-done", "send-done"),
    ("recv", "send", "recv-done", "send-done"),
)


def _permuted(draw: random.Random, devices: int) -> list[int]:
    return draw.sample(range(devices), devices)


def ring_of_sends(draw: random.Random) -> Case:
    """C040: everybody waits for its send to end before it receives."""
    devices = draw.randint(2, 9)
    order = _permuted(draw, devices)
    ring = draw.randint(2, devices)
    pairs = [(order[k], order[(k + 1) % ring]) for k in range(ring)]
    pairs += list(zip(order[ring:], order[ring + 1 :], strict=False))
    draw.shuffle(pairs)
    return Case("C040", _module(devices, "", _transfer(pairs, _SEND_FIRST)))


def chain_of_sends(draw: random.Random) -> Case:
    """Legal: a chain has a last device, which receives; or both halves are open."""
    devices = draw.randint(2, 9)
    order = _permuted(draw, devices)
    chain = list(itertools.pairwise(order))
    ring = [*chain, (order[-1], order[0])]
    if draw.random() < 0.5:
        return Case("", _module(devices, "", _transfer(chain, _SEND_FIRST)))
    opened = draw.choice(_BOTH_OPEN)
    return Case("", _module(devices, "", _transfer(ring, opened)))


def _sizes(draw: random.Random) -> tuple[list[str], list[tuple[int, ...]], list[int]]:
    """A random straight program: lines, operands by position, bytes by position."""
    lines: list[str] = []
    operands: list[tuple[int, ...]] = []
    sizes: list[int] = []
    for k in range(draw.randint(5, 25)):
        elements = draw.choice((1, 10, 100, 1000))
        read = tuple(
            sorted({draw.randrange(k) for _ in range(draw.randint(1, 3))}) if k else ()
        )
        named = ", ".join(f"%v{o}" for o in read) or "%p"
        lines.append(
            f'%v{k} = f32[{elements}] custom-call({named}), custom_call_target="work"'
        )
        operands.append(read)
        sizes.append(4 * elements)
    return lines, operands, sizes


def _peak(operands: list[tuple[int, ...]], sizes: list[int]) -> int:
    """The most bytes in use at a position, counted anew for every position.

    The last one is the result, which nobody reads: it takes nothing.
    """
    last = {o: k for k, read in enumerate(operands) for o in read}
    return max(
        sum(s for v, s in enumerate(sizes) if v <= k <= last.get(v, -1))
        for k in range(len(sizes))
    )


def over_the_limit(draw: random.Random) -> Case:
    """C050: the limit is a byte, or some, below what the order needs."""
    lines, operands, sizes = _sizes(draw)
    lines[-1] = "ROOT " + lines[-1]
    peak = _peak(operands, sizes)
    limit = max(0, peak - draw.choice((1, 1, 40, 400)))
    return Case(
        "C050" if peak > limit else "",
        _plain(lines),
        {"memory_limit_bytes": limit},
    )


def at_the_limit(draw: random.Random) -> Case:
    """Legal: the limit is exactly what the order needs."""
    lines, operands, sizes = _sizes(draw)
    lines[-1] = "ROOT " + lines[-1]
    return Case("", _plain(lines), {"memory_limit_bytes": _peak(operands, sizes)})


def _plain(lines: list[str]) -> str:
    shape = lines[-1].split(" = ")[1].split(" ")[0]
    body = "\n".join(f"  {line}" for line in lines)
    return (
        f"HloModule m, is_scheduled=true\n\nENTRY %main (p: f32[8]) -> {shape} {{\n"
        f"  %p = f32[8] parameter(0)\n{body}\n}}\n"
    )


def _loop(body: list[str]) -> str:
    """A loop over two arrays whose body is given; element 0 becomes %d2."""
    state = "(f32[8], f32[8])"
    lines = "\n".join(f"  {line}" for line in body)
    return (
        f"HloModule m, is_scheduled=true, num_partitions=2\n\n"
        f"%body (t: {state}) -> {state} {{\n  %t = {state} parameter(0)\n{lines}\n"
        f"  ROOT %out = {state} tuple(%d2, %n)\n}}\n\n"
        f"%cond (q: {state}) -> pred[] {{\n  %q = {state} parameter(0)\n"
        f'  ROOT %go = pred[] custom-call(%q), custom_call_target="go"\n}}\n\n'
        f"ENTRY %main (a: f32[8], b: f32[8]) -> {state} {{\n"
        "  %a = f32[8] parameter(0)\n  %b = f32[8] parameter(1)\n"
        f"  %init = {state} tuple(%a, %b)\n"
        f"  ROOT %w = {state} while(%init), condition=%cond, body=%body\n}}\n"
    )


_PAIRS = "source_target_pairs={{0,1},{1,0}}"


def _readers(draw: random.Random) -> list[str]:
    """Readers of the loop's old value %g, directly or through a bitcast, in a chain."""
    lines = ["%h = f32[8] negate(%g)"]
    for k in range(draw.randint(0, 4)):
        source = draw.choice(("%g", "%view", f"%r{k - 1}" if k else "%h"))
        lines.append(f"%r{k} = f32[8] add({source}, {draw.choice(('%g', '%h'))})")
    return lines


def _permutes(draw: random.Random, *, late: bool) -> Case:
    """d2 takes %g's buffer from its start on; the readers come before it, or not."""
    readers = _readers(draw)
    opening = [
        "%g = f32[8] get-tuple-element(%t), index=0",
        "%e = f32[8] get-tuple-element(%t), index=1",
        "%view = f32[8] bitcast(%g)",
        f"%c1 = (f32[8], f32[8]) collective-permute-start(%e), channel_id=1, {_PAIRS}",
        "%d1 = f32[8] collective-permute-done(%c1)",
    ]
    start = (
        f"%c2 = (f32[8], f32[8]) collective-permute-start(%d1), channel_id=2, {_PAIRS}"
    )
    done = "%d2 = f32[8] collective-permute-done(%c2)"
    last = readers[-1].split(" ")[0]
    closing = [f"%n = f32[8] negate({last})"]
    reads_g = [k for k, line in enumerate(readers) if "%g" in line or "%view" in line]
    if late:
        cut = draw.choice(reads_g)
        middle = [*readers[:cut], start, *readers[cut:], done]
    else:
        cut = draw.randint(max(reads_g) + 1, len(readers))
        middle = [*readers[:cut], start, *readers[cut:], done]
    return Case("C060" if late else "", _loop([*opening, *middle, *closing]))


def read_while_written(draw: random.Random) -> Case:
    """C060: a reader of the old value comes after the start that writes the new."""
    return _permutes(draw, late=True)


def read_before_written(draw: random.Random) -> Case:
    """Legal: all readers of the old value come before that start."""
    return _permutes(draw, late=False)


def _updates(draw: random.Random, *, late: bool) -> Case:
    """Updates in place one after another, and readers of each value."""
    count = draw.randint(1, 4)
    lines = ["%v0 = f32[8] negate(%p)", "%x = f32[2] slice(%p), slice={[0:2]}"]
    lines += ["%zero = s32[] constant(0)"]
    kind = draw.choice(("update", "fusion"))
    read = [
        [
            f"%r{k}.{n} = f32[8] {draw.choice(('negate', 'abs'))}(%v{k})"
            for n in range(draw.randint(1, 3))
        ]
        for k in range(count + 1)
    ]
    victim = draw.randrange(count)
    moved = read[victim].pop() if late else ""
    at = draw.randint(victim + 1, count)
    for k in range(count + 1):
        if k:
            lines.append(_update(k, kind))
        if moved and k == at:
            lines.append(moved)
        lines += read[k]
    names = [f"%r{k}.{n}" for k, some in enumerate(read) for n in range(len(some))]
    names += [moved.split(" ")[0]] if moved else []
    lines.append(
        f'ROOT %r = f32[8] custom-call({", ".join(names)}), custom_call_target="use"'
    )
    body = "\n".join(f"  {line}" for line in lines)
    text = (
        "HloModule m, is_scheduled=true\n\n"
        + (_FUSED(count) if kind == "fusion" else "")
        + "ENTRY %main (p: f32[8]) -> f32[8] {\n  %p = f32[8] parameter(0)\n"
        + f"{body}\n}}\n"
    )
    return Case("C061" if late else "", text, {"alias_hazards": "all"})


def _update(k: int, kind: str) -> str:
    if kind == "update":
        return f"%v{k} = f32[8] dynamic-update-slice(%v{k - 1}, %x, %zero)"
    return f"%v{k} = f32[8] fusion(%v{k - 1}, %x, %zero), kind=kLoop, calls=%fused{k}"


def _FUSED(count: int) -> str:  # noqa: N802
    return "".join(
        f"%fused{k} (fa{k}: f32[8], fb{k}: f32[2], fc{k}: s32[]) -> f32[8] {{\n"
        f"  %fa{k} = f32[8] parameter(0)\n  %fb{k} = f32[2] parameter(1)\n"
        f"  %fc{k} = s32[] parameter(2)\n  %view{k} = f32[8] bitcast(%fa{k})\n"
        f"  ROOT %made{k} = f32[8] dynamic-update-slice(%view{k}, %fb{k}, %fc{k})\n}}\n\n"
        for k in range(1, count + 1)
    )


def read_after_update(draw: random.Random) -> Case:
    """C061: a reader of a value comes after its update in place."""
    return _updates(draw, late=True)


def read_before_update(draw: random.Random) -> Case:
    """Legal: whoever reads a value comes before its update."""
    return _updates(draw, late=False)


def _gathers(draw: random.Random, *, clash: bool) -> Case:
    """Two collectives in flight together, over groups that share two devices or not."""
    devices = draw.choice((4, 8))
    size = draw.choice([s for s in (2, 4) if s < devices])
    rows = [list(range(k, k + size)) for k in range(0, devices, size)]
    if clash:
        other = [sorted(row) for row in rows]
        # Keep two devices of one group together, wherever the rest goes.
        rest = [d for d in range(devices) if d not in rows[0][:2]]
        draw.shuffle(rest)
        ids = [*rows[0][:2], *rest]
        other = [ids[k : k + size] for k in range(0, devices, size)]
    else:
        # One device of every group in each: a transposed table.
        columns = [d for k in range(size) for d in range(k, devices, size)]
        width = min(size, devices // size)
        other = [columns[k : k + width] for k in range(0, devices, width)]
    texts = [
        "{" + ",".join("{" + ",".join(map(str, r)) + "}" for r in g) + "}"
        for g in (rows, other)
    ]
    # Each has an operand of its own: an all-reduce-start takes over its buffer.
    lines = [
        f'%given{k} = f32[8] custom-call(%p), custom_call_target="w"' for k in (0, 1)
    ]
    lines += [
        f"%begun{k} = f32[8] all-reduce-start(%given{k}), channel_id={k + 1}, "
        f"replica_groups={groups}, use_global_device_ids=true, to_apply=%add"
        for k, groups in enumerate(texts)
    ]
    lines += [f"%d{k} = f32[8] all-reduce-done(%begun{k})" for k in (0, 1)]
    lines.append("ROOT %r = f32[8] add(%d0, %d1)")
    return Case(
        "C031" if clash else "",
        _module(devices, "", lines),
        {"enable_collective_multi_streaming": True},
    )


def shared_devices(draw: random.Random) -> Case:
    """C031: two collectives in flight together share two devices."""
    return _gathers(draw, clash=True)


def one_shared_device(draw: random.Random) -> Case:
    """Legal: they share one device at most."""
    return _gathers(draw, clash=False)


MAKERS: dict[str, Maker] = {
    function.__name__.replace("_", "-"): function
    for function in (
        shared_devices,
        branches_in_other_orders,
        ring_of_sends,
        one_never_comes,
        over_the_limit,
        read_while_written,
        read_after_update,
    )
}
LEGAL: dict[str, Maker] = {
    function.__name__.replace("_", "-"): function
    for function in (
        one_shared_device,
        branches_in_one_order,
        chain_of_sends,
        at_the_limit,
        read_before_written,
        read_before_update,
    )
}
