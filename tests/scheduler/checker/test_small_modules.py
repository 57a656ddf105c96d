"""What the checker says of small modules made for one rule each."""

from __future__ import annotations

import pytest

import hlo_passes
from hlo_passes.scheduler.checker import programs
from hlo_passes.scheduler.checker.asynchronous import flights
from hlo_passes.scheduler.checker.in_place import in_place_pairs
from hlo_passes.scheduler.checker.memory import peak_memory
from hlo_passes.scheduler.checker.overlap import lane_of
from hlo_passes.scheduler.checker.participants import Machine
from hlo_passes.scheduler.checker.programs import ProgramReader
from hlo_passes.scheduler.checker.schedule_checker import check_schedule
from hlo_passes.scheduler.memory.pressure import ModuleMemory

_ADD = """%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %s = f32[] add(%x, %y)
}
"""
_GROUPS = "replica_groups={{0,1}}, to_apply=%add"


def _module(entry: str, *computations: str) -> hlo_passes.Module:
    """A scheduled module; `entry` has a line per instruction."""
    lines = "\n".join(f"  {line}" for line in entry.strip().splitlines())
    head = "HloModule m, is_scheduled=true, replica_count=2\n"
    body = "\n".join((head, _ADD, *computations))
    return hlo_passes.parse(f"{body}\nENTRY %main {{\n{lines}\n}}\n")


def _codes(module: hlo_passes.Module, **options: object) -> list[tuple[str, str]]:
    return [(f.code, f.instruction) for f in check_schedule(module, **options)]


def test_a_computation_that_went_or_came_is_told() -> None:
    entry = "%p = f32[8] parameter(0)\nROOT %r = f32[8] negate(%p)"
    without = _module(entry)
    more = _module(entry, _ADD.replace("%add", "%sum"))
    for before, after, word in ((more, without, "went"), (without, more, "is new")):
        (found,) = check_schedule(after, before)
        assert (found.code, found.message) == ("C002", f"computation %sum {word}")
    assert check_schedule(more, more) == []


def test_all_that_came_went_or_changed_is_told() -> None:
    before = _module(
        """
        %p = f32[8] parameter(0)
        %a = f32[8] negate(%p)
        %b = f32[8] sine(%a)
        %c = f32[8] cosine(%a)
        ROOT %r = f32[8] add(%a, %b)
        """
    )
    after = _module(
        """
        %p = f32[8] parameter(0)
        %new = f32[8] negate(%p)
        %newer = f32[8] negate(%new)
        %b = f32[8] cosine(%newer)
        %c = f32[8] sine(%newer)
        ROOT %r = f32[8] add(%b, %b)
        """
    )
    found = [(f.code, f.instruction, f.message) for f in check_schedule(after, before)]
    changed = "scheduling changed its %s, not only its place"
    assert found == [
        ("C002", "", "%a went from %main"),
        ("C002", "new", "did not exist before scheduling"),
        ("C002", "newer", "did not exist before scheduling"),
        ("C003", "b", changed % "opcode"),
        ("C003", "c", changed % "opcode"),
        ("C003", "r", changed % "operands"),
    ]


def test_another_root_is_told() -> None:
    entry = """
        %p = f32[8] parameter(0)
        ROOT %a = f32[8] negate(%p)
        %b = f32[8] sine(%p)
        """
    before, after = _module(entry), _module(entry)
    after.entry.set_root(after.entry.find("b"))
    (found,) = check_schedule(after, before)
    assert (found.code, found.instruction) == ("C003", "b")
    assert found.message == "the root was %a before scheduling"


def test_a_module_for_more_devices_than_can_be_checked() -> None:
    module = _module("ROOT %p = f32[8] parameter(0)")
    for count, codes in ((2**20, []), (2**20 + 1, ["C043"])):
        module.set_attribute("replica_count", str(count))
        assert [f.code for f in check_schedule(module)] == codes


