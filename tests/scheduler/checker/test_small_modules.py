"""What the checker says of small modules made for one rule each: orders and groups."""

from __future__ import annotations

import pytest

import hlo_passes
from hlo_passes.scheduler.checker import programs
from hlo_passes.scheduler.checker.participants import Machine
from hlo_passes.scheduler.checker.programs import ProgramReader
from hlo_passes.scheduler.checker.schedule_checker import check_schedule
from tests.scheduler.checker.small_modules import ADD, GROUPS, small_module


def test_a_computation_that_went_or_came_is_told() -> None:
    entry = "%p = f32[8] parameter(0)\nROOT %r = f32[8] negate(%p)"
    without = small_module(entry)
    more = small_module(entry, ADD.replace("%add", "%sum"))
    for before, after, word in ((more, without, "went"), (without, more, "is new")):
        (found,) = check_schedule(after, before)
        assert (found.code, found.message) == ("C002", f"computation %sum {word}")
    assert check_schedule(more, more) == []


def test_all_that_came_went_or_changed_is_told() -> None:
    before = small_module(
        """
        %p = f32[8] parameter(0)
        %a = f32[8] negate(%p)
        %b = f32[8] sine(%a)
        %c = f32[8] cosine(%a)
        ROOT %r = f32[8] add(%a, %b)
        """
    )
    after = small_module(
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
    before, after = small_module(entry), small_module(entry)
    after.entry.set_root(after.entry.find("b"))
    (found,) = check_schedule(after, before)
    assert (found.code, found.instruction) == ("C003", "b")
    assert found.message == "the root was %a before scheduling"


def test_a_module_for_more_devices_than_can_be_checked() -> None:
    module = small_module("ROOT %p = f32[8] parameter(0)")
    for count, codes in ((2**20, []), (2**20 + 1, ["C043"])):
        module.set_attribute("replica_count", str(count))
        assert [f.code for f in check_schedule(module)] == codes


@pytest.mark.parametrize("count", [2, 7, 8, 9, 12])
def test_a_message_names_the_first_eight(count: int) -> None:
    starts = [f"%v{k} = f32[8] negate(%p)" for k in range(count)]
    starts += [
        f"%b{k} = f32[8] all-reduce-start(%v{k}), {GROUPS}" for k in range(count)
    ]
    dones = [f"%d{k} = f32[8] all-reduce-done(%b{k})" for k in range(count)]
    lines = ["%p = f32[8] parameter(0)", *starts, *dones, "ROOT %r = f32[8] copy(%p)"]
    found = check_schedule(
        small_module("\n".join(lines)), parallel_collective_overlap_limit=count - 1
    )
    names = ", ".join(f"%b{k}" for k in range(min(count, 8)))
    more = f", {count - 8} more" if count > 8 else ""
    assert [f.message for f in found] == [
        f"{count} in flight on the lane of collectives, the limit is {count - 1}: "
        f"{names}{more}"
    ]


@pytest.mark.parametrize("caller", ["fusion", "while"])
def test_a_loop_is_followed_and_a_fusion_is_one_step(caller: str) -> None:
    made = {
        "fusion": "fusion(%p), kind=kLoop, calls=%body",
        "while": "while(%p), condition=%more, body=%body",
    }[caller]
    module = small_module(
        f"%p = f32[8] parameter(0)\nROOT %w = f32[8] {made}",
        f"""%body (b: f32[8]) -> f32[8] {{
  %b = f32[8] parameter(0)
  ROOT %r = f32[8] all-reduce(%b), {GROUPS}
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
    module, same = small_module(entry), small_module(entry)
    other = small_module(entry)
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
    module = small_module(
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


@pytest.mark.parametrize(
    ("devices", "named"),
    [(7, "0, 1, 2, 3, 4, 5, 6"), (8, "0, 1, 2, 3, 4, 5, 6, 7"),
     (10, "0, 1, 2, 3, 4, 5, 6, 7 and 2 more")],
)  # fmt: skip
def test_of_many_devices_eight_are_named(devices: int, named: str) -> None:
    module = small_module(
        """
        %p = f32[8] parameter(0)
        %a = f32[8] all-reduce-start(%p), to_apply=%add, replica_groups={}
        %b = f32[8] all-reduce-start(%p), to_apply=%add, replica_groups={}
        %c = f32[8] all-reduce-done(%a)
        %d = f32[8] all-reduce-done(%b)
        ROOT %r = (f32[8], f32[8]) tuple(%c, %d)
        """
    )
    module.set_attribute("replica_count", str(devices))
    (found,) = check_schedule(module, enable_collective_multi_streaming=True)
    both = f"in flight together with %a, and both bring devices {named} together"
    assert found.message == both


@pytest.mark.parametrize("calls", [1, 2, 3, 9])
def test_of_too_many_steps_each_is_followed_twice(
    calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "_MOST_STEPS", 4)
    body = f"""%f (x: f32[8]) -> f32[8] {{
  %x.f = f32[8] parameter(0)
  ROOT %r.f = f32[8] all-reduce(%x.f), {GROUPS}
}}
"""
    lines = [f"%c{k} = f32[8] call(%p), to_apply=%f" for k in range(calls)]
    module = small_module(
        "\n".join(["%p = f32[8] parameter(0)", *lines, "ROOT %r = f32[8] copy(%p)"]),
        body,
    )
    steps = ProgramReader(module, Machine(2, 1)).steps(0)
    assert [step.waits for step in steps] == [False, True] * min(calls, 2)
