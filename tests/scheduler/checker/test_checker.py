"""What the checker says, code by code, and where it is asked."""

from __future__ import annotations

import ast
import pathlib

import pytest

import hlo_passes
from hlo_passes import scheduler
from hlo_passes.cli.main import main
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import Pass
from hlo_passes.scheduler.checker.schedule_checker import (
    ScheduleChecker,
    check_schedule,
)
from tests.modules import REPOSITORY
from tests.scheduler.checker.two_gathers import GATHER, TWO, codes, ordered


def test_a_legal_schedule_has_no_findings() -> None:
    assert codes(ordered(TWO), parallel_collective_overlap_limit=1) == []


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (["p", "end", "begin"], [("C020", "end")]),
        (["work", "p"], [("C010", "work")]),
        (["r", "p"], [("C010", "r"), ("C010", "r")]),
    ],
)
def test_order(order: list[str], expected: list[tuple[str, str]]) -> None:
    assert codes(ordered(TWO, *order)) == expected


def test_limit_is_exceeded_where_the_second_begins() -> None:
    module = ordered(TWO, "p", "work", "begin", "begin2", "end")
    assert codes(module, parallel_collective_overlap_limit=1) == [("C030", "begin2")]
    assert codes(module, parallel_collective_overlap_limit=2) == []
    assert codes(module) == []  # not asked


def test_a_loop_counts_with_what_flies_around_it() -> None:
    text = """HloModule m, is_scheduled=true, num_partitions=2

%body (t: f32[8]) -> f32[8] {
  %t = f32[8] parameter(0)
  %s = (f32[8], f32[8]) collective-permute-start(%t), channel_id=1, source_target_pairs={{0,1},{1,0}}
  ROOT %d = f32[8] collective-permute-done(%s)
}

%condition (q: f32[8]) -> pred[] {
  %q = f32[8] parameter(0)
  ROOT %go = pred[] custom-call(%q), custom_call_target="go"
}

ENTRY %main {
  %p = f32[8] parameter(0)
  %x = f32[8] parameter(1)
  %begin = (f32[8], f32[8]) collective-permute-start(%x), channel_id=2, source_target_pairs={{0,1},{1,0}}
  %w = f32[8] while(%p), condition=%condition, body=%body
  %end = f32[8] collective-permute-done(%begin)
  ROOT %r = f32[8] add(%w, %end)
}
"""
    module = hlo_passes.parse(text)
    assert codes(module, parallel_collective_overlap_limit=1) == [("C030", "w")]
    assert codes(module, parallel_collective_overlap_limit=2) == []


def test_a_loop_counts_with_each_lane_of_its_body() -> None:
    """A fusion on the body's own thread counts only there, a permute in the loop too."""
    pairs = "source_target_pairs={{0,1},{1,0}}"
    module = hlo_passes.parse(f"""HloModule m, is_scheduled=true, num_partitions=2

%wrapped (a: f32[8]) -> f32[8] {{
  %a = f32[8] parameter(0)
  ROOT %n = f32[8] negate(%a)
}}

%body (t: f32[8]) -> f32[8] {{
  %t = f32[8] parameter(0)
  %k = ((f32[8]), f32[8]) async-start(%t), calls=%wrapped
  %e = f32[8] async-done(%k)
  %s = (f32[8], f32[8]) collective-permute-start(%e), channel_id=1, {pairs}
  ROOT %d = f32[8] collective-permute-done(%s)
}}

%condition (q: f32[8]) -> pred[] {{
  %q = f32[8] parameter(0)
  ROOT %go = pred[] custom-call(%q), custom_call_target="go"
}}

ENTRY %main {{
  %p = f32[8] parameter(0)
  %x = f32[8] parameter(1)
  %begin = (f32[8], f32[8]) collective-permute-start(%x), channel_id=2, {pairs}
  %w = f32[8] while(%p), condition=%condition, body=%body
  %end = f32[8] collective-permute-done(%begin)
  ROOT %r = f32[8] add(%w, %end)
}}
""")
    assert codes(module, parallel_collective_overlap_limit=1) == [("C030", "w")]


