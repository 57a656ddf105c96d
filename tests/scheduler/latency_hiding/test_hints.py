"""Which nodes go early or late by a hint, and what else a graph records of its nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hlo_passes.scheduler.latency_hiding.classes import Classes
from hlo_passes.scheduler.latency_hiding.columns import Columns
from hlo_passes.scheduler.latency_hiding.graph import ScheduleGraph
from hlo_passes.scheduler.latency_hiding.settings import SchedulerSettings
from hlo_passes.scheduler.latency_hiding.state import SchedulingState
from tests.scheduler.latency_hiding.graphs import graph_of
from tests.scheduler.latency_hiding.scenes import Scene, shape_text


def marked(graph: ScheduleGraph, column: Any) -> set[str]:
    """Names of the nodes where a column is 1; elsewhere it is 0."""
    assert set(column) <= {0, 1}
    return {graph.name(n) for n, value in enumerate(column) if value}


def node(graph: ScheduleGraph, name: str) -> int:
    return next(n for n in range(len(graph)) if graph.name(n) == name)


#: A body of a pipelined loop: `in` comes from the iteration before, `out` goes to the
#: next; `own` begins and ends here, and `read` has another user than a done.
TRANSFER = "(f32[8], u32[], token[])"
HALVES = f"""HloModule m, is_scheduled=true, num_partitions=2

ENTRY %main (b: (f32[8], {TRANSFER})) -> (f32[8], {TRANSFER}, {TRANSFER}, {TRANSFER}) {{
  %b = (f32[8], {TRANSFER}) parameter(0)
  %x = f32[8] get-tuple-element(%b), index=0
  %in = {TRANSFER} get-tuple-element(%b), index=1
  %ended = (f32[8], token[]) recv-done(%in), channel_id=1
  %t = token[] after-all()
  %out = {TRANSFER} recv(%t), channel_id=1, frontend_attributes={{_xla_send_recv_pipeline="0"}}
  %own = {TRANSFER} send(%x, %t), channel_id=2
  %sent = token[] send-done(%own), channel_id=2
  %kept = {TRANSFER} send(%x, %t), channel_id=3
  %twice = {TRANSFER} recv(%t), channel_id=4
  %taken = (f32[8], token[]) recv-done(%twice), channel_id=4
  %copied = {TRANSFER} copy(%twice)
  ROOT %r = (f32[8], {TRANSFER}, {TRANSFER}, {TRANSFER}) tuple(%x, %out, %kept, %copied)
}}
"""


def test_transfers_whose_other_half_is_in_another_iteration() -> None:
    """XLA's IsPartiallyPipelinedSendRecv and ...Done, with the flag that asks for it."""
    graph = graph_of(HALVES, SchedulerSettings(pipeline_parallelism_opt_level="ENABLE"))
    assert marked(graph, graph.force_delay) == {"out", "kept"}
    assert marked(graph, graph.force_early) == {"ended"}
    graph = graph_of(HALVES)
    assert not any(graph.force_delay)
    assert not any(graph.force_early)


def test_a_pipelined_receive_stays_near_its_done() -> None:
    graph = graph_of(HALVES, SchedulerSettings(enable_pipelined_p2p=True))
    assert marked(graph, graph.force_early) == {"out"}
    sent = HALVES.replace(
        "channel_id=3",
        'channel_id=3, frontend_attributes={_xla_send_recv_pipeline="0"}',
    )
    graph = graph_of(sent, SchedulerSettings(enable_pipelined_p2p=True))
    assert marked(graph, graph.force_early) == {"out"}
    bare = SchedulerSettings.generic(
        enable_pipelined_p2p=True, pipeline_parallelism_opt_level="ENABLE"
    )
    graph = graph_of(HALVES, bare)
    assert not any(graph.force_early)
    assert not any(graph.force_delay)


