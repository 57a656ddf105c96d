"""What GPU compilers leave in a module means the same in plain HLO."""

from __future__ import annotations

import numpy as np
import pytest

from hlo_passes import runtime
from hlo_passes.errors import UnsupportedHloError
from hlo_passes.runtime.inputs import seeded_inputs
from hlo_passes.runtime.memory import bytes_needed, require
from hlo_passes.runtime.plain.legalize import plain_module
from hlo_passes.text.reader import parse


def run(text: str, *inputs: np.ndarray) -> list[np.ndarray]:
    return [o[0] for o in runtime.load(parse(text))(*(i[np.newaxis] for i in inputs))]


def test_bitcast_reads_the_layouts(host_devices):
    host_devices(1)
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    (b,) = run(
        "HloModule m\n\nENTRY %e (a: f32[3,4]) -> f32[2,6] {\n"
        "  %a = f32[3,4]{0,1} parameter(0)\n"
        "  ROOT %b = f32[2,6]{1,0} bitcast(%a)\n}\n",
        a,
    )
    np.testing.assert_array_equal(b, a.T.reshape(2, 6))


GEMM = """HloModule m

ENTRY %e (a: f32[2,3], b: f32[3,4], c: f32[2,4]) -> f32[2,4] {
  %a = f32[2,3]{1,0} parameter(0)
  %b = f32[3,4]{1,0} parameter(1)
  %c = f32[2,4]{1,0} parameter(2)
  %g = (f32[2,4]{1,0}, s8[64]{0}) custom-call(%a, %b, %c), custom_call_target="__cublas$gemm", backend_config={"gemm_backend_config":{"alpha_real":2,"alpha_imag":0,"beta":3,"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"],"lhs_batch_dimensions":[],"rhs_batch_dimensions":[]},"epilogue":"DEFAULT"}}
  ROOT %r = f32[2,4]{1,0} get-tuple-element(%g), index=0
}
"""


def test_a_gemm_scales_and_adds(host_devices):
    host_devices(1)
    a, b, c = (np.arange(n, dtype=np.float32) for n in (6, 12, 8))
    a, b, c = a.reshape(2, 3), b.reshape(3, 4), c.reshape(2, 4)
    (r,) = run(GEMM, a, b, c)
    np.testing.assert_array_equal(r, 2 * a @ b + 3 * c)


def test_an_epilogue_without_plain_form_is_refused():
    with pytest.raises(UnsupportedHloError, match="GELU"):
        plain_module(parse(GEMM.replace("DEFAULT", "GELU")))


