"""Streams: by turns as XLA's runtime, what wins over turns, and the guard's law."""

from __future__ import annotations

import gzip
import itertools
import json
import pathlib
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hlo_passes
from hlo_passes.analysis.reachability import reaches
from hlo_passes.scheduler.passes.device_groups import DeviceGroups
from hlo_passes.scheduler.passes.streams import (
    DEFAULT_STREAM,
    Stream,
    assign_streams,
    stream_of,
)
from hlo_passes.xla_release import xla_release
from tests.modules import REPOSITORY

GOLDEN = REPOSITORY / "corpus" / "golden"
HERE = pathlib.Path(__file__).resolve().parent
#: Folder of corpus/golden -> communication streams -> start -> stream, from the log of
#: XLA compiling that input (module execution_stream_assignment, level 3; two streams:
#: xla_gpu_experimental_enable_collective_multi_streaming).
RECORDED = json.loads((HERE / "xla_streams.json").read_text())
STAGES = ("gpu-convert-async-collectives-to-sync", "latency-hiding-scheduler")

ADD = """%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}
"""


def golden_module(folder: str) -> hlo_passes.Module:
    """What XLA had after the scheduler."""
    files = [GOLDEN / folder / f"{stage}.after.hlo.gz" for stage in STAGES]
    file = next(f for f in files if f.exists())
    return hlo_passes.parse(gzip.decompress(file.read_bytes()).decode())


@pytest.mark.parametrize("folder", sorted(RECORDED))
def test_streams_are_xlas(folder: str) -> None:
    release = xla_release(folder.partition("/")[0])
    for streams, expected in RECORDED[folder].items():
        assigned = assign_streams(
            golden_module(folder),
            communication_streams=int(streams),
            release=release,
        )
        mine = {start.name: str(s) for start, s in assigned.scopes.items()}
        assert mine == expected
        assert not assigned.moved
        for start in assigned.synchronous:
            assert assigned[start] == DEFAULT_STREAM


def flying(pairs: int, groups: str, order: str = "starts first") -> hlo_passes.Module:
    """A scheduled module of all-reduces, all in flight together or one by one."""
    group = itertools.cycle(groups.split(" "))
    starts = [
        f"%go{k} = f32[8]{{0}} all-reduce-start(%x), channel_id={k + 1}, "
        f"replica_groups={next(group)}, use_global_device_ids=true, to_apply=%add"
        for k in range(pairs)
    ]
    dones = [f"%d{k} = f32[8]{{0}} all-reduce-done(%go{k})" for k in range(pairs)]
    lines = (
        [*starts, *dones]
        if order == "starts first"
        else [line for pair in zip(starts, dones, strict=True) for line in pair]
    )
    shape = ", ".join(["f32[8]{0}"] * pairs)
    values = ", ".join(f"%d{k}" for k in range(pairs))
    body = "\n  ".join(lines)
    return hlo_passes.parse(
        f"HloModule m, is_scheduled=true, num_partitions=4\n\n{ADD}\n"
        f"ENTRY %main (x: f32[8]) -> ({shape.replace('{0}', '')}) {{\n"
        f"  %x = f32[8]{{0}} parameter(0)\n  {body}\n"
        f"  ROOT %t = ({shape}) tuple({values})\n}}\n"
    )


@pytest.mark.parametrize("streams", [1, 2, 4])
def test_many_collectives_take_turns(streams: int) -> None:
    assigned = assign_streams(
        flying(40, "{{0,1,2,3}}", "one by one"), communication_streams=streams
    )
    numbers = [stream.number for stream in assigned.values()]
    assert numbers == [k % streams for k in range(40)]
    assert {stream.kind for stream in assigned.values()} == {"communication"}
    assert not assigned.moved


def test_the_guard_keeps_a_class_together_and_lets_others_go() -> None:
    module = flying(6, "{{0,1},{2,3}} {{0,2},{1,3}}")
    assigned = assign_streams(module, communication_streams=3)
    by_groups = [stream.number for stream in assigned.values()]
    assert by_groups == [0, 1, 0, 1, 0, 1]
    assert [m.start.name for m in assigned.moved] == ["go2", "go3", "go4", "go5"]
    assert all(len(m.shared) == 2 for m in assigned.moved)
    loose = assign_streams(module, communication_streams=3, guard=False)
    assert [stream.number for stream in loose.values()] == [0, 1, 2, 0, 1, 2]