def hinted(attributes: str, opcode: str = "custom") -> str:
    """One instruction, or both halves of a pair, with attributes."""
    lines = {
        "custom": f'%c = f32[8] custom-call(%p), custom_call_target="c"{attributes}',
        "add": f"%c = f32[8] add(%p, %p){attributes}",
        "pair": "%s = (f32[8], f32[8]) collective-permute-start(%p), channel_id=1, "
        f"source_target_pairs={{{{0,1}},{{1,0}}}}{attributes}\n"
        f"  %c = f32[8] collective-permute-done(%s){attributes}",
        "generic": f"%s = ((f32[8]), f32[8]) async-start(%p), calls=%wrapped{attributes}"
        f"\n  %c = f32[8] async-done(%s){attributes}",
    }
    return f"""HloModule m, is_scheduled=true, num_partitions=2

%wrapped (a: f32[8]) -> f32[8] {{
  %a = f32[8] parameter(0)
  ROOT %w = f32[8] all-to-all(%a), replica_groups={{{{0,1}}}}, dimensions={{0}}
}}

ENTRY %main (p: f32[8]) -> f32[8] {{
  %p = f32[8] parameter(0)
  {lines[opcode]}
  ROOT %r = f32[8] negate(%c)
}}
"""


def frontend(text: str) -> str:
    return f", frontend_attributes={{{text}}}"


@pytest.mark.parametrize(
    ("opcode", "hint", "early", "delayed"),
    [
        ("custom", "force_early", {"c"}, set()),
        ("custom", "force_delay", set(), {"c"}),
        ("custom", "force_delay_async", set(), set()),
        ("add", "force_early", set(), set()),
        ("add", "force_delay", set(), set()),
        ("pair", "force_early", set(), set()),
        ("pair", "force_delay", set(), set()),
        ("pair", "force_delay_async", {"c"}, {"s"}),
        ("generic", "force_early", set(), set()),
        ("generic", "force_delay", set(), {"s", "c"}),
        ("generic", "force_delay_async", {"c"}, {"s"}),
    ],
)
def test_opcodes_honor_their_own_hints(
    opcode: str, hint: str, early: set[str], delayed: set[str]
) -> None:
    more = f'scheduler_hint="{hint}",scheduler_delay_priority="7"'
    for settings in (SchedulerSettings(), SchedulerSettings.generic()):
        graph = graph_of(hinted(frontend(more), opcode), settings)
        assert marked(graph, graph.force_early) == early
        assert marked(graph, graph.force_delay) == delayed
        found = {graph.name(n): p for n, p in enumerate(graph.delay_priority) if p}
        assert found == dict.fromkeys(delayed, 7)


def test_a_config_decides_over_the_hint_of_a_delay() -> None:
    """XLA sets the field from every config that it can read, so it clears a hint too."""
    early = ', backend_config={"force_earliest_schedule":true}'
    other = ', backend_config={"force_earliest_schedule":false}'
    silent = ', backend_config={"wait_on_operation_queues":[]}'
    hint = frontend('scheduler_hint="force_delay"')
    delayed = [
        bool(marked(graph, graph.force_delay))
        for graph in map(
            graph_of,
            map(
                hinted,
                (early, other, hint, hint + other, hint + early, hint + silent),
            ),
        )
    ]
    assert delayed == [True, False, True, False, True, False]
    graph = graph_of(hinted(early), SchedulerSettings.generic())
    assert not any(graph.force_delay)


def test_a_cleared_hint_leaves_its_priority() -> None:
    """The rule of priorities reads it all the same, for arrays by class, too."""
    scene = Scene()
    for k, priority in enumerate((3, 8, 7, 8)):
        hint = f'scheduler_hint="force_delay",scheduler_delay_priority="{priority}"'
        scene.add(
            f"c{k}", shape_text(8), f'custom-call(%p{k}), custom_call_target="c"'
            f'{frontend(hint)}, backend_config={{"force_earliest_schedule":false}}',
        )  # fmt: skip
    scene.root("c0", "c1", "c2", "c3")
    graph = graph_of(scene.text())
    assert not any(graph.force_delay)
    state = SchedulingState(graph, delays_starts=False)
    of = Classes(state, tests_fit=True).of
    calls = [of[node(graph, f"c{k}")] for k in range(4)]
    assert calls[1] == calls[3]
    assert len({*calls, of[node(graph, "t")]}) == 4