@pytest.mark.parametrize("count", [2, 7, 8, 9, 12])
def test_a_message_names_the_first_eight(count: int) -> None:
    starts = [f"%v{k} = f32[8] negate(%p)" for k in range(count)]
    starts += [
        f"%b{k} = f32[8] all-reduce-start(%v{k}), {_GROUPS}" for k in range(count)
    ]
    dones = [f"%d{k} = f32[8] all-reduce-done(%b{k})" for k in range(count)]
    lines = ["%p = f32[8] parameter(0)", *starts, *dones, "ROOT %r = f32[8] copy(%p)"]
    found = check_schedule(
        _module("\n".join(lines)), parallel_collective_overlap_limit=count - 1
    )
    names = ", ".join(f"%b{k}" for k in range(min(count, 8)))
    more = f", {count - 8} more" if count > 8 else ""
    assert [f.message for f in found] == [
        f"{count} in flight on the lane of collectives, the limit is {count - 1}: "
        f"{names}{more}"
    ]


def test_a_start_is_compared_with_all_that_fly_on_other_streams() -> None:
    def on(stream: int) -> str:
        return f'{_GROUPS}, backend_config={{"operation_queue_id":"{stream}"}}'

    module = _module(
        f"""
        %p = f32[8] parameter(0)
        %u = f32[8] negate(%p)
        %v = f32[8] sine(%p)
        %a = f32[8] all-reduce-start(%p), {on(6)}
        %b = f32[8] all-reduce-start(%u), {on(5)}
        %c = f32[8] all-reduce-start(%v), {on(6)}
        %x = f32[8] all-reduce-done(%a)
        %y = f32[8] all-reduce-done(%b)
        %z = f32[8] all-reduce-done(%c)
        ROOT %r = (f32[8], f32[8], f32[8]) tuple(%x, %y, %z)
        """
    )
    assert _codes(module, device_order=False) == [("C031", "b"), ("C031", "c")]


def test_a_start_is_compared_with_nothing_that_has_ended() -> None:
    def on(stream: int) -> str:
        return f'backend_config={{"operation_queue_id":"{stream}"}}'

    # Nor with what is no collective, which brings no devices together.
    module = _module(
        f"""
        %p = f32[8] parameter(0)
        %u = f32[8] negate(%p)
        %f = ((f32[8]), f32[8], u32[]) async-start(%p), calls=%beside, {on(7)}
        %a = f32[8] all-reduce-start(%p), {_GROUPS}, {on(6)}
        %x = f32[8] all-reduce-done(%a)
        %b = f32[8] all-reduce-start(%u), {_GROUPS}, {on(5)}
        %g = ((f32[8]), f32[8], u32[]) async-start(%u), calls=%beside, {on(8)}
        %y = f32[8] all-reduce-done(%b)
        %v = f32[8] async-done(%f)
        %w = f32[8] async-done(%g)
        ROOT %r = (f32[8], f32[8], f32[8], f32[8]) tuple(%x, %y, %v, %w)
        """,
        """%beside (c: f32[8]) -> f32[8] {
  %c = f32[8] parameter(0)
  ROOT %n = f32[8] negate(%c)
}
""",
    )
    assert _codes(module, device_order=False, alias_hazards="off") == []


@pytest.mark.parametrize("caller", ["fusion", "while"])
def test_a_loop_is_followed_and_a_fusion_is_one_step(caller: str) -> None:
    made = {
        "fusion": "fusion(%p), kind=kLoop, calls=%body",
        "while": "while(%p), condition=%more, body=%body",
    }[caller]
    module = _module(
        f"%p = f32[8] parameter(0)\nROOT %w = f32[8] {made}",
        f"""%body (b: f32[8]) -> f32[8] {{
  %b = f32[8] parameter(0)
  ROOT %r = f32[8] all-reduce(%b), {_GROUPS}
}}
""",
        """%more (m: f32[8]) -> pred[] {
  %m = f32[8] parameter(0)
  ROOT %no = pred[] constant(false)
}
""",
    )
    steps = ProgramReader(module, Machine(2, 1)).steps(0)
    found = [(step.meeting.instruction.name, step.waits) for step in steps]
    assert (
        found
        == {
            "fusion": [("w", False), ("w", True)],
            "while": [("r", False), ("r", True)] * 2,
        }[caller]
    )


