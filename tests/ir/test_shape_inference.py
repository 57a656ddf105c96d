"""`infer_shape` by opcode, and against the shapes that jaxlib fills in."""

from __future__ import annotations

import pytest

import hlo_passes
from hlo_passes.ir.shape_inference import RULES, ShapeError, infer_shape
from hlo_passes.ir.shape_parser import parse_shape

COMPUTATIONS = """\
%add {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(%x, %y)
}

%add2 {
  %a0 = f32[] parameter(0)
  %b0 = s32[] parameter(1)
  %a1 = f32[] parameter(2)
  %b1 = s32[] parameter(3)
  %sa = f32[] add(%a0, %a1)
  %sb = s32[] add(%b0, %b1)
  ROOT %pair = (f32[], s32[]) tuple(%sa, %sb)
}

%less {
  %l = f32[] parameter(0)
  %r = f32[] parameter(1)
  ROOT %less.1 = pred[] compare(%l, %r), direction=LT
}

%negated {
  %n = f32[4,8] parameter(0)
  ROOT %negate.1 = f32[4,8] negate(%n)
}

%body {
  %s = (s32[], f32[4,8]) parameter(0)
  ROOT %copy.1 = (s32[], f32[4,8]) copy(%s)
}

%condition {
  %c = (s32[], f32[4,8]) parameter(0)
  ROOT %always = pred[] constant(true)
}
"""

PARAMETERS = """\
  %m = f32[4,8] parameter(0)
  %t = f32[8,4]{0,1} parameter(1)
  %i = s32[4,8] parameter(2)
  %p = pred[4,8] parameter(3)
  %h = bf16[4,8] parameter(4)
  %c = c64[4,8] parameter(5)
  %scalar = f32[] parameter(6)
  %zero = s32[] parameter(7)
  %flag = pred[] parameter(8)
  %image = f32[2,9,9,3] parameter(9)
  %kernel = f32[3,3,3,16] parameter(10)
  %square = f32[2,4,4] parameter(11)
  %rows = s32[5,1] parameter(12)
  %updates = f32[5,8] parameter(13)
  %state = (s32[], f32[4,8]) parameter(14)
  %tk = token[] parameter(15)
  %feature = f32[8] parameter(16)
"""

#: Right-hand sides without their shape.
INSTRUCTIONS = [
    "add(%m, %m)",
    "add(%i, %i)",
    "complex(%m, %m)",
    "compare(%m, %m), direction=LT",
    "and(%p, %p)",
    "negate(%t)",
    "abs(%c)",
    "real(%c)",
    "is-finite(%h)",
    "not(%i)",
    "exponential(%h)",
    "copy(%t)",
    "clamp(%scalar, %m, %scalar)",
    "select(%p, %m, %m)",
    "select(%flag, %t, %t)",
    "concatenate(%m, %m, %m), dimensions={1}",
    "dot(%m, %t), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    (
        "dot(%square, %square), lhs_batch_dims={0}, lhs_contracting_dims={2}, "
        "rhs_batch_dims={0}, rhs_contracting_dims={1}"
    ),
    (
        "convolution(%image, %kernel), "
        "window={size=3x3 stride=2x2 pad=0_1x1_1}, dim_labels=b01f_01io->b01f"
    ),
    "reduce(%m, %scalar), dimensions={1}, to_apply=%add",
    "reduce(%m, %i, %scalar, %zero), dimensions={0}, to_apply=%add2",
    (
        "reduce-window(%m, %scalar), window={size=2x3 stride=2x1 pad=0_0x1_1}, "
        "to_apply=%add"
    ),
    "map(%m, %m), dimensions={0,1}, to_apply=%add",
    "sort(%m), dimensions={1}, to_apply=%less",
    "transpose(%m), dimensions={1,0}",
    "reverse(%m), dimensions={0}",
    "pad(%m, %scalar), padding=1_2x-1_0_1",
    (
        "gather(%m, %rows), offset_dims={1}, collapsed_slice_dims={0}, "
        "start_index_map={0}, index_vector_dim=1, slice_sizes={1,8}"
    ),
    (
        "scatter(%m, %rows, %updates), update_window_dims={1}, "
        "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
        "index_vector_dim=1, to_apply=%add"
    ),
    "tuple(%m, %i, %tk)",
    "get-tuple-element(%state), index=1",
    "call(%m), to_apply=%negated",
    "while(%state), condition=%condition, body=%body",
    "conditional(%flag, %m, %m), true_computation=%negated, false_computation=%negated",
    "conditional(%zero, %m, %m), branch_computations={%negated, %negated}",
    "cholesky(%square), lower=true",
    (
        "triangular-solve(%square, %square), left_side=true, lower=true, "
        "transpose_a=NO_TRANSPOSE"
    ),
    "fft(%c), fft_type=FFT, fft_length={8}",
    "fft(%m), fft_type=RFFT, fft_length={8}",
    (
        "batch-norm-inference(%m, %feature, %feature, %feature, %feature), "
        "epsilon=0.001, feature_index=1"
    ),
    "batch-norm-training(%m, %feature, %feature), epsilon=0.001, feature_index=1",
    "get-dimension-size(%m), dimensions={1}",
    "set-dimension-size(%m, %zero), dimensions={1}",
    "after-all(%tk)",
    "partition-id()",
    "replica-id()",
    "add-dependency(%m, %tk)",
]