def test_dones_and_insides_are_where_their_start_is() -> None:
    module = hlo_passes.parse("""HloModule m, is_scheduled=true

%fused (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  ROOT %n = f32[8]{0} negate(%p)
}, execution_thread="parallel"

%wrapped (q: f32[8]) -> f32[8] {
  %q = f32[8]{0} parameter(0)
  ROOT %f = f32[8]{0} fusion(%q), kind=kLoop, calls=%fused
}, execution_thread="parallel"

ENTRY %main (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  %a = ((f32[8]{0}), f32[8]{0}) async-start(%x), async_execution_thread="parallel", calls=%wrapped
  %b = f32[8]{0} sine(%x)
  %d = f32[8]{0} async-done(%a)
  ROOT %r = f32[8]{0} add(%b, %d)
}
""")
    assigned = assign_streams(module)
    stream = Stream("compute", 0)
    for name in ("main:a", "main:d", "wrapped:f", "fused:n"):
        computation, _, wanted = name.partition(":")
        owner = module.computation(computation)
        assert owner is not None
        found = owner.find(wanted)
        assert found is not None
        assert assigned.of(found) == stream
    assert assigned.of(module.entry.root) == DEFAULT_STREAM


def loop_module(attribute: str) -> hlo_passes.Module:
    """A permute in flight around a loop whose body has an all-reduce of its own."""
    return hlo_passes.parse(f"""HloModule m, is_scheduled=true, num_partitions=4

{ADD}
%cond (p: (s32[], f32[8])) -> pred[] {{
  %p = (s32[], f32[8]{{0}}) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %n = s32[] constant(10)
  ROOT %c = pred[] compare(%i, %n), direction=LT
}}

%body (q: (s32[], f32[8])) -> (s32[], f32[8]) {{
  %q = (s32[], f32[8]{{0}}) parameter(0)
  %j = s32[] get-tuple-element(%q), index=0
  %v = f32[8]{{0}} get-tuple-element(%q), index=1
  %one = s32[] constant(1)
  %k = s32[] add(%j, %one)
  %inner = f32[8]{{0}} all-reduce-start(%v), channel_id=1, replica_groups={{{{0,1,2,3}}}}, use_global_device_ids=true, to_apply=%add
  %w = f32[8]{{0}} all-reduce-done(%inner)
  ROOT %r = (s32[], f32[8]{{0}}) tuple(%k, %w)
}}

ENTRY %main (x: f32[8], z: s32[]) -> (f32[8], f32[8]) {{
  %x = f32[8]{{0}} parameter(0)
  %z = s32[] parameter(1)
  %outer = f32[8]{{0}} all-reduce-start(%x), channel_id=2, replica_groups={{{{0,1,2,3}}}}, use_global_device_ids=true, to_apply=%add{attribute}
  %t = (s32[], f32[8]{{0}}) tuple(%z, %x)
  %l = (s32[], f32[8]{{0}}) while(%t), condition=%cond, body=%body
  %d = f32[8]{{0}} all-reduce-done(%outer)
  %g = f32[8]{{0}} get-tuple-element(%l), index=1
  ROOT %o = (f32[8]{{0}}, f32[8]{{0}}) tuple(%d, %g)
}}
""")


def test_the_guard_looks_into_loops() -> None:
    assigned = assign_streams(loop_module(""), communication_streams=2)
    assert {s.name: v.number for s, v in assigned.items()} == {"outer": 0, "inner": 0}
    (moved,) = assigned.moved
    assert moved.start.name == "inner"
    assert moved.beside.name == "outer"


def test_an_annotation_draws_the_others_along() -> None:
    annotated = ', frontend_attributes={_xla_stream_annotation="3"}'
    assigned = assign_streams(loop_module(annotated), communication_streams=2)
    assert {s.name: v.number for s, v in assigned.items()} == {"outer": 3, "inner": 3}


def test_what_is_called_twice_takes_its_turns_twice() -> None:
    """XLA's way with modules that are not flat: the first stream stays."""
    module = hlo_passes.parse(f"""HloModule m, num_partitions=4

{ADD}
%callee (p: f32[8]) -> f32[8] {{
  %p = f32[8]{{0}} parameter(0)
  %go = f32[8]{{0}} all-reduce-start(%p), channel_id=1, replica_groups={{{{0,1,2,3}}}}, use_global_device_ids=true, to_apply=%add
  ROOT %d = f32[8]{{0}} all-reduce-done(%go)
}}

%last (q: f32[8]) -> f32[8] {{
  %q = f32[8]{{0}} parameter(0)
  %end = f32[8]{{0}} all-reduce-start(%q), channel_id=2, replica_groups={{{{0,1,2,3}}}}, use_global_device_ids=true, to_apply=%add
  ROOT %e = f32[8]{{0}} all-reduce-done(%end)
}}

ENTRY %main (x: f32[8]) -> f32[8] {{
  %x = f32[8]{{0}} parameter(0)
  %c1 = f32[8]{{0}} call(%x), to_apply=%callee
  %c2 = f32[8]{{0}} call(%c1), to_apply=%callee
  ROOT %c3 = f32[8]{{0}} call(%c2), to_apply=%last
}}
""")
    assigned = assign_streams(module, communication_streams=3)
    assert {s.name: v.number for s, v in assigned.items()} == {"go": 0, "end": 2}