def test_an_order_that_nobody_gave_before_is_held_to_the_limits() -> None:
    entry = """
        %p = f32[8] parameter(0)
        %a = f32[8] negate(%p)
        %b = f32[8] sine(%p)
        ROOT %r = f32[8] add(%a, %b)
        """
    module, same = _module(entry), _module(entry)
    other = _module(entry)
    p, a, b, r = other.entry.instructions
    other.entry.set_order([p, b, a, r])
    unordered = hlo_passes.parse(module.to_text().replace(", is_scheduled=true", ""))
    for before, codes in (
        (None, ["C050"]),
        (other, ["C050"]),
        (same, []),
        (unordered, []),
    ):
        found = check_schedule(
            module, before, memory_limit_bytes=0, hard_memory_limit="input-order"
        )
        assert [f.code for f in found] == codes


def test_the_peak_may_be_at_the_first_line() -> None:
    module = _module(
        """
        %z = f32[64] iota(), iota_dimension=0
        ROOT %n = f32[64] negate(%z)
        """
    )
    found = check_schedule(module, memory_limit_bytes=255)
    assert [(f.code, f.instruction) for f in found] == [("C050", "z")]
    assert check_schedule(module, memory_limit_bytes=256) == []


def test_a_result_in_a_parameters_buffer_is_written_after_its_readers() -> None:
    def order(*names: str) -> hlo_passes.Module:
        module = _module(
            """
            %p = f32[8] parameter(0)
            %q = f32[8] parameter(1)
            %s = (f32[8], f32[8]) collective-permute-start(%q), source_target_pairs={{0,1},{1,0}}
            %r = f32[8] negate(%p)
            %d = f32[8] collective-permute-done(%s)
            ROOT %t = (f32[8], f32[8]) tuple(%d, %r)
            """
        )
        module.set_attribute("input_output_alias", "{ {0}: (0, {}, may-alias) }")
        module.entry.set_order([module.entry.find(name) for name in names])
        return module

    assert _codes(order(*"pqsrdt")) == [("C060", "r")]
    assert _codes(order(*"pqrsdt")) == []


@pytest.mark.parametrize(
    ("lines", "pairs"),
    [
        (
            "ROOT %r = f32[8] scatter(%a, %i, %u), to_apply=%add",
            ((0, (), ()),),
        ),
        (
            "ROOT %r = (f32[8], f32[8]) scatter(%a, %b, %i, %u, %u), to_apply=%add",
            ((0, (), (0,)), (1, (), (1,))),
        ),
        ("ROOT %r = f32[8] fusion(%u, %a, %k), kind=kLoop, calls=%one", ((1, (), ()),)),
        (
            "ROOT %r = (f32[8], f32[8]) fusion(%u, %a, %k), kind=kLoop, calls=%two",
            ((1, (), (1,)),),
        ),
        (
            "%t = (s32[]) tuple(%k)\n"
            "ROOT %r = f32[8] collective-permute(%a, %b, %t, %t), "
            "slice_sizes={{4}}, source_target_pairs={{0,1}}",
            ((1, (), ()),),
        ),
        (
            "%t = (s32[]) tuple(%k)\n"
            "ROOT %r = (f32[8], f32[8], u32[], u32[]) "
            "collective-permute-start(%a, %b, %t, %t), "
            "slice_sizes={{4}}, source_target_pairs={{0,1}}",
            ((1, (), (1,)),),
        ),
    ],
    ids=[
        "scatter",
        "scatter of two",
        "fusion",
        "fusion of two",
        "permute",
        "started permute",
    ],
)
def test_which_operands_are_written_in_place(
    lines: str, pairs: tuple[tuple[int, tuple[int, ...], tuple[int, ...]], ...]
) -> None:
    def body(name: str, last: str) -> str:
        return f"""%{name} {{
  %u.{name} = f32[1] parameter(0)
  %a.{name} = f32[8] parameter(1)
  %k.{name} = s32[] parameter(2)
  {last}
}}
"""

    update = "f32[8] dynamic-update-slice(%a.{0}, %u.{0}, %k.{0})"
    module = _module(
        f"""
        %a = f32[8] parameter(0)
        %b = f32[8] parameter(1)
        %i = s32[1,1] parameter(2)
        %u = f32[1] parameter(3)
        %k = s32[] parameter(4)
        {lines}
        """,
        body("one", f"ROOT %w.one = {update.format('one')}"),
        body(
            "two",
            f"%w.two = {update.format('two')}\n  %n.two = f32[8] broadcast(%u.two), dimensions={{0}}\n"
            "  ROOT %t.two = (f32[8], f32[8]) tuple(%n.two, %w.two)",
        ),
    )
    assert in_place_pairs(module.entry.root) == pairs


