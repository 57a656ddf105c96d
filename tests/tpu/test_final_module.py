"""The last module of a TPU's compiler in the simulation: one written by hand.

A product runs beside an all-gather that is cut into fusions; its operands come into VMEM
beside other work, one of them in two parts.
"""

from __future__ import annotations

import pytest

import hlo_passes
from hlo_passes import scheduler
from hlo_passes.ir.module import Module
from hlo_passes.pricing import Pricing
from hlo_passes.scheduler.simulation.timeline import Timeline
from hlo_passes.scheduler.tpu.chips import chip
from hlo_passes.scheduler.tpu.continuations import continuations
from hlo_passes.scheduler.tpu.dma import hbm_bytes, is_dma
from hlo_passes.verify import findings
from tests.tpu.test_sparse_core import TEXT as SPARSE_CORE

_CYCLES = 'backend_config={"window_config":{"estimated_cycles":"15000"}}'
_GATHER = (
    "channel_id=7, replica_groups={{0,1}}, dimensions={0}, use_global_device_ids=true"
)
_FLAG = "u32[]{:S(2)}"
TEXT = f"""\
HloModule final, is_scheduled=true, num_partitions=2

%begins (a: f32[512,256]) -> (f32[512,256], f32[1024,256], u32[]) {{
  %a = f32[512,256]{{1,0:T(8,128)}} parameter(0)
  %g = f32[1024,256]{{1,0:T(8,128)}} all-gather(%a), {_GATHER}
  ROOT %m = (f32[512,256]{{1,0:T(8,128)}}, f32[1024,256]{{1,0:T(8,128)}}, {_FLAG}) custom-call(%g), custom_call_target="AsyncCollectiveStart"
}}

%both (b: f32[512,256], c: f32[1024,256], d: u32[], x: f32[256,256]) -> (f32[256,256], f32[512,256], f32[1024,256], f32[1024,256], u32[]) {{
  %b = f32[512,256]{{1,0:T(8,128)}} parameter(0)
  %c = f32[1024,256]{{1,0:T(8,128)}} parameter(1)
  %d = {_FLAG} parameter(2)
  %x = f32[256,256]{{1,0:T(8,128)S(1)}} parameter(3)
  %g.1 = f32[1024,256]{{1,0:T(8,128)}} all-gather(%b), {_GATHER}
  %y = f32[256,256]{{1,0:T(8,128)}} convolution(%x, %x), dim_labels=bf_io->bf
  ROOT %t = (f32[256,256]{{1,0:T(8,128)}}, f32[512,256]{{1,0:T(8,128)}}, f32[1024,256]{{1,0:T(8,128)}}, f32[1024,256]{{1,0:T(8,128)}}, {_FLAG}) tuple(%y, %b, %c, %g.1, %d)
}}

%ends (e: f32[512,256], f: f32[1024,256], h: u32[]) -> f32[1024,256] {{
  %e = f32[512,256]{{1,0:T(8,128)}} parameter(0)
  %f = f32[1024,256]{{1,0:T(8,128)}} parameter(1)
  %h = {_FLAG} parameter(2)
  %g.2 = f32[1024,256]{{1,0:T(8,128)}} all-gather(%e), {_GATHER}
  ROOT %n = f32[1024,256]{{1,0:T(8,128)}} custom-call(%e, %f, %g.2, %h), custom_call_target="AsyncCollectiveDone"
}}

ENTRY %main (p: f32[512,256], q: f32[256,256]) -> (f32[1024,256], f32[256,256]) {{
  %p = f32[512,256]{{1,0:T(8,128)}} parameter(0)
  %q = f32[256,256]{{1,0:T(8,128)}} parameter(1)
  %u = ((f32[256,256]{{1,0:T(8,128)}}), f32[128,256]{{1,0:T(8,128)S(1)}}, s32[]) slice-start(%q), slice={{[0:128], [0:256]}}
  %v = ((f32[256,256]{{1,0:T(8,128)}}), f32[128,256]{{1,0:T(8,128)S(1)}}, s32[]) slice-start(%q), slice={{[128:256], [0:256]}}
  %first = f32[128,256]{{1,0:T(8,128)S(1)}} slice-done(%u)
  %second = f32[128,256]{{1,0:T(8,128)S(1)}} slice-done(%v)
  %z = f32[256,256]{{1,0:T(8,128)S(1)}} custom-call(%first, %second), custom_call_target="ConcatBitcast"
  %begun = (f32[512,256]{{1,0:T(8,128)}}, f32[1024,256]{{1,0:T(8,128)}}, {_FLAG}) fusion(%p), kind=kCustom, calls=%begins
  %i = f32[512,256]{{1,0:T(8,128)}} get-tuple-element(%begun), index=0
  %j = f32[1024,256]{{1,0:T(8,128)}} get-tuple-element(%begun), index=1
  %k = {_FLAG} get-tuple-element(%begun), index=2
  %step = (f32[256,256]{{1,0:T(8,128)}}, f32[512,256]{{1,0:T(8,128)}}, f32[1024,256]{{1,0:T(8,128)}}, f32[1024,256]{{1,0:T(8,128)}}, {_FLAG}) fusion(%i, %j, %k, %z), kind=kOutput, calls=%both, {_CYCLES}
  %o = f32[512,256]{{1,0:T(8,128)}} get-tuple-element(%step), index=1
  %l = f32[1024,256]{{1,0:T(8,128)}} get-tuple-element(%step), index=2
  %r = {_FLAG} get-tuple-element(%step), index=4
  %ended = f32[1024,256]{{1,0:T(8,128)}} fusion(%o, %l, %r), kind=kCustom, calls=%ends
  %w = f32[256,256]{{1,0:T(8,128)}} get-tuple-element(%step), index=0
  ROOT %out = (f32[1024,256]{{1,0:T(8,128)}}, f32[256,256]{{1,0:T(8,128)}}) tuple(%ended, %w)
}}
"""
_ON = Pricing(target="v5e", estimator="tpu-final")
#: The product, the gathered array over two directions of links, half of %q from HBM.
_PRODUCT_US = 15000 / 1500
_GATHER_US = 1024 * 256 * 4 / (2 * 50e9) * 1e6
_HALF_US = 128 * 256 * 4 / 819e9 * 1e6


