"""Made-up modules whose size is a number: one for every way in which a graph is large.

GRAPHS["chain"].text(1000)     a scheduled module; every one is valid HLO
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

_SHAPE: Final = "f32[8]{0}"
_ADD: Final = (
    "%add (x: f32[], y: f32[]) -> f32[] {\n  %x = f32[] parameter(0)\n"
    "  %y = f32[] parameter(1)\n  ROOT %sum = f32[] add(%x, %y)\n}\n"
)
_REDUCES: Final = "replica_groups=[1,8]<=[8], use_global_device_ids=true, to_apply=%add"
_SWAP: Final = "source_target_pairs={{0,1},{1,0}}"
_PARAMETER: Final = f"%p = {_SHAPE} parameter(0)"


@dataclass(frozen=True, slots=True)
class Graph:
    """A family of modules.

    Attributes:
        text: the module of one size.
        largest: sizes above this are not measured.
    """

    text: Callable[[int], str]
    largest: int = 1 << 13


def _module(lines: Sequence[str], *bodies: str, partitions: int = 8) -> str:
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


def _tuple_of(names: Sequence[str], shape: str = _SHAPE) -> str:
    shapes = ", ".join([shape] * len(names))
    return f"%all = ({shapes}) tuple({', '.join(f'%{name}' for name in names)})"


def _all_reduce(k: int, operand: str, suffix: str = "") -> str:
    return f"{_SHAPE} all-reduce{suffix}(%{operand}), channel_id={k + 1}, {_REDUCES}"


def _names(stem: str, count: int) -> list[str]:
    return [f"{stem}.{k}" for k in range(count)]


def _chain(count: int) -> str:
    sources = ["p", *_names("v", count)]
    return _module(
        [
            _PARAMETER,
            *(
                f"%v.{k} = {_SHAPE} {('negate', 'tanh')[k % 2]}(%{sources[k]})"
                for k in range(count)
            ),
        ]
    )


def _independent(count: int) -> str:
    """Different instructions: each adds another constant."""
    return _module(
        [
            _PARAMETER,
            *(f"%c.{k} = {_SHAPE} constant({{{k}{', 0' * 7}}})" for k in range(count)),
            *(f"%v.{k} = {_SHAPE} add(%p, %c.{k})" for k in range(count)),
            _tuple_of(_names("v", count)),
        ]
    )


def _equal(count: int) -> str:
    return _module(
        [
            _PARAMETER,
            *(f"%v.{k} = {_SHAPE} negate(%p)" for k in range(count)),
            _tuple_of(_names("v", count)),
        ]
    )


def _constants(count: int) -> str:
    return _module(
        [
            *(f"%c.{k} = s32[] constant({k % (count // 2)})" for k in range(count)),
            _tuple_of(_names("c", count), "s32[]"),
        ]
    )


def _all_reduces(count: int) -> str:
    return _module(
        [
            _PARAMETER,
            *(f"%r.{k} = {_all_reduce(k, 'p')}" for k in range(count)),
            _tuple_of(_names("r", count)),
        ]
    )


def _dead_all_reduces(count: int) -> str:
    """All-reduces of different values that nothing reads."""
    return _module(
        [
            _PARAMETER,
            *(f"%v.{k} = {_SHAPE} tanh(%p)" for k in range(count)),
            *(f"%r.{k} = {_all_reduce(k, f'v.{k}')}" for k in range(count)),
            f"%result = {_SHAPE} negate(%p)",
        ]
    )


def _all_reduce_chain(count: int) -> str:
    sources = ["p", *_names("r", count)]
    return _module(
        [
            _PARAMETER,
            *(f"%r.{k} = {_all_reduce(k, sources[k])}" for k in range(count)),
        ]
    )


def _permutes(count: int) -> str:
    lines = [_PARAMETER]
    for k in range(count):
        lines += (
            f"%v.{k} = {_SHAPE} tanh(%p)",
            f"%m.{k} = {_SHAPE} collective-permute(%v.{k}), "
            f"channel_id={k + 1}, {_SWAP}",
        )
    return _module([*lines, _tuple_of(_names("m", count))])


def _wide_permute(count: int) -> str:
    """One permute of n operands, read element by element."""
    shapes = ", ".join([_SHAPE] * count)
    operands = ", ".join(f"%v.{k}" for k in range(count))
    return _module(
        [
            _PARAMETER,
            *(f"%v.{k} = {_SHAPE} tanh(%p)" for k in range(count)),
            f"%m = ({shapes}) collective-permute({operands}), channel_id=1, {_SWAP}",
            *(
                f"%g.{k} = {_SHAPE} get-tuple-element(%m), index={k}"
                for k in range(count)
            ),
            _tuple_of(_names("g", count)),
        ]
    )


def _wide_pair(count: int) -> str:
    """One pair that starts an all-reduce of n operands."""
    shapes = ", ".join([_SHAPE] * count)
    operands = ", ".join(f"%v.{k}" for k in range(count))
    return _module(
        [
            _PARAMETER,
            *(f"%v.{k} = {_SHAPE} tanh(%p)" for k in range(count)),
            f"%s = ({shapes}) all-reduce-start({operands}), channel_id=1, {_REDUCES}",
            f"%d = ({shapes}) all-reduce-done(%s)",
        ]
    )


def _pair(k: int, operand: str) -> tuple[str, str]:
    return (
        f"%s.{k} = {_all_reduce(k, operand, '-start')}",
        f"%d.{k} = {_SHAPE} all-reduce-done(%s.{k})",
    )


def _pairs(count: int) -> str:
    lines = [_PARAMETER]
    for k in range(count):
        lines += (f"%v.{k} = {_SHAPE} tanh(%p)", *_pair(k, f"v.{k}"))
    return _module([*lines, _tuple_of(_names("d", count))])


def _open_pairs(count: int) -> str:
    starts, dones = zip(*(_pair(k, f"v.{k}") for k in range(count)), strict=True)
    return _module(
        [
            _PARAMETER,
            *(f"%v.{k} = {_SHAPE} tanh(%p)" for k in range(count)),
            *starts,
            *(f"%w.{k} = {_SHAPE} tanh(%p)" for k in range(count)),
            *dones,
            _tuple_of([*_names("d", count), *_names("w", count)]),
        ]
    )


def _pair_chain(count: int) -> str:
    """Each pair reads the one before, with work beside it."""
    lines, source = [_PARAMETER, f"%first = {_SHAPE} negate(%p)"], "first"
    for k in range(count):
        start, done = _pair(k, source)
        lines += (start, f"%w.{k} = {_SHAPE} tanh(%p)", done)
        lines.append(f"%v.{k} = {_SHAPE} add(%d.{k}, %w.{k})")
        source = f"v.{k}"
    return _module(lines)


def _elements(count: int) -> str:
    shapes = ", ".join([_SHAPE] * count)
    return _module(
        [
            f"%t = ({shapes}) parameter(0)",
            *(
                f"%g.{k} = {_SHAPE} get-tuple-element(%t), index={k}"
                for k in range(count)
            ),
            *(f"%v.{k} = {_SHAPE} negate(%g.{k})" for k in range(count)),
            _tuple_of(_names("v", count)),
        ]
    )


def _rebuilt(count: int) -> str:
    """A tuple, all its elements, and a tuple of these."""
    return _module(
        [
            _PARAMETER,
            *(f"%v.{k} = {_SHAPE} tanh(%p)" for k in range(count)),
            f"%t{_tuple_of(_names('v', count)).removeprefix('%all')}",
            *(
                f"%g.{k} = {_SHAPE} get-tuple-element(%t), index={k}"
                for k in range(count)
            ),
            *(f"%w.{k} = {_SHAPE} tanh(%g.{k})" for k in range(count)),
            _tuple_of(_names("w", count)),
        ]
    )


def _body(name: str, collective: int | None = None) -> str:
    work = f"{_SHAPE} negate(%x.{name})"
    if collective is not None:
        work = _all_reduce(collective, f"x.{name}")
    return (
        f"%{name} {{\n  %x.{name} = {_SHAPE} parameter(0)\n"
        f"  ROOT %n.{name} = {work}\n}}\n"
    )


def _calls(count: int) -> str:
    sources = ["p", *_names("v", count)]
    return _module(
        [
            _PARAMETER,
            *(
                f"%v.{k} = {_SHAPE} call(%{sources[k]}), to_apply=%f.{k}"
                for k in range(count)
            ),
        ],
        *(_body(f"f.{k}", k) for k in range(count)),
    )


def _fusions(count: int) -> str:
    return _module(
        [
            _PARAMETER,
            *(
                f"%v.{k} = {_SHAPE} fusion(%p), kind=kLoop, calls=%f.{k}"
                for k in range(count)
            ),
            _tuple_of(_names("v", count)),
        ],
        *(_body(f"f.{k}") for k in range(count)),
    )


def _nested(count: int) -> str:
    """Computation k calls k - 1."""
    bodies = (
        f"%f.{k} {{\n  %x.f.{k} = {_SHAPE} parameter(0)\n"
        f"  ROOT %n.f.{k} = {_SHAPE} call(%x.f.{k}), to_apply=%f.{k - 1}\n}}\n"
        for k in range(1, count)
    )
    root = f"%v = {_SHAPE} call(%p), to_apply=%f.{count - 1}"
    return _module([_PARAMETER, root], _body("f.0"), *bodies)


def _loops(count: int) -> str:
    shape = f"(s32[], {_SHAPE})"
    lines = [f"%t = {shape} parameter(0)"]
    bodies, source = [], "t"
    for k in range(count):
        lines.append(
            f"%w.{k} = {shape} while(%{source}), condition=%cond.{k}, body=%body.{k}, "
            'backend_config={"known_trip_count":{"n":"3"}}'
        )
        source = f"w.{k}"
        bodies.append(
            f"%body.{k} {{\n  %b.{k} = {shape} parameter(0)\n"
            f"  %i.{k} = s32[] get-tuple-element(%b.{k}), index=0\n"
            f"  %a.{k} = {_SHAPE} get-tuple-element(%b.{k}), index=1\n"
            f"  %one.{k} = s32[] constant(1)\n"
            f"  %j.{k} = s32[] add(%i.{k}, %one.{k})\n"
            f"  %r.{k} = {_all_reduce(k, f'a.{k}')}\n"
            f"  ROOT %o.{k} = {shape} tuple(%j.{k}, %r.{k})\n}}\n\n"
            f"%cond.{k} {{\n  %q.{k} = {shape} parameter(0)\n"
            f"  %z.{k} = s32[] get-tuple-element(%q.{k}), index=0\n"
            f"  %three.{k} = s32[] constant(3)\n"
            f"  ROOT %less.{k} = pred[] compare(%z.{k}, %three.{k}), direction=LT\n}}\n"
        )
    return _module(lines, *bodies)


def _counting(k: int, groups: int) -> tuple[str, str, str]:
    """(body and condition, state, start) of a loop of which groups may leave.

    Each group is an all-reduce that is stored, an all-gather of a slice, and an
    all-reduce that is added up.
    """
    # The counter, the source of all, and three elements for each group.
    types = ["s32[]", "f32[6,4]{1,0}"]
    ends, starts = [f"%next.{k}", f"%in.{k}"], ["%zero", "%source"]
    row, total, table = "f32[1,4]{1,0}", "f32[8,4]{1,0}", types[1]
    lines = []
    for g in range(groups):
        name, place, channel = f"{k}.{g}", len(types), 3 * (k * groups + g)
        lines += [
            f"%b.{name} = {table} get-tuple-element(%s.{k}), index={place}",
            f"%t.{name} = {total} get-tuple-element(%s.{k}), index={place + 1}",
            f"%a.{name} = {row} get-tuple-element(%s.{k}), index={place + 2}",
            f"%x.{name} = {row} multiply(%row.{k}, %row.{k})",
            f"%y.{name} = {row} all-reduce(%x.{name}), channel_id={channel + 1}, "
            f"{_REDUCES}",
            f"%f.{name} = {row} negate(%y.{name})",
            f"%st.{name} = {table} dynamic-update-slice(%b.{name}, %f.{name}, "
            f"%i.{k}, %none.{k})",
            f"%g.{name} = {total} all-gather(%row.{k}), channel_id={channel + 2}, "
            "replica_groups=[1,8]<=[8], use_global_device_ids=true, dimensions={0}",
            f"%n.{name} = {total} subtract(%g.{name}, %t.{name})",
            f"%p.{name} = {row} all-reduce(%row.{k}), channel_id={channel + 3}, "
            f"{_REDUCES}",
            f"%q.{name} = {row} add(%a.{name}, %p.{name})",
        ]
        types += [table, total, row]
        ends += [f"%st.{name}", f"%n.{name}", f"%q.{name}"]
        starts += ["%source", "%total", "%part"]
    state = f"({', '.join(types)})"
    inside = "\n".join(f"  {line}" for line in lines)
    slice_ = (
        f"%row.{k} = {row} dynamic-slice(%in.{k}, %i.{k}, %none.{k}), "
        "dynamic_slice_sizes={1,4}"
    )
    bodies = f"""%body.{k} {{
  %s.{k} = {state} parameter(0)
  %i.{k} = s32[] get-tuple-element(%s.{k}), index=0
  %in.{k} = {table} get-tuple-element(%s.{k}), index=1
  %one.{k} = s32[] constant(1)
  %none.{k} = s32[] constant(0)
  %next.{k} = s32[] add(%i.{k}, %one.{k})
  {slice_}
{inside}
  ROOT %o.{k} = {state} tuple({", ".join(ends)})
}}