def test_of_strangers_in_a_group_the_first_is_named() -> None:
    group = 'frontend_attributes={_scheduling_group_id="5"}'
    module = _module(
        f"""
        %p = f32[8] parameter(0)
        %a = f32[8] negate(%p), {group}
        %b = f32[8] cosine(%p)
        %c = f32[8] sine(%p)
        %d = f32[8] tanh(%a), {group}
        ROOT %r = (f32[8], f32[8], f32[8]) tuple(%b, %c, %d)
        """
    )
    assert _codes(module, scheduling_groups=True) == [("C070", "b")]


def test_a_start_that_something_else_reads_has_no_end() -> None:
    module = _module(
        f"""
        %p = f32[8] parameter(0)
        %s = f32[8] all-reduce-start(%p), {_GROUPS}
        ROOT %r = f32[8] negate(%s)
        """
    )
    assert ("C021", "s") in _codes(module)


def test_a_transfer_that_nothing_reads_has_no_end() -> None:
    module = _module(
        """
        %p = f32[8] parameter(0)
        %t = token[] after-all()
        %s = (f32[8], u32[], token[]) send(%p, %t), channel_id=1
        ROOT %r = f32[8] negate(%p)
        """
    )
    assert ("C021", "s") in _codes(module)


_LOOP = """%condition (c: (s32[], (f32[8], u32[], token[]))) -> pred[] {
  %c = (s32[], (f32[8], u32[], token[])) parameter(0)
  %i.c = s32[] get-tuple-element(%c), index=0
  ROOT %less = pred[] compare(%i.c, %i.c), direction=LT
}

%body (t: (s32[], (f32[8], u32[], token[]))) -> (s32[], (f32[8], u32[], token[])) {
  ROOT %t.b = (s32[], (f32[8], u32[], token[])) parameter(0)
}
"""


@pytest.mark.parametrize("order", ["pksnitmwr", "pkistmnwr"])
def test_what_does_not_end_here_flies_to_the_loop_that_it_enters(order: str) -> None:
    module = _module(
        """
        %p = f32[8] parameter(0)
        %k = token[] after-all()
        %s = (f32[8], u32[], token[]) send(%p, %k), channel_id=1
        %n = f32[8] negate(%p)
        %i = s32[] constant(0)
        %t = (s32[], (f32[8], u32[], token[])) tuple(%i, %s)
        %m = f32[8] sine(%p)
        %w = (s32[], (f32[8], u32[], token[])) while(%t), condition=%condition, body=%body
        ROOT %r = f32[8] add(%n, %m)
        """,
        _LOOP,
    )
    module.entry.set_order([module.entry.find(name) for name in order])
    (flight,) = flights(module.entry)
    assert (flight.begin, flight.end) == (order.index("s"), order.index("w"))
    assert flight.half.name == "s"


def test_a_done_without_a_start_has_flown_from_before_the_first() -> None:
    module = _module(
        """
        %t = (f32[8], u32[], token[]) parameter(0)
        %d = token[] send-done(%t), channel_id=1
        %p = f32[8] parameter(1)
        %k = token[] after-all()
        %s = (f32[8], u32[], token[]) send(%p, %k), channel_id=2
        ROOT %r = f32[8] negate(%p)
        """
    )
    done, start = flights(module.entry)
    assert (done.begin, done.end, done.half.name) == (-1, 1, "d")
    assert (start.begin, start.end) == (4, 6)


