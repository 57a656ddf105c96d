"""Many devices, and programs whose paths are too many to walk one by one."""

from __future__ import annotations

import random
import tracemalloc

import pytest

import hlo_passes
from benchmarks.family_modules import family_text
from hlo_passes import Pipeline
from hlo_passes.ir.module import Module
from hlo_passes.scheduler.checker import demands, device_order
from hlo_passes.scheduler.checker.programs import ProgramReader
from hlo_passes.scheduler.checker.schedule_checker import (
    IllegalScheduleError,
    check_schedule,
    machine_of,
)
from tests.scheduler.checker.scheduled_modules import module_to_schedule

_ADD = """%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %s = f32[] add(%x, %y)
}
"""


def _module(devices: int, entry: str, before: str = "") -> Module:
    return hlo_passes.parse(
        f"HloModule m, is_scheduled=true, num_partitions={devices}\n\n{_ADD}\n{before}\n"
        f"ENTRY %main {{\n  %p = f32[8] parameter(0)\n{entry}}}\n"
    )


def _reduce(name: str, operand: str, groups: str) -> str:
    return (
        f"%{name} = f32[8] all-reduce(%{operand}), channel_id=1, to_apply=%add, "
        f"replica_groups={groups}, use_global_device_ids=true\n"
    )


def _ring(devices: int, first: int = 0) -> str:
    pairs = (f"{{{k},{(k + 1) % devices}}}" for k in range(first, devices))
    return "{" + ",".join(pairs) + "}"


def _codes(module: Module) -> list[str]:
    return [f.code for f in check_schedule(module)]


