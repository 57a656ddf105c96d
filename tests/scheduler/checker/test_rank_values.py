"""What a device computes by itself from its ids, and which way it takes by it."""

from __future__ import annotations

import pytest

import hlo_passes
from hlo_passes.scheduler.checker.participants import Machine
from hlo_passes.scheduler.checker.programs import ProgramReader
from hlo_passes.scheduler.checker.rank_values import Frame

_IDS = "  %id = u32[] partition-id()\n  %replica = u32[] replica-id()\n"
_CALLED = """%twice {
  %x = u32[] parameter(0)
  ROOT %y = u32[] add(%x, %x)
}

%first {
  %t = (u32[], u32[]) parameter(0)
  ROOT %x = u32[] get-tuple-element(%t), index=0
}

%opaque {
  %x = u32[] parameter(0)
  %o = (u32[], u32[]) custom-call(%x), custom_call_target="f"
  ROOT %y = u32[] get-tuple-element(%o), index=0
}

"""


def value_of(lines: str, *, replica: int = 3, partition: int = 5) -> int | None:
    """The root, on one device; the lines may use %id and %replica."""
    text = f"HloModule m\n\n{_CALLED}ENTRY %main {{\n{_IDS}{lines}\n}}\n"
    root = hlo_passes.parse(text).entry.root
    return Frame(replica, partition).scalar(root)


def _constants(element_type: str, *numbers: int) -> str:
    return "\n".join(
        f"  %{name} = {element_type}[] constant({number})"
        for name, number in zip("abc", numbers, strict=False)
    )


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("add(%id, %replica)", 8),
        ("subtract(%id, %replica)", 2),
        ("subtract(%replica, %id)", 2**32 - 2),
        ("multiply(%id, %replica)", 15),
        ("maximum(%id, %replica)", 5),
        ("minimum(%id, %replica)", 3),
        ("and(%id, %replica)", 1),
        ("or(%id, %replica)", 7),
        ("xor(%id, %replica)", 6),
        ("divide(%id, %replica)", 1),
        ("remainder(%id, %replica)", 2),
        ("shift-left(%id, %replica)", 40),
        ("shift-right-logical(%id, %replica)", 0),
        ("copy(%replica)", 3),
        ("call(%id), to_apply=%twice", 10),
        ("fusion(%replica), kind=kLoop, calls=%twice", 6),
        ("call(%id), to_apply=%opaque", None),
        ("count-leading-zeros(%id)", None),
        ("not(%id)", None),
    ],
)
def test_of_two_ids(expression: str, expected: int | None) -> None:
    assert value_of(f"  ROOT %r = u32[] {expression}") == expected


@pytest.mark.parametrize(
    ("element_type", "expression", "a", "b", "expected"),
    [
        ("u32", "multiply", 2**31, 2, 0),
        ("u32", "shift-left", 3, 0, 3),
        ("u32", "shift-left", 3, 31, 2**31),
        ("u32", "shift-left", 1, 2**32 - 1, 0),
        ("u32", "shift-right-logical", 2**32 - 1, 31, 1),
        ("u32", "shift-right-logical", 2**32 - 1, 2**32 - 1, 0),
        ("s32", "shift-right-logical", -1, 31, 1),
        ("s32", "add", 2**31 - 1, 1, -(2**31)),
        ("s32", "multiply", 2**30, 4, 0),
        ("s64", "multiply", 2**30, 4, 2**32),
        ("s8", "subtract", -128, 1, 127),
        ("s32", "divide", -7, 2, -3),
        ("s32", "divide", 7, -2, -3),
        ("s32", "divide", -7, -2, 3),
        ("s32", "remainder", -7, 2, -1),
        ("s32", "remainder", 7, -2, 1),
        ("s32", "divide", 1, 0, None),
        ("s32", "remainder", 1, 0, None),
    ],
)
def test_integers_have_their_types_width_and_sign(
    element_type: str, expression: str, a: int, b: int, expected: int | None
) -> None:
    lines = _constants(element_type, a, b)
    assert (
        value_of(f"{lines}\n  ROOT %r = {element_type}[] {expression}(%a, %b)")
        == expected
    )


def test_a_hundred_squares_take_no_time() -> None:
    lines = "  %n0 = s32[] constant(3)\n" + "\n".join(
        f"  %n{k + 1} = s32[] multiply(%n{k}, %n{k})" for k in range(100)
    )
    unsigned = pow(3, 2**101, 2**32)
    expected = (unsigned ^ 2**31) - 2**31
    assert value_of(f"{lines}\n  ROOT %r = s32[] multiply(%n100, %n100)") == expected