def module_of(instruction: str) -> str:
    return (
        f"HloModule m\n\n{COMPUTATIONS}\nENTRY %main {{\n{PARAMETERS}"
        f"  ROOT %result = {instruction}\n}}\n"
    )


@pytest.mark.parametrize("instruction", INSTRUCTIONS)
def test_shape_is_jaxlibs(instruction: str) -> None:
    hlo = pytest.importorskip("jaxlib._hlo")
    text = module_of(instruction)
    ours = hlo_passes.parse(text).entry.root.shape
    printed = hlo.hlo_module_from_text(text).to_string()
    assert ours == hlo_passes.parse(printed).entry.root.shape


@pytest.mark.parametrize(
    ("opcode", "operands", "attributes", "message"),
    [
        ("add", ["f32[8]", "f32[9]"], {},
         "add: operands of different shapes, f32[8] and f32[9]; HLO has no implicit "
         "broadcast"),
        ("add", ["f32[8]"], {}, "add: takes 2 operands, but it has 1"),
        ("get-tuple-element", ["(f32[8])"], {}, "get-tuple-element: index= is missing"),
        ("get-tuple-element", ["f32[8]"], {"index": "0"},
         "get-tuple-element: takes a tuple, not f32[8]{0}"),
        ("transpose", ["f32[2,3]"], {"dimensions": "{0,2}"},
         "transpose: {0,2} is not an order of f32[2,3]{1,0}"),
        ("all-gather", ["f32[8]"], {}, "all-gather has no shape inference"),
        ("convert", ["f32[8]"], {}, "convert has no shape inference"),
        ("frobnicate", ["f32[8]"], {}, "frobnicate has no shape inference"),
    ],
)  # fmt: skip
def test_error(
    opcode: str, operands: list[str], attributes: dict[str, str], message: str
) -> None:
    with pytest.raises(ShapeError) as caught:
        infer_shape(opcode, [parse_shape(o) for o in operands], attributes)
    assert caught.value.message == message


def test_every_rule_answers_or_refuses_an_empty_question() -> None:
    """Without operands only what needs none has a shape; nothing fails otherwise."""
    answered = set()
    for opcode in RULES:
        try:
            infer_shape(opcode, [], {})
        except hlo_passes.HloError:
            continue
        answered.add(opcode)
    assert answered == {"tuple", "after-all", "partition-id", "replica-id"}