%cond.{k} {{
  %c.{k} = {state} parameter(0)
  %j.{k} = s32[] get-tuple-element(%c.{k}), index=0
  %six.{k} = s32[] constant(6)
  ROOT %less.{k} = pred[] compare(%j.{k}, %six.{k}), direction=LT
}}
"""
    return bodies, state, ", ".join(starts)


def _counted(loops: int, groups: int) -> str:
    made = [_counting(k, groups) for k in range(loops)]
    state, start = made[0][1:]
    lines = [
        "%source = f32[6,4]{1,0} parameter(0)",
        "%total = f32[8,4]{1,0} parameter(1)",
        "%part = f32[1,4]{1,0} parameter(2)",
        "%zero = s32[] constant(0)",
        f"%start = {state} tuple({start})",
    ]
    lines += [
        f"%w.{k} = {state} while(%start), condition=%cond.{k}, body=%body.{k}, "
        'backend_config={"known_trip_count":{"n":"6"}}'
        for k in range(loops)
    ]
    lines += [
        f"%e.{k}.{g}.{n} = {shape} get-tuple-element(%w.{k}), index={2 + 3 * g + n}"
        for k in range(loops)
        for g in range(groups)
        for n, shape in enumerate(_SHAPES_OF_GROUP)
    ]
    names = [f"e.{k}.{g}.0" for k in range(loops) for g in range(groups)]
    lines.append(_tuple_of(names, _SHAPES_OF_GROUP[0]))
    return _module(lines, *(bodies for bodies, _, _ in made))


#: The elements of the state for each group of `_counting`.
_SHAPES_OF_GROUP: Final = ("f32[6,4]{1,0}", "f32[8,4]{1,0}", "f32[1,4]{1,0}")


def _moving(count: int) -> str:
    """One loop of which n groups of collectives may leave."""
    return _counted(1, count)


def _moving_loops(count: int) -> str:
    """Loops, of each of which a group of collectives may leave."""
    return _counted(count, 1)


def _windowed(count: int) -> str:
    """Loops that multiply what travels around two devices, as the partitioner makes."""
    left, right, out = "f32[4,3]{1,0}", "f32[3,5]{1,0}", "f32[8,5]{1,0}"
    state = f"({left}, {right}, {out}, u32[])"
    lines = [
        f"%p = {left} parameter(0)",
        f"%q = {right} parameter(1)",
        "%none = f32[] constant(0)",
        f"%empty = {out} broadcast(%none), dimensions={{}}",
        "%first = u32[] constant(0)",
    ]
    bodies = []
    for k in range(count):
        lines += [
            f"%t.{k} = {state} tuple(%p, %q, %empty, %first)",
            f"%w.{k} = {state} while(%t.{k}), condition=%cond.{k}, "
            f"body=%windowed_dot_general_body_ag.{k}",
            f"%g.{k} = {out} get-tuple-element(%w.{k}), index=2",
        ]
        steps = []
        for n, counter in enumerate((f"%i.{k}", f"%i1.{k}")):
            part, store = f"{k}.{n}", f"%u.{k}.0" if n else f"%out.{k}"
            steps += [
                f"%k.{part} = u32[] add({counter}, %id.{k})",
                f"%shard.{part} = u32[] remainder(%k.{part}, %two.{k})",
                f"%slice.{part} = s32[1]{{0}} dynamic-slice(%starts.{k}, "
                f"%shard.{part}), dynamic_slice_sizes={{1}}",
                f"%start.{part} = s32[] reshape(%slice.{part})",
                f"%d.{part} = f32[4,5]{{1,0}} dot(%x{n}.{k}, %y.{k}), "
                "lhs_contracting_dims={1}, rhs_contracting_dims={0}",
                f"%u.{part} = {out} dynamic-update-slice({store}, %d.{part}, "
                f"%start.{part}, %zero.{k})",
                f"%i{n + 1}.{k} = u32[] add({counter}, %one.{k})",
                f"%x{n + 1}.{k} = {left} collective-permute(%x{n}.{k}), "
                f"channel_id={2 * k + n + 1}, source_target_pairs={{{{0,1}},{{1,0}}}}",
            ]
        inside = "\n".join(f"  {line}" for line in steps)
        bodies.append(f"""%windowed_dot_general_body_ag.{k} {{
  %s.{k} = {state} parameter(0)
  %x0.{k} = {left} get-tuple-element(%s.{k}), index=0
  %y.{k} = {right} get-tuple-element(%s.{k}), index=1
  %out.{k} = {out} get-tuple-element(%s.{k}), index=2
  %i.{k} = u32[] get-tuple-element(%s.{k}), index=3
  %two.{k} = u32[] constant(2)
  %one.{k} = u32[] constant(1)
  %zero.{k} = s32[] constant(0)
  %id.{k} = u32[] partition-id()
  %starts.{k} = s32[2]{{0}} constant({{0, 4}})
{inside}
  ROOT %o.{k} = {state} tuple(%x2.{k}, %y.{k}, %u.{k}.1, %i2.{k})
}}