def test_what_only_passes_values_on_is_no_choice() -> None:
    """No-ops are placed without a comparison; XLA's IsNopInstruction of the scheduler."""
    graph = graph_of("""HloModule m, is_scheduled=true

%body (b: (f32[2,3])) -> (f32[2,3]) {
  ROOT %b = (f32[2,3]{1,0}) parameter(0)
}
%condition (c: (f32[2,3])) -> pred[] {
  %c = (f32[2,3]{1,0}) parameter(0)
  ROOT %no = pred[] constant(false)
}

ENTRY %main (p: f32[2,3]) -> (f32[2,3], f32[3,2], f32[3,2], f32[6], f32[2,3]) {
  %p = f32[2,3]{1,0} parameter(0)
  %zero = f32[] constant(0)
  %zeros = f32[2,3]{1,0} broadcast(%zero), dimensions={}
  %counted = f32[6]{0} iota(), iota_dimension=0
  %flat = f32[6]{0} bitcast(%p)
  %reshaped = f32[6]{0} reshape(%p)
  %moved = f32[3,2]{1,0} transpose(%p), dimensions={1,0}
  %same = f32[3,2]{0,1} transpose(%p), dimensions={1,0}
  %given = (f32[2,3]{1,0}) tuple(%zeros)
  %w = (f32[2,3]{1,0}) while(%given), condition=%condition, body=%body
  %g = f32[2,3]{1,0} get-tuple-element(%w), index=0
  %sum = f32[6]{0} add(%flat, %counted)
  %all = f32[6]{0} add(%sum, %reshaped)
  ROOT %r = (f32[2,3]{1,0}, f32[3,2]{1,0}, f32[3,2]{0,1}, f32[6]{0}, f32[2,3]{1,0}) tuple(%g, %moved, %same, %all, %p)
}
""")
    assert marked(graph, graph.is_noop) == {
        "p", "zero", "zeros", "counted", "flat", "same", "given", "g",
    }  # fmt: skip


def test_neighbors_of_halves_and_their_numbers() -> None:
    graph = graph_of(
        hinted("", "pair"), costs={"s": 2.0, "c": 3.0, "r": 5.0}, latencies={"s": 40.0}
    )
    assert marked(graph, graph.is_start) == {"s"}
    assert marked(graph, graph.is_done) == {"c"}
    assert marked(graph, graph.operand_is_done) == {"r"}
    assert marked(graph, graph.user_is_start) == {"p"}
    assert marked(graph, graph.releases) == {"s"}
    assert marked(graph, graph.occupies) == {"c"}
    assert graph.starts_above == {node(graph, "c"): node(graph, "s")}
    assert graph.latency_us(1, 2) == 40.0
    assert graph.latency_us(0, 1) == 1.0
    with pytest.raises(KeyError):
        graph.latency_us(0, 3)


#: Two sends to the host, one after the other; the loop fusion is work to hide them.
SENDS = """HloModule m, is_scheduled=true

ENTRY %main (p: f32[8], q: f32[8]) -> (f32[8], token[]) {
  %p = f32[8] parameter(0)
  %q = f32[8] parameter(1)
  %t = token[] after-all()
  %s = (f32[8], u32[], token[]) send(%p, %t), channel_id=1, is_host_transfer=true
  %d = token[] send-done(%s), channel_id=1, is_host_transfer=true
  %w = f32[8] negate(%q)
  ROOT %r = (f32[8], token[]) tuple(%w, %d)
}
"""