@pytest.mark.parametrize(
    ("text", "stream"),
    [
        ("default", DEFAULT_STREAM),
        ("compute 2", Stream("compute", 2)),
        ("communication_stream[1]", Stream("communication", 1)),
        ("computation_stream[3]", Stream("compute", 3)),
        ("kCollective", Stream("communication", 0)),
        ("ASYNC_STREAM_KIND_P2P0", Stream("communication", 1)),
        ("P2P1", Stream("communication", 2)),
        ("kMemCpyP2P", Stream("communication", 3)),
        ("memcpy_d2h_stream", Stream("memcpy-d2h")),
        ("memcpy-h2d", Stream("memcpy-h2d")),
    ],
)
def test_streams_are_read_in_all_spellings(text: str, stream: Stream) -> None:
    assert Stream.parse(text) == stream
    assert Stream.parse(str(stream)) == stream


@pytest.mark.parametrize("text", ["", "left", "compute", "compute -1", "default 1"])
def test_other_words_are_no_streams(text: str) -> None:
    with pytest.raises(hlo_passes.ParseError, match="is not a stream"):
        Stream.parse(text)


@given(st.sampled_from(["compute", "communication"]), st.integers(0, 9))
def test_queue_ids_are_read_back(kind: str, number: int) -> None:
    stream = Stream(kind, number)  # type: ignore[arg-type]
    assert Stream.of_queue_id(stream.queue_id(4), stream.kind, 4) == stream
    assert stream.queue_id(4) != 0


def test_what_is_written_is_read_back() -> None:
    module = flying(5, "{{0,1},{2,3}} {{0,2},{1,3}}")
    assigned = assign_streams(module, communication_streams=2)
    for annotate in ("none", "all"):
        copy = module.clone()
        hlo_passes.Pipeline.parse(
            "execution-stream-assignment{number-of-communication-streams=2,"
            f"annotate={annotate}}}"
        ).run(copy)
        for start, stream in assigned.items():
            written = copy.entry.find(start.name)
            assert written is not None
            assert stream_of(written) == stream
            done = written.users[0]
            assert stream_of(done) == stream
    assert [stream_of(start) for start in assigned] == [None] * 5


def test_copies_to_and_from_the_host_have_streams_of_their_own_in_0_12() -> None:
    module = hlo_passes.parse("""HloModule m, is_scheduled=true

ENTRY %main (x: f32[8], y: f32[8], z: f32[8]) -> (f32[8], f32[8], f32[8]) {
  %x = f32[8]{0} parameter(0)
  %y = f32[8]{0:S(5)} parameter(1)
  %z = f32[8]{0} parameter(2)
  %out = (f32[8]{0:S(5)}, f32[8]{0}, u32[]) copy-start(%x)
  %in = (f32[8]{0}, f32[8]{0:S(5)}, u32[]) copy-start(%y)
  %on = (f32[8]{0}, f32[8]{0}, u32[]) copy-start(%z), backend_config={"operation_queue_id":"9"}
  %d1 = f32[8]{0:S(5)} copy-done(%out)
  %d2 = f32[8]{0} copy-done(%in)
  %d3 = f32[8]{0} copy-done(%on)
  ROOT %t = (f32[8]{0:S(5)}, f32[8]{0}, f32[8]{0}) tuple(%d1, %d2, %d3)
}
""")
    old = {s.name: str(v) for s, v in assign_streams(module).items()}
    assert old == {"out": "compute 0", "in": "compute 1", "on": "compute 2"}
    assigned = assign_streams(module, release=xla_release("0.12"))
    new = {s.name: str(v) for s, v in assigned.items()}
    assert new == {"out": "memcpy-d2h", "in": "memcpy-h2d", "on": "compute 0"}
    assert next(iter(assigned.values())).queue_id() is None
    on = module.entry.find("on")
    assert on is not None
    assert stream_of(on) is None  # a mark that XLA writes, no stream
    result = hlo_passes.Pipeline.parse(
        "execution-stream-assignment{xla=0.12,annotate=all}"
    ).run(module)
    assert result.passes[0].statistics == {
        "on-memcpy-d2h": 1, "on-memcpy-h2d": 1, "on-compute-0": 1,
        "starts-annotated": 1,
    }  # fmt: skip