%cond.{k} {{
  %c.{k} = {state} parameter(0)
  %j.{k} = u32[] get-tuple-element(%c.{k}), index=3
  %bound.{k} = u32[] constant(2)
  ROOT %less.{k} = pred[] compare(%j.{k}, %bound.{k}), direction=LT
}}
""")
    lines.append(_tuple_of(_names("g", count), out))
    return _module(lines, *bodies, partitions=2)


def _split_sides(count: int) -> str:
    """Dots of all-to-alls, and all-to-alls of dots."""
    wide = "f32[8,8]{1,0}"
    groups = "replica_groups={{0,1}}, dimensions={0}"
    dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    lines = [f"%p = {wide} parameter(0)"]
    for k in range(count // 2):
        lines += [
            f"%a.{k} = {wide} all-to-all(%p), channel_id={2 * k + 1}, {groups}",
            f"%v.{k} = {wide} dot(%a.{k}, %p), {dims}",
            f"%b.{k} = {wide} dot(%p, %p), {dims}",
            f"%w.{k} = {wide} all-to-all(%b.{k}), channel_id={2 * k + 2}, {groups}",
        ]
    names = [*_names("v", count // 2), *_names("w", count // 2)]
    return _module([*lines, _tuple_of(names, wide)], partitions=2)


def _ring(count: int) -> str:
    """A ring of permutes over n devices."""
    pairs = ",".join(f"{{{k},{(k + 1) % count}}}" for k in range(count))
    lines, source = [_PARAMETER], "p"
    for k in range(4):
        lines.append(
            f"%m.{k} = {_SHAPE} collective-permute(%{source}), channel_id={k + 1}, "
            f"source_target_pairs={{{pairs}}}"
        )
        source = f"m.{k}"
    return _module(lines, partitions=count)


def _devices(count: int) -> str:
    """One all-reduce over n devices, that are listed."""
    groups = ",".join(str(k) for k in range(count))
    return _module(
        [
            _PARAMETER,
            f"%r = {_SHAPE} all-reduce(%p), channel_id=1, "
            f"replica_groups={{{{{groups}}}}}, use_global_device_ids=true, "
            "to_apply=%add",
        ],
        partitions=count,
    )


def _fan(count: int) -> str:
    """One value to n readers, whose results one instruction reads; three times."""
    lines, source = [_PARAMETER], "p"
    for layer in range(3):
        names = [f"v.{layer}.{k}" for k in range(count // 3)]
        lines += (f"%{name} = {_SHAPE} tanh(%{source})" for name in names)
        operands = ", ".join(f"%{name}" for name in names)
        source = f"j.{layer}"
        lines.append(
            f'%{source} = {_SHAPE} custom-call({operands}), custom_call_target="joined"'
        )
    return _module(lines)


def _transfers(count: int) -> str:
    """Pairs of send and recv, each of which sends what the one before received."""
    lines = [_PARAMETER, "%begin = token[] after-all()"]
    source = "p"
    pairs = 'frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1},{1,0}}"}'
    shape = f"({_SHAPE}, u32[], token[])"
    for k in range(count):
        channel = f"channel_id={k + 1}"
        lines += (
            f"%r.{k} = {shape} recv(%begin), {channel}, {pairs}",
            f"%s.{k} = {shape} send(%{source}, %begin), {channel}, {pairs}",
            f"%v.{k} = {_SHAPE} tanh(%p)",
            f"%rd.{k} = ({_SHAPE}, token[]) recv-done(%r.{k}), {channel}, {pairs}",
            f"%sd.{k} = token[] send-done(%s.{k}), {channel}, {pairs}",
            f"%g.{k} = {_SHAPE} get-tuple-element(%rd.{k}), index=0",
        )
        source = f"g.{k}"
    return _module([*lines, _tuple_of([source, *_names("v", count)])])


def _annotated(count: int) -> str:
    """Annotations of users: streams, groups of collectives, scheduling groups."""
    lines = [_PARAMETER]
    read = []
    for k in range(count // 4):
        group = f'frontend_attributes={{_scheduling_group_id="{k + 1}"}}'
        start, done = _pair(k, f"a.{k}")
        lines += (
            f"%a.{k} = {_SHAPE} negate(%p)",
            f"%q.{k} = {_SHAPE} tanh(%p), "
            f'frontend_attributes={{_xla_stream_annotation="{1 + k % 3}"}}',
            f"%c.{k} = {_SHAPE} call(%p), to_apply=%both, "
            'frontend_attributes={_collectives_group=""}',
            f"{start}, {group}",
            f"%w.{k} = {_SHAPE} custom-call(%p), "
            f'custom_call_target="__cublas$gemm", {group}',
            f"{done}, {group}",
            f'%o.{k} = {_SHAPE} tanh(%p), backend_config={{"operation_queue_id":"5"}}',
        )
        read += (f"q.{k}", f"c.{k}", f"d.{k}", f"w.{k}", f"o.{k}")
    return _module([*lines, _tuple_of(read)], _body("both", count))


def _ordered(count: int) -> str:
    """Control edges: one instruction before n, and one after these."""
    before = "control-predecessors={%first}"
    others = ", ".join(f"%v.{k}" for k in range(count))
    return _module(
        [
            _PARAMETER,
            f"%first = {_SHAPE} negate(%p)",
            *(f"%v.{k} = {_SHAPE} tanh(%p), {before}" for k in range(count)),
            f"%last = {_SHAPE} negate(%p), control-predecessors={{{others}}}",
            _tuple_of(["last", *_names("v", count)]),
        ]
    )


def _random(count: int) -> str:
    """Instructions of one or two operands anywhere before, some of them all-reduces.

    The result has whatever nothing reads. A graph begins as all smaller ones.
    """
    draw = random.Random(1)
    names, lines = ["p"], [_PARAMETER]
    unread: dict[str, None] = {}
    for k in range(count):
        one, other = draw.choice(names), draw.choice(names)
        kind = draw.randrange(8)
        unread.pop(one, None)
        if kind >= 4:
            unread.pop(other, None)
        if kind == 0:
            lines.append(f"%v.{k} = {_all_reduce(k, one)}")
        elif kind < 4:
            lines.append(f"%v.{k} = {_SHAPE} tanh(%{one})")
        else:
            lines.append(f"%v.{k} = {_SHAPE} add(%{one}, %{other})")
        names.append(f"v.{k}")
        unread[names[-1]] = None
    return _module([*lines, _tuple_of(list(unread))])


GRAPHS: Final = {
    "chain": Graph(_chain),
    "independent": Graph(_independent),
    "equal": Graph(_equal),
    "constants": Graph(_constants),
    "all-reduces": Graph(_all_reduces),
    "dead all-reduces": Graph(_dead_all_reduces),
    "all-reduce chain": Graph(_all_reduce_chain),
    "permutes": Graph(_permutes),
    "wide permute": Graph(_wide_permute),
    "wide pair": Graph(_wide_pair),
    "pairs": Graph(_pairs),
    "open pairs": Graph(_open_pairs),
    "pair chain": Graph(_pair_chain),
    "transfers": Graph(_transfers),
    "elements": Graph(_elements),
    "rebuilt tuple": Graph(_rebuilt),
    "calls": Graph(_calls),
    "fusions": Graph(_fusions),
    "nested calls": Graph(_nested, largest=128),
    "loops": Graph(_loops, largest=1 << 11),
    "moving": Graph(_moving, largest=1 << 12),
    "moving loops": Graph(_moving_loops, largest=1 << 11),
    "windowed loops": Graph(_windowed, largest=1 << 10),
    "dots and all-to-alls": Graph(_split_sides),
    "ring": Graph(_ring),
    "devices": Graph(_devices),
    "fan": Graph(_fan),
    "annotated": Graph(_annotated),
    "control edges": Graph(_ordered),
    "random": Graph(_random),
}