def test_a_parameter_is_there_before_its_line() -> None:
    """The caller holds what it passes on, wherever the callee names it."""
    early = """%f (a: f32[8], b: f32[8]) -> f32[8] {
  %a = f32[8] parameter(0)
  %b = f32[8] parameter(1)
  %m = f32[8,8] broadcast(%a), dimensions={0}
  %n = f32[8,8] sine(%m)
  %s = f32[1,8] slice(%n), slice={[0:1], [0:8]}
  %v = f32[8] bitcast(%s)
  ROOT %r = f32[8] add(%v, %b)
}
"""
    line = "  %b = f32[8] parameter(1)\n"
    late = early.replace(line, "").replace("  ROOT", f"{line}  ROOT")
    entry = """
        %p = f32[8] parameter(0)
        %x = f32[8] negate(%p)
        %y = f32[8] sine(%p)
        %c = f32[8] call(%x, %y), to_apply=%f
        ROOT %w = f32[8] negate(%c)
        """
    sizes = [peak_memory(_module(entry, f)).size_bytes for f in (early, late)]
    # One array of the caller, its other one was read, and two of the callee.
    assert sizes == [32 + 512] * 2


def test_a_copy_of_a_tuple_has_its_elements() -> None:
    text = """
        %p = f32[8] parameter(0)
        %a = f32[8] negate(%p)
        %b = f32[8] sine(%p)
        %t = (f32[8], f32[8]) tuple(%a, %b)
        %c = (f32[8], f32[8]) copy(%t)
        %x = f32[8] get-tuple-element(%c), index=0
        %y = f32[8] get-tuple-element(%c), index=1
        ROOT %r = f32[8] add(%x, %y)
        """
    found = peak_memory(_module(text)).size_bytes
    assert found == 32 + 32 + 32


def test_a_transfer_has_its_data_once() -> None:
    """A send reads its operand's buffer, and what a recv fills is its done's result."""
    module = _module(
        """
        %p = f32[8] parameter(0)
        %k = token[] after-all()
        %x = f32[8] negate(%p)
        %s = (f32[8], u32[], token[]) send(%x, %k), channel_id=1
        %sd = token[] send-done(%s), channel_id=1
        %r = (f32[64], u32[], token[]) recv(%k), channel_id=2
        %rd = (f32[64], token[]) recv-done(%r), channel_id=2
        %y = f32[64] get-tuple-element(%rd), index=0
        ROOT %z = f32[64] negate(%y)
        """
    )
    # At the end of the recv: the data, 24 and 4 of the start, the done's table of 16.
    assert peak_memory(module).size_bytes == 256 + 24 + 4 + 16
    sent = _module(
        """
        %p = f32[8] parameter(0)
        %k = token[] after-all()
        %x = f32[8] negate(%p)
        %s = (f32[8], u32[], token[]) send(%x, %k), channel_id=1
        ROOT %sd = token[] send-done(%s), channel_id=1
        """
    )
    assert peak_memory(sent).size_bytes == 32 + 24 + 4


def test_a_result_that_both_branches_make_is_there_from_the_top() -> None:
    """The second branch has room for it before its first line, which needs much."""
    branches = """%big () -> f32[] {
  %z = f32[64] iota(), iota_dimension=0
  %y = f32[64] negate(%z)
  ROOT %c = f32[] constant(0)
}

%first (a: f32[8]) -> f32[8] {
  %a = f32[8] parameter(0)
  ROOT %n1 = f32[8] negate(%a)
}

%second (b: f32[8]) -> f32[8] {
  %none = f32[] call(), to_apply=%big
  %b = f32[8] parameter(0)
  ROOT %n2 = f32[8] negate(%b)
}
"""
    module = _module(
        """
        %i = s32[] parameter(0)
        %p = f32[8] parameter(1)
        %x = f32[8] negate(%p)
        %c = f32[8] conditional(%i, %p, %p), branch_computations={%first, %second}
        ROOT %r = (f32[8], f32[8]) tuple(%c, %x)
        """,
        branches,
    )
    assert peak_memory(module).size_bytes == 32 + 32 + 256
    assert ModuleMemory(module).module_peak_bytes == 32 + 32 + 256