def _module(text: str = TEXT) -> Module:
    module = hlo_passes.parse(text)
    assert not findings(module)
    return module


def _simulated(text: str = TEXT) -> Timeline:
    return scheduler.simulate(_module(text), _ON)


def test_a_product_hides_the_all_gather_that_it_is_cut_into() -> None:
    found = _simulated()
    (row,) = found.collectives
    assert (row.name, row.done, row.opcode) == ("begun", "ended", "all-gather")
    assert (row.bytes, row.groups) == (1024 * 256 * 4, "{{0,1}}")
    assert row.latency_us == pytest.approx(_GATHER_US)
    assert row.exposed_us == pytest.approx(_GATHER_US - _PRODUCT_US)
    assert found.step_time_us == pytest.approx(2 * _HALF_US + _GATHER_US)


def test_parts_come_into_vmem_one_after_the_other() -> None:
    copies = [s for s in _simulated().spans if s.kind == "copy"]
    assert [(s.name, s.lane) for s in copies] == [("u", "dma 0"), ("v", "dma 0")]
    assert copies[1].start_us == pytest.approx(copies[0].end_us)
    assert copies[1].end_us == pytest.approx(2 * _HALF_US)


def test_what_has_no_price_is_counted() -> None:
    assert "no price" not in " ".join(_simulated().remarks)
    unknown = TEXT.replace('"ConcatBitcast"', '"tpu_custom_call"')
    assert any("no price for 1 operation" in r for r in _simulated(unknown).remarks)
    rows = scheduler.estimate(_module(unknown), _ON)
    assert any("no price for 1 operation" in remark for remark in rows.remarks)


def test_estimate_shows_the_time_between_the_two_fusions() -> None:
    rows = {r.name: r for r in scheduler.estimate(_module(), _ON).rows}
    assert rows["begun"].node_cost_us == rows["ended"].node_cost_us == 0.0
    assert rows["begun"].latency_us == pytest.approx(_GATHER_US)
    assert rows["ended"].latency_us is None
    assert rows["step"].node_cost_us == pytest.approx(_PRODUCT_US)
    assert rows["u"].latency_us == pytest.approx(_HALF_US)


def test_two_devices_of_a_chip_share_its_memory() -> None:
    text = TEXT.replace("S(1)", "S(3)")
    on = Pricing(target="v4", estimator="tpu-final")
    rows = {r.name: r for r in scheduler.estimate(_module(text), on).rows}
    assert rows["u"].latency_us == pytest.approx(128 * 256 * 4 / (1200e9 / 2) * 1e6)


