"""Made-up modules with many loops, or with much in one loop."""

from __future__ import annotations

from typing import Final

from benchmarks.growth_parts import (
    REDUCES,
    SHAPE,
    all_reduce,
    module_of,
    names_of,
    tuple_of,
)


def loops(count: int) -> str:
    """One loop after another; each reduces once an iteration."""
    shape = f"(s32[], {SHAPE})"
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
            f"  %a.{k} = {SHAPE} get-tuple-element(%b.{k}), index=1\n"
            f"  %one.{k} = s32[] constant(1)\n"
            f"  %j.{k} = s32[] add(%i.{k}, %one.{k})\n"
            f"  %r.{k} = {all_reduce(k, f'a.{k}')}\n"
            f"  ROOT %o.{k} = {shape} tuple(%j.{k}, %r.{k})\n}}\n\n"
            f"%cond.{k} {{\n  %q.{k} = {shape} parameter(0)\n"
            f"  %z.{k} = s32[] get-tuple-element(%q.{k}), index=0\n"
            f"  %three.{k} = s32[] constant(3)\n"
            f"  ROOT %less.{k} = pred[] compare(%z.{k}, %three.{k}), direction=LT\n}}\n"
        )
    return module_of(lines, *bodies)


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
            f"{REDUCES}",
            f"%f.{name} = {row} negate(%y.{name})",
            f"%st.{name} = {table} dynamic-update-slice(%b.{name}, %f.{name}, "
            f"%i.{k}, %none.{k})",
            f"%g.{name} = {total} all-gather(%row.{k}), channel_id={channel + 2}, "
            "replica_groups=[1,8]<=[8], use_global_device_ids=true, dimensions={0}",
            f"%n.{name} = {total} subtract(%g.{name}, %t.{name})",
            f"%p.{name} = {row} all-reduce(%row.{k}), channel_id={channel + 3}, "
            f"{REDUCES}",
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


#: The elements of the state for each group of `_counting`.
_SHAPES_OF_GROUP: Final = ("f32[6,4]{1,0}", "f32[8,4]{1,0}", "f32[1,4]{1,0}")


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
    lines.append(tuple_of(names, _SHAPES_OF_GROUP[0]))
    return module_of(lines, *(bodies for bodies, _, _ in made))


def moving(count: int) -> str:
    """One loop of which n groups of collectives may leave."""
    return _counted(1, count)


def moving_loops(count: int) -> str:
    """Loops, of each of which a group of collectives may leave."""
    return _counted(count, 1)


def sinking(count: int) -> str:
    """Loops with a buffer and a mask that they can compute, and a state to join."""
    row, wide = "f32[4]{0}", "f32[2,4]{1,0}"
    state = f"(s32[], {row}, {row}, {wide}, {wide})"
    lines = [
        f"%p = {row} parameter(0)",
        f"%q = {row} parameter(1)",
        "%none = f32[] constant(0)",
        "%first = s32[] constant(0)",
    ]
    bodies = []
    for k in range(count):
        lines += [
            f"%empty.{k} = {wide} broadcast(%none), dimensions={{}}",
            f"%mask.{k} = {wide} broadcast(%p), dimensions={{1}}",
            f"%t.{k} = {state} tuple(%first, %p, %q, %empty.{k}, %mask.{k})",
            f"%w.{k} = {state} while(%t.{k}), condition=%cond.{k}, body=%body.{k}, "
            'backend_config={"known_trip_count":{"n":"3"}}',
            f"%g.{k} = {wide} get-tuple-element(%w.{k}), index=3",
        ]
        bodies.append(f"""%body.{k} {{
  %s.{k} = {state} parameter(0)
  %i.{k} = s32[] get-tuple-element(%s.{k}), index=0
  %x.{k} = {row} get-tuple-element(%s.{k}), index=1
  %y.{k} = {row} get-tuple-element(%s.{k}), index=2
  %out.{k} = {wide} get-tuple-element(%s.{k}), index=3
  %m.{k} = {wide} get-tuple-element(%s.{k}), index=4
  %one.{k} = s32[] constant(1)
  %next.{k} = s32[] add(%i.{k}, %one.{k})
  %both.{k} = f32[8]{{0}} concatenate(%x.{k}, %y.{k}), dimensions={{0}}
  %f.{k} = f32[8]{{0}} negate(%both.{k})
  %low.{k} = {row} slice(%f.{k}), slice={{[0:4]}}
  %high.{k} = {row} slice(%f.{k}), slice={{[4:8]}}
  %x1.{k} = {row} add(%x.{k}, %low.{k})
  %y1.{k} = {row} add(%y.{k}, %high.{k})
  %sum.{k} = {wide} add(%out.{k}, %m.{k})
  ROOT %o.{k} = {state} tuple(%next.{k}, %x1.{k}, %y1.{k}, %sum.{k}, %m.{k})
}}

%cond.{k} {{
  %c.{k} = {state} parameter(0)
  %j.{k} = s32[] get-tuple-element(%c.{k}), index=0
  %bound.{k} = s32[] constant(3)
  ROOT %less.{k} = pred[] compare(%j.{k}, %bound.{k}), direction=LT
}}
""")
    lines.append(tuple_of(names_of("g", count), wide))
    return module_of(lines, *bodies)


def windowed(count: int) -> str:
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
    lines.append(tuple_of(names_of("g", count), out))
    return module_of(lines, *bodies, partitions=2)
