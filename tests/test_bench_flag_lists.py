"""What the table of `benchmarks.bench_flag_lists` says of a list."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.bench_flag_lists import given_text

TIMES = "XLA's table takes 64 times their share for 11 matrix products"
MISSING = "no price for 8 operations"


@pytest.mark.parametrize(
    ("change", "remarks", "told"),
    [
        (-0.0634, [], "-6.3%"),
        (0.0001, [TIMES], "0"),
        (4.1, [TIMES, MISSING], f"not comparable: {MISSING}"),
        (None, [MISSING], "refused"),
    ],
)
def test_a_step_with_other_gaps_is_compared_with_nothing(
    change: float | None, remarks: list[str], told: str
) -> None:
    row: dict[str, Any] = {"remarks": [TIMES]}
    assert given_text({"change": change, "remarks": remarks}, row) == told