@pytest.mark.parametrize("text", ["-1", "one", "1.5", "4294967296"])
def test_a_bad_annotation_is_refused_with_its_place(text: str) -> None:
    module = loop_module(f', frontend_attributes={{_xla_stream_annotation="{text}"}}')
    with pytest.raises(hlo_passes.PassError, match="is not a stream") as refused:
        assign_streams(module)
    assert refused.value.code == "E020"
    assert refused.value.location is not None


def test_no_streams_at_all_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        assign_streams(flying(1, "{{0,1}}"), communication_streams=0)
    with pytest.raises(hlo_passes.PipelineSpecError, match="at least 1"):
        hlo_passes.Pipeline.parse(
            "execution-stream-assignment{number-of-compute-streams=0}"
        )


# -- the guard's law -----------------------------------------------------------

GROUPS = ("{{0,1},{2,3}}", "{{0,2},{1,3}}", "{{0,3},{1,2}}", "{{0,1,2,3}}", "{}")


def random_flight(seed: int, *, scheduled: bool) -> hlo_passes.Module:
    """Collectives in random order, some read by others, with random groups."""
    rng = random.Random(seed)
    pairs = rng.randint(2, 7)
    lines: list[str] = []
    waiting = list(range(pairs))
    ready = ["x"]
    open_pairs: list[int] = []
    while waiting or open_pairs:
        if open_pairs and (not waiting or rng.random() < 0.5):
            k = open_pairs.pop(rng.randrange(len(open_pairs)))
            lines.append(f"%d{k} = f32[8]{{0}} all-reduce-done(%go{k})")
            ready.append(f"d{k}")
        else:
            k = waiting.pop(0)
            group = rng.choice(GROUPS)
            channel = f"channel_id={k + 1}, replica_groups={group}"
            if group != "{}":
                channel += ", use_global_device_ids=true"
            lines.append(
                f"%go{k} = f32[8]{{0}} all-reduce-start(%{rng.choice(ready)}), "
                f"{channel}, to_apply=%add"
            )
            open_pairs.append(k)
    body = "\n  ".join(lines)
    shape = ", ".join(["f32[8]{0}"] * pairs)
    values = ", ".join(f"%d{k}" for k in range(pairs))
    head = "is_scheduled=true, " if scheduled else ""
    return hlo_passes.parse(
        f"HloModule m, {head}num_partitions=4\n\n{ADD}\n"
        f"ENTRY %main (x: f32[8]) -> ({shape.replace('{0}', '')}) {{\n"
        f"  %x = f32[8]{{0}} parameter(0)\n  {body}\n"
        f"  ROOT %t = ({shape}) tuple({values})\n}}\n"
    )


@given(st.integers(0, 10**6), st.booleans(), st.integers(1, 4))
def test_no_two_that_could_wait_in_a_cycle_are_on_two_streams(
    seed: int, scheduled: bool, streams: int
) -> None:
    module = random_flight(seed, scheduled=scheduled)
    assigned = assign_streams(module, communication_streams=streams)
    groups = DeviceGroups(module)
    place = {i: k for k, i in enumerate(module.entry.instructions)}
    done = {start: start.users[0] for start in assigned}

    def ordered(one: hlo_passes.Instruction, other: hlo_passes.Instruction) -> bool:
        if scheduled:
            return place[done[one]] < place[other]
        return reaches(done[one], other)

    clashing = [
        (one, other)
        for one, other in itertools.combinations(assigned, 2)
        if not ordered(one, other)
        and not ordered(other, one)
        and groups.shared(groups.of_start(one), groups.of_start(other)) != ()
    ]
    for one, other in clashing:
        assert assigned[one] == assigned[other]
    # Nothing else moves: what clashes with nothing keeps its turn.
    loose = assign_streams(module, communication_streams=streams, guard=False)
    in_clash = {i for pair in clashing for i in pair}
    for start in set(assigned) - in_clash:
        assert assigned[start] == loose[start]
    assert {m.start for m in assigned.moved} <= in_clash


def test_remarks_name_who_and_what_is_shared() -> None:
    assigned = assign_streams(loop_module(""), communication_streams=2)
    (moved,) = assigned.moved
    assert re.fullmatch(
        r"moved: %inner from communication 1 to communication 0, since %inner and "
        r"%outer run at the same time and share 0, 1, 2, 3 and could wait for each "
        r"other in a cycle",
        moved.to_text(),
    )
