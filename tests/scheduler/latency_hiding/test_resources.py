"""How much of each resource there is, who takes it, and what a loop's transfers need."""

from __future__ import annotations

import pytest

import hlo_passes
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.scheduler.latency_hiding.gpu_tracker import make_tracker
from hlo_passes.scheduler.latency_hiding.memory_bound import is_memory_bound
from hlo_passes.scheduler.latency_hiding.resources import (
    RESOURCE_NAMES,
    UNLIMITED,
    Resource,
    Usage,
    limits,
)
from hlo_passes.scheduler.latency_hiding.settings import SchedulerSettings
from tests.scheduler.latency_hiding.graphs import graph_of

#: A number of its own for each limit by kind.
BY_KIND = {
    Resource.ALL_TO_ALL: "all_to_all_overlap_limit",
    Resource.ALL_GATHER: "all_gather_overlap_limit",
    Resource.ALL_REDUCE: "all_reduce_overlap_limit",
    Resource.COLLECTIVE_PERMUTE: "collective_permute_overlap_limit",
    Resource.COPY: "copy_overlap_limit",
    Resource.REDUCE_SCATTER: "reduce_scatter_overlap_limit",
    Resource.SEND_RECV: "send_recv_overlap_limit",
    Resource.SEND_HOST: "send_recv_host_overlap_limit",
    Resource.COLLECTIVE_BROADCAST: "collective_broadcast_overlap_limit",
    Resource.RAGGED_ALL_TO_ALL: "ragged_all_to_all_overlap_limit",
}
P2P = (
    Resource.GPU_COLLECTIVES_P2P,
    Resource.GPU_SEND_0,
    Resource.GPU_SEND_1,
    Resource.GPU_RECV_0,
    Resource.GPU_RECV_1,
)


def test_every_kind_has_its_own_limit() -> None:
    chosen = {name: k + 2 for k, name in enumerate(BY_KIND.values())}
    free = limits(SchedulerSettings.generic(**chosen))
    known = {resource: chosen[name] for resource, name in BY_KIND.items()}
    known[Resource.RECV_HOST] = known[Resource.SEND_HOST]
    assert free == [known.get(r, UNLIMITED) for r in Resource]
    assert {limits(SchedulerSettings.generic())[r] for r in known} == {1}


def test_streams_of_the_gpu_have_limits() -> None:
    """Four transfers on each stream, whatever the limit of collectives."""
    free = limits(SchedulerSettings())
    assert [free[r] for r in P2P] == [4] * 5
    assert (free[Resource.GPU_COLLECTIVES], free[Resource.GPU_COMPUTES]) == (1, 2)
    assert free[Resource.GPU_MEMCPY] == 2**31 - 1
    more = SchedulerSettings(
        parallel_collective_overlap_limit=7, parallel_async_compute_limit=5
    )
    free = limits(more)
    assert [free[r] for r in P2P] == [4] * 5
    assert (free[Resource.GPU_COLLECTIVES], free[Resource.GPU_COMPUTES]) == (7, 5)
    bare = limits(SchedulerSettings.generic())
    assert {bare[r] for r in Resource if r >= Resource.GPU_COLLECTIVES_P2P} == {
        UNLIMITED
    }


@pytest.mark.parametrize(("calls", "free"), [(None, UNLIMITED), (3, 3)])
def test_every_sparse_core_has_the_limit_of_calls(calls: int | None, free: int) -> None:
    cores = (
        Resource.SPARSE_CORE_0, Resource.SPARSE_CORE_1, Resource.SPARSE_CORE_2,
        Resource.SPARSE_CORE_3,
    )  # fmt: skip
    found = limits(SchedulerSettings(flavour="tpu", sparse_core_overlap_limit=calls))
    assert [found[r] for r in cores] == [free] * 4
    assert found[Resource.SPARSE_CORE_GATHER] == UNLIMITED


