"""Calls on SparseCores in the scheduler: modules and costs written by hand."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hlo_passes
from hlo_passes.ir.module import Module
from hlo_passes.scheduler.estimators.table import TableEstimator
from hlo_passes.scheduler.latency_hiding.call_queue import _leads_to
from hlo_passes.scheduler.latency_hiding.driver import schedule_module
from hlo_passes.scheduler.latency_hiding.gpu_tracker import make_tracker
from hlo_passes.scheduler.latency_hiding.resources import Resource, Usage
from hlo_passes.scheduler.latency_hiding.tpu_tracker import LINKS
from hlo_passes.scheduler.memory.pressure import ModuleMemory, PressureState
from hlo_passes.scheduler.memory.tpu_sizes import tpu_sizes
from hlo_passes.scheduler.tpu.settings import tpu_settings
from tests.tpu.test_sparse_core import TEXT

_TILE = "f32[8,128]{1,0:T(8,128)}"
_OF = {
    "all-reduce": "all-reduce(%q{k}), replica_groups={{0,1}}, to_apply=%add{k}",
    "all-gather": "all-gather(%q{k}), replica_groups={{0}}, dimensions={0}",
    "negate": "negate(%q{k})",
}
_CALL_CYCLES = 10.0
_WORK_CYCLES = 5.0
_QUEUING = "xla_tpu_enable_sparse_core_offload_queuing_in_lhs"
_QUEUE_LIMIT = "xla_tpu_sparse_core_offload_queuing_overlap_limit"
_CONCURRENT = "xla_tpu_enable_concurrent_sparse_core_offloading"
#: A start is placed as soon as it is ready.
_CALM = "xla_tpu_use_aggressive_scheduling=false"
_GATHERS = "xla_tpu_enable_sparse_core_collective_offload_all_gather"


def called(k: int, kind: str) -> str:
    """The computations of one call: what runs, and what wraps it."""
    work = _OF[kind].replace("{k}", str(k))
    text = ""
    if "to_apply" in work:
        text = f"""%add{k} (x{k}: f32[], y{k}: f32[]) -> f32[] {{
  %x{k} = f32[]{{:T(128)}} parameter(0)
  %y{k} = f32[]{{:T(128)}} parameter(1)
  ROOT %z{k} = f32[]{{:T(128)}} add(%x{k}, %y{k})
}}, execution_thread="sparsecore"

"""
    return f"""{text}%called{k} (q{k}: f32[8,128]) -> f32[8,128] {{
  %q{k} = {_TILE} parameter(0)
  ROOT %m{k} = {_TILE} {work}
}}, execution_thread="sparsecore"

%wrapped{k} (w{k}: f32[8,128]) -> f32[8,128] {{
  %w{k} = {_TILE} parameter(0)
  ROOT %c{k} = {_TILE} call(%w{k}), to_apply=%called{k}
}}, execution_thread="sparsecore"

