"""Numbers in text: what fits 64 bits is read, anything else is refused or left alone.

constant(0000..0001)                 1, however many zeros
_scheduling_group_id="9999..9999"    error[E021]
suggested_combiner_threshold="--5"   as if it were not there
"""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hlo_passes
from hlo_passes import PassContext, Pipeline
from hlo_passes.analysis.scheduling_annotations import annotation_of
from hlo_passes.errors import ParseError, PassError
from hlo_passes.scheduler import simulate
from hlo_passes.scheduler.passes.stream_values import Stream, annotated_number
from hlo_passes.scheduler.tuning.lever import Flag
from hlo_passes.whole_numbers import integer_of, number_of_digits, whole_number
from hlo_passes.xla_release import is_beyond_known
from tests.modules import REPOSITORY

#: Python refuses to read so many digits.
ZEROS, NINES = "0" * 5000, "9" * 5000


@given(st.integers(-(1 << 64), 1 << 64), st.sampled_from(["", "0", "0" * 30, ZEROS]))
def test_what_fits_is_read_and_nothing_else(number: int, zeros: str) -> None:
    sign = "-" if number < 0 else ""
    text = f"{sign}{zeros}{abs(number)}"
    fits = -(1 << 63) <= number < 1 << 63
    assert number_of_digits(text) == number
    assert integer_of(f" {text}\n") == (number if fits else None)
    assert whole_number(text) == (number if fits and not sign else None)


@given(st.text("0123456789+-_ .e٣²x", max_size=6))
def test_only_ascii_digits_are_a_number(text: str) -> None:
    signed = re.fullmatch(r" *[+-]?[0-9]+ *", text)
    bare = re.fullmatch(r"[0-9]+", text)
    assert integer_of(text) == (int(text) if signed else None)
    assert whole_number(text) == (int(text) if bare else None)


@pytest.mark.parametrize("sign", ["", "-"])
def test_what_has_too_many_digits_fits_no_field(sign: str) -> None:
    assert abs(number_of_digits(sign + NINES)) == 1 << 64
    assert integer_of(sign + NINES) is whole_number(NINES) is None


def module(line: str, header: str = "") -> hlo_passes.Module:
    return hlo_passes.parse(
        f"HloModule m, is_scheduled=true{header}\n\n"
        "%s (x: f32[], y: f32[]) -> f32[] {\n  %x = f32[] parameter(0)\n"
        "  %y = f32[] parameter(1)\n  ROOT %z = f32[] add(%x, %y)\n}\n\n"
        "ENTRY %e (a: f32[4]) -> f32[4] {\n  %a = f32[4]{0} parameter(0)\n"
        f"  {line}\n  ROOT %r = f32[4]{{0}} negate(%a)\n}}\n"
    )


@pytest.mark.parametrize(
    "line",
    [
        f"%c = s32[] constant({ZEROS}1)",
        f"%c = s32[] constant(-{ZEROS}1)",
        f"%c = s32[2]{{0}} constant({{{ZEROS}1, 2}})",
        f"%c = pred[] constant({ZEROS}1)",
        f"%t = (f32[4]{{0}}) tuple(%a)\n"
        f"  %c = f32[4]{{0}} get-tuple-element(%t), index={ZEROS}0",
        "%i = f32[] constant(0)\n  %c = f32[4]{0} reduce-window(%a, %i), "
        f"window={{size={ZEROS}1}}, to_apply=%s",
        f"%c = f32[4]{{0}} all-reduce(%a), channel_id={ZEROS}1, replica_groups={{}}, "
        "to_apply=%s",
    ],
    ids=["integer", "negative", "list", "truth", "element", "window", "channel"],
)
def test_zeros_in_front_change_nothing(line: str) -> None:
    many, none = module(line), module(line.replace(ZEROS, ""))
    hlo_passes.verify(many)
    if "constant" not in line:
        assert many.to_canonical_text() == none.to_canonical_text()
    for name in ("hlo-cse", "while-loop-unroller", "latency-hiding-scheduler"):
        Pipeline.parse(name, PassContext(target="h100_sxm")).run(many)
    assert simulate(many, hosts=1) is not None


def test_zeros_in_front_of_the_numbers_of_devices_change_nothing() -> None:
    found = module("", f", num_partitions={ZEROS}2, replica_count={ZEROS}3")
    hlo_passes.verify(found)
    assert (found.num_partitions, found.replica_count) == (2, 3)


@pytest.mark.parametrize("number", [NINES, "٣", "1_0", "--5"])
def test_annotations_that_are_no_number_are_refused(number: str) -> None:
    line = '%c = f32[4]{{0}} negate(%a), frontend_attributes={{{}="{}"}}'
    group = module(line.format("_scheduling_group_id", number))
    with pytest.raises(PassError, match="E021"):
        annotation_of(group.entry.instructions[1])
    stream = module(line.format("_xla_stream_annotation", number))
    with pytest.raises(PassError, match="E020"):
        annotated_number(stream.entry.instructions[1])


@pytest.mark.parametrize("number", [NINES, "٣", "--5"])
def test_hints_that_are_no_number_count_as_absent(number: str) -> None:
    line = "%c = f32[4]{0} all-reduce(%a), replica_groups={}, to_apply=%s"
    header = f', frontend_attributes={{suggested_combiner_threshold="{number}"}}'
    Pipeline.parse("gpu-all-reduce-combiner").run(module(line, header))
    assert Flag("xla_some", number).value == number


def test_streams_and_releases_of_thousands_of_digits() -> None:
    with pytest.raises(ParseError, match="P270"):
        Stream.parse(f"compute {NINES}")
    assert Stream.parse(f"compute {ZEROS}2") == Stream("compute", 2)
    assert not is_beyond_known(f"0.{NINES}")


def test_digits_become_numbers_in_one_place() -> None:
    """`isdecimal` before `int` lets through what `int` refuses."""
    only_looks = {
        "hlo_passes/ir/module.py", "hlo_passes/ir/windows.py",
        "hlo_passes/verify/calls.py", "scheduler/page/lanes.py",
    }  # fmt: skip
    counts_digits_or_catches = {
        "hlo_passes/files.py", "hlo_passes/ir/device_tiles.py",
        "hlo_passes/text/tuple_access.py", "scheduler/simulation/arguments.py",
        "scheduler/sweep/run.py",
    }  # fmt: skip
    asking = {
        str(path.relative_to(REPOSITORY))
        for folder in ("hlo_passes", "scheduler", "runtime")
        for path in (REPOSITORY / folder).rglob("*.py")
        if re.search(r"\.is(decimal|digit|numeric)\(", path.read_text("utf-8"))
    }
    assert asking == only_looks | counts_digits_or_catches