@pytest.mark.parametrize(
    ("mine", "theirs", "named"),
    [
        ("{{0,1},{2,3}}", "{{2,3},{0,1}}", "0, 1"),
        ("{{2,3},{0,1}}", "{{0,1},{2,3}}", "2, 3"),
        ("{{0,2},{1,3}}", "{{1,3},{0,2}}", "0, 2"),
        ("{{0,1,2,3}}", "{{2,3},{0,1}}", "2, 3"),
        ("{{0},{1},{2,3}}", "{{0,1},{2,3}}", "2, 3"),
        ("{{0,1},{2,3}}", "{{0,2},{1,3}}", ""),
        ("{{0,1,2,3}}", "{{0},{1},{2},{3}}", ""),
    ],
)
def test_the_first_group_of_a_start_that_meets_another_twice_is_named(
    mine: str, theirs: str, named: str
) -> None:
    reduce_ = "f32[8] all-reduce-start(%p), to_apply=%add, replica_groups"
    module = _module(
        f"""
        %p = f32[8] parameter(0)
        %a = {reduce_}={theirs}
        %b = {reduce_}={mine}
        %c = f32[8] all-reduce-done(%a)
        %d = f32[8] all-reduce-done(%b)
        ROOT %r = (f32[8], f32[8]) tuple(%c, %d)
        """
    )
    module.set_attribute("replica_count", "4")
    found = check_schedule(module, enable_collective_multi_streaming=True)
    both = f"in flight together with %a, and both bring devices {named} together"
    expected = [("C031", "b", both)] if named else []
    assert [(f.code, f.instruction, f.message) for f in found] == expected


_MANY = """%many (a: f32[8]) -> (f32[8], f32[8]) {
  %a.m = f32[8] parameter(0)
  %a.1 = f32[8] all-reduce(%a.m), replica_groups={{0,1}}, to_apply=%add
  %a.2 = f32[8] all-reduce(%a.m), replica_groups={{0,1}}, to_apply=%add
  ROOT %both = (f32[8], f32[8]) tuple(%a.1, %a.2)
}
"""
_BESIDE = """%beside (b: f32[8]) -> f32[8] {
  %b.0 = f32[8] parameter(0)
  ROOT %b.1 = f32[8] negate(%b.0)
}, execution_thread="parallel"
"""
_STARTED = "((f32[8]), (f32[8], f32[8]), u32[])"


@pytest.mark.parametrize(
    ("start", "done", "lane"),
    [
        (
            "(f32[8], f32[8], u32[]) copy-start(%x)",
            "f32[8] copy-done",
            "asynchronous compute",
        ),
        (
            f"{_STARTED} async-start(%x), calls=%many, "
            'frontend_attributes={_collectives_group=""}',
            "(f32[8], f32[8]) async-done",
            "collectives",
        ),
        (f"{_STARTED} async-start(%x), calls=%many", "(f32[8], f32[8]) async-done", ""),
    ],
    ids=["copy", "group", "computation"],
)
def test_what_flies_in_a_loop_counts_around_it(
    start: str, done: str, lane: str
) -> None:
    """XLA adds all but what it does not overlap there: its own thread's computations."""
    loop = f"""%again (x: f32[8]) -> f32[8] {{
  %x = f32[8] parameter(0)
  %s = {start}
  %d = {done}(%s)
  ROOT %n = f32[8] negate(%x)
}}

%more (y: f32[8]) -> pred[] {{
  %y = f32[8] parameter(0)
  ROOT %no = pred[] constant(false)
}}
"""
    module = _module(
        f"""
        %p = f32[8] parameter(0)
        %q = f32[8] all-reduce-start(%p), {_GROUPS}
        %b = ((f32[8]), f32[8], u32[]) async-start(%p), calls=%beside, async_execution_thread="parallel"
        %w = f32[8] while(%p), condition=%more, body=%again
        %e = f32[8] async-done(%b)
        ROOT %r = f32[8] all-reduce-done(%q)
        """,
        _MANY,
        _BESIDE,
        loop,
    )
    found = check_schedule(
        module,
        parallel_collective_overlap_limit=1,
        parallel_async_compute_limit=1,
        alias_hazards="off",
    )
    around = "%q" if lane == "collectives" else "%b"
    message = (
        f"2 in flight on the lane of {lane}, the limit is 1: {around} and 1 inside %w"
    )
    assert [f.message for f in found] == ([message] if lane else [])