@pytest.mark.parametrize(
    ("thread", "config", "expected"),
    [
        ("main", "", []),
        ("parallel", "", ["w"]),
        ("main", "dynamic_slice", []),
        ("main", "host", ["w"]),
    ],
)
def test_a_loop_counts_fusions_that_run_beside_its_body(
    thread: str, config: str, expected: list[str]
) -> None:
    # XLA counts a fusion on the body's own thread only at its own place; one
    # that moves a slice has a lane without a limit. What is written to the host's
    # memory counts in the loop.
    foot = "" if thread == "main" else f', execution_thread="{thread}"'
    on = "" if thread == "main" else f', async_execution_thread="{thread}"'
    marked = f', backend_config={{"{config}":{{}}}}' if "slice" in config else ""
    result = "f32[8]{0:S(5)}" if config == "host" else "f32[8]"
    module = hlo_passes.parse(f"""HloModule m, is_scheduled=true

%fused (a: f32[8]) -> f32[8] {{
  %a = f32[8] parameter(0)
  ROOT %n = f32[8] negate(%a)
}}{foot}

%wrapped (b: f32[8]) -> f32[8] {{
  %b = f32[8] parameter(0)
  ROOT %f = {result} fusion(%b), kind=kLoop, calls=%fused{marked}
}}{foot}

%wrapped_too (b2: f32[8]) -> f32[8] {{
  %b2 = f32[8] parameter(0)
  ROOT %n2 = f32[8] negate(%b2)
}}, execution_thread="parallel"

%body (t: f32[8]) -> f32[8] {{
  %t = f32[8] parameter(0)
  %s = ((f32[8]), {result}) async-start(%t){on}, calls=%wrapped
  %d = {result} async-done(%s)
  ROOT %c = f32[8] copy(%d)
}}

%condition (q: f32[8]) -> pred[] {{
  %q = f32[8] parameter(0)
  ROOT %go = pred[] custom-call(%q), custom_call_target="go"
}}

ENTRY %main {{
  %p = f32[8] parameter(0)
  %x = f32[8] parameter(1)
  %begin = ((f32[8]), f32[8]) async-start(%x), async_execution_thread="parallel", calls=%wrapped_too
  %w = f32[8] while(%p), condition=%condition, body=%body
  %end = f32[8] async-done(%begin)
  ROOT %r = f32[8] add(%w, %end)
}}
""")
    found = codes(module, parallel_async_compute_limit=1)
    assert found == [("C030", name) for name in expected]


def test_a_scheduling_group_inside_a_fusion_has_no_order() -> None:
    group = 'frontend_attributes={_scheduling_group_id="5"}'
    text = f"""HloModule m, is_scheduled=true

%fused (a: f32[8]) -> f32[8] {{
  %a = f32[8] parameter(0)
  %n = f32[8] negate(%a), {group}
  %c = f32[8] cosine(%n)
  ROOT %t = f32[8] tanh(%c), {group}
}}

ENTRY %main {{
  %x = f32[8] parameter(0)
  ROOT %r = f32[8] fusion(%x), kind=kLoop, calls=%fused
}}
"""
    assert codes(hlo_passes.parse(text), scheduling_groups=True) == []
    called = text.replace("fusion(%x), kind=kLoop, calls=", "call(%x), to_apply=")
    found = codes(hlo_passes.parse(called), scheduling_groups=True)
    assert found == [("C070", "c")]
    assert codes(hlo_passes.parse(called)) == []


def test_what_is_marked_synchronous_does_not_fly() -> None:
    mark = 'backend_config={"collective_backend_config":{"is_sync":true}}'
    text = TWO.replace("channel_id=1,", f"channel_id=1, {mark},")
    module = ordered(text, "p", "work", "begin", "begin2", "end")
    assert codes(module, parallel_collective_overlap_limit=1) == []


def test_generic_limits_count_by_kind() -> None:
    module = ordered(TWO, "p", "work", "begin", "begin2", "end")
    assert codes(module, flavour="generic", all_gather_overlap_limit=1) == [
        ("C030", "begin2")
    ]
    assert codes(module, flavour="generic", all_reduce_overlap_limit=1) == []


