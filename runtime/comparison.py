"""Runs two modules on the same inputs: are the results equal, and how far apart?

    comparison = runtime.compare(before, after, seed=0)
    comparison.matches, comparison.max_ulp_error

Two NaNs with equal bits are equal; errors are taken over the elements that are finite
on both sides, all results together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hlo_passes.errors import HloError, UsageError
from hlo_passes.ir.module import Module
from hlo_passes.runtime.devices import topology_of
from hlo_passes.runtime.dtypes import is_native
from hlo_passes.runtime.executable import Executable, load_plain
from hlo_passes.runtime.inputs import inputs_by_shape, seeded_inputs
from hlo_passes.runtime.plain.legalize import plain_module
from hlo_passes.runtime.plain.refusals import require_valid


class SignatureError(UsageError):
    """The two modules take or return different arrays, or need different devices."""

    default_code = "U020"


class NumericsMismatchError(HloError):
    """Results differ; see `Comparison.require_match`."""

    default_code = "R010"


@dataclass(frozen=True, slots=True)
class Difference:
    """How one result of two runs differs.

    Attributes:
        result: its number.
        elements: on all devices together.
        different: how many of them differ in a bit.
        max_abs_error: largest difference of two finite elements.
        max_rel_error: the largest such difference divided by the other run's element;
            inf where that is zero.
        max_ulp_error: in units in the last place of the type (integers: 1).
        one_sided: elements that are finite on one side only, or are different
            infinities, or infinite and not a number.
        beyond: elements beyond the tolerances; `different` without tolerances.
    """

    result: int
    elements: int
    different: int
    max_abs_error: float
    max_rel_error: float
    max_ulp_error: float
    one_sided: int
    beyond: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of two runs on the same inputs.

    Attributes:
        bitwise_equal: every bit of every result.
        matches: the verdict: bitwise equal, or within the tolerances that were given.
        max_abs_error: largest difference of two finite elements; inf if one side
            is finite and the other is not; 0.0 without elements.
        max_ulp_error: the same in units in the last place of the type (integers: 1).
        pearson: correlation of all finite elements; 1.0 if both are constant and
            equal; None if it is not defined.
        first_difference: (result, index over (devices, *shape)) or None.
        differences: one for each result that differs.
    """

    bitwise_equal: bool
    matches: bool
    max_abs_error: float
    max_ulp_error: float
    pearson: float | None
    first_difference: tuple[int, tuple[int, ...]] | None
    differences: tuple[Difference, ...] = ()

    def require_match(self) -> None:
        """Raise NumericsMismatchError R010 unless the results match."""
        if self.matches or self.first_difference is None:
            return
        result, index = self.first_difference
        raise NumericsMismatchError(
            f"results differ, first in result {result} on device {index[0]} at "
            f"{list(index[1:])}: largest error {self.max_abs_error:g}, "
            f"{self.max_ulp_error:g} ulp"
        )


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far results may be apart: |one - other| <= absolute + relative * |other|.

    Elements that are not finite must be equal; two NaNs are, whatever their bits.
    """

    relative: float = 0.0
    absolute: float = 0.0


def compare(
    before: Module, after: Module, *, seed: int = 0, tolerance: Tolerance | None = None
) -> Comparison:
    """Run two modules on the same seeded inputs and compare their results.

    Both run on the devices of this job, with the inputs of `inputs.seeded_inputs`.
    They match if every bit is equal, or within the tolerance if there is one.

    Raises:
        SignatureError: U020, parameters, results or devices differ.
        VerificationError, UnsupportedHloError, DeviceCountError, CompilationError: see
            `load`.
        TypeError: for anything but a module, such as a text.
    """
    for module in (before, after):
        require_valid(module)
    topology = topology_of(before)
    plain = plain_module(before)
    first = load_plain(plain, before, *topology)
    inputs = seeded_inputs(plain, before, device_count=first.device_count, seed=seed)
    second = load_plain(plain_module(after), after, *topology_of(after))
    require_same_signature(first, second)
    return compare_outputs(first(*inputs), second(*inputs), tolerance)


def require_same_signature(first: Executable, second: Executable) -> None:
    """Raise SignatureError unless both take and return the same arrays."""
    pairs = (
        ("devices", first.device_count, second.device_count),
        (
            "parameters",
            inputs_by_shape(first.parameters),
            inputs_by_shape(second.parameters),
        ),
        ("results", inputs_by_shape(first.results), inputs_by_shape(second.results)),
    )
    for what, one, other in pairs:
        if one != other:
            raise SignatureError(
                f"the two modules differ in their {what}: {one} and {other}",
                hint="compare a module with a pass's result for it",
            )


def compare_outputs(
    one_run: Sequence[np.ndarray],
    other_run: Sequence[np.ndarray],
    tolerance: Tolerance | None = None,
) -> Comparison:
    """Compare two lists of arrays of equal shapes and types."""
    first_difference: tuple[int, tuple[int, ...]] | None = None
    differences: list[Difference] = []
    finite_one: list[np.ndarray] = []
    finite_other: list[np.ndarray] = []
    for number, (one, other) in enumerate(zip(one_run, other_run, strict=True)):
        differs = _bits(one) != _bits(other)
        wide_one, wide_other = _wide(one), _wide(other)
        finite = np.isfinite(wide_one) & np.isfinite(wide_other)
        finite_one.append(wide_one[finite])
        finite_other.append(wide_other[finite])
        if not differs.any():
            continue
        if first_difference is None:
            index = np.unravel_index(int(np.argmax(differs)), differs.shape)
            first_difference = (number, tuple(int(i) for i in index))
        differences.append(
            _difference(number, one, wide_one, wide_other, differs, finite, tolerance)
        )
    is_infinite = any(each.one_sided for each in differences)
    worst = [float("inf")] if is_infinite else [0.0]
    return Comparison(
        bitwise_equal=not differences,
        matches=not any(each.beyond for each in differences),
        max_abs_error=max(worst + [each.max_abs_error for each in differences]),
        max_ulp_error=max(worst + [each.max_ulp_error for each in differences]),
        pearson=_pearson(_joined(finite_one), _joined(finite_other)),
        first_difference=first_difference,
        differences=tuple(differences),
    )


def _difference(
    number: int,
    one: np.ndarray,
    wide_one: np.ndarray,
    wide_other: np.ndarray,
    differs: np.ndarray,
    finite: np.ndarray,
    tolerance: Tolerance | None,
) -> Difference:
    """The figures of one result; `one` has its type, the wide ones the values."""
    here = differs & finite
    errors = np.abs(wide_one[here] - wide_other[here])
    sizes = np.abs(wide_other[here])
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.where(errors == 0, 0, errors / sizes)
    larger = np.maximum(np.abs(wide_one[here]), sizes)
    apart = differs & ~finite
    one_sided = apart & ~(np.isnan(wide_one) & np.isnan(wide_other))
    beyond = int(differs.sum())
    if tolerance is not None:
        allowed = tolerance.absolute + tolerance.relative * sizes
        beyond = int((errors > allowed).sum() + one_sided.sum())
    return Difference(
        result=number,
        elements=differs.size,
        different=int(differs.sum()),
        max_abs_error=float(errors.max(initial=0)),
        max_rel_error=float(relative.max(initial=0)),
        max_ulp_error=float((errors / _ulp(one, larger)).max(initial=0)),
        one_sided=int(one_sided.sum()),
        beyond=beyond,
    )


def _bits(array: np.ndarray) -> np.ndarray:
    """The bit patterns, one unsigned integer per element (complex: two, combined)."""
    if array.dtype.kind == "c":
        pairs = np.ascontiguousarray(array).view(f"u{array.itemsize // 2}")
        halves = pairs.reshape(*array.shape, 2)
        return halves[..., 0].astype(object) + (halves[..., 1].astype(object) << 64)
    if array.itemsize == 1 and not is_native(array.dtype) and "int" in array.dtype.name:
        return array.astype(np.int8)
    return np.ascontiguousarray(array).view(f"u{array.itemsize}")


def _wide(array: np.ndarray) -> np.ndarray:
    """The values in a type in which differences can be computed."""
    if array.dtype.kind == "c":
        return array.astype(np.complex128)
    return array.astype(np.longdouble)


def _ulp(array: np.ndarray, magnitude: np.ndarray) -> np.ndarray:
    """The gap from each magnitude to the next number of the array's type."""
    dtype = np.real(array).dtype if array.dtype.kind == "c" else array.dtype
    if dtype.kind in "biu" or "int" in dtype.name:
        return np.ones(magnitude.shape)
    if is_native(dtype):
        return np.spacing(magnitude.astype(dtype)).astype(np.longdouble)
    import ml_dtypes

    info = ml_dtypes.finfo(dtype)
    _, exponent = np.frexp(np.maximum(magnitude, float(info.smallest_normal)))
    return np.ldexp(np.longdouble(1), exponent - 1 - info.nmant)


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    real: list[np.ndarray] = []
    for part in parts:
        flat = part.reshape(-1)
        real += [np.real(flat), np.imag(flat)] if part.dtype.kind == "c" else [flat]
    return np.concatenate(real) if real else np.zeros(0, np.longdouble)


def _pearson(one: np.ndarray, other: np.ndarray) -> float | None:
    if one.size == 0:
        return None
    a, b = one - one.mean(), other - other.mean()
    scale = float(np.sqrt((a * a).sum() * (b * b).sum()))
    if scale == 0.0:
        return 1.0 if np.array_equal(one, other) else None
    return float((a * b).sum()) / scale