@pytest.mark.parametrize("calls", [1, 2, 3, 9])
def test_of_too_many_steps_each_is_followed_twice(
    calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "_MOST_STEPS", 4)
    body = f"""%f (x: f32[8]) -> f32[8] {{
  %x.f = f32[8] parameter(0)
  ROOT %r.f = f32[8] all-reduce(%x.f), {_GROUPS}
}}
"""
    lines = [f"%c{k} = f32[8] call(%p), to_apply=%f" for k in range(calls)]
    module = _module(
        "\n".join(["%p = f32[8] parameter(0)", *lines, "ROOT %r = f32[8] copy(%p)"]),
        body,
    )
    steps = ProgramReader(module, Machine(2, 1)).steps(0)
    assert [step.waits for step in steps] == [False, True] * min(calls, 2)


@pytest.mark.parametrize(
    ("root", "config", "lane"),
    [
        ("dynamic-slice", "dynamic_slice_config", "memory copies"),
        ("bitcast", "dynamic_slice_config", "memory copies"),
        ("fusion", "dynamic_slice_config", "memory copies"),
        ("fusion", "dynamic_memcpy_config", "memory copies"),
        ("fusion", "another_config", "asynchronous compute"),
        ("dynamic-slice", "another_config", "asynchronous compute"),
        ("negate", "dynamic_slice_config", "asynchronous compute"),
    ],
)
def test_a_fusion_that_copies_a_slice_has_a_lane(
    root: str, config: str, lane: str
) -> None:
    mark = f'backend_config={{"{config}":{{"loop_index":0}}}}'
    slice_ = f"f32[1] dynamic-slice(%a, %i), dynamic_slice_sizes={{1}}, {mark}"
    last = {
        "fusion": "ROOT %d = f32[1] dynamic-slice(%a, %i), dynamic_slice_sizes={1}",
        "dynamic-slice": f"ROOT %d = {slice_}",
        "bitcast": f"%d = {slice_}\n  ROOT %e = f32[1] bitcast(%d)",
        "negate": f"%d = {slice_}\n  ROOT %e = f32[1] negate(%d), {mark}",
    }[root]
    fused = f"""%fused (a: f32[8], i: s32[]) -> f32[1] {{
  %a = f32[8] parameter(0)
  %i = s32[] parameter(1)
  {last}
}}
"""
    own = f", {mark}" if root == "fusion" else ""
    wrapped = f"""%wrapped (a.w: f32[8], i.w: s32[]) -> f32[1] {{
  %a.w = f32[8] parameter(0)
  %i.w = s32[] parameter(1)
  ROOT %f = f32[1] fusion(%a.w, %i.w), kind=kLoop, calls=%fused{own}
}}
"""
    module = _module(
        """
        %p = f32[8] parameter(0)
        %k = s32[] parameter(1)
        %s = ((f32[8], s32[]), f32[1], u32[]) async-start(%p, %k), calls=%wrapped
        ROOT %r = f32[1] async-done(%s)
        """,
        fused,
        wrapped,
    )
    assert lane_of(module.entry.root) == lane
    assert lane_of(module.entry.root.operands[0]) == lane


@pytest.mark.parametrize("config", ["dynamic_slice_config", "dynamic_memcpy_config"])
def test_a_slice_that_is_no_fusion_is_on_the_lane_of_compute(config: str) -> None:
    wrapped = f"""%wrapped (a.w: f32[8], i.w: s32[]) -> f32[1] {{
  %a.w = f32[8] parameter(0)
  %i.w = s32[] parameter(1)
  ROOT %f = f32[1] dynamic-slice(%a.w, %i.w), dynamic_slice_sizes={{1}}, backend_config={{"{config}":{{"loop_index":0}}}}
}}
"""
    module = _module(
        """
        %p = f32[8] parameter(0)
        %k = s32[] parameter(1)
        %s = ((f32[8], s32[]), f32[1], u32[]) async-start(%p, %k), calls=%wrapped
        ROOT %r = f32[1] async-done(%s)
        """,
        wrapped,
    )
    assert lane_of(module.entry.root) == "asynchronous compute"
