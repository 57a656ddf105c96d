"""Every attribute by name: what XLA prints, what is refused, in which order."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hlo_passes
from hlo_passes.errors import ParseError
from hlo_passes.ir.attribute_tables import ATTRIBUTE_KINDS, opcode_attributes
from hlo_passes.ir.attribute_values import (
    canonical_attributes,
    canonical_header,
    canonical_text,
    in_print_order,
    parse_header_value,
    parse_value,
    value_text,
)
from hlo_passes.ir.opcodes import ROWS
from hlo_passes.ir.windows import Padding, Slice, Window, WindowDimension
from tests.ir.xla_text import xla_attribute, xla_prints

CALL = 'f32[4,4] custom-call(a), custom_call_target="x", {}'
DOT = "f32[4,4] dot(a,a), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, {}"
REDUCE = "f32[4,4] all-reduce(a), to_apply=add, channel_id=1, {}"
WINDOW = "f32[4,4] reduce-window(a, z), to_apply=add, {}"
EXP = "f32[4,4] exponential(a), {}"
ADD = "f32[4,4] add(a, a), {}"
#: (opcode, the instruction, attribute, values that XLA reads)
AGREE = [
    ("custom-call", CALL, "output_to_operand_aliasing",
     ["{{}: (0, {})}", "{{}: (0, {1,2}), {0}: (0,{})}", "{}", "{{}: (0, {}),}"]),
    ("custom-call", CALL, "operand_layout_constraints", ["{f32[4,4]{0,1}}"]),
    ("custom-call", CALL, "literal", ["s32[2]{0} {1,2}", "(s32[] 1, f32[2]{0} {1,2})"]),
    ("custom-call", CALL, "api_version",
     ["API_VERSION_TYPED_FFI", "api_version_typed_ffi", "API_VERSION_ORIGINAL"]),
    ("custom-call", CALL, "schedule", ["SCHEDULE_LATEST", "SCHEDULE_NONE"]),
    ("custom-call", CALL, "padding_type", ["PADDING_SAME", "PADDING_INVALID"]),
    ("custom-call", CALL, "custom_call_has_side_effect", ["true", "false"]),
    ("custom-call", CALL, "feature_group_count", ["1", "2"]),
    ("custom-call", CALL, "dim_labels",
     ["b01f_01io->b01f", "bf_io->bf", "b?f_?io->bf?", "0bf_io0->bf0"]),
    ("custom-call", CALL, "operand_precision", ["{highest}", "{default}", "{HIGH}"]),
    ("dot", DOT, "operand_precision", ["{highest,default}", "{default,default}"]),
    ("dot", DOT, "algorithm", ["dot_bf16_bf16_f32_x3", "unset"]),
    ("all-reduce", REDUCE, "use_global_device_ids", ["true", "false"]),
    ("all-reduce", REDUCE, "constrain_layout", ["true", "false"]),
    ("all-reduce", REDUCE, "mode", ["flattened_id"]),
    ("add", ADD, "statistics",
     ["{visualizing_index=1,foo=1.5,bar=2}", "{}", "{visualizing_index=0}",
      "{visualizing_index=0,foo=1e10,b=123456789,c=0.1234567,d=-0.5}"]),
    ("add", ADD, "origin",
     ['{{"x"}}', '{{"x" {0,1}}}', "{{}}", '{{"x" {}}}', '{({"a"}, {"b" {1}})}']),
    ("exponential", EXP, "result_accuracy",
     ["{mode=highest}", "{mode=default}", "{tolerance={ulps=1,atol=0.5}}"]),
    ("reduce-window", WINDOW, "window",
     ["{size=1x1}", "{size=1x1 stride=1x1 pad=0_0x0_0}", "{pad=1_1x1_1 size=3x3}",
      "{ size=2x2 pad=1_0x0_1 lhs_dilate=1x1 }", "{size=1x1 rhs_reversal=1x0}",
      "{size=1x1 pad=-1_1x1_-1}"]),
]  # fmt: skip
CASES = [
    (opcode, form, name, value)
    for opcode, form, name, values in AGREE
    for value in values
]
REFUSED = [
    ("window", "reduce-window", "{size=1x1 stride=1}", "P230"),
    ("window", "reduce-window", "{size=1x1 size=1x1}", "P230"),
    ("window", "reduce-window", "{size=1x1,stride=1x1}", "P230"),
    ("window", "reduce-window", "{size=3x3 pad=1_1_0x1_1_0}", "P230"),
    ("window", "reduce-window", "{stride=1x1}", "P230"),
    ("window", "reduce-window", "{size=" + "9" * 5000 + "}", "P230"),
    ("padding", "pad", "1_1x", "P231"),
    ("padding", "pad", "1x1", "P231"),
    ("slice", "slice", "{[0]}", "P232"),
    ("slice", "slice", "{[0:1:1:1]}", "P232"),
    ("dim_labels", "convolution", "bb_io->bf", "P233"),
    ("dim_labels", "convolution", "b01f_01io->b0f", "P233"),
    ("dim_labels", "convolution", "b02f_01io->b01f", "P233"),
    ("dimensions", "reduce", "{0,1", "P202"),
    ("dimensions", "reduce", "{0,,1}", "P202"),
    ("channel_id", "all-reduce", "x", "P200"),
    ("constrain_layout", "all-reduce", "True", "P200"),
    ("epsilon", "batch-norm-grad", "1e39", "P200"),
    ("algorithm", "dot", "rng_default", "P204"),
    ("algorithm", "rng-bit-generator", "dot_f32_f32_f32", "P204"),
    ("operand_precision", "dot", "{foo}", "P204"),
    ("direction", "compare", "lt", "P204"),
    ("custom_call_target", "custom-call", "x", "P201"),
    ("operand_layout_constraints", "custom-call", "{f32}", "P010"),
    ("output_to_operand_aliasing", "custom-call", "{{}: 0}", "P263"),
    ("origin", "add", "{" + "(" * 5000 + "}", "P264"),
    ("statistics", "add", "{visualizing_index=0,foo=inf}", "P265"),
    ("result_accuracy", "exponential", "{mode=x}", "P266"),
    ("sparsity_config", "convolution", "{foo={}}", "P267"),
    ("literal", "custom-call", "(" * 5000, "P240"),
]


@pytest.mark.parametrize(("opcode", "form", "name", "value"), CASES)
def test_agrees_with_xla(opcode: str, form: str, name: str, value: str) -> None:
    written = canonical_text(name, value, opcode)
    assert written == xla_attribute(form.format(f"{name}={value}"), name)
    if written is not None:
        assert canonical_text(name, written, opcode) == written


@pytest.mark.parametrize(("name", "opcode", "text", "code"), REFUSED)
def test_refused(name: str, opcode: str, text: str, code: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_value(name, text, opcode)
    assert caught.value.code == code
    assert caught.value.location is not None


@pytest.mark.parametrize(
    ("form", "name", "value"),
    [
        ("f32[4,6] pad(a, z), padding={}", "padding", "0_0_0x0_2_0"),
        ("f32[7,3] pad(a, z), padding={}", "padding", "0_0_1x-1_0"),
        ("f32[2,2] slice(a), slice={}", "slice", "{[0:2], [0:4:2]}"),
        ("f32[2,4] slice(a), slice={}", "slice", "{[0:2:1],[0:4:1]}"),
        ("f32[4,4] rng(z, z), distribution={}", "distribution", "rng_uniform"),
        ("pred[4,4] compare(a, a), direction={}", "direction", "LT"),
    ],
)
def test_required_values_agree_with_xla(form: str, name: str, value: str) -> None:
    expected = xla_attribute(form.format(value), name)
    assert canonical_text(name, value, form.split("(")[0].split()[-1]) == expected


def test_typed_values() -> None:
    assert parse_value("dimensions", "{0, 1}") == (0, 1)
    assert parse_value("slice_sizes", "{1,2}", "gather") == (1, 2)
    assert parse_value("slice_sizes", "{{1,2}}", "collective-permute") == ((1, 2),)
    assert parse_value("to_apply", "%add") == "add"
    assert value_text("to_apply", "add") == "%add"
    assert parse_value("called_computations", "{%a, b}") == ("a", "b")
    assert value_text("called_computations", ("a", "b")) == "{%a, %b}"
    assert value_text("custom_call_target", 'a"b') == '"a\\"b"'
    assert parse_value("unheard-of", "{anything") == "{anything"
    assert parse_value("window", "{size=3 stride=2}") == Window(
        (WindowDimension(3, stride=2),)
    )
    assert parse_value("padding", "1_2") == Padding(((1, 2, 0),))
    assert parse_value("slice", "{[0:2]}") == Slice(((0, 2, 1),))


def test_every_attribute_of_every_opcode_has_a_kind() -> None:
    for opcode in ROWS:
        for name in opcode_attributes(opcode):
            assert name in ATTRIBUTE_KINDS or name == "slice_sizes", (opcode, name)


def test_sugar_has_what_it_wraps() -> None:
    names = list(opcode_attributes("reduce-scatter-start"))
    assert names[0] == "async_execution_thread"
    assert "dimensions" in names
    assert "dimensions" not in opcode_attributes("reduce-scatter-done")


def test_print_order() -> None:
    names = [
        "metadata",
        "to_apply",
        "unknown",
        "replica_groups",
        "sharding",
        "channel_id",
    ]
    ordered = in_print_order(dict.fromkeys(names, "x"), "all-reduce")
    assert " ".join(ordered) == (
        "channel_id replica_groups to_apply unknown sharding metadata"
    )
    assert list(in_print_order({"b_": "", "a_": ""})) == ["b_", "a_"]


def test_canonical_attributes_of_an_instruction() -> None:
    module = hlo_passes.parse(
        "HloModule m\nadd {\n x = f32[] parameter(0)\n y = f32[] parameter(1)\n"
        " ROOT r = f32[] add(x, y)\n}\nENTRY e {\n a = f32[4] parameter(0)\n"
        " ROOT q = (f32[4], f32[4]) all-reduce(a, a), to_apply=add, mode=flattened_id,"
        " sharding={replicated}, constrain_layout=false\n}\n"
    )
    root = module.entry.root
    found = canonical_attributes(root.attributes, root.opcode, root.shape)
    assert list(found.items()) == [
        ("replica_groups", "{}"),
        ("to_apply", "%add"),
        ("sharding", "{{replicated}, {replicated}}"),
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("input_output_alias", "{ {}: (0, {}) }"),
        ("input_output_alias", "{{}:(0,{},must-alias),}"),
        ("input_output_alias", "{}"),
        ("buffer_donor", "{ (0, {}) }"),
        ("entry_computation_layout", "{(f32[4,4]{0,1})->f32[4,4]{0,1}}"),
        ("entry_computation_layout", "{(f32[4,4],)->f32[4,4]}"),
        ("allow_spmd_sharding_propagation_to_output", "true"),
        ("allow_spmd_sharding_propagation_to_output", "{false}"),
        ("allow_spmd_sharding_propagation_to_parameters", "{false,true}"),
        ("replica_count", "2"),
        ("num_partitions", "1"),
        ("is_scheduled", "true"),
        ("alias_passthrough_params", "true"),
        ("frontend_attributes", '{b="1",a={"x":2}}'),
    ],
)
def test_header_agrees_with_xla(name: str, value: str) -> None:
    printed = xla_prints(
        f"HloModule m, {name}={value}\nENTRY e {{ ROOT q = f32[4,4] parameter(0) }}\n"
    )
    expected = hlo_passes.parse(printed).attributes.get(name)
    assert canonical_header({name: value}).get(name) == expected


def test_header_order_and_errors() -> None:
    header = {"zzz": "1", "num_partitions": "2", "is_scheduled": "true"}
    assert list(canonical_header(header)) == ["is_scheduled", "num_partitions", "zzz"]
    for name, bad in [
        ("input_output_alias", "{ {}: 0 }"),
        ("input_output_alias", "{ {}: (0, {}, foo) }"),
        ("buffer_donor", "{ (0) }"),
        ("entry_computation_layout", "{(f32[4])}"),
        ("replica_count", "x"),
    ]:
        with pytest.raises(ParseError):
            parse_header_value(name, bad)


SEEDS = [(name, opcode, value) for opcode, _, name, value in CASES] + [
    (name, opcode, text[:60]) for name, opcode, text, _ in REFUSED
]
SEEDS += [
    (
        "replica_groups",
        "all-reduce",
        "mesh['x'=2,'y'=4], device_ids=([2,4]T(0,1)) {'x'}",
    ),
    ("sharding", "add", "{devices=[2,1,2]<=[4] last_tile_dims={manual} shard_as 1}"),
    ("sharding", "add", "{mesh['x'=2,'y'=2], [{'x'}, {?}], manual={'y'}}"),
    ("metadata", "add", '{op_name="x\\303" source_line=3 profile_type={1}}'),
    ("backend_config", "add", '{"a":{"b":"}"}}'),
]


@given(
    st.sampled_from(SEEDS),
    st.integers(0, 80),
    st.integers(0, 6),
    st.text("{}[]()<=\"'\\%,:;x_-.0129ab /*\n\0é", max_size=4),
)
@settings(max_examples=400)
def test_bad_text_raises_only_parse_errors(
    seed: tuple[str, str, str], at: int, cut: int, new: str
) -> None:
    name, opcode, text = seed
    text = text[:at] + new + text[at + cut :]
    with contextlib.suppress(ParseError):
        value = parse_value(name, text, opcode)
        written = value_text(name, value, opcode)
        if written:
            again = parse_value(name, written, opcode)
            assert value_text(name, again, opcode) == written