"""


def start(k: int, operand: str, rest: str = "") -> str:
    return (
        f"  %b{k} = (({_TILE}), {_TILE}) async-start(%{operand}), "
        f'async_execution_thread="sparsecore", calls=%wrapped{k}{rest}\n'
    )


def program(
    *kinds: str, work: int = 4, rest: str = "", first_last: bool = False
) -> Module:
    """Work, and calls side by side, none of which waits for another.

    Args:
        kinds: of the calls, by number.
        work: instructions beside them.
        rest: what comes after the last start.
        first_last: the first call must start after all others.
    """
    last = len(kinds) - 1
    lines = [f"  %p = {_TILE} parameter(0)\n"]
    starts = [start(k, "p", rest if k == last else "") for k in range(len(kinds))]
    if first_last:
        others = ", ".join(f"%b{k}" for k in range(1, len(kinds)))
        starts = [*starts[1:], start(0, "p", f", control-predecessors={{{others}}}")]
    lines += [f"  %n{k} = {_TILE} negate(%p)\n" for k in range(work)]
    lines += starts
    lines += [f"  %e{k} = {_TILE} async-done(%b{k})\n" for k in range(len(kinds))]
    results = [f"%e{k}" for k in range(len(kinds))] + [f"%n{k}" for k in range(work)]
    shapes = ", ".join(["f32[8,128]"] * len(results))
    tiled = ", ".join([_TILE] * len(results))
    lines.append(f"  ROOT %r = ({tiled}) tuple({', '.join(results)})\n")
    head = (
        "HloModule calls, is_scheduled=true, entry_computation_layout="
        f"{{({_TILE})->({tiled})}}, num_partitions=2\n\n"
    )
    bodies = "".join(called(k, kind) for k, kind in enumerate(kinds))
    text = f"{head}{bodies}ENTRY %main (p: f32[8,128]) -> ({shapes}) {{\n"
    module = hlo_passes.parse(f"{text}{''.join(lines)}}}\n")
    hlo_passes.verify(module)
    return module


def order(module: Module, chip: str, flags: str = "") -> str:
    """Names of the entry after scheduling, without the parameter and the root."""
    starts = [i for i in module.entry.instructions if i.opcode == "async-start"]
    estimator = TableEstimator(
        {i.name: _WORK_CYCLES for i in module.entry.instructions if i.name[0] == "n"},
        {i.name: _CALL_CYCLES for i in starts},
        absent=1.0,
    )
    schedule_module(module, estimator, tpu_settings(chip, flags))
    hlo_passes.verify(module)
    return " ".join(i.name for i in module.entry.instructions if i.name not in "pr")


def at_once(names: str) -> int:
    """The most calls in flight."""
    now = most = 0
    for name in names.split():
        now += {"b": 1, "e": -1}.get(name[0], 0)
        most = max(most, now)
    return most


def test_a_call_that_waits_in_a_queue_starts_earlier_by_what_it_waits() -> None:
    calls = ("all-gather", "all-gather")
    assert order(program(*calls), "tpu7x", _CALM) == "b0 n0 n1 b1 n2 n3 e0 e1"
    both = f"{_CALM},{_QUEUING}=false,{_CONCURRENT}=true"
    kinds = "all-gather", "all-reduce"
    assert order(program(*kinds), "v6e", both) == "n0 n1 b0 b1 n2 n3 e0 e1"
    # Without its queue the chip has one gather at a time.
    apart = order(program(*calls), "tpu7x", f"{_QUEUING}=false")
    assert at_once(apart) == 1
    assert order(program(*calls), "v6e") == order(program(*calls), "v5p")
    assert at_once(order(program(*calls), "v6e", f"{_QUEUING}=true")) == 2


def test_a_queue_has_no_limit_unless_one_is_set() -> None:
    calls = ("all-gather",) * 6
    assert at_once(order(program(*calls), "tpu7x")) == 6
    assert at_once(order(program(*calls), "tpu7x", f"{_QUEUE_LIMIT}=2")) == 2
    flags = "xla_max_concurrent_async_all_gathers=2"
    assert at_once(order(program(*calls), "tpu7x", flags)) == 6


def test_without_a_queue_a_core_has_its_limit_and_a_kind_its_own() -> None:
    calls = ("all-gather", "all-reduce", "negate")
    assert at_once(order(program(*calls), "v6e")) == 1
    assert at_once(order(program(*calls), "v6e", f"{_CONCURRENT}=true")) == 2
    assert at_once(order(program(*calls), "tpu7x", f"{_QUEUING}=false")) == 2
    off = f"{_QUEUING}=false,{_CONCURRENT}=false"
    assert at_once(order(program(*calls), "tpu7x", off)) == 1


def test_what_must_start_later_is_not_put_before() -> None:
    """Dones are taken from the last one: that of the call that must start first."""
    calls = ("all-gather", "all-gather")
    names = order(program(*calls, first_last=True), "tpu7x", _CALM)
    assert names.endswith("b0 n2 n3 e0 e1")
    assert names.index("b1") < names.index("b0")


def test_a_node_that_two_ways_lead_to_is_walked_from_once() -> None:
    """Ten squares, each below the one before, have a thousand ways down."""

    class Counted(list[list[int]]):
        asked = 0

        def __getitem__(self, n: Any) -> Any:
            self.asked += 1
            return super().__getitem__(n)

    below = Counted()
    for n in range(0, 30, 3):
        below += [[n + 1, n + 2], [n + 3], [n + 3]]
    below += [[]]
    state: Any = SimpleNamespace(below=below, placed=bytearray(31))
    assert not _leads_to(state, 0, 99)
    assert below.asked == len(below)


def test_a_group_lets_a_start_go_that_waits_for_a_call_outside() -> None:
    """%e0 joins the queue before %b1, so that %b0 is no candidate beside %n0."""
    text = program("all-gather", "all-gather").to_text()
    for name in ("n0", "b0"):
        group = 'frontend_attributes={_scheduling_group_id="1"}'
        text = re.sub(rf"(%{name} = .*)", rf"\1, {group}", text)
    names = order(hlo_passes.parse(text), "tpu7x", _CALM)
    assert names == "b0 n1 n2 b1 n3 n0 e0 e1"


@given(
    st.lists(st.sampled_from(sorted(_OF)), min_size=1, max_size=5), st.integers(0, 9)
)
def test_a_queue_ends_calls_in_the_order_of_their_starts(
    kinds: list[str], work: int
) -> None:
    names = order(program(*kinds, work=work), "tpu7x").split()
    started = [name[1:] for name in names if name[0] == "b"]
    ended = [name[1:] for name in names if name[0] == "e"]
    for k, one in enumerate(started):
        for other in started[k + 1 :]:
            overlap = names.index(f"b{other}") < names.index(f"e{one}")
            assert not overlap or ended.index(one) < ended.index(other)


def test_resources_of_a_call_are_its_kind_links_and_cores() -> None:
    config = ', backend_config={"sparse_core_config":{"core_ids":["0","1"]}}'
    module = program("all-reduce", "negate", rest=config)
    tracker = make_tracker(tpu_settings("tpu7x"))
    cores = Resource.SPARSE_CORE_0, Resource.SPARSE_CORE_1
    for name, usage, wanted in (
        ("b0", Usage.RELEASE, (Resource.ALL_REDUCE, *LINKS[:4], cores[0])),
        ("e0", Usage.OCCUPY, (Resource.ALL_REDUCE, *LINKS[:4], cores[0])),
        ("b1", Usage.RELEASE, (Resource.SPARSE_CORE_GATHER, *cores)),
        ("e1", Usage.OCCUPY, (Resource.SPARSE_CORE_GATHER, *cores)),
    ):
        half = module.entry.find(name)
        assert half is not None
        assert tracker.resources(half) == tuple((r, usage) for r in wanted)
    assert tracker.is_nonextendable(Resource.SPARSE_CORE_GATHER)
    assert not tracker.is_nonextendable(Resource.SPARSE_CORE_0)


SLICES = """HloModule slices

