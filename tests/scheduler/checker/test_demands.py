"""Readers of what a start overwrites: which must come before it, and which no order can."""

from __future__ import annotations

import pytest

import hlo_passes
from hlo_passes.scheduler.checker.schedule_checker import check_schedule

_HEAD = """HloModule m, is_scheduled=true, num_partitions=2

%sum (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %s = f32[] add(%x, %y)
}

"""

#: A loop that hands its three arrays around: they share one buffer, and all that comes in.
_AROUND = """%turn (t: (f32[8], f32[8], f32[8])) -> (f32[8], f32[8], f32[8]) {
  %t = (f32[8], f32[8], f32[8]) parameter(0)
  %a = f32[8] get-tuple-element(%t), index=0
  %b = f32[8] get-tuple-element(%t), index=1
  %c = f32[8] get-tuple-element(%t), index=2
  ROOT %u = (f32[8], f32[8], f32[8]) tuple(%b, %c, %a)
}

%go (g: (f32[8], f32[8], f32[8])) -> pred[] {
  %g = (f32[8], f32[8], f32[8]) parameter(0)
  ROOT %no = pred[] constant(false)
}

"""
_PERMUTE = (
    "collective-permute-start(%q), channel_id=%d, source_target_pairs={{0,1},{1,0}}"
)


def _found(*lines: str) -> list[tuple[str, str]]:
    """(reader, start) of each C060; the lines may use %p, %q, %one and %i.

    `name <- operand` begins an all-reduce, which writes into its operand's buffer, and
    `name ! start` ends it.
    """
    text = [
        "%p = f32[8] parameter(0)",
        "%q = f32[8] parameter(1)",
        "%one = f32[1] parameter(2)",
        "%i = s32[] parameter(3)",
    ]
    for line in lines:
        name, sign, rest = line.split(" ", 2)
        if sign == "<-":
            line = (
                f"%{name} = f32[8] all-reduce-start(%{rest}), channel_id={len(text)}, "
                "replica_groups={{0,1}}, use_global_device_ids=true, to_apply=%sum"
            )
        elif sign == "!":
            line = f"%{name} = f32[8] all-reduce-done(%{rest})"
        text.append(line)
    body = "\n  ".join([*text, "ROOT %end = () tuple()"])
    module = hlo_passes.parse(f"{_HEAD}{_AROUND}ENTRY %main {{\n  {body}\n}}\n")
    found = check_schedule(module)
    assert {f.code for f in found} <= {"C060"}
    starts = [f.message.split("%")[1].split(" ")[0] for f in found]
    return [(f.instruction, start) for f, start in zip(found, starts, strict=True)]


def test_of_two_starts_after_one_another_the_first_is_named() -> None:
    chain = ["b1 <- v", "d1 ! b1", "b2 <- d1", "d2 ! b2"]
    value, reader = "%v = f32[8] negate(%p)", "%r = f32[8] sine(%v)"
    assert _found(value, *chain, reader) == [("r", "b1")]
    assert _found(value, *chain[:3], reader, *chain[3:]) == [("r", "b1")]
    assert _found(value, reader, *chain) == []
    # What is read is the first one's result.
    assert _found(value, *chain, "%r = f32[8] sine(%d1)") == [("r", "b2")]


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("at_once", [False, True])
def test_of_starts_that_overwrite_one_value_the_last_is_named(
    count: int, at_once: bool
) -> None:
    """Each would have to come before the others, which no order can do: they are one."""
    begin = [f"b{k} <- v" for k in range(count)]
    end = [f"d{k} ! b{k}" for k in range(count)]
    pairs = [line for pair in zip(begin, end, strict=True) for line in pair]
    lines = ["%v = f32[8] negate(%p)", *(begin + end if at_once else pairs)]
    assert _found(*lines, "%r = f32[8] sine(%v)") == [("r", f"b{count - 1}")]
    # What needs the last of them cannot come before any.
    assert _found(*lines, f"%r = f32[8] add(%v, %d{count - 1})") == []