@pytest.mark.parametrize("serializing", [True, False])
def test_synchronous_collectives_of_a_tpu_name_links(serializing: bool) -> None:
    """By themselves and in a fusion, where links are serial; without taking them."""
    module = hlo_passes.parse("""HloModule m, num_partitions=2

%fused (x: f32[8]) -> f32[8] {
  %x = f32[8] parameter(0)
  ROOT %moved = f32[8] collective-permute(%x), channel_id=1, source_target_pairs={{0,1}}
}

%plain (y: f32[8]) -> f32[8] {
  %y = f32[8] parameter(0)
  ROOT %sign = f32[8] negate(%y)
}

ENTRY %main (p: f32[8]) -> f32[16] {
  %p = f32[8] parameter(0)
  %inside = f32[8] fusion(%p), kind=kLoop, calls=%fused
  %outside = f32[8] fusion(%inside), kind=kLoop, calls=%plain
  ROOT %gathered = f32[16] all-gather(%outside), channel_id=2, dimensions={0},
    replica_groups={{0,1}}, use_global_device_ids=true
}
""")
    settings = SchedulerSettings(flavour="tpu", resource_serializing=serializing)
    tracker = make_tracker(settings)
    links = (
        Resource.ICI_X_PLUS, Resource.ICI_X_MINUS, Resource.ICI_Y_PLUS,
        Resource.ICI_Y_MINUS,
    )  # fmt: skip
    named = tuple((link, Usage.NONE) for link in links)
    found = {i.name: tracker.resources(i) for i in module.entry.instructions}
    for name in ("inside", "gathered"):
        assert (found[name] == named) is serializing
    assert not found["p"]
    assert not found["outside"]


def test_every_resource_has_a_number_of_its_own() -> None:
    assert [*Resource.__members__.values()] == [*range(len(Resource.__members__))]


def test_every_resource_is_named_as_in_xla() -> None:
    assert list(RESOURCE_NAMES) == list(Resource)
    assert len({*RESOURCE_NAMES.values()}) == len(Resource)


# -- loops that pass a transfer on --------------------------------------------------


def loop_with_transfer(opcode: str, pipeline: str, read_by: str) -> Module:
    """A loop whose body ends a transfer; the caller reads its element with an opcode."""
    mark = f", frontend_attributes={{{pipeline}}}" if pipeline else ""
    values = "(f32[8]{0}, u32[], token[])"
    result = "token[]" if opcode == "send" else "(f32[8]{0}, token[])"
    begun = f"{opcode}({'%x, %t' if opcode == 'send' else '%t'}), channel_id=1{mark}"
    user = {
        "done": f"%u = {result} {opcode}-done(%g), channel_id=1{mark}",
        "other": f"%u = {values} copy(%g)",
    }[read_by]
    return hlo_passes.parse(f"""HloModule m, is_scheduled=true, num_partitions=2

%body (b: (f32[8], (f32[8], u32[], token[]))) -> (f32[8], (f32[8], u32[], token[])) {{
  %b = (f32[8]{{0}}, {values}) parameter(0)
  %x = f32[8]{{0}} get-tuple-element(%b), index=0
  %old = {values} get-tuple-element(%b), index=1
  %t = token[] after-all()
  %s = {values} {begun}
  %d = {result} {opcode}-done(%old), channel_id=1{mark}
  ROOT %r = (f32[8]{{0}}, {values}) tuple(%x, %s)
}}

%condition (c: (f32[8], (f32[8], u32[], token[]))) -> pred[] {{
  %c = (f32[8]{{0}}, {values}) parameter(0)
  ROOT %go = pred[] custom-call(%c), custom_call_target="go"
}}

ENTRY %main (x: f32[8]) -> f32[8] {{
  %x.1 = f32[8]{{0}} parameter(0)
  %t.1 = token[] after-all()
  %s.1 = {values} {begun.replace("%x", "%x.1").replace("%t)", "%t.1)")}
  %i = (f32[8]{{0}}, {values}) tuple(%x.1, %s.1)
  %w = (f32[8]{{0}}, {values}) while(%i), condition=%condition, body=%body
  %all = (f32[8]{{0}}, {values}) opt-barrier(%w)
  %g = {values} get-tuple-element(%w), index=1
  {user}
  ROOT %h = f32[8]{{0}} get-tuple-element(%w), index=0
}}
""")


def named(module: Module, name: str) -> Instruction:
    found = module.entry.find(name)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("opcode", "pipeline", "resource"),
    [
        ("send", "", Resource.GPU_SEND_0),
        ("send", '_xla_send_recv_pipeline="1"', Resource.GPU_SEND_1),
        ("recv", '_xla_send_recv_pipeline="0"', Resource.GPU_RECV_0),
        ("recv", '_xla_send_recv_pipeline="1"', Resource.GPU_RECV_1),
    ],
)
def test_a_loop_that_feeds_a_done_needs_one_less(
    opcode: str, pipeline: str, resource: Resource
) -> None:
    """The transfer that it hands to the done is the one that it needs itself."""
    tracker = make_tracker(SchedulerSettings())
    fed = named(loop_with_transfer(opcode, pipeline, "done"), "w")
    assert tracker.instances_needed(fed) == {resource: 1}
    assert tracker.instances_of_one(resource, fed) == 0
    other = named(loop_with_transfer(opcode, pipeline, "other"), "w")
    assert tracker.instances_needed(other) == {resource: 1}
    assert tracker.instances_of_one(resource, other) == 1


