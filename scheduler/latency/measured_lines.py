"""The time of a way to carry a collective, as a line that a user measured.

    copied-exchange:12.5:95        12.5 us, and 95 GB/s of what each device sends
    line.us(bytes_sent("all-to-all", 1 << 20, 8))

`hlo-passes calibrate` fits such lines, and writes them into the description of a target
as a comment, which XLA ignores:

    # backend-lines: copied-exchange:12.5:95 peer-permute:7:110
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from hlo_passes.scheduler.latency.backend_rows import line_rows

#: What a device sends of the message of a collective of n devices, in units of (n-1)/n.
_ROUNDS: Final = {
    "all-gather": 1,
    "reduce-scatter": 1,
    "all-to-all": 1,
    "all-reduce": 2,
}
#: Figures beyond these are mistakes.
_MOST: Final = 1e9
_LEAST_RATE: Final = 1e-9
_FORM: Final = "ROW:SETUP_US:GB_PER_S, as in copied-exchange:12.5:95"


@dataclass(frozen=True, slots=True)
class MeasuredLine:
    """A measured line.

    Attributes:
        row: the row of `collective_backends.csv` that it prices.
        setup_us: time of a message without bytes, us.
        gb_per_s: rate of what each device sends, 1e9 bytes/s.
    """

    row: str
    setup_us: float
    gb_per_s: float

    @staticmethod
    def parse(text: str) -> MeasuredLine:
        """From `ROW:SETUP_US:GB_PER_S`.

        Raises ValueError for another form, no figures, and rows without a line.
        """
        row, *figures = text.split(":")
        try:
            setup, rate = map(float, figures)
        except ValueError:
            raise ValueError(f"{text!r} is not {_FORM}") from None
        is_meant = row and 0 <= setup <= _MOST and _LEAST_RATE <= rate <= _MOST
        if not is_meant or "_" in text:
            raise ValueError(f"{text!r} is not {_FORM}")
        if row not in line_rows():
            raise ValueError(f"lines price {' '.join(line_rows())}, not {row}")
        return MeasuredLine(row, setup, rate)

    @property
    def text(self) -> str:
        """As `parse` reads it, with six digits."""
        return f"{self.row}:{self.setup_us:.6g}:{self.gb_per_s:.6g}"

    def us(self, sent_bytes: float) -> float:
        """Time of a message of which each device sends so many bytes, us."""
        return self.setup_us + sent_bytes / (1e3 * self.gb_per_s)


def bytes_sent(kind: str, size_bytes: int, devices: int) -> float:
    """What each device sends at least.

    Args:
        kind: of collective.
        size_bytes: of its message: gathered result, reduced array, whole input,
            operand of a permute.
        devices: in a group.
    """
    if kind not in _ROUNDS:
        return float(size_bytes)
    return _ROUNDS[kind] * size_bytes * (devices - 1) / devices


def spans_where_less(
    line_us: Callable[[int], float],
    other_us: Callable[[int], float],
    sizes: Iterable[int],
) -> tuple[tuple[int, int], ...]:
    """Where a line costs less: the first and the last size of each span, in bytes.

    Args:
        line_us: price of the line for a message of so many bytes.
        other_us: price of what it is compared with.
        sizes: in bytes, ascending.
    """
    spans: list[tuple[int, int]] = []
    goes_on = False
    for size in sizes:
        is_less = line_us(size) < other_us(size)
        if is_less and goes_on:
            spans[-1] = (spans[-1][0], size)
        elif is_less:
            spans.append((size, size))
        goes_on = is_less
    return tuple(spans)
