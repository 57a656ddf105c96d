"""Groups of results in one reduction kernel, held to grids that XLA logged.

Two or three results of f32[512,256], on H100: 64 blocks per group.
"""

from __future__ import annotations

import pytest

from hlo_passes.scheduler.fusions.fused_graph import FusedGraph
from hlo_passes.scheduler.fusions.kernel import kernel_of
from hlo_passes.scheduler.hardware.target import target
from hlo_passes.scheduler.latency.durations import scaled
from tests.scheduler.single_ops import fusion_module

_BLOCKS = 64
_ADD = """%add.1 (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(%x, %y)
}

"""
_HEAD = """%body (a: f32[512,256], b: f32[512,256], p: f32[512], q: f32[512]) -> T {
  %a = f32[512,256]{1,0} parameter(0)
  %b = f32[512,256]{1,0} parameter(1)
  %p = f32[512]{0} parameter(2)
  %q = f32[512]{0} parameter(3)
  %zero = f32[] constant(0)
"""


def _broadcast(name: str, of: str) -> str:
    return f"  %{name} = f32[512,256]{{1,0}} broadcast(%{of}), dimensions={{0}}\n"


def _multiply(name: str, a: str, b: str, shape: str = "f32[512,256]{1,0}") -> str:
    return f"  %{name} = {shape} multiply(%{a}, %{b})\n"


def _reduce(name: str, of: str) -> str:
    return (
        f"  %{name} = f32[512]{{0}} reduce(%{of}, %zero), dimensions={{1}}, "
        "to_apply=%add.1\n"
    )


_PQ = _multiply("pq", "p", "q", "f32[512]{0}")
_TWO = _multiply("x", "a", "u") + _multiply("y", "b", "v")
_REDUCED = _reduce("s", "x") + _reduce("t", "y")
_RESULTS = ("f32[512]{0} s", "f32[512]{0} t")

#: What two results share, the body, the results, groups up to 0.10.2 and in 0.12.
CASES = {
    "the same broadcast": (
        _broadcast("u", "p")
        + _multiply("x", "a", "u")
        + _multiply("y", "b", "u")
        + _REDUCED,
        _RESULTS, 1, 2,
    ),
    "broadcasts of the same parameter": (
        _broadcast("u", "p") + _broadcast("v", "p") + _TWO + _REDUCED,
        _RESULTS, 1, 2,
    ),
    "a parameter, once broadcast and once multiplied": (
        _broadcast("u", "p") + _PQ + _broadcast("v", "pq") + _TWO + _REDUCED,
        _RESULTS, 1, 2,
    ),
    "the broadcast of a product": (
        _PQ
        + _broadcast("u", "pq")
        + _multiply("x", "a", "u")
        + _multiply("y", "b", "u")
        + _REDUCED,
        _RESULTS, 1, 1,
    ),
    "a parameter of full size": (
        _multiply("x", "a", "b") + _multiply("y", "b", "b") + _REDUCED,
        _RESULTS, 1, 1,
    ),
    "a zero alone": (_reduce("s", "a") + _reduce("t", "b"), _RESULTS, 2, 2),
    "a broadcast, with a result that is not a reduction": (
        _broadcast("u", "p")
        + _multiply("x", "a", "u")
        + _multiply("y", "b", "u")
        + _reduce("s", "x"),
        ("f32[512]{0} s", "f32[512,256]{1,0} y"), 1, 1,
    ),
}  # fmt: skip


def _graph(body: str, results: tuple[str, ...]) -> FusedGraph:
    shapes, names = zip(*(result.split() for result in results), strict=True)
    shape = f"({', '.join(shapes)})"
    root = f"  ROOT %r = {shape} tuple({', '.join(f'%{name}' for name in names)})\n}}"
    text = f"{_ADD}{_HEAD.replace('T {', f'{shape} {{')}{body}{root}"
    return FusedGraph.of(fusion_module(text, "kInput").entry.root)


@pytest.mark.parametrize("shared", CASES)
def test_groups_multiply_the_blocks(shared) -> None:
    body, results, up_to_0_10, in_0_12 = CASES[shared]
    graph, h100 = _graph(body, results), target("h100_sxm")
    kernel = kernel_of(graph, h100)
    assert (kernel.emitter, kernel.launch.blocks) == (
        "reduction", up_to_0_10 * _BLOCKS,
    )  # fmt: skip
    later = kernel_of(graph, h100, broadcasts_join=False)
    assert later.launch.blocks == in_0_12 * _BLOCKS


def test_halves_of_a_tick_fall_as_in_absl() -> None:
    # XLA's 46.5 ns and 32.5 ns, overlapped by 95%, are 48.25 ns: 123 ticks are hidden.
    assert scaled(130, 0.95) == 123
    assert scaled(10, 0.25) == 3
    assert scaled(9_000_000_001, 1.5) == 13_500_000_002