# -- what runs pairs inside ----------------------------------------------------------


@pytest.mark.parametrize(
    ("caller", "needed"),
    [
        ("call(%p), to_apply=%pair", {Resource.GPU_COLLECTIVES: 1}),
        (
            'custom-call(%p), custom_call_target="c", called_computations={%pair}',
            {Resource.GPU_COLLECTIVES: 1},
        ),
        ('custom-call(%p), custom_call_target="c"', {}),
        # A fusion is one kernel.
        ("fusion(%p), kind=kLoop, calls=%pair", {}),
    ],
)
def test_what_runs_a_pair_needs_its_resource(
    caller: str, needed: dict[Resource, int]
) -> None:
    """So does what runs the computation in which it is."""
    module = hlo_passes.parse(f"""HloModule m, is_scheduled=true, num_partitions=2

%pair (a: f32[8]) -> f32[8] {{
  %a = f32[8] parameter(0)
  %s = (f32[8], f32[8]) collective-permute-start(%a), source_target_pairs={{{{0,1}}}}
  ROOT %d = f32[8] collective-permute-done(%s)
}}

%outer (b: f32[8]) -> f32[8] {{
  %p = f32[8] parameter(0)
  ROOT %c = f32[8] {caller}
}}

ENTRY %main (q: f32[8]) -> f32[8] {{
  %q = f32[8] parameter(0)
  ROOT %w = f32[8] call(%q), to_apply=%outer
}}
""")
    tracker = make_tracker(SchedulerSettings())
    assert tracker.instances_needed(module.entry.root) == needed
    inner = module.to_text().replace("ENTRY ", "").replace("%outer (", "ENTRY %outer (")
    assert dict(graph_of(inner).needs.get(1, ())) == needed


# -- halves that the GPU overlaps ---------------------------------------------------


@pytest.mark.parametrize(
    ("operand", "result", "is_supported"),
    [
        ("f32[8]{0}", "f32[8]{0}", False),
        ("f32[8]{0:S(5)}", "f32[8]{0}", True),
        ("f32[8]{0}", "f32[8]{0:S(5)}", True),
        ("f32[8]{0:S(1)}", "f32[8]{0}", False),
        ("f32[8]{0}", "f32[8]{0:S(6)}", False),
        ("f32[8]{0:S(6)}", "f32[8]{0}", False),
    ],
)
def test_a_wrapped_fusion_counts_from_or_to_the_host(
    operand: str, result: str, is_supported: bool
) -> None:
    module = hlo_passes.parse(f"""HloModule m, is_scheduled=true

%fused (a: f32[8]) -> f32[8] {{
  %a = {operand} parameter(0)
  ROOT %n = {result} negate(%a)
}}

%wrapped (b: f32[8]) -> f32[8] {{
  %b = {operand} parameter(0)
  ROOT %f = {result} fusion(%b), kind=kLoop, calls=%fused
}}

ENTRY %main (p: f32[8]) -> f32[8] {{
  %p = {operand} parameter(0)
  %s = (({operand}), {result}) async-start(%p), calls=%wrapped
  ROOT %d = {result} async-done(%s)
}}
""")
    tracker = make_tracker(SchedulerSettings())
    start, done = named(module, "s"), named(module, "d")
    assert tracker.is_supported_start(start) == is_supported
    assert tracker.is_supported_done(done) == is_supported
    assert tracker.resources(done) == ((Resource.GPU_COMPUTES, Usage.OCCUPY),)


