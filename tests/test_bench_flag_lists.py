"""What the table of `benchmarks.bench_flag_lists` says of a list."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.bench_flag_lists import given_text

TIMES = "XLA's table takes 64 times their share for 11 matrix products"
MISSING = "no price for 8 operations"


@pytest.mark.parametrize(
    ("change", "step_us", "remarks", "told"),
    [
        (-0.0634, 9.4, [], "-6.3%"),
        (0.0001, 10.0, [TIMES], "0"),
        (None, 51.0, [TIMES, MISSING], f"not comparable: {MISSING}"),
        (None, None, [], "refused"),
    ],
)
def test_a_step_with_other_gaps_is_compared_with_nothing(
    change: float | None, step_us: float | None, remarks: list[str], told: str
) -> None:
    row: dict[str, Any] = {"remarks": [TIMES]}
    given = {"change": change, "step_us": step_us, "remarks": remarks}
    assert given_text(given, row) == told