@pytest.mark.parametrize("one", ["%v = f32[8] negate(%p)", "%v = f32[8] bitcast(%p)"])
def test_two_readers_that_wait_for_each_others_start_are_excused(one: str) -> None:
    """%u comes after %t, which must come after %w, which must come after %s: a circle."""
    lines = [
        one,
        "%x = f32[8] negate(%q)",
        "s <- v",
        "ds ! s",
        "t <- x",
        "dt ! t",
        "%u = f32[8] add(%v, %dt)",
        "%w = f32[8] add(%x, %ds)",
    ]
    assert _found(*lines) == []
    # Without one side of it both can be met.
    both = [("u", "s"), ("w", "t")]
    assert _found(*lines[:-1], "%w = f32[8] add(%x, %x)") == both
    assert _found(*lines[:-2], "%u = f32[8] add(%v, %v)", lines[-1]) == both


@pytest.mark.parametrize("needed", ["d1", "d2"])
def test_a_reader_comes_before_every_later_start_of_its_buffer(needed: str) -> None:
    """%r comes after %ds and before both other starts, one of which %late waits for."""
    lines = [
        "%v = f32[8] negate(%p)",
        "%x = f32[8] negate(%q)",
        "s <- v",
        "ds ! s",
        "%r = f32[8] add(%x, %ds)",
        "t1 <- x",
        "d1 ! t1",
        "t2 <- x",
        "d2 ! t2",
    ]
    assert _found(*lines, f"%late = f32[8] add(%v, %{needed})") == []
    assert _found(*lines, "%late = f32[8] add(%v, %q)") == [("late", "s")]


def test_starts_of_one_buffer_that_read_others_follow_a_reader_too() -> None:
    """%r comes before both permutes, though the first one says nothing of the second."""
    tuple_ = "(f32[8], f32[8], f32[8])"
    lines = [
        "%v = f32[8] negate(%p)",
        "%x = f32[8] negate(%q)",
        "s <- v",
        "ds ! s",
        "%r = f32[8] add(%x, %ds)",
        f"%t1 = (f32[8], f32[8]) {_PERMUTE.replace('%d', '1')}",
        f"%t2 = (f32[8], f32[8]) {_PERMUTE.replace('%d', '2')}",
        "%d1 = f32[8] collective-permute-done(%t1)",
        "%d2 = f32[8] collective-permute-done(%t2)",
    ]
    loop = [
        f"%all = {tuple_} tuple(%x, %d1, %d2)",
        f"%w = {tuple_} while(%all), condition=%go, body=%turn",
    ]
    for needed, is_free in (("d1", False), ("d2", False), ("v", True)):
        late = f"%late = f32[8] add(%v, %{needed})"
        assert (("late", "s") in _found(*lines, late, *loop)) is is_free


def test_a_start_that_a_reader_needs_from_far_away_demands_nothing() -> None:
    """%all needs %b1 through many lines: only %r, which needs %d1 alone, can move."""
    between = [f"%fill{k} = f32[8] negate(%p)" for k in range(30)]
    lines = [
        "%v = f32[8] negate(%p)",
        "%x = f32[8] negate(%q)",
        "b1 <- v",
        "d1 ! b1",
        *between,
        "t <- x",
        "dt ! t",
        "%r = f32[8] add(%x, %d1)",
        "b2 <- d1",
        "d2 ! b2",
        "%all = f32[24] concatenate(%v, %d2, %dt), dimensions={0}",
    ]
    assert _found(*lines) == [("r", "t")]


@pytest.mark.parametrize("count", [2, 7, 8, 9, 20])
def test_a_reader_of_many_values_is_asked_about_each_of_them(count: int) -> None:
    """%all needs every start but %s, which overwrites the last value alone that it reads."""
    updates = [
        f"%w{k} = f32[8] dynamic-update-slice(%{f'w{k - 1}' if k else 'd2'}, %one, %i)"
        for k in range(count)
    ]
    values = ", ".join(f"%w{k}" for k in range(count))
    lines = [
        "%v = f32[8] negate(%p)",
        "b1 <- v",
        "d1 ! b1",
        "b2 <- d1",
        "d2 ! b2",
        "t <- v",
        "s <- d2",
        "ds ! s",
        *updates,
        "dt ! t",
        "%n = f32[8] negate(%dt)",
        f"%all = f32[{8 * count + 16}] concatenate({values}, %v, %n), dimensions={{0}}",
    ]
    assert [start for reader, start in _found(*lines) if reader == "all"] == ["s"]