# -- devices -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "groups", ["[1,1000000]<=[1000000]", "[125000,8]<=[1000000]"], ids=["one", "many"]
)
def test_a_million_devices_that_do_the_same(
    groups: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All of them keep step: none is run.
    monkeypatch.delattr(device_order._Run, "result")
    assert _codes(_module(10**6, f"  ROOT {_reduce('r', 'p', groups)}")) == []


def test_a_ring_of_many_devices() -> None:
    ring = _ring(40_000)
    text = f"  ROOT %r = f32[8] collective-permute(%p), channel_id=1, source_target_pairs={ring}\n"
    assert _codes(_module(40_000, text)) == []


def _with_branches(devices: int, groups: str) -> Module:
    """Devices with odd numbers take another branch than the others."""
    branches = "".join(
        f"%{name} (q: f32[8]) -> f32[8] {{\n  %q{name} = f32[8] parameter(0)\n"
        f"  ROOT {_reduce(f'r{name}', f'q{name}', groups)}}}\n"
        for name in ("even", "odd")
    )
    entry = (
        "  %id = u32[] partition-id()\n  %one = u32[] constant(1)\n"
        "  %and = u32[] and(%id, %one)\n"
        "  %is_odd = pred[] compare(%and, %one), direction=EQ\n"
        "  ROOT %c = f32[8] conditional(%is_odd, %p, %p), true_computation=%odd, "
        "false_computation=%even\n"
    )
    return _module(devices, entry, branches)


@pytest.mark.parametrize("groups", ["[1,{0}]<=[{0}]", "[{1},2]<=[{0}]"])
def test_many_devices_whose_branches_differ(groups: str) -> None:
    devices = 5_000
    written = groups.format(devices, devices // 2)
    assert _codes(_with_branches(devices, written)) == []


def test_memory_grows_with_the_devices() -> None:
    peaks = []
    for devices in (1_000, 2_000):
        module = _with_branches(devices, f"[1,{devices}]<=[{devices}]")
        tracemalloc.start()
        try:
            assert _codes(module) == []
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    # Tables double in steps, so that 2 is exact for no size; a copy per device gives 4.
    assert peaks[1] < 3 * peaks[0]


@pytest.mark.parametrize("first", [0, 1])
def test_transfers_of_many_devices(first: int) -> None:
    devices = 4_000
    tail = (
        "frontend_attributes={_xla_send_recv_source_target_pairs="
        f"{_ring(devices, first)}}}"
    )
    halves = [
        "  %sent = (f32[8], u32[], token[]) send(%p, %t), channel_id=1, " + tail,
        "  %s = token[] send-done(%sent), channel_id=1",
        "  %got = (f32[8], u32[], token[]) recv(%t), channel_id=1, " + tail,
        "  %d = (f32[8], token[]) recv-done(%got), channel_id=1",
    ]
    root = "  ROOT %r = f32[8] get-tuple-element(%d), index=0"
    for order, expected in (((0, 2, 1, 3), []), ((0, 1, 2, 3), ["C040"])):
        lines = ["  %t = token[] after-all()", *(halves[k] for k in order), root, ""]
        # Without the pair of device 0 the last one sends nothing, and all can end.
        assert _codes(_module(devices, "\n".join(lines))) == ([] if first else expected)


def test_more_devices_than_can_be_followed_are_refused() -> None:
    groups = "{}"
    text = _reduce("r", "p", groups).replace(", use_global_device_ids=true", "")
    assert _codes(_module(2**62, f"  ROOT {text}")) == ["C043"]


@pytest.mark.parametrize("seed", range(12))
def test_devices_that_keep_step_end_when_they_are_run_too(seed: int) -> None:
    draw = random.Random(seed)
    kept = 0
    for _ in range(4):
        module = module_to_schedule(draw, devices=4)
        machine = machine_of(module)
        reader = ProgramReader(module, machine)
        if device_order._all_keep_step(reader):
            kept += 1
            programs = [reader.steps(device) for device in range(machine.devices)]
            assert device_order._Run(programs).result() is None
    assert kept


# -- nesting -------------------------------------------------------------------------

_LEVELS = 60


def _nest(innermost: str, level: str, entry: str, *, devices: int = 2) -> Module:
    """Computations %c0 to %c60 of (s32, f32[8]), each calling the one before twice."""
    shape = "(s32[], f32[8])"
    parts = [
        f"%c{k} (t: {shape}) -> {shape} {{\n  %t{k} = {shape} parameter(0)\n"
        f"  %n{k} = s32[] get-tuple-element(%t{k}), index=0\n"
        f"  %v{k} = f32[8] get-tuple-element(%t{k}), index=1\n"
        + (level if k else innermost).replace("@", str(k)).replace("#", f"c{k - 1}")
        + "}\n"
        for k in range(_LEVELS)
    ]
    conditions = (
        f"%go (q: {shape}) -> pred[] {{\n  %q = {shape} parameter(0)\n"
        "  ROOT %yes = pred[] constant(true)\n}\n"
    )
    main = (
        "  %id = u32[] partition-id()\n  %zero = s32[] convert(%id)\n"
        f"  %begin = {shape} tuple(%zero, %p)\n"
        + entry.replace("#", f"c{_LEVELS - 1}")
        + "  ROOT %r = f32[8] get-tuple-element(%end), index=1\n"
    )
    return _module(devices, main, conditions + "\n".join(parts))


_SHAPE = "(s32[], f32[8])"
_CALL = f"  %end = {_SHAPE} call(%begin), to_apply=%#\n"
_CALLS = (
    f"  %a@ = {_SHAPE} call(%t@), to_apply=%#\n"
    f"  ROOT %b@ = {_SHAPE} call(%a@), to_apply=%#\n"
)
_LOOPS = f"  ROOT %a@ = {_SHAPE} while(%t@), condition=%go, body=%#\n"
_BRANCHES = (
    "  %z@ = s32[] constant(0)\n  %is@ = pred[] compare(%n@, %z@), direction=EQ\n"
    f"  ROOT %a@ = {_SHAPE} conditional(%is@, %t@, %t@), true_computation=%#, "
    "false_computation=%#\n"
)
#: One more addition for each of two calls: the operands are all different.
_COUNTS = (
    "  %one@ = s32[] constant(1)\n  %m@ = s32[] add(%n@, %n@)\n"
    "  %o@ = s32[] add(%m@, %one@)\n"
    f"  %x@ = {_SHAPE} tuple(%m@, %v@)\n  %y@ = {_SHAPE} tuple(%o@, %v@)\n"
    "  %z@ = s32[] constant(0)\n  %is@ = pred[] compare(%n@, %z@), direction=EQ\n"
    f"  ROOT %a@ = {_SHAPE} conditional(%is@, %x@, %y@), true_computation=%#, "
    "false_computation=%#\n"
)
_PERMUTE = (
    "  %w@ = f32[8] collective-permute(%v@), channel_id=1, "
    "source_target_pairs={{0,1},{1,0}}\n"
    f"  ROOT %a@ = {_SHAPE} tuple(%n@, %w@)\n"
)
_TAIL = (
    'channel_id=1, frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1},'
    '{1,0}}"}'
)
_TRANSFER = (
    "  %k@ = token[] after-all()\n"
    f"  %s@ = (f32[8], u32[], token[]) send(%v@, %k@), {_TAIL}\n"
    f"  %g@ = (f32[8], u32[], token[]) recv(%k@), {_TAIL}\n"
    "  %e@ = token[] send-done(%s@), channel_id=1\n"
    "  %d@ = (f32[8], token[]) recv-done(%g@), channel_id=1\n"
    "  %w@ = f32[8] get-tuple-element(%d@), index=0\n"
    f"  ROOT %a@ = {_SHAPE} tuple(%n@, %w@)\n"
)


@pytest.mark.parametrize("innermost", [_PERMUTE, _TRANSFER], ids=["permute", "send"])
@pytest.mark.parametrize(
    "level",
    [_CALLS, _LOOPS, _BRANCHES, _COUNTS],
    ids=["calls", "loops", "branches", "operands"],
)
def test_nested_computations_are_not_walked_path_by_path(
    innermost: str, level: str
) -> None:
    assert _codes(_nest(innermost, level, _CALL)) == []


def test_a_fault_below_many_levels_is_found() -> None:
    late = _TRANSFER.split("\n")
    late[2], late[3] = late[3], late[2]
    assert _codes(_nest("\n".join(late), _CALLS, _CALL)) == ["C040"]


def test_a_condition_that_many_calls_compute_is_found_or_unknown() -> None:
    levels = "\n".join(
        f"%f{k} (n: s32[]) -> s32[] {{\n  %n{k} = s32[] parameter(0)\n"
        f"  %a{k} = s32[] call(%n{k}), to_apply=%f{k - 1}\n"
        f"  ROOT %b{k} = s32[] call(%a{k}), to_apply=%f{k - 1}\n}}\n"
        for k in range(1, _LEVELS)
    )
    first = (
        "%f0 (n: s32[]) -> s32[] {\n  %n0 = s32[] parameter(0)\n"
        "  ROOT %m0 = s32[] negate(%n0)\n}\n"
    )
    branches = "".join(
        f"%{name} (q: f32[8]) -> f32[8] {{\n  %q{name} = f32[8] parameter(0)\n  ROOT "
        + _reduce(f"r{name}", f"q{name}", "{{0,1}}")
        + "}\n"
        for name in ("yes", "no")
    )
    entry = (
        "  %id = u32[] partition-id()\n  %n = s32[] convert(%id)\n"
        f"  %f = s32[] call(%n), to_apply=%f{_LEVELS - 1}\n"
        "  %z = s32[] constant(0)\n  %is = pred[] compare(%f, %z), direction=EQ\n"
        "  ROOT %c = f32[8] conditional(%is, %p, %p), true_computation=%yes, "
        "false_computation=%no\n"
    )
    assert _codes(_module(2, entry, first + levels + branches)) == []


def test_what_it_forgets_changes_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 1,000 instructions it keeps all closures, or the last one alone."""

    def findings() -> str:
        module = hlo_passes.parse(family_text(1000))
        Pipeline.parse(
            "async-collective-creator,async-collective-annotator,hlo-memory-scheduler"
        ).run(module)
        with pytest.raises(IllegalScheduleError) as refused:
            Pipeline.parse("schedule-checker").run(module)
        return str(refused.value)

    kept = findings()
    monkeypatch.setattr(demands, "_KEPT_FOR_EACH", 0)
    monkeypatch.setattr(demands, "_KEPT_IN_ANY_CASE", 1)
    assert kept == findings()
    assert kept.count("C060") > 10