def test_an_end_whose_begin_is_elsewhere_takes_the_time() -> None:
    text = TEXT.replace("fusion(%o, %l, %r), kind", "fusion(%p, %l, %r), kind")
    found = continuations(_module(text).entry)
    assert {i.name: half for i, half in found.alone.items()} == {
        "begun": "start",
        "ended": "done",
    }
    timeline = _simulated(text)
    (row,) = timeline.collectives
    assert (row.name, row.cause_kind) == ("ended", "synchronous")
    assert row.exposed_us == pytest.approx(_GATHER_US)
    (note,) = (n for n in timeline.notes if "other half" in n)
    assert note.startswith("2 fusions begin or end a collective")
    rows = {r.name: r for r in scheduler.estimate(_module(text), _ON).rows}
    assert rows["begun"].latency_us is None
    assert rows["ended"].latency_us == pytest.approx(_GATHER_US)


def test_other_custom_fusions_are_none() -> None:
    other = _module(TEXT.replace("AsyncCollectiveDone", "Other")).entry
    assert [i.name for i in continuations(other).alone] == ["begun"]
    plain = TEXT.replace("kind=kCustom", "kind=kLoop")
    assert not continuations(_module(plain).entry).alone


@pytest.mark.parametrize("channel", ["channel_id=7, ", ""])
def test_halves_belong_together_by_what_they_pass_on(channel: str) -> None:
    """Two at once, with one channel or none: the first that begins ends first."""
    head, _, entry = TEXT.partition("ENTRY")
    second = head.partition("\n\n")[2]
    for name in ("begins", "ends", "both", "a", "g", "m", "e", "f", "h", "g.2", "n"):
        second = second.replace(f"%{name} ", f"%{name}_ ").replace(
            f"%{name})", f"%{name}_)"
        )
        second = second.replace(f"%{name},", f"%{name}_,")
    second = second.partition("%both_")[0] + "%ends_" + second.partition("%ends_")[2]
    again = """  %begun_ = (f32[512,256]{1,0:T(8,128)}, f32[1024,256]{1,0:T(8,128)}, u32[]{:S(2)}) fusion(%p), kind=kCustom, calls=%begins_
  %i_ = f32[512,256]{1,0:T(8,128)} get-tuple-element(%begun_), index=0
  %j_ = f32[1024,256]{1,0:T(8,128)} get-tuple-element(%begun_), index=1
  %k_ = u32[]{:S(2)} get-tuple-element(%begun_), index=2
"""
    entry = entry.replace("  %begun =", again + "  %begun =")
    end = "  %ended_ = f32[1024,256]{1,0:T(8,128)} fusion(%i_, %j_, %k_), kind=kCustom, calls=%ends_\n"
    entry = entry.replace("  %w = f32", end + "  %w = f32")
    text = (head + second + "ENTRY" + entry).replace("channel_id=7, ", channel)
    if not channel:
        text = text.replace(", use_global_device_ids=true", "")
        text = text.replace("num_partitions=2", "replica_count=2")
    found = continuations(_module(text).entry).done_of
    assert {begin.name: end.name for begin, end in found.items()} == {
        "begun": "ended",
        "begun_": "ended_",
    }


@pytest.mark.parametrize("half", ["begins", "ends"])
def test_a_half_may_compute_something_too(half: str) -> None:
    text = TEXT.replace(f"calls=%{half}", f"calls=%{half}, {_CYCLES}")
    found = _simulated(text)
    beside = _GATHER_US if half == "begins" else _PRODUCT_US
    assert found.step_time_us == pytest.approx(2 * _HALF_US + _PRODUCT_US + beside)
    assert found.compute_us == pytest.approx(2 * _PRODUCT_US)


def test_what_passes_it_on_is_no_collective() -> None:
    text = TEXT.replace("kind=kOutput, calls=%both", "kind=kCustom, calls=%both")
    assert [row.name for row in _simulated(text).collectives] == ["begun"]


def test_the_schedulers_statistic_knows_none_of_it() -> None:
    found = scheduler.simulate(_module(), _ON, xla_statistic=True)
    assert found.compute_us == pytest.approx(_PRODUCT_US)


