"""Comparing results: equal bits, errors in units of the type, refusals."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from hlo_passes import runtime
from hlo_passes.runtime.arrays_file import checksum, read_arrays, write_arrays
from hlo_passes.text.reader import parse


def test_equal_nans_are_equal_and_other_nans_are_not():
    one = np.array([[np.nan, 1.0]], np.float32)
    same = runtime.compare_outputs([one], [one.copy()])
    assert same.matches
    assert same.max_abs_error == 0
    other = one.copy()
    other.view(np.uint32)[0, 0] ^= 1
    assert not runtime.compare_outputs([one], [other]).matches


def test_zero_and_minus_zero_differ_in_bits_only():
    result = runtime.compare_outputs(
        [np.array([[0.0, 2.0]], np.float32)], [np.array([[-0.0, 2.0]], np.float32)]
    )
    assert not result.bitwise_equal
    assert result.max_abs_error == 0
    assert result.first_difference == (0, (0, 0))


@pytest.mark.parametrize(
    ("dtype", "gap"),
    [
        (np.float32, 2.0**-23),
        (np.float64, 2.0**-52),
        (np.float16, 2.0**-10),
        (ml_dtypes.bfloat16, 2.0**-7),
        (ml_dtypes.float8_e4m3fn, 2.0**-3),
        (np.int32, 1),
    ],
)
def test_one_unit_in_the_last_place(dtype, gap):
    one = np.array([[1, 1]], dtype)
    other = np.array([[1, 1 + gap]]).astype(dtype)
    result = runtime.compare_outputs([one], [other])
    assert result.max_ulp_error == 1
    assert result.max_abs_error == gap
    assert result.first_difference == (0, (0, 1))


def test_infinite_against_finite_is_an_infinite_error():
    result = runtime.compare_outputs([np.array([[1.0]])], [np.array([[np.inf]])])
    assert math.isinf(result.max_abs_error)
    with pytest.raises(runtime.NumericsMismatchError, match="on device 0 at"):
        result.require_match()


def test_a_wrong_rewrite_is_found(host_devices):
    host_devices(2)
    text = """HloModule m, replica_count=2

ENTRY %e (a: f32[4], b: f32[4]) -> f32[4] {
  %a = f32[4]{0} parameter(0)
  %b = f32[4]{0} parameter(1)
  ROOT %r = f32[4]{0} subtract(%a, %b)
}
"""
    before, wrong = parse(text), parse(text.replace("(%a, %b)\n}", "(%b, %a)\n}"))
    assert runtime.compare(before, parse(text)).matches
    result = runtime.compare(before, wrong)
    assert not result.matches
    assert result.pearson == pytest.approx(-1)


def test_modules_of_other_signatures_are_not_compared(host_devices):
    host_devices(1)
    one = parse("HloModule m\n\nENTRY %e (a: f32[4]) -> f32[4] {\n"
                "  ROOT %a = f32[4]{0} parameter(0)\n}\n")  # fmt: skip
    other = parse("HloModule m\n\nENTRY %e (a: f32[5]) -> f32[5] {\n"
                  "  ROOT %a = f32[5]{0} parameter(0)\n}\n")  # fmt: skip
    with pytest.raises(runtime.SignatureError, match="parameters"):
        runtime.compare(one, other)


@pytest.mark.parametrize(
    "dtype",
    [np.bool_, np.float64, np.complex64, ml_dtypes.bfloat16, ml_dtypes.int4,
     ml_dtypes.float8_e5m2, ml_dtypes.float4_e2m1fn],
)  # fmt: skip
def test_files_keep_every_type(dtype, tmp_path):
    arrays = [np.array([[0, 1, 1]]).astype(dtype), np.ones((2,), dtype)]
    path = str(tmp_path / "a.npz")
    write_arrays(path, arrays)
    for kept, array in zip(read_arrays(path), arrays, strict=True):
        assert kept.dtype == array.dtype
        assert kept.tobytes() == array.tobytes()
        assert checksum(kept) == checksum(array)


def test_wide_foreign_types_are_stored_as_bytes(tmp_path):
    path = str(tmp_path / "a.npz")
    write_arrays(path, [np.ones((2, 3), ml_dtypes.bfloat16)])
    with np.load(path) as file:
        assert file["0"].dtype == np.uint8
        assert file["0"].shape == (2, 3, 2)
        assert str(file["0.dtype"]) == "bfloat16"


def test_each_result_that_differs_has_its_figures():
    one = [np.array([[1.0, 2.0]]), np.array([[1.0, 4.0, 0.0]]), np.array([[np.nan]])]
    other = [one[0].copy(), np.array([[1.5, 4.0, 0.0]]), np.array([[1.0]])]
    compared = runtime.compare_outputs(one, other)
    first, second = compared.differences
    assert (first.result, first.elements, first.different) == (1, 3, 1)
    assert (first.max_abs_error, first.max_rel_error) == (0.5, 0.5 / 1.5)
    assert (first.one_sided, first.beyond) == (0, 1)
    assert (second.result, second.different, second.one_sided) == (2, 1, 1)


@pytest.mark.parametrize(
    ("relative", "absolute", "matches"),
    [(0.0, 0.5, True), (0.25, 0.0, False), (0.4, 0.0, True), (0.2, 0.2, True)],
)
def test_tolerances(relative, absolute, matches):
    one = [np.array([[1.0, np.inf, np.nan, -0.0]])]
    other = [np.array([[1.5, np.inf, -np.nan, 0.0]])]
    tolerance = runtime.Tolerance(relative, absolute)
    compared = runtime.compare_outputs(one, other, tolerance)
    assert compared.matches is matches
    assert not compared.bitwise_equal
    # An infinity is within no tolerance of a number, nor of the other infinity.
    for value in (1.0, -np.inf, np.nan):
        wrong = [np.array([[1.0, value, np.nan, 0.0]])]
        assert not runtime.compare_outputs(one, wrong, tolerance).matches
