"""Made-up modules with many collectives, or over many devices."""

from __future__ import annotations

from benchmarks.growth_parts import (
    PARAMETER,
    REDUCES,
    SHAPE,
    SWAP,
    all_reduce,
    body_of,
    module_of,
    names_of,
    pair,
    tuple_of,
)


def all_reduces(count: int) -> str:
    """All-reduces of one value."""
    return module_of(
        [
            PARAMETER,
            *(f"%r.{k} = {all_reduce(k, 'p')}" for k in range(count)),
            tuple_of(names_of("r", count)),
        ]
    )


def equal_all_reduces(count: int) -> str:
    """All-reduces of values that every device has alike, without channels."""
    lines = [PARAMETER, "%zero = f32[] constant(0)"]
    for k in range(count):
        lines += (
            f"%v.{k} = {SHAPE} broadcast(%zero), dimensions={{}}",
            f"%r.{k} = {SHAPE} all-reduce(%v.{k}), replica_groups={{}}, to_apply=%add",
        )
    text = module_of([*lines, tuple_of(names_of("r", count))])
    return text.replace("num_partitions", "replica_count")


def dead_all_reduces(count: int) -> str:
    """All-reduces of different values that nothing reads."""
    return module_of(
        [
            PARAMETER,
            *(f"%v.{k} = {SHAPE} tanh(%p)" for k in range(count)),
            *(f"%r.{k} = {all_reduce(k, f'v.{k}')}" for k in range(count)),
            f"%result = {SHAPE} negate(%p)",
        ]
    )


def all_reduce_chain(count: int) -> str:
    """Each all-reduce reads the one before."""
    sources = ["p", *names_of("r", count)]
    return module_of(
        [
            PARAMETER,
            *(f"%r.{k} = {all_reduce(k, sources[k])}" for k in range(count)),
        ]
    )


def permutes(count: int) -> str:
    """Permutes of different values."""
    lines = [PARAMETER]
    for k in range(count):
        lines += (
            f"%v.{k} = {SHAPE} tanh(%p)",
            f"%m.{k} = {SHAPE} collective-permute(%v.{k}), channel_id={k + 1}, {SWAP}",
        )
    return module_of([*lines, tuple_of(names_of("m", count))])


def wide_permute(count: int) -> str:
    """One permute of n operands, read element by element."""
    shapes = ", ".join([SHAPE] * count)
    operands = ", ".join(f"%v.{k}" for k in range(count))
    return module_of(
        [
            PARAMETER,
            *(f"%v.{k} = {SHAPE} tanh(%p)" for k in range(count)),
            f"%m = ({shapes}) collective-permute({operands}), channel_id=1, {SWAP}",
            *(
                f"%g.{k} = {SHAPE} get-tuple-element(%m), index={k}"
                for k in range(count)
            ),
            tuple_of(names_of("g", count)),
        ]
    )


def wide_pair(count: int) -> str:
    """One pair that starts an all-reduce of n operands."""
    shapes = ", ".join([SHAPE] * count)
    operands = ", ".join(f"%v.{k}" for k in range(count))
    return module_of(
        [
            PARAMETER,
            *(f"%v.{k} = {SHAPE} tanh(%p)" for k in range(count)),
            f"%s = ({shapes}) all-reduce-start({operands}), channel_id=1, {REDUCES}",
            f"%d = ({shapes}) all-reduce-done(%s)",
        ]
    )


def pairs(count: int) -> str:
    """Asynchronous pairs, one after another."""
    lines = [PARAMETER]
    for k in range(count):
        lines += (f"%v.{k} = {SHAPE} tanh(%p)", *pair(k, f"v.{k}"))
    return module_of([*lines, tuple_of(names_of("d", count))])


def open_pairs(count: int) -> str:
    """All pairs start before the first is done."""
    starts, dones = zip(*(pair(k, f"v.{k}") for k in range(count)), strict=True)
    return module_of(
        [
            PARAMETER,
            *(f"%v.{k} = {SHAPE} tanh(%p)" for k in range(count)),
            *starts,
            *(f"%w.{k} = {SHAPE} tanh(%p)" for k in range(count)),
            *dones,
            tuple_of([*names_of("d", count), *names_of("w", count)]),
        ]
    )


