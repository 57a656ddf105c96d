"""Resources and support by kind, memory while placing, the heap that goes stale."""

from __future__ import annotations

import heapq

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hlo_passes
from hlo_passes.scheduler.latency_hiding.gpu_tracker import make_tracker
from hlo_passes.scheduler.latency_hiding.in_flight import groups_of, most_shared_ranks
from hlo_passes.scheduler.latency_hiding.pressure_track import PressureTrack
from hlo_passes.scheduler.latency_hiding.resources import Resource, Usage
from hlo_passes.scheduler.latency_hiding.settings import SchedulerSettings
from hlo_passes.scheduler.latency_hiding.tracker import runs_on_another_thread
from hlo_passes.scheduler.latency_hiding.waiting_times import StaleHeap, WaitingTimes
from hlo_passes.scheduler.memory.pressure import ModuleMemory, PressureState
from tests.scheduler.latency_hiding.random_scenes import RandomScene, random_scenes

HEAD = "HloModule m, is_scheduled=true, num_partitions=2\n\n"
#: Bodies that starts wrap.
BODIES = """%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(%x, %y)
}
%scatter (a: f32[8]) -> f32[4] {
  %a = f32[8]{0} parameter(0)
  ROOT %rs = f32[4]{0} reduce-scatter(%a), replica_groups={{0,1}}, dimensions={0}, to_apply=%add
}
%work (b: f32[8]) -> f32[8] {
  %b = f32[8]{0} parameter(0)
  ROOT %n = f32[8]{0} negate(%b)
}
%thread (c: f32[8]) -> f32[8] {
  %c = f32[8]{0} parameter(0)
  ROOT %n.1 = f32[8]{0} negate(%c)
}, execution_thread="parallel"
%group (d: f32[8]) -> f32[8] {
  %d = f32[8]{0} parameter(0)
  ROOT %ar = f32[8]{0} all-reduce(%d), replica_groups={{0,1}}, to_apply=%add
}
"""
PLAIN = "f32[8]{0}"
START = f"(({PLAIN}), {PLAIN})"
SYNC = ', backend_config={"collective_backend_config":{"is_sync":true}}'
CASES = {
    "all-reduce": (
        PLAIN, "all-reduce-start(%p), replica_groups={{0,1}}, to_apply=%add",
        "all-reduce-done", Resource.GPU_COLLECTIVES, Resource.ALL_REDUCE, True,
    ),
    "synchronous all-reduce": (
        PLAIN, f"all-reduce-start(%p), replica_groups={{{{0,1}}}}, to_apply=%add{SYNC}",
        "all-reduce-done", Resource.GPU_COLLECTIVES, Resource.ALL_REDUCE, False,
    ),
    "permute on the p2p stream": (
        f"({PLAIN}, {PLAIN}, u32[], u32[])",
        "collective-permute-start(%p), source_target_pairs={{0,1}}, "
        'frontend_attributes={_xla_gpu_collective_stream="p2p"}',
        "collective-permute-done", Resource.GPU_COLLECTIVES_P2P,
        Resource.COLLECTIVE_PERMUTE, True,
    ),
    "copy": (
        f"({PLAIN}, {PLAIN}, u32[])", "copy-start(%p)", "copy-done",
        Resource.GPU_COMPUTES, Resource.COPY, True,
    ),
    "wrapped reduce-scatter": (
        f"(({PLAIN}), f32[4]{{0}})", "async-start(%p), calls=%scatter", "async-done",
        Resource.GPU_COLLECTIVES, Resource.REDUCE_SCATTER, True,
    ),
    "wrapped work": (
        START, "async-start(%p), calls=%work", "async-done",
        Resource.GPU_COMPUTES, None, False,
    ),
    "work on the collective stream": (
        START, "async-start(%p), calls=%work, "
        'frontend_attributes={_xla_stream_annotation="Collective"}', "async-done",
        Resource.GPU_COLLECTIVES, None, False,
    ),
    "work on a thread": (
        START, 'async-start(%p), async_execution_thread="parallel", calls=%thread',
        "async-done", Resource.GPU_COMPUTES, None, True,
    ),
    "explicit group": (
        START, "async-start(%p), calls=%group, "
        'frontend_attributes={_collectives_group=""}', "async-done",
        Resource.GPU_COLLECTIVES, Resource.ALL_REDUCE, True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_who_holds_what(case: str) -> None:
    shape, text, done, on_gpu, generic, supported = CASES[case]
    result = "f32[4]{0}" if "f32[4]" in shape else PLAIN
    if 'thread="parallel"' in text:
        done_text = f'{done}(%s), async_execution_thread="parallel"'
    else:
        done_text = f"{done}(%s)"
    if case == "work on the collective stream":
        # The done needs the annotation too: XLA asks each half for its own.
        done_text += ', frontend_attributes={_xla_stream_annotation="collective"}'
    module = hlo_passes.parse(
        f"{HEAD}{BODIES}ENTRY %main (p: f32[8]) -> {result[:6]} {{\n"
        f"  %p = {PLAIN} parameter(0)\n  %s = {shape} {text}\n"
        f"  ROOT %d = {result} {done_text}\n}}\n"
    )
    start, end = module.entry.instructions[1:]
    gpu = make_tracker(SchedulerSettings())
    assert gpu.resources(start) == ((on_gpu, Usage.RELEASE),)
    assert gpu.resources(end) == ((on_gpu, Usage.OCCUPY),)
    assert gpu.is_supported_start(start) == gpu.is_supported_done(end) == supported
    assert gpu.instances_needed(end) == {on_gpu: 1}
    assert not gpu.is_supported_done(start)
    bare = make_tracker(SchedulerSettings.generic())
    wanted = () if generic is None else ((generic, Usage.OCCUPY),)
    if case != "explicit group":
        assert bare.resources(end) == wanted
    swapped = make_tracker(SchedulerSettings.generic(top_down_scheduling=True))
    if generic is not None:
        assert swapped.resources(start) == ((generic, Usage.OCCUPY),)


@pytest.mark.parametrize(
    ("body", "attribute", "expected"),
    [
        ("work", "", False),
        ("work", ', async_execution_thread="main"', False),
        ("thread", "", True),
        ("thread", ', async_execution_thread="parallel"', True),
    ],
)
def test_a_half_runs_on_the_thread_of_what_it_wraps(
    body: str, attribute: str, expected: bool
) -> None:
    """Where no attribute names one."""
    module = hlo_passes.parse(
        f"{HEAD}{BODIES}ENTRY %main (p: f32[8]) -> f32[8] {{\n"
        f"  %p = {PLAIN} parameter(0)\n"
        f"  %s = {START} async-start(%p), calls=%{body}{attribute}\n"
        f"  ROOT %d = {PLAIN} async-done(%s){attribute}\n}}\n"
    )
    for half in module.entry.instructions[1:]:
        assert runs_on_another_thread(half) is expected


@pytest.mark.parametrize(
    ("opcode", "pipeline", "resource"),
    [
        ("send", "0", Resource.GPU_SEND_0),
        ("send", "1", Resource.GPU_SEND_1),
        ("recv", "", Resource.GPU_RECV_0),
        ("recv", "1", Resource.GPU_RECV_1),
    ],
)
def test_transfers(opcode: str, pipeline: str, resource: Resource) -> None:
    attribute = (
        f', frontend_attributes={{_xla_send_recv_pipeline="{pipeline}"}}'
        if pipeline
        else ""
    )
    operands = "%p, %t" if opcode == "send" else "%t"
    host = ", is_host_transfer=true"
    module = hlo_passes.parse(
        f"{HEAD}ENTRY %main (p: f32[8]) -> token[] {{\n"
        f"  %p = {PLAIN} parameter(0)\n  %t = token[] after-all()\n"
        f"  %s = ({PLAIN}, u32[], token[]) {opcode}({operands}), channel_id=1{attribute}\n"
        f"  %h = ({PLAIN}, u32[], token[]) {opcode}({operands}), channel_id=2{host}\n"
        "  ROOT %u = token[] after-all()\n}\n"
    )
    token, plain, on_host = module.entry.instructions[1:4]
    gpu = make_tracker(SchedulerSettings())
    assert gpu.resources(plain) == ((resource, Usage.RELEASE),)
    assert gpu.resources(token) == ((Resource.SEND_HOST, Usage.NONE),)
    bare = make_tracker(SchedulerSettings.generic())
    assert bare.resources(plain) == ((Resource.SEND_RECV, Usage.RELEASE),)
    wanted = Resource.SEND_HOST if opcode == "send" else Resource.RECV_HOST
    assert bare.resources(on_host) == ((wanted, Usage.RELEASE),)
    assert not bare.is_supported_start(plain)
    one = SchedulerSettings.generic(force_send_recv_to_use_same_resource=True)
    assert make_tracker(one).resources(on_host) == (
        (Resource.SEND_HOST, Usage.RELEASE),
    )


def test_groups_that_clash() -> None:
    rows, columns = ((0, 1), (2, 3)), ((0, 2), (1, 3))
    assert most_shared_ranks(rows, rows) == 2
    assert most_shared_ranks(rows, columns) == 1
    assert most_shared_ranks(rows, ((4, 5),)) == 0


def test_groups_of_starts() -> None:
    module = hlo_passes.parse(
        f"{HEAD}{BODIES}ENTRY %main (p: f32[8]) -> f32[8] {{\n"
        f"  %p = {PLAIN} parameter(0)\n"
        f"  %s = ({PLAIN}, {PLAIN}, u32[], u32[]) collective-permute-start(%p), "
        "source_target_pairs={{0,1},{1,0}}\n"
        f"  %g = {START} async-start(%p), calls=%group, "
        'frontend_attributes={_collectives_group=""}\n'
        f"  %w = {START} async-start(%p), calls=%work\n"
        f"  ROOT %d = {PLAIN} collective-permute-done(%s)\n}}\n"
    )
    permute, group, work = module.entry.instructions[1:4]
    assert groups_of(permute) == ((0, 1), (1, 0))
    assert groups_of(group) == ((0, 1),)
    assert groups_of(work) is None


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        (("{{0,1}}", "{{2,3}}"), ((0, 1), (2, 3))),
        (("{{0,1}}", "{}"), ()),
        (("{}", "{{2,3}}"), ()),
    ],
)
def test_a_group_connects_what_its_members_connect(
    groups: tuple[str, str], expected: tuple[tuple[int, ...], ...]
) -> None:
    """One member of all ranks makes the group one of all ranks."""
    one, other = groups
    module = hlo_passes.parse(f"""HloModule m, num_partitions=4

%group {{
  %a = f32[8] parameter(0)
  %x = f32[8] all-to-all(%a), replica_groups={one}, dimensions={{0}}
  %n = f32[8] negate(%a)
  %y = f32[8] all-to-all(%n), replica_groups={other}, dimensions={{0}}
  ROOT %t = (f32[8], f32[8]) tuple(%x, %y)
}}

ENTRY %main {{
  %p = f32[8] parameter(0)
  %s = ((f32[8]), (f32[8], f32[8]), u32[]) async-start(%p), calls=%group, frontend_attributes={{_collectives_group=""}}
  ROOT %d = (f32[8], f32[8]) async-done(%s)
}}
""")
    assert groups_of(module.entry.instructions[1]) == expected