@pytest.mark.parametrize(
    ("opcode", "mark", "other"),
    [
        ("permute", '_xla_gpu_collective_stream="p2p"', ""),
        ("send", "", '_xla_send_recv_pipeline="1"'),
        ("send", '_xla_send_recv_pipeline="1"', ""),
        ("recv", '_xla_send_recv_pipeline="0"', '_xla_send_recv_pipeline="1"'),
        ("recv", '_xla_send_recv_pipeline="1"', '_xla_send_recv_pipeline="0"'),
    ],
)
def test_four_fly_on_each_lane_from_point_to_point(
    opcode: str, mark: str, other: str
) -> None:
    """XLA has four of each stream, whatever the limit of collectives is."""

    def flying(count: int, marked: str) -> list[tuple[str, str]]:
        def pair(k: int) -> tuple[str, str]:
            own = marked if k == 4 else mark
            more = f", frontend_attributes={{{own}}}" if own else ""
            if opcode == "permute":
                return (
                    f"(f32[8], f32[8]) collective-permute-start(%p), channel_id={k + 1}, "
                    f"source_target_pairs={{{{0,1}},{{1,0}}}}{more}",
                    f"f32[8] collective-permute-done(%begin{k})",
                )
            given = "%p, %t" if opcode == "send" else "%t"
            result = "token[]" if opcode == "send" else "(f32[8], token[])"
            more = f", channel_id={k + 1}{more}"
            return (
                f"(f32[8], u32[], token[]) {opcode}({given}){more}",
                f"{result} {opcode}-done(%begin{k}){more}",
            )

        pairs = [pair(k) for k in range(count)]
        begun = "\n".join(
            f"  %begin{k} = {start}" for k, (start, _) in enumerate(pairs)
        )
        ended = "\n".join(f"  %end{k} = {done}" for k, (_, done) in enumerate(pairs))
        text = f"""HloModule m, is_scheduled=true, num_partitions=2

ENTRY %main {{
  %p = f32[8] parameter(0)
  %t = token[] after-all()
{begun}
{ended}
  ROOT %r = f32[8] negate(%p)
}}
"""
        return codes(hlo_passes.parse(text), parallel_collective_overlap_limit=1)

    assert flying(4, mark) == []
    assert flying(5, mark) == [("C030", "begin4")]
    assert flying(5, other) == []


def test_groups_that_share_two_devices() -> None:
    module = ordered(TWO, "p", "work", "begin", "begin2", "end")
    assert codes(module, enable_collective_multi_streaming=True) == [("C031", "begin2")]


def test_two_streams_were_assigned() -> None:
    def on(first: int, second: int) -> Module:
        text = TWO
        for channel, queue in ((1, first), (2, second)):
            config = f'backend_config={{"operation_queue_id":"{queue}"}}'
            text = text.replace(
                f"channel_id={channel}", f"channel_id={channel}, {config}"
            )
        return ordered(text, "p", "work", "begin", "begin2", "end")

    assert codes(on(5, 5)) == []
    assert codes(on(0, 6)) == []
    assert codes(on(5, 6)) == [("C031", "begin2")]


def test_without_a_schedule_nothing_else_is_said() -> None:
    module = hlo_passes.parse(TWO.replace(", is_scheduled=true", ""))
    assert codes(module) == [("C001", "")]


def test_a_finding_reads_like_the_verifiers() -> None:
    module = hlo_passes.parse(TWO, filename="m.hlo")
    found = check_schedule(module, memory_limit_bytes=0)
    assert [f.render() for f in found] == [
        "m.hlo:8:4: error[C050]: 176 bytes are in use together, but the limit is 0\n"
        "  %begin2 = (f32[8], f32[16]) all-gather-start(%work), channel_id=2, "
        f"{GATHER}\n   ^"
    ]


def test_a_limit_that_was_advice_is_not_checked() -> None:
    module = hlo_passes.parse(TWO)
    assert not check_schedule(module, memory_limit_bytes=0, hard_memory_limit="off")


def test_an_unknown_option_is_an_error() -> None:
    with pytest.raises(TypeError):
        check_schedule(hlo_passes.parse(TWO), no_such_option=1)