@pytest.mark.parametrize(
    ("direction", "expected"),
    [
        ("EQ", (0, 1, 0)), ("NE", (1, 0, 1)), ("LT", (1, 0, 0)),
        ("LE", (1, 1, 0)), ("GT", (0, 0, 1)), ("GE", (0, 1, 1)),
    ],
)  # fmt: skip
def test_comparisons(direction: str, expected: tuple[int, ...]) -> None:
    line = f"  ROOT %r = pred[] compare(%id, %replica), direction={direction}"
    assert tuple(value_of(line, partition=p) for p in (2, 3, 4)) == expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        # Choices and logic.
        ("  %t = pred[] constant(true)\n"
         "  ROOT %r = u32[] select(%t, %id, %replica)", 5),
        ("  %t = pred[] constant(false)\n"
         "  ROOT %r = u32[] select(%t, %id, %replica)", 3),
        ("  %t = pred[] constant(false)\n  ROOT %r = pred[] not(%t)", 1),
        ("  %c = s32[] constant(256)\n  ROOT %r = pred[] convert(%c)", 1),
        ("  %c = s32[] constant(-256)\n  ROOT %r = pred[] convert(%c)", 1),
        ("  %c = s32[] constant(256)\n  ROOT %r = u8[] convert(%c)", 0),
        ("  %c = u8[] constant(255)\n  ROOT %r = s8[] convert(%c)", -1),
        # Numbers in comments are none.
        ("  ROOT %r = s32[] constant(/*1*/ 5)", 5),
        ("  %t = s32[2] constant({/*i0=9*/ 7, 8})\n  %i = s32[] constant(1)\n"
         "  ROOT %r = s32[1] dynamic-slice(%t, %i), dynamic_slice_sizes={1}", 8),
        # Tables, whose ends hold an index in.
        ("  %t = s32[4] constant({7, 8, 9, 10})\n"
         "  ROOT %r = s32[1] dynamic-slice(%t, %replica), "
         "dynamic_slice_sizes={1}", 10),
        ("  %t = s32[4] constant({7, 8, 9, 10})\n"
         "  ROOT %r = s32[1] dynamic-slice(%t, %id), dynamic_slice_sizes={1}", 10),
        ("  %t = s32[4] constant({7, 8, 9, 10})\n  %n = s32[] constant(-1)\n"
         "  ROOT %r = s32[1] dynamic-slice(%t, %n), dynamic_slice_sizes={1}", 7),
        ("  %t = s32[1,4] constant({ {7, 8, 9, 10} })\n  %n = s32[] constant(1)\n"
         "  ROOT %r = s32[1,1] dynamic-slice(%t, %n, %n), "
         "dynamic_slice_sizes={1,1}", None),
        # Elements of tuples, made here or by the caller.
        ("  %t = (u32[], u32[]) tuple(%id, %replica)\n"
         "  ROOT %r = u32[] get-tuple-element(%t), index=1", 3),
        ("  %t = (u32[], u32[]) tuple(%id, %replica)\n"
         "  ROOT %r = u32[] call(%t), to_apply=%first", 5),
        # Equal calls are evaluated once, others apart.
        ("  %a = u32[] call(%id), to_apply=%twice\n"
         "  %b = u32[] call(%replica), to_apply=%twice\n"
         "  %c = u32[] call(%id), to_apply=%twice\n"
         "  %d = u32[] subtract(%c, %b)\n  ROOT %r = u32[] add(%a, %d)", 14),
        # Unknown: what is no small integer, is given from outside, or is left out.
        ("  %a = f32[] constant(2)\n"
         "  ROOT %r = pred[] compare(%a, %a), direction=EQ", None),
        ("  %p = u32[] parameter(0)\n  ROOT %r = u32[] add(%p, %id)", None),
        ("  %t = (u32[], u32[]) parameter(0)\n"
         "  ROOT %r = u32[] get-tuple-element(%t), index=0", None),
        ("  %t = s32[4] constant({...})\n"
         "  ROOT %r = s32[1] dynamic-slice(%t, %id), dynamic_slice_sizes={1}", None),
        ("  %t = u32[2] broadcast(%id), dimensions={}\n"
         "  ROOT %r = u32[1] slice(%t), slice={[0:1]}", None),
    ],
)  # fmt: skip
def test_values(lines: str, expected: int | None) -> None:
    assert value_of(lines) == expected


_SUM = """%sum {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %z = f32[] add(%x, %y)
}

"""


def _branch(number: int) -> str:
    return (
        f"%b{number} {{\n  %x{number} = f32[8] parameter(0)\n"
        f"  ROOT %r{number} = f32[8] all-reduce(%x{number}), channel_id={number + 1}, "
        "replica_groups={{0}}, use_global_device_ids=true, to_apply=%sum\n}\n\n"
    )


def ways(condition: str, branches: str, count: int) -> list[list[str]]:
    """By device, the collectives it comes to; branch n has %r<n>."""
    operands = ", ".join(["%p"] * count)
    text = (
        "HloModule m, num_partitions=6\n\n"
        + _SUM
        + "".join(map(_branch, range(count)))
        + f"ENTRY %main {{\n{_IDS}  %p = f32[8] parameter(0)\n{condition}\n"
        + f"  ROOT %r = f32[8] conditional(%way, {operands}), {branches}\n}}\n"
    )
    reader = ProgramReader(hlo_passes.parse(text), Machine(1, 6))
    return [
        [step.meeting.instruction.name for step in reader.steps(d) if step.waits]
        for d in range(6)
    ]


def test_true_takes_the_first_branch() -> None:
    condition = (
        "  %two = u32[] constant(2)\n  %way = pred[] compare(%id, %two), direction=LT"
    )
    branches = "true_computation=%b0, false_computation=%b1"
    assert ways(condition, branches, 2) == [["r0"]] * 2 + [["r1"]] * 4


def test_an_index_out_of_range_takes_the_last_branch() -> None:
    condition = (
        "  %one = s32[] constant(1)\n  %n = s32[] convert(%id)\n"
        "  %way = s32[] subtract(%n, %one)"
    )
    branches = "branch_computations={%b0, %b1, %b2}"
    assert ways(condition, branches, 3) == [
        ["r2"], ["r0"], ["r1"], ["r2"], ["r2"], ["r2"],
    ]  # fmt: skip


def test_an_unknown_index_takes_every_branch() -> None:
    condition = "  %way = s32[] parameter(1)"
    branches = "branch_computations={%b0, %b1, %b2}"
    assert ways(condition, branches, 3) == [["r0", "r1", "r2"]] * 6