%reading (a: f32[4,8], k: s32[]) -> f32[1,8] {
  %a = f32[4,8]{1,0:T(8,128)FROM} parameter(0)
  %k = s32[]{:T(128)} parameter(1)
  ROOT %x = f32[1,8]{1,0:T(8,128)} dynamic-slice(%a, %k, %k), dynamic_slice_sizes={1,8}
}

ENTRY %e {
  %p = f32[4,8]{1,0:T(8,128)FROM} parameter(0)
  %i = s32[]{:T(128)} parameter(1)
  %s = ((f32[4,8]{1,0:T(8,128)FROM}, s32[]{:T(128)}), f32[1,8]{1,0:T(8,128)}, u32[]) async-start(%p, %i), calls=%reading
  ROOT %d = f32[1,8]{1,0:T(8,128)} async-done(%s)
}
"""


@pytest.mark.parametrize(
    ("place", "wanted"), [("S(5)", Resource.HOST_TO_DEVICE), ("", None)]
)
def test_slices_are_overlapped(place: str, wanted: Resource | None) -> None:
    """A slice from the host takes a resource; one inside the device takes none."""
    module = hlo_passes.parse(SLICES.replace("FROM", place))
    done = module.entry.root
    first = done.operands[0]
    tracker = make_tracker(tpu_settings("v6e"))
    assert tracker.is_supported_start(first)
    assert tracker.is_supported_done(done)
    assert tracker.resources(first) == (
        () if wanted is None else ((wanted, Usage.RELEASE),)
    )


def test_a_done_without_its_start_is_overlapped() -> None:
    """The start is in another trip of a loop; its work is not in the text."""
    module = hlo_passes.parse("""HloModule m

ENTRY %e {
  %p = ((f32[4,8], s32[]), f32[1,8], u32[]) parameter(0)
  ROOT %d = f32[1,8] async-done(%p)
}
""")
    assert make_tracker(tpu_settings("tpu7x")).is_supported_done(module.entry.root)


def test_settings_of_calls() -> None:
    """A chip is aggressive where its all-gathers are asynchronous."""
    on, off = f"{_GATHERS}=true", f"{_GATHERS}=false"
    rows = {
        ("v6e", ""): (False, False, 1),
        ("v6e", on): (True, False, 1),
        ("v6e", f"{_CONCURRENT}=true"): (False, False, 2),
        ("v6e", f"{_GATHERS}=AUTO"): (False, False, 1),
        ("tpu7x", ""): (True, True, None),
        ("tpu7x", off): (False, True, None),
        ("tpu7x", f"{off},xla_tpu_use_aggressive_scheduling=true"): (True, True, None),
        ("tpu7x", f"{_QUEUE_LIMIT}=3"): (True, True, 3),
        ("tpu7x", f"{_QUEUING}=false"): (True, False, 2),
        ("tpu7x", f"{_QUEUING}=false,{_QUEUE_LIMIT}=3"): (True, False, 2),
    }
    for (chip, flags), wanted in rows.items():
        found = tpu_settings(chip, flags)
        assert (
            found.aggressive_scheduling_policies,
            found.sparse_core_queue,
            found.sparse_core_overlap_limit,
        ) == wanted


def test_a_call_makes_the_memory_of_its_result() -> None:
    """Above all starts nothing is in use but parameters, which do not count."""
    module = hlo_passes.parse(TEXT)
    memory = ModuleMemory(module, sizes=tpu_sizes("v6e")).of(module.entry)
    state = PressureState(memory)
    held = {}
    for k in reversed(range(len(memory.order))):
        state.place(k)
        held[memory.order[k].name] = state.usage_bytes
    # The gathered array and two tables of pointers end with their start.
    assert held["t"] - held["s"] == 128 * 256 * 4 + 2 * 32
    assert held["p"] == 0
