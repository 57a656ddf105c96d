"""Measured GEMM rates, averaged over the corners of the grid cell around a query.

    (b, m, k, n) = (2, 1500, 3000, 1500) -> 16 corners, weight 1 / (distance^2 + 1)

Corners outside the grid are clamped to it. Dtype triples without rows are looked up
among the bf16 ones by bytes, but dimensions and flops keep the byte factors: so a
bf16 x bf16 -> f32 dot costs 64 times its share. This is what XLA does.

Rows: `data/matmul_perf_*.csv`, flop/s. Source: openxla/xla `matmul_interpolator.cc`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from hlo_passes.ir.shapes import BITS
from hlo_passes.scheduler.latency.data_tables import MATMUL_TABLES, rows
from hlo_passes.scheduler.latency.durations import ticks_of_s
from hlo_passes.scheduler.latency.network import NotEstimated

Point = tuple[int, int, int, int]
Dtypes = tuple[str, str, str]

_LOWEST: Final[Point] = (1, 256, 256, 256)
_HIGHEST: Final[Point] = (4, 4096, 4096, 4096)
_BF16: Final[Dtypes] = ("bf16", "bf16", "bf16")
_BF16_BYTES: Final = 2


@dataclass(frozen=True, slots=True)
class Gemm:
    """A matrix product: sizes in elements and the element types."""

    batch: int
    m: int
    k: int
    n: int
    lhs: str
    rhs: str
    out: str

    @property
    def flops(self) -> int:
        """Two per multiply-add."""
        return 2 * self.batch * self.m * self.k * self.n


@dataclass(frozen=True, slots=True)
class MatmulTable:
    """Rates by dtype triple and (b, m, k, n); `fallback` by bytes."""

    rates: Mapping[Dtypes, Mapping[Point, int]]
    fallback: Mapping[Point, int]

    def ticks(self, gemm: Gemm) -> int:
        """Time of a product."""
        known = self.rates.get((gemm.lhs, gemm.rhs, gemm.out))
        if known is not None:
            query = (gemm.batch, gemm.m, gemm.k, gemm.n)
            return ticks_of_s(gemm.flops / _rate(known, query, _LOWEST, _HIGHEST))
        width = _width(gemm)
        query = (gemm.batch, gemm.m * width, gemm.k * width, gemm.n * width)
        flops = 2.0 * query[0] * query[1] * query[2] * query[3]
        rate = _rate(self.fallback, query, _in_bytes(_LOWEST), _in_bytes(_HIGHEST))
        return ticks_of_s(flops / rate)

    def times_its_share(self, gemm: Gemm) -> int:
        """How often `ticks` counts each flop of a product: 1, 8 or 64."""
        if (gemm.lhs, gemm.rhs, gemm.out) in self.rates:
            return 1
        return _width(gemm) ** 3


def _width(gemm: Gemm) -> int:
    """Bytes of an element of the result."""
    return max(1, (BITS[gemm.out] + 7) // 8)


def _in_bytes(point: Point) -> Point:
    b, m, k, n = point
    return b, _BF16_BYTES * m, _BF16_BYTES * k, _BF16_BYTES * n


def _rate(
    rates: Mapping[Point, int], query: Point, lowest: Point, highest: Point
) -> float:
    """Mean rate of the sixteen corners, weighted by distance; flop/s."""
    axes = []
    for value, low, high in zip(query, lowest, highest, strict=True):
        below = 1 << (max(value, 1).bit_length() - 1)
        above = below if below == value else below * 2
        axes.append([min(max(side, low), high) for side in (below, above)])
    total = weighted = 0.0
    for corner in itertools.product(*axes):
        distance = sum((c - q) ** 2 for c, q in zip(corner, query, strict=True))
        weight = float(np.float32(1) / (np.float32(distance) + np.float32(1)))
        total += weight
        weighted += weight * rates[corner]
    return weighted / total


@functools.cache
def builtin_matmul_table(table_key: str) -> MatmulTable:
    """XLA's table of a device. NotEstimated if there is none."""
    stem = MATMUL_TABLES.get(table_key)
    if stem is None:
        raise NotEstimated(f"no GEMM table for {table_key}")
    rates: dict[Dtypes, dict[Point, int]] = {}
    for row in rows(stem):
        dtypes = (row["lhs_dtype"], row["rhs_dtype"], row["out_dtype"])
        point = (int(row["b"]), int(row["m"]), int(row["k"]), int(row["n"]))
        rates.setdefault(dtypes, {})[point] = int(row["flops_per_sec"])
    fallback = {_in_bytes(point): rate for point, rate in rates[_BF16].items()}
    return MatmulTable(rates, fallback)