def pair_chain(count: int) -> str:
    """Each pair reads the one before, with work beside it."""
    lines, source = [PARAMETER, f"%first = {SHAPE} negate(%p)"], "first"
    for k in range(count):
        start, done = pair(k, source)
        lines += (start, f"%w.{k} = {SHAPE} tanh(%p)", done)
        lines.append(f"%v.{k} = {SHAPE} add(%d.{k}, %w.{k})")
        source = f"v.{k}"
    return module_of(lines)


def split_sides(count: int) -> str:
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
    names = [*names_of("v", count // 2), *names_of("w", count // 2)]
    return module_of([*lines, tuple_of(names, wide)], partitions=2)


def ring(count: int) -> str:
    """A ring of permutes over n devices."""
    pairs = ",".join(f"{{{k},{(k + 1) % count}}}" for k in range(count))
    lines, source = [PARAMETER], "p"
    for k in range(4):
        lines.append(
            f"%m.{k} = {SHAPE} collective-permute(%{source}), channel_id={k + 1}, "
            f"source_target_pairs={{{pairs}}}"
        )
        source = f"m.{k}"
    return module_of(lines, partitions=count)


def devices(count: int) -> str:
    """One all-reduce over n devices, that are listed."""
    groups = ",".join(str(k) for k in range(count))
    return module_of(
        [
            PARAMETER,
            f"%r = {SHAPE} all-reduce(%p), channel_id=1, "
            f"replica_groups={{{{{groups}}}}}, use_global_device_ids=true, "
            "to_apply=%add",
        ],
        partitions=count,
    )


def transfers(count: int) -> str:
    """Pairs of send and recv, each of which sends what the one before received."""
    lines = [PARAMETER, "%begin = token[] after-all()"]
    source = "p"
    pairs = 'frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1},{1,0}}"}'
    shape = f"({SHAPE}, u32[], token[])"
    for k in range(count):
        channel = f"channel_id={k + 1}"
        lines += (
            f"%r.{k} = {shape} recv(%begin), {channel}, {pairs}",
            f"%s.{k} = {shape} send(%{source}, %begin), {channel}, {pairs}",
            f"%v.{k} = {SHAPE} tanh(%p)",
            f"%rd.{k} = ({SHAPE}, token[]) recv-done(%r.{k}), {channel}, {pairs}",
            f"%sd.{k} = token[] send-done(%s.{k}), {channel}, {pairs}",
            f"%g.{k} = {SHAPE} get-tuple-element(%rd.{k}), index=0",
        )
        source = f"g.{k}"
    return module_of([*lines, tuple_of([source, *names_of("v", count)])])


def annotated(count: int) -> str:
    """Annotations of users: streams, groups of collectives, scheduling groups."""
    lines = [PARAMETER]
    read = []
    for k in range(count // 4):
        group = f'frontend_attributes={{_scheduling_group_id="{k + 1}"}}'
        start, done = pair(k, f"a.{k}")
        lines += (
            f"%a.{k} = {SHAPE} negate(%p)",
            f"%q.{k} = {SHAPE} tanh(%p), "
            f'frontend_attributes={{_xla_stream_annotation="{1 + k % 3}"}}',
            f"%c.{k} = {SHAPE} call(%p), to_apply=%both, "
            'frontend_attributes={_collectives_group=""}',
            f"{start}, {group}",
            f"%w.{k} = {SHAPE} custom-call(%p), "
            f'custom_call_target="__cublas$gemm", {group}',
            f"{done}, {group}",
            f'%o.{k} = {SHAPE} tanh(%p), backend_config={{"operation_queue_id":"5"}}',
        )
        read += (f"q.{k}", f"c.{k}", f"d.{k}", f"w.{k}", f"o.{k}")
    return module_of([*lines, tuple_of(read)], body_of("both", count))