UPDATES = """HloModule m, is_scheduled=true

%fused (a: f32[8], u: f32[1], i: s32[]) -> f32[8] {{
  %a = f32[8]{{0{space}}} parameter(0)
  %u = f32[1]{{0}} parameter(1)
  %i = s32[] parameter(2)
  ROOT %x = f32[8]{{0{space}}} {inner}
}}

%wrapped (b: f32[8], v: f32[1], j: s32[]) -> f32[8] {{
  %b = f32[8]{{0{space}}} parameter(0)
  %v = f32[1]{{0}} parameter(1)
  %j = s32[] parameter(2)
  ROOT %f = f32[8]{{0{space}}} {outer}
}}

ENTRY %main (p: f32[8], q: f32[1], k: s32[]) -> f32[8] {{
  %p = f32[8]{{0{space}}} parameter(0)
  %q = f32[1]{{0}} parameter(1)
  %k = s32[] parameter(2)
  %s = ((f32[8]{{0{space}}}, f32[1]{{0}}, s32[]), f32[8]{{0{space}}}) async-start(%p, %q, %k), calls=%wrapped
  ROOT %d = f32[8]{{0{space}}} async-done(%s)
}}
"""
_UPDATE = "dynamic-update-slice(%a, %u, %i)"
_FUSION = "fusion(%b, %v, %j), kind=kLoop, calls=%fused"


@pytest.mark.parametrize(
    ("space", "inner", "outer", "xla", "expected"),
    [
        (":S(5)", _UPDATE, _FUSION, "0.12", True),
        ("", _UPDATE, _FUSION, "0.12", False),
        ("", _UPDATE, _FUSION, "0.10.2", True),
        (":S(5)", "negate(%a)", _FUSION, "0.12", False),
        (":S(5)", "negate(%a)", _FUSION, "0.10.2", False),
        (":S(5)", _UPDATE, "dynamic-update-slice(%b, %v, %j)", "0.10.2", False),
    ],
)
def test_a_start_that_writes_a_slice_to_the_host(
    space: str, inner: str, outer: str, xla: str, expected: bool
) -> None:
    module = hlo_passes.parse(UPDATES.format(space=space, inner=inner, outer=outer))
    tracker = make_tracker(SchedulerSettings(xla=xla))
    assert tracker.writes_slice_to_host(named(module, "s")) == expected
    assert not tracker.writes_slice_to_host(named(module, "d"))
    bare = make_tracker(SchedulerSettings.generic())
    assert not bare.writes_slice_to_host(named(module, "s"))


def test_the_generic_flavour_has_no_resource_of_a_special_kind() -> None:
    bare = make_tracker(SchedulerSettings.generic(enable_selective_memcpy_overlap=True))
    for resource in Resource:
        assert not bare.is_selective(resource)
        assert not bare.is_serial(resource)
        assert not bare.is_nonextendable(resource)
    gpu = make_tracker(SchedulerSettings(enable_selective_memcpy_overlap=True))
    assert {r for r in Resource if gpu.is_selective(r)} == {Resource.GPU_MEMCPY}
    gpu = make_tracker(SchedulerSettings())
    assert not any(map(gpu.is_selective, Resource))


# -- what hides a copy inside the GPU -----------------------------------------------