@pytest.mark.parametrize(
    ("member", "expected"),
    [
        ("%s = ((f32[8]), f32[8]) async-start(%a), calls=%exchange", ((0, 1), (2, 3))),
        ("%s = ((f32[8]), f32[8]) async-start(%a), calls=%work", None),
    ],
)
def test_a_group_connects_what_its_generic_starts_wrap(
    member: str, expected: tuple[tuple[int, ...], ...] | None
) -> None:
    module = hlo_passes.parse(f"""HloModule m, num_partitions=4

%exchange {{
  %b = f32[8] parameter(0)
  ROOT %x = f32[8] all-to-all(%b), replica_groups={{{{0,1}},{{2,3}}}}, dimensions={{0}}
}}

%work {{
  %c = f32[8] parameter(0)
  ROOT %n = f32[8] negate(%c)
}}

%group {{
  %a = f32[8] parameter(0)
  {member}
  ROOT %d = f32[8] async-done(%s)
}}

ENTRY %main {{
  %p = f32[8] parameter(0)
  %g = ((f32[8]), f32[8], u32[]) async-start(%p), calls=%group, frontend_attributes={{_collectives_group=""}}
  ROOT %e = f32[8] async-done(%g)
}}
""")
    assert groups_of(module.entry.instructions[1]) == expected