def test_a_convolution_call_scales(host_devices):
    host_devices(1)
    text = """HloModule m

ENTRY %e (a: f32[1,2,5,5], b: f32[3,2,3,3]) -> f32[1,3,5,5] {
  %a = f32[1,2,5,5]{3,2,1,0} parameter(0)
  %b = f32[3,2,3,3]{3,2,1,0} parameter(1)
  %c = (f32[1,3,5,5]{3,2,1,0}, u8[16]{0}) custom-call(%a, %b), window={size=3x3 pad=1_1x1_1}, dim_labels=bf01_oi01->bf01, custom_call_target="__cudnn$convForward", backend_config={"cudnn_conv_backend_config":{"activation_mode":"kNone","conv_result_scale":2,"side_input_scale":0}}
  ROOT %r = f32[1,3,5,5]{3,2,1,0} get-tuple-element(%c), index=0
}
"""
    generator = np.random.default_rng(0)
    a = generator.integers(-3, 4, (1, 2, 5, 5)).astype(np.float32)
    b = generator.integers(-3, 4, (3, 2, 3, 3)).astype(np.float32)
    padded = np.pad(a[0], ((0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    expected = 2 * np.einsum("cijkl,ockl->oij", windows, b)
    np.testing.assert_array_equal(run(text, a, b)[0][0], expected)


@pytest.mark.parametrize(
    ("start", "update"),
    [
        ("((f32[4]{0}, f32[4]{0}), f32[4]{0}) async-start(%a, %b)", "(%s)"),
        ("((f32[4]{0}), f32[4]{0}) async-start(%a)", "(%s, %b)"),
        ("((), f32[4]{0}) async-start()", "(%s, %a, %b)"),
    ],
    ids=["at the start", "one late", "both late"],
)
def test_generic_async_runs_at_its_done(start: str, update: str, host_devices):
    host_devices(1)
    text = """HloModule m

%inside (p: f32[4], q: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  %q = f32[4]{0} parameter(1)
  ROOT %d = f32[4]{0} subtract(%p, %q)
}

ENTRY %e (a: f32[4], b: f32[4]) -> f32[4] {
  %a = f32[4]{0} parameter(0)
  %b = f32[4]{0} parameter(1)
  %s = START, calls=%inside
  %u = ((f32[4]{0}, f32[4]{0}), f32[4]{0}) async-updateUPDATE
  ROOT %r = f32[4]{0} async-done(%u)
}
"""
    text = text.replace("START", start).replace("UPDATE", update)
    a, b = np.arange(4, dtype=np.float32), np.ones(4, np.float32)
    np.testing.assert_array_equal(run(text, a, b)[0], a - b)


def test_top_k_keeps_the_first_of_equals(host_devices):
    host_devices(1)
    a = np.array([1, 3, 3, 2, 3], np.float32)
    values, places = run(
        "HloModule m\n\nENTRY %e (a: f32[5]) -> (f32[3], s32[3]) {\n"
        "  %a = f32[5]{0} parameter(0)\n"
        "  ROOT %t = (f32[3]{0}, s32[3]{0}) topk(%a), k=3, largest=true\n}\n",
        a,
    )
    assert values.tolist() == [3, 3, 3]
    assert places.tolist() == [1, 2, 4]


@pytest.mark.parametrize(
    ("element", "expected"), [("f32", np.nan), ("s32", 1), ("pred", True)]
)
def test_a_buffer_without_values_is_seen(element, expected, host_devices):
    host_devices(1)
    text = (
        f"HloModule m\n\nENTRY %e () -> {element}[2] {{\n"
        f"  ROOT %b = {element}[2]{{0}} custom-call(), "
        'custom_call_target="AllocateBuffer"\n}\n'
    )
    np.testing.assert_array_equal(run(text)[0], [expected] * 2)


SHARDED = """HloModule m, num_partitions=2

ENTRY %e (a: f32[4]) -> f32[4] {
  %a = f32[4]{0} parameter(0), sharding={devices=[2]<=[2]}
  %n = f32[4]{0} negate(%a), sharding={devices=[2]<=[2]}
  ROOT %r = f32[4]{0} negate(%n)
}
"""


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"%n = f32[4]{0} negate(%a), sharding={devices=[2]<=[2]}":
         "%n = f32[4]{0} negate(%a), sharding={mesh['x'=2], [{'x'}]}"},
        {"%a = f32[4]{0} parameter(0), sharding={devices=[2]<=[2]}":
         "%a = f32[4]{0} parameter(0), frontend_attributes={xla.sdy.sharding=\"x\"}",
         "negate(%a), sharding={devices=[2]<=[2]}": "negate(%a)"},
        {"negate(%a), sharding={devices=[2]<=[2]}":
         "custom-call(%a), custom_call_target=\"Sharding\""},
        {"num_partitions=2": "num_partitions=2, is_scheduled=true",
         "negate(%a), sharding={devices=[2]<=[2]}":
         "custom-call(%a), custom_call_target=\"Sharding\""},
    ],
    ids=["tiled", "mesh", "shardy", "custom-call", "scheduled custom-call"],
)  # fmt: skip
def test_a_sharded_instruction_waits_for_the_partitioner(changes):
    text = SHARDED
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    with pytest.raises(UnsupportedHloError, match="not partitioned yet") as caught:
        plain_module(parse(text))
    assert caught.value.code == "S011"


@pytest.mark.parametrize(
    "changes",
    [
        {"num_partitions=2": "num_partitions=2, is_scheduled=true"},
        {"%n = f32[4]{0} negate(%a), sharding={devices=[2]<=[2]}":
         "%n = f32[4]{0} fusion(%a), kind=kLoop, calls=%f",
         "ENTRY": "%f (q: f32[4]) -> f32[4] {\n"
         "  %q = f32[4]{0} parameter(0)\n"
         "  %c = f32[4]{0} copy(%q), sharding={devices=[2]<=[2]}\n"
         "  ROOT %m = f32[4]{0} negate(%c)\n}\n\nENTRY"},
        {"negate(%n)": "collective-permute(%n), channel_id=1, "
         "source_target_pairs={{0,1},{1,0}}"},
        {"negate(%a), sharding={devices=[2]<=[2]}": "negate(%a)"},
        {"negate(%a), sharding={devices=[2]<=[2]}":
         "negate(%a), sharding={replicated}"},
    ],
    ids=["scheduled", "in a fusion", "collective", "parameter", "replicated"],
)  # fmt: skip
def test_a_sharding_that_survived_the_partitioner_does_no_harm(changes):
    text = SHARDED
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    plain_module(parse(text))