def test_pairs_are_found_both_ways() -> None:
    entry = _module().entry
    found = continuations(entry)
    begun, ended = (
        next(i for i in entry.instructions if i.name == n) for n in ("begun", "ended")
    )
    assert found.done_of == {begun: ended}
    assert found.start_of == {ended: begun}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("(f32[8]{0:T(256)S(1)}, f32[8]{0:T(256)}, u32[]) copy-start(%p)", 32),
        ("(f32[8]{0:T(256)}, f32[8]{0:T(256)}, u32[]) copy-start(%p)", 64),
        ("(f32[8]{0:T(256)S(5)}, f32[8]{0:T(256)}, u32[]) copy-start(%p)", None),
        (
            "((f32[8]{0:T(256)}), f32[2]{0:T(256)S(1)}, s32[]) slice-start(%p), slice={[0:2]}",
            8,
        ),
        ("f32[8]{0:T(256)} negate(%p)", None),
        (
            "(f32[8]{0:T(256)}, f32[8]{0:T(256)}) collective-permute-start(%p), "
            "source_target_pairs={{0,1}}",
            None,
        ),
    ],
)
def test_what_a_copy_inside_the_chip_moves(line: str, expected: int | None) -> None:
    module = hlo_passes.parse(
        "HloModule m\n\nENTRY %main {\n  %p = f32[8]{0:T(256)} parameter(0)\n"
        f"  ROOT %s = {line}\n}}\n"
    )
    start = module.entry.root
    assert is_dma(start) == (expected is not None)
    if expected is not None:
        assert hbm_bytes(start) == expected


def test_a_part_of_memory_is_written_by_as_many_bytes() -> None:
    module = hlo_passes.parse("""HloModule m

%put (a: f32[8], b: f32[2], i: s32[]) -> f32[8] {
  %a = f32[8]{0:T(256)} parameter(0)
  %b = f32[2]{0:T(256)} parameter(1)
  %i = s32[] parameter(2)
  ROOT %u = f32[8]{0:T(256)} dynamic-update-slice(%a, %b, %i)
}

ENTRY %main {
  %p = f32[8]{0:T(256)} parameter(0)
  %q = f32[2]{0:T(256)} parameter(1)
  %z = s32[] constant(0)
  %s = ((f32[8]{0:T(256)}, f32[2]{0:T(256)}, s32[]), f32[8]{0:T(256)}, s32[]) async-start(%p, %q, %z), calls=%put
  ROOT %d = f32[8]{0:T(256)} async-done(%s)
}
""")
    start = next(i for i in module.entry.instructions if i.name == "s")
    assert is_dma(start)
    assert hbm_bytes(start) == 16  # read and written


def test_gpus_have_no_such_lanes() -> None:
    """The same numbers of memories mean other things there."""
    assert chip("v5e").hbm_bytes_per_s == 819e9
    module = hlo_passes.parse("""HloModule m, is_scheduled=true, num_partitions=2

ENTRY %main {
  %p = f32[8]{0} parameter(0)
  %s = (f32[8]{0:S(1)}, f32[8]{0}, u32[]) copy-start(%p)
  ROOT %d = f32[8]{0:S(1)} copy-done(%s)
}
""")
    lanes = {s.lane for s in scheduler.simulate(module, target="h100_sxm").spans}
    assert "dma 0" not in lanes


def test_a_copy_that_the_cores_wait_for_takes_the_bytes_time() -> None:
    copied = "  %cc = f32[256,256]{1,0:T(8,128)S(1)} copy(%q)\n  %u ="
    text = TEXT.replace("  %u =", copied)
    rows = {r.name: r for r in scheduler.estimate(_module(text), _ON).rows}
    assert rows["cc"].node_cost_us == pytest.approx(2 * _HALF_US)
    inside = text.replace("copy(%q)", "copy(%z)").replace("  %cc =", "  %unused =")
    head, line, tail = inside.partition("  %unused =")
    moved, _, rest = tail.partition("\n")
    inside = head + rest.replace("  %begun =", f"{line}{moved}\n  %begun =")
    assert any("no price for 1 operation" in r for r in _simulated(inside).remarks)


def test_vmem_is_a_memory_of_its_own() -> None:
    found = _simulated()
    # The two halves of %q are its array.
    (vmem,) = found.footprint.near_memories
    assert (vmem.name, vmem.peak_bytes, vmem.scoped_bytes) == ("VMEM", 256 * 256 * 4, 0)
    assert found.footprint.to_json()["vmem"]["peak_bytes"] == 256 * 256 * 4
    assert "256.0 KiB of VMEM at the peak" in found.to_text()
    padded = TEXT.replace("T(8,128)S(1)", "T(8,1024)S(1)")
    (vmem,) = _simulated(padded).footprint.near_memories
    assert vmem.peak_bytes == 4 * 256 * 256 * 4
    apart = TEXT.replace("ConcatBitcast", "Other")
    (vmem,) = _simulated(apart).footprint.near_memories
    assert vmem.peak_bytes == 2 * 256 * 256 * 4
    plain = TEXT.replace("S(1)", "").replace("S(2)", "")
    assert not _simulated(plain).footprint.near_memories
    assert "VMEM" not in _simulated(plain).to_text()
    assert "vmem" not in _simulated(plain).footprint.to_json()