@pytest.mark.parametrize("latency_us", [0.0, 1.0, 4.0])
@pytest.mark.parametrize(("later_us", "waits"), [(0.0, False), (0.5, True)])
def test_the_done_of_a_host_send_waits_for_other_users_of_its_start(
    latency_us: float, later_us: float, waits: bool
) -> None:
    """It waits while another user of the start keeps the start from being ready."""
    text = SENDS.replace(
        "  %w =", "  %e = f32[8] get-tuple-element(%s), index=0\n  %w ="
    )
    settings = SchedulerSettings.generic(schedule_send_recvs=True)
    graph = graph_of(text, settings, latencies={"s": latency_us})
    done, other = node(graph, "d"), node(graph, "e")
    assert graph.host_sends == {done: node(graph, "s")}
    state = SchedulingState(graph, delays_starts=False)
    state.seed()
    assert not state.delays_host_send(done)
    state.ready_at[done] = state.now
    state.ready_at[other] = state.now + later_us
    assert state.delays_host_send(done) is waits
    assert not state.delays_host_send(other)
    columns = Columns(state, Classes(state, tests_fit=True))
    nodes = np.array([other, done])
    assert columns.delays_host_send(nodes).tolist() == [False, waits]


#: Two loops between a receive and the send of the next one.
AROUND_LOOPS = f"""HloModule m, is_scheduled=true, num_partitions=2

%body (x: f32[8]) -> f32[8] {{
  %x = f32[8] parameter(0)
  ROOT %y = f32[8] negate(%x)
}}

%condition (z: f32[8]) -> pred[] {{
  %z = f32[8] parameter(0)
  ROOT %c = pred[] constant(false)
}}

ENTRY %main (p: f32[8]) -> (f32[8], f32[8], (f32[8], token[])) {{
  %p = f32[8] parameter(0)
  %t = token[] after-all()
  %before = f32[8] while(%p), condition=%condition, body=%body
  %r = {TRANSFER} recv(%t), channel_id=1
  %s = {TRANSFER} send(%before, %t), channel_id=1
  %rd = (f32[8], token[]) recv-done(%r), channel_id=1
  %sd = token[] send-done(%s), channel_id=1, control-predecessors={{%t, %rd}}
  %apart = f32[8] while(%p), condition=%condition, body=%body
  %got = f32[8] get-tuple-element(%rd), index=0
  %loop = f32[8] while(%got), condition=%condition, body=%body
  %again = f32[8] while(%loop), condition=%condition, body=%body
  %r2 = {TRANSFER} recv(%t), channel_id=2
  %rd2 = (f32[8], token[]) recv-done(%r2), channel_id=2, control-predecessors={{%sd}}
  ROOT %root = (f32[8], f32[8], (f32[8], token[])) tuple(%again, %apart, %rd2)
}}
"""


def followers(graph: ScheduleGraph, name: str) -> set[str]:
    return {graph.name(n) for n in graph.succs[node(graph, name)]}


def test_a_send_ends_before_the_first_loop_that_uses_what_was_received() -> None:
    """XLA adds the first edge always, and the second one when it places from the top."""
    graph = graph_of(AROUND_LOOPS)
    assert followers(graph, "sd") == {"loop", "rd2"}
    assert followers(graph, "before") == {"s"}
    graph = graph_of(AROUND_LOOPS, SchedulerSettings(top_down_scheduling=True))
    assert followers(graph, "sd") == {"loop", "rd2"}
    assert followers(graph, "before") == {"s", "r2"}
    assert followers(graph, "apart") == {"root"}


def test_only_a_receive_lets_a_send_end_before_a_loop() -> None:
    """Another control edge says nothing of loops that use where it comes from."""
    text = AROUND_LOOPS.replace(
        "  %t = token", "  %q = f32[8] negate(%p)\n  %t = token"
    )
    text = text.replace(
        "control-predecessors={%t, %rd}", "control-predecessors={%q, %rd}"
    )
    text = text.replace("%apart = f32[8] while(%p)", "%apart = f32[8] while(%q)")
    assert followers(graph_of(text), "sd") == {"loop", "rd2"}
    text = text.replace("control-predecessors={%q, %rd}", "control-predecessors={%q}")
    assert followers(graph_of(text), "sd") == {"rd2"}