# -- in a pipeline ----------------------------------------------------------------


def test_pass_fails_with_exit_code_3(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "m.hlo"
    file.write_text(TWO)
    assert main(["opt", str(file), "--passes=schedule-checker"]) == 0
    assert capfd.readouterr().out == TWO
    option = "schedule-checker{memory-limit-bytes=0}"
    assert main(["opt", str(file), f"--passes={option}"]) == 3
    assert "error[C050]" in capfd.readouterr().err


class _Reverser(Pass):
    """A scheduler with a defect: dones first."""

    name = "reverser"
    checked_by = ("schedule-checker",)
    __slots__ = ()

    def run(self, module, context, report):
        order = module.entry.instructions
        dones = [i for i in order if i.opcode.endswith("-done")]
        module.entry.set_order([*dones, *(i for i in order if i not in dones)])
        return True


def test_verify_each_asks_the_checker_behind_a_scheduler() -> None:
    pipeline = hlo_passes.Pipeline((_Reverser(),))
    with pytest.raises(hlo_passes.PassError) as refused:
        pipeline.run(hlo_passes.parse(TWO), verify_each=True)
    assert refused.value.code == "E002"  # the verifier comes first
    with pytest.raises(scheduler.IllegalScheduleError) as illegal:
        ScheduleChecker().check(
            ordered(TWO, "end"), None, pipeline.context, hlo_passes.Report()
        )
    assert illegal.value.code == "C020"


def test_verify_each_hands_on_the_limits_and_the_module_before() -> None:
    module = ordered(TWO, "p", "work", "begin", "begin2", "end")
    text = "latency-hiding-scheduler"
    hlo_passes.Pipeline.parse(text).run(module, verify_each=True)
    assert codes(module, parallel_collective_overlap_limit=1) == []


# -- independence -----------------------------------------------------------------


def test_the_checker_knows_nothing_of_the_scheduler() -> None:
    for file in (REPOSITORY / "scheduler" / "checker").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in names:
                assert not name.startswith(
                    (
                        "hlo_passes.scheduler.latency_hiding",
                        "hlo_passes.scheduler.memory",
                        "hlo_passes.scheduler.passes",
                    )
                )


@pytest.mark.parametrize("groups", ["{{0,1}}", "[2,2]<=[4]"])
def test_error_groups_of_replicas_that_nobody_runs(groups: str) -> None:
    module = hlo_passes.parse(f"""HloModule m, is_scheduled=true, num_partitions=4

%add (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}}

ENTRY %main (x: f32[8]) -> f32[8] {{
  %x = f32[8]{{0}} parameter(0)
  ROOT %r = f32[8]{{0}} all-reduce(%x), replica_groups={groups}, to_apply=%add
}}
""")
    finding = check_schedule(module)[0]
    assert finding.code == "C041"
    assert "device 0 waits for device 4 in %r" in finding.message
    assert "the module is for 4 devices" in finding.message


@pytest.mark.parametrize("groups", ["{{0,-1}}", "{{0,-1},{1,-2}}"])
def test_error_a_group_with_a_device_below_0(groups: str) -> None:
    """No device of the module is meant by it, not the last one either."""
    module = hlo_passes.parse(f"""HloModule m, is_scheduled=true, replica_count=2

ENTRY %main (x: f32[8]) -> f32[16] {{
  %x = f32[8]{{0}} parameter(0)
  ROOT %r = f32[16]{{0}} all-gather(%x), replica_groups={groups}, dimensions={{0}}
}}
""")
    (finding,) = check_schedule(module)
    assert finding.code == "C041"
    assert "device 0 waits for device -1 in %r" in finding.message


@pytest.mark.parametrize("option", ["all-reduce-overlap-limit", "memory-limit-bytes"])
def test_error_limit_below_nothing(option: str) -> None:
    with pytest.raises(hlo_passes.HloError) as refused:
        hlo_passes.Pipeline.parse(f"schedule-checker{{{option}=-1}}")
    assert "must not be negative" in refused.value.render()


def test_a_permute_of_several_keeps_no_table_of_its_operands() -> None:
    # 8 + 12 bytes of results; tables of two pointers: the start's own and its results'
    # and, from the done on, that of the done.
    module = hlo_passes.parse("""HloModule m, is_scheduled=true, num_partitions=2

ENTRY %main (x: f32[2], y: f32[3]) -> (f32[2], f32[3]) {
  %x = f32[2]{0} parameter(0)
  %y = f32[3]{0} parameter(1)
  %s = ((f32[2]{0}, f32[3]{0}), (f32[2]{0}, f32[3]{0})) collective-permute-start(%x, %y), channel_id=1, source_target_pairs={{0,1}}
  ROOT %d = (f32[2]{0}, f32[3]{0}) collective-permute-done(%s)
}
""")
    peak = scheduler.ModuleMemory(module).of(module.entry).peak_bytes()
    assert not check_schedule(module, memory_limit_bytes=peak)
    assert check_schedule(module, memory_limit_bytes=peak - 1)[0].code == "C050"


def _in_place(first: str, value: str) -> str:
    """A reader of %v comes after an all-reduce-start that overwrites %v."""
    return f"""HloModule m, is_scheduled=true, num_partitions=2

%sum (x: f32[], y: f32[]) -> f32[] {{
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %s = f32[] add(%x, %y)
}}

ENTRY %main {{
  %p = f32[8] parameter(0)
{first}
  %v = f32[8] {value}
  %begin = f32[8] all-reduce-start(%v), channel_id=2, replica_groups={{{{0,1}}}}, use_global_device_ids=true, to_apply=%sum
  %reader = f32[8] add(%p, %v)
  %end = f32[8] all-reduce-done(%begin)
  ROOT %r = (f32[8], f32[8]) tuple(%reader, %end)
}}
"""


_PERMUTE = "  %a = (f32[8], f32[8]) collective-permute-start(%p), channel_id=1, source_target_pairs={{0,1},{1,0}}"
_REDUCE = (
    "  %n = f32[8] negate(%p)\n  %a = f32[8] all-reduce-start(%n), channel_id=1, "
    "replica_groups={{0,1}}, use_global_device_ids=true, to_apply=%sum"
)


@pytest.mark.parametrize(
    ("first", "value"),
    [
        ("", "negate(%p)"),
        (_PERMUTE, "collective-permute-done(%a)"),
        (_REDUCE, "all-reduce-done(%a)"),
    ],
    ids=["computed", "permuted", "reduced"],
)
def test_a_reader_after_the_start_that_overwrites_is_refused(
    first: str, value: str
) -> None:
    # However the value came into the buffer: an operation that filled it has nothing
    # to fear from readers of what is written there later.
    module = hlo_passes.parse(_in_place(first, value))
    assert codes(module) == [("C060", "reader")]
    order = [i.name for i in module.entry.instructions]
    order.remove("reader")
    order.insert(order.index("begin"), "reader")
    assert codes(ordered(_in_place(first, value), *order)) == []


def test_what_begins_after_a_synchronous_pair_is_checked_too() -> None:
    mark = 'backend_config={"collective_backend_config":{"is_sync":true}}'
    first = f"{_PERMUTE}, {mark}\n"
    first += "  %c = f32[8] collective-permute-done(%a)"
    assert codes(hlo_passes.parse(_in_place(first, "negate(%c)"))) == [
        ("C060", "reader")
    ]


def test_a_loop_overwrites_what_it_changes_beside_what_it_passes_on() -> None:
    module = hlo_passes.parse("""HloModule m, is_scheduled=true

%body (b: (f32[8], f32[8])) -> (f32[8], f32[8]) {
  %b = (f32[8], f32[8]) parameter(0)
  %kept = f32[8] get-tuple-element(%b), index=0
  %old = f32[8] get-tuple-element(%b), index=1
  %new = f32[8] negate(%old)
  ROOT %next = (f32[8], f32[8]) tuple(%kept, %new)
}

%test (c: (f32[8], f32[8])) -> pred[] {
  %c = (f32[8], f32[8]) parameter(0)
  ROOT %no = pred[] constant(false)
}

ENTRY %main {
  %p = f32[8] parameter(0)
  %u = f32[8] negate(%p)
  %v = f32[8] negate(%p)
  %t = (f32[8], f32[8]) tuple(%u, %v)
  %w = (f32[8], f32[8]) while(%t), condition=%test, body=%body
  %right = f32[8] cosine(%u)
  %wrong = f32[8] cosine(%v)
  %g = f32[8] get-tuple-element(%w), index=1
  ROOT %r = (f32[8], f32[8], f32[8]) tuple(%right, %wrong, %g)
}
""")
    assert codes(module, alias_hazards="all") == [("C061", "wrong")]


def test_a_table_is_written_at_the_done_alone() -> None:
    # The loop's table is read while arrays of the next trip are on their way.
    module = hlo_passes.parse("""HloModule m, is_scheduled=true, num_partitions=2

%body (b: (f32[2], f32[4])) -> (f32[2], f32[4]) {
  %b = (f32[2], f32[4]) parameter(0)
  %x = f32[2] get-tuple-element(%b), index=0
  %new = f32[2] negate(%x)
  %half = f32[1] slice(%new), slice={[0:1]}
  %s = ((f32[1], f32[2]), (f32[2], f32[4])) all-gather-start(%half, %new), channel_id=1, replica_groups={{0,1}}, dimensions={0}, use_global_device_ids=true
  %y = f32[4] get-tuple-element(%b), index=1
  ROOT %d = (f32[2], f32[4]) all-gather-done(%s), control-predecessors={%y}
}

%test (c: (f32[2], f32[4])) -> pred[] {
  %c = (f32[2], f32[4]) parameter(0)
  ROOT %no = pred[] constant(false)
}

ENTRY %main {
  %p = f32[2] parameter(0)
  %q = f32[4] parameter(1)
  %t = (f32[2], f32[4]) tuple(%p, %q)
  ROOT %w = (f32[2], f32[4]) while(%t), condition=%test, body=%body
}
""")
    assert codes(module) == []
    assert codes(module, alias_hazards="all") == []


def test_a_reader_that_needs_the_result_too_is_excused() -> None:
    # No order can help it: copy insertion gives it a buffer of its own.
    text = _in_place("", "negate(%p)").replace("tuple(%reader, %end)", "tuple(%p, %q)")
    text = text.replace("  ROOT %r", "  %q = f32[8] add(%v, %end)\n  ROOT %r")
    text = text.replace("  %reader = f32[8] add(%p, %v)\n", "")
    assert codes(hlo_passes.parse(text)) == []


@pytest.mark.parametrize(
    ("second_operand", "expected"),
    # %ra reads %va though %sa overwrote it. If %rb needs %da, then %rb comes after %sa,
    # %sb after %rb, and %ra, which needs %db, after all of them: no order is better.
    [("%da", []), ("%p1", [("C060", "ra")])],
)
def test_a_demand_that_another_one_makes_impossible_may_be_broken(
    second_operand: str, expected: list[tuple[str, str]]
) -> None:
    module = hlo_passes.parse(f"""HloModule m, is_scheduled=true, num_partitions=2

%add (x: f32[], y: f32[]) -> f32[] {{
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(%x, %y)
}}

ENTRY %main {{
  %p0 = f32[8] parameter(0)
  %p1 = f32[8] parameter(1)
  %va = f32[8] negate(%p0)
  %vb = f32[8] negate(%p1)
  %sa = f32[8] all-reduce-start(%va), channel_id=1, replica_groups={{{{0,1}}}}, use_global_device_ids=true, to_apply=%add
  %da = f32[8] all-reduce-done(%sa)
  %rb = f32[8] add(%vb, {second_operand})
  %sb = f32[8] all-reduce-start(%vb), channel_id=2, replica_groups={{{{0,1}}}}, use_global_device_ids=true, to_apply=%add
  %db = f32[8] all-reduce-done(%sb)
  %ra = f32[8] add(%va, %db)
  ROOT %r = (f32[8], f32[8], f32[8]) tuple(%rb, %ra, %da)
}}
""")
    assert codes(module) == expected