def test_a_kernel_takes_some_for_itself() -> None:
    scoped = 'estimated_cycles":"15000"},"used_scoped_memory_configs" : [{"memory_space":"1","offset":"0","size":"4096"},{"memory_space":"2","size":"9"}]'
    text = TEXT.replace('estimated_cycles":"15000"}', scoped)
    (vmem,) = _simulated(text).footprint.near_memories
    assert vmem.scoped_bytes == 4096
    assert "up to 4.0 KiB of VMEM in a kernel" in _simulated(text).to_text()


def test_v4_has_another_memory_too() -> None:
    on = Pricing(target="v4", estimator="tpu-final")
    found = scheduler.simulate(_module(TEXT.replace("S(1)", "S(3)")), on)
    assert [each.name for each in found.footprint.near_memories] == ["CMEM"]


def test_a_call_on_a_sparse_core_is_one_collective() -> None:
    text = SPARSE_CORE.replace("negate(%p)", f"negate(%p), {_CYCLES}")
    module = hlo_passes.parse(text)
    (row,) = scheduler.simulate(module, target="v6e", estimator="tpu-final").collectives
    assert (row.name, row.opcode) == ("s", "all-gather")
    assert row.latency_us == pytest.approx(128 * 256 * 4 / (2 * 100e9) * 1e6)


_SUM = f"""\
HloModule sums, is_scheduled=true, num_partitions=4

%add (x: f32[], y: f32[]) -> f32[] {{
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %z = f32[] add(%x, %y)
}}

%kept (k: f32[1024]) -> f32[256] {{
  %k = f32[1024]{{0:T(1024)}} parameter(0)
  %i = s32[] constant(0)
  %sum = f32[1024]{{0:T(1024)}} all-reduce(%k), channel_id=1, replica_groups={{{{0,1,2,3}}}}, use_global_device_ids=true, to_apply=%add
  ROOT %mine = f32[256]{{0:T(256)}} dynamic-slice(%sum, %i), dynamic_slice_sizes={{256}}
}}

ENTRY %main (a: f32[1024], b: f32[512]) -> (f32[256], f32[1024], f32[512], f32[4096]) {{
  %a = f32[1024]{{0:T(1024)}} parameter(0)
  %b = f32[512]{{0:T(512)}} parameter(1)
  %slice = f32[256]{{0:T(256)}} fusion(%a), kind=kCustom, calls=%kept
  %both = (f32[1024]{{0:T(1024)}}, f32[512]{{0:T(512)}}) all-reduce(%a, %b), channel_id=2, replica_groups={{{{0,1,2,3}}}}, use_global_device_ids=true, to_apply=%add
  %c = f32[1024]{{0:T(1024)}} get-tuple-element(%both), index=0
  %d = f32[512]{{0:T(512)}} get-tuple-element(%both), index=1
  %n = f32[512]{{0:T(512)}} negate(%d), {_CYCLES}
  %wide = f32[4096]{{0:T(1024)}} all-gather(%c), channel_id=3, replica_groups={{{{0,1,2,3}}}}, dimensions={{0}}, use_global_device_ids=true
  ROOT %out = (f32[256]{{0:T(256)}}, f32[1024]{{0:T(1024)}}, f32[512]{{0:T(512)}}, f32[4096]{{0:T(1024)}}) tuple(%slice, %c, %n, %wide)
}}
"""


@pytest.mark.parametrize(
    ("name", "passing"),
    [
        # Summed in parts, which each device keeps: once.
        ("slice", 1024 * 4),
        # Summed in parts, then gathered: twice, and all of what was combined.
        ("both", 2 * (1024 + 512) * 4),
        ("wide", 4096 * 4),
    ],
)
def test_bytes_pass_over_the_links(name: str, passing: int) -> None:
    rows = {r.name: r for r in scheduler.estimate(_module(_SUM), _ON).rows}
    assert rows[name].node_cost_us == pytest.approx(passing / (2 * 50e9) * 1e6)