_TIMES = '"reification_cost":[{"compute_time_us":%s,"memory_access_time_us":%s}]'
KERNELS = {
    "dot": ("dot(%p, %p), lhs_contracting_dims={1}, rhs_contracting_dims={0}", False),
    "add": ("add(%p, %p)", True),
    "bitcast": ("bitcast(%p)", False),
    "call": ("call(%p), to_apply=%negated", False),
    "fusion of a dot": ("fusion(%p), kind=kOutput, calls=%matmul", False),
    "fusion": ("fusion(%p), kind=kLoop, calls=%negated", True),
    "cuDNN fusion": (
        'fusion(%p), kind=kCustom, calls=%negated, backend_config={"fusion_backend_config":'
        '{"kind":"__cudnn$fusion"}}', False,
    ),
    "other custom fusion": (
        'fusion(%p), kind=kCustom, calls=%negated, backend_config={"fusion_backend_config":'
        '{"kind":"__custom_fusion"}}', True,
    ),
    "a loop fusion that says cuDNN": (
        'fusion(%p), kind=kLoop, calls=%negated, backend_config={"fusion_backend_config":'
        '{"kind":"__cudnn$fusion"}}', True,
    ),
    "map of a dot": ("map(%p, %p), dimensions={0,1}, to_apply=%scalar_dot", True),
    "gemm": ('custom-call(%p), custom_call_target="__cublas$gemm"', False),
    "lt matmul": ('custom-call(%p), custom_call_target="__cublas$lt$matmul$f8"', False),
    "convolution": ('custom-call(%p), custom_call_target="__cudnn$convForward"', False),
    "reordering": (
        'custom-call(%p), custom_call_target="__cudnn$convReorderFilter"', True
    ),
    "other call": ('custom-call(%p), custom_call_target="mine"', True),
    "start": (
        "all-reduce-start(%p), replica_groups={{0,1}}, to_apply=%add", False
    ),
    "synchronous start": (
        "all-reduce-start(%p), replica_groups={{0,1}}, to_apply=%add, "
        'backend_config={"collective_backend_config":{"is_sync":true}}', True,
    ),
    "compute by its times": (
        f"add(%p, %p), backend_config={{{_TIMES % (2, 1)}}}", False
    ),
    "memory by its times": (
        "dot(%p, %p), lhs_contracting_dims={1}, rhs_contracting_dims={0}, "
        f"backend_config={{{_TIMES % (1, 2)}}}", True,
    ),
    "equal times": (f"add(%p, %p), backend_config={{{_TIMES % (2, 2)}}}", False),
    "no time for compute": (
        "dot(%p, %p), lhs_contracting_dims={1}, rhs_contracting_dims={0}, "
        f"backend_config={{{_TIMES % (0, 2)}}}", True,
    ),
    "no time for memory": (f"add(%p, %p), backend_config={{{_TIMES % (2, 0)}}}", False),
    "no times": (f"add(%p, %p), backend_config={{{_TIMES % (0, 0)}}}", True),
    "negative time": (f"add(%p, %p), backend_config={{{_TIMES % (5, -1)}}}", True),
    "negative compute": (
        "dot(%p, %p), lhs_contracting_dims={1}, rhs_contracting_dims={0}, "
        f"backend_config={{{_TIMES % (-1, 5)}}}", False,
    ),
    "the second times count if the first do not": (
        "add(%p, %p), backend_config={\"reification_cost\":[{\"compute_time_us\":0,"
        '"memory_access_time_us":0},{"compute_time_us":3,"memory_access_time_us":1}]}',
        False,
    ),
    "a config that XLA cannot read does not count": (
        'add(%p, %p), backend_config={"reification_cost":["none",'
        '{"compute_time_us":3,"memory_access_time_us":1}]}', True,
    ),
    "endless times do not count": (
        'add(%p, %p), backend_config={"reification_cost":[{"compute_time_us":1e999},'
        '{"compute_time_us":3,"memory_access_time_us":1}]}', False,
    ),
    "compute is all that is known": (
        'add(%p, %p), backend_config={"reification_cost":[{"compute_time_us":0.5}]}',
        False,
    ),
    "memory is all that is known": (
        "dot(%p, %p), lhs_contracting_dims={1}, rhs_contracting_dims={0}, "
        'backend_config={"reification_cost":[{"memory_access_time_us":0.5}]}', True,
    ),
    "endless time": (
        f"add(%p, %p), backend_config={{{_TIMES % ('1e999', 1)}}}", True
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", KERNELS)
def test_what_memory_bounds(case: str) -> None:
    """XLA's IsMemoryBoundKernel: its own times first, then the opcode."""
    text, expected = KERNELS[case]
    module = hlo_passes.parse(f"""HloModule m, is_scheduled=true, num_partitions=2

%add (x: f32[], y: f32[]) -> f32[] {{
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(%x, %y)
}}
%scalar_dot (v: f32[], w: f32[]) -> f32[] {{
  %v = f32[] parameter(0)
  %w = f32[] parameter(1)
  ROOT %d = f32[] dot(%v, %w)
}}
%negated (a: f32[8,8]) -> f32[8,8] {{
  %a = f32[8,8]{{1,0}} parameter(0)
  ROOT %n = f32[8,8]{{1,0}} negate(%a)
}}
%matmul (b: f32[8,8]) -> f32[8,8] {{
  %b = f32[8,8]{{1,0}} parameter(0)
  ROOT %m = f32[8,8]{{1,0}} dot(%b, %b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}

ENTRY %main (p: f32[8,8]) -> f32[8,8] {{
  %p = f32[8,8]{{1,0}} parameter(0)
  %k = f32[8,8]{{1,0}} {text}
  ROOT %r = f32[8,8]{{1,0}} negate(%p)
}}
""")
    tracker = make_tracker(SchedulerSettings())
    assert is_memory_bound(named(module, "k"), tracker) == expected