def test_a_partitioned_module_keeps_shardings_of_arguments_and_results():
    text = (
        "HloModule m, num_partitions=2\n\nENTRY %e (a: f32[4]) -> f32[4] {\n"
        "  %a = f32[4]{0} parameter(0), sharding={devices=[2]<=[2]}\n"
        "  %n = f32[4]{0} negate(%a), sharding={replicated}\n"
        "  ROOT %r = f32[4]{0} negate(%n), sharding={devices=[2]<=[2]}\n}\n"
    )
    assert plain_module(parse(text)).module.entry.root.operands[0].opcode == "negate"
    # One partition has nothing to partition.
    inner = text.replace("{replicated}", "{devices=[2]<=[2]}")
    with pytest.raises(UnsupportedHloError) as caught:
        plain_module(parse(inner))
    assert caught.value.code == "S011"
    plain_module(parse(inner.replace("num_partitions=2", "num_partitions=1")))


def test_annotations_of_a_program_for_one_device_change_nothing(host_devices):
    host_devices(1)
    text = (
        "HloModule m\n\nENTRY %e (a: f32[4]) -> f32[4] {\n"
        "  %a = f32[4]{0} parameter(0), sharding={replicated}\n"
        '  %s = f32[4]{0} custom-call(%a), custom_call_target="Sharding", '
        "sharding={replicated}\n"
        '  %f = f32[4]{0} custom-call(%s), custom_call_target="xla.sdy.FuncResultSharding"\n'
        "  ROOT %r = f32[4]{0} negate(%f)\n}\n"
    )
    a = np.arange(4, dtype=np.float32)
    (r,) = run(text, a)
    np.testing.assert_array_equal(r, -a)


def test_indices_stay_in_range_and_switches_agree():
    text = """HloModule m, replica_count=8

%body (s: (s32[], f32[9])) -> (s32[], f32[9]) {
  %s = (s32[], f32[9]{0}) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %x = f32[9]{0} get-tuple-element(%s), index=1
  %part = f32[4]{0} dynamic-slice(%x, %i), dynamic_slice_sizes={4}
  %y = f32[9]{0} dynamic-update-slice(%x, %part, %i)
  ROOT %t = (s32[], f32[9]{0}) tuple(%i, %y)
}

%never (s: (s32[], f32[9])) -> pred[] {
  %s = (s32[], f32[9]{0}) parameter(0)
  ROOT %no = pred[] constant(false)
}

ENTRY %e (table: f32[5,2], rows: s32[100], at: s32[], x: f32[9], w: f32[3]) -> (f32[100,2], (s32[], f32[9]), f32[3]) {
  %table = f32[5,2]{1,0} parameter(0)
  %rows = s32[100]{0} parameter(1)
  %at = s32[] parameter(2)
  %x = f32[9]{0} parameter(3)
  %w = f32[3]{0} parameter(4), sharding={replicated}
  %column = s32[100,1]{1,0} reshape(%rows)
  %g = f32[100,2]{1,0} gather(%table, %column), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,2}
  %s = (s32[], f32[9]{0}) tuple(%at, %x)
  %l = (s32[], f32[9]{0}) while(%s), condition=%never, body=%body
  ROOT %t = (f32[100,2]{1,0}, (s32[], f32[9]{0}), f32[3]{0}) tuple(%g, %l, %w)
}
"""
    module = parse(text)
    table, rows, at, x, w = seeded_inputs(
        plain_module(module), module, device_count=8, seed=0
    )
    assert set(np.unique(rows)) == {0, 1, 2, 3, 4}
    assert len(set(at.tolist())) == 1
    assert 0 <= at[0] <= 5
    assert np.unique(x, axis=0).shape[0] == 8
    assert np.unique(w, axis=0).shape[0] == 1
    assert table.shape == (8, 5, 2)


def test_a_module_that_does_not_fit_says_what_it_needs():
    text = (
        "HloModule big, replica_count=8\n\nENTRY %e (a: f32[1048576]) -> f32[] {\n"
        "  %a = f32[1048576]{0} parameter(0)\n"
        "  %b = f32[1048576,1048576]{1,0} broadcast(%a), dimensions={0}\n"
        "  %c = f32[1048576,1048576]{1,0} negate(%b)\n"
        "  %d = f32[1,1]{1,0} slice(%c), slice={[0:1], [0:1]}\n"
        "  ROOT %r = f32[] reshape(%d)\n}\n"
    )
    module = parse(text)
    need = bytes_needed(plain_module(module), device_count=8)
    terabytes = 2 * 4 * 2**40 * 8
    assert terabytes <= need <= terabytes * 1.01
    with pytest.raises(UnsupportedHloError, match=r"big needs 65,53\d\.\d GiB"):
        require(need, module.name)