def test_what_a_callee_needs_only_raises_the_peak() -> None:
    """At the call 32 bytes of the callee count, after it 64 of the caller."""
    module = hlo_passes.parse("""HloModule m, is_scheduled=true

%f {
  %a = f32[2] parameter(0)
  %b = f32[8] broadcast(%a), dimensions={0}
  ROOT %c = f32[2] slice(%b), slice={[0:2]}
}

ENTRY %main {
  %p = f32[2] parameter(0)
  %k = f32[2] call(%p), to_apply=%f
  %l = f32[16] broadcast(%k), dimensions={0}
  ROOT %r = f32[2] slice(%l), slice={[0:2]}
}
""")
    tables = ModuleMemory(module).of(module.entry)
    track, state = PressureTrack(tables, {}), PressureState(tables)
    for n in reversed(range(len(tables.order))):
        track.place(n)
        state.place(n)
        assert track.peak_delta_bytes == state.peak_delta_bytes
    assert track.peak_delta_bytes == 64 + 8


@given(random_scenes(30))
def test_memory_kept_up_to_date_is_memory_summed(made: RandomScene) -> None:
    module = hlo_passes.parse(made.scene.text())
    tables = ModuleMemory(module).of(module.entry)
    track, state = PressureTrack(tables, {}), PressureState(tables)
    for placed, n in enumerate(reversed(range(len(tables.order)))):
        if placed >= 3:  # the first question may come late
            for other in range(len(tables.order)):
                told = track.increases[other], track.peaks[other]
                assert told == state.query(other)
        track.place(n)
        state.place(n)
        assert track.usage_bytes == state.usage_bytes
        assert track.peak_delta_bytes == state.peak_delta_bytes


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20)), max_size=60))
def test_both_heaps_agree_while_no_time_changes(steps: list[tuple[int, int]]) -> None:
    times: list[float] = []
    plain, stale = WaitingTimes(times), StaleHeap(times)
    model: list[int] = []
    for what, value in steps:
        if what:
            times.append(float(value))
            plain.push(len(times) - 1)
            stale.push(len(times) - 1)
            heapq.heappush(model, value)
        else:
            plain.drop_before(value)
            stale.drop_before(value)
            while model and model[0] < value:
                heapq.heappop(model)
        top = float(model[0]) if model else None
        assert plain.top() == stale.top() == top
