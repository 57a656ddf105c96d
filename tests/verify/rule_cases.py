"""Small modules, each with the codes that the verifier must find, in text order.

A case without codes is one that XLA accepts and that a stricter verifier might refuse.
`test_rules` checks the codes; `test_against_xla` asks jaxlib about the same texts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

ADD: Final = """\
%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(%x, %y)
}
"""


@dataclass(frozen=True, slots=True)
class Case:
    """A module, the codes expected of it, and whether XLA's verdict is comparable."""

    name: str
    text: str
    codes: tuple[str, ...] = ()
    ask_xla: bool = True


def case(
    name: str, codes: str, body: str, *, before: str = "", header: str = "",
    ask_xla: bool = True,
) -> Case:  # fmt: skip
    """A case whose entry has this body, one instruction a line."""
    lines = "\n".join(f"  {line.strip()}" for line in body.strip().splitlines())
    text = f"HloModule m{header}\n\n{before}\nENTRY %main {{\n{lines}\n}}\n"
    return Case(name, text, tuple(codes.split()), ask_xla)


P: Final = "%p = f32[8] parameter(0)\n"

NAMES: Final = [
    case("plain", "", P + "ROOT %r = f32[8] add(%p, %p)"),
    case("reserved-name", "V003", P + "ROOT %__r = f32[8] add(%p, %p)"),
    case("xla-name", "", P + "ROOT %__xla_r = f32[8] add(%p, %p)"),
    case("operand-count", "V006 V400", P + "ROOT %r = f32[8] add(%p)"),
    case("operand-count-while", "V006 V102 V102", P + "ROOT %r = f32[8] while(%p, %p)"),
    case("parameter-twice", "V008", P + "%q = f32[8] parameter(0)\nROOT %r = f32[8] add(%p, %q)"),
    case("parameter-gap", "V008", "ROOT %p = f32[8] parameter(1)"),
    case(
        "callee-later", "V010",
        P + "ROOT %r = f32[8] call(%p), to_apply=%nobody",
    ),
    case(
        "signature", "V011", P + "ROOT %r = f32[] constant(0)",
        before="%f (x: f32[4]) -> f32[5] {\n  ROOT %x = f32[4] parameter(0)\n}\n",
    ),
]  # fmt: skip

ATTRIBUTES: Final = [
    case("missing-index", "V102", "%p = (f32[8]) parameter(0)\nROOT %r = f32[8] get-tuple-element(%p)"),
    case("unreadable", "V103", P + "ROOT %r = f32[8] reverse(%p), dimensions={x}"),
    case("unreadable-flag", "V103", P + "ROOT %r = f32[8] custom-call(%p), custom_call_target=\"t\", custom_call_has_side_effect=yes"),
    case("bad-word", "V103", P + "ROOT %r = pred[8] compare(%p, %p), direction=ABOVE"),
    case("metadata-field", "V103", P + "ROOT %r = f32[8] negate(%p), metadata={colour=\"red\"}"),
    case("metadata-id-tolerated", "", P + "ROOT %r = f32[8] negate(%p), metadata={op_name=\"n\" stack_frame_id=99}"),
    case("branches-by-flag", "V102 V102 V102", """
        %s = pred[] parameter(0)
        %x = f32[] parameter(1)
        ROOT %r = f32[] conditional(%s, %x, %x), branch_computations={%neg, %neg}
        """, before="%neg {\n  %a = f32[] parameter(0)\n  ROOT %n = f32[] negate(%a)\n}\n"),
]  # fmt: skip

SHAPES: Final = [
    case("result-size", "V402", P + "ROOT %r = f32[9] add(%p, %p)"),
    case("result-type", "V402", P + "ROOT %r = s32[8] add(%p, %p)"),
    case("mixed-precision", "", P + "%h = bf16[8] convert(%p)\nROOT %r = f32[8] add(%p, %h)"),
    case("implicit-broadcast", "V400", P + "%c = f32[] constant(1)\nROOT %r = f32[8] add(%p, %c)"),
    case("types-differ", "V400", P + "%c = s32[8] iota(), iota_dimension=0\nROOT %r = f32[8] add(%p, %c)"),
    case("not-on-float", "V400", P + "ROOT %r = f32[8] and(%p, %p)"),
    case("iota-scalar", "V400", "ROOT %r = s32[] iota(), iota_dimension=0"),
    case("reshape-count", "V400", P + "ROOT %r = f32[9] reshape(%p)"),
    case("transpose-order", "V400", "%p = f32[2,3] parameter(0)\nROOT %r = f32[3,2] transpose(%p), dimensions={0,0}"),
    case("broadcast-size", "V400", P + "ROOT %r = f32[4,9] broadcast(%p), dimensions={1}"),
    case("concatenate", "V402", P + "ROOT %r = f32[17] concatenate(%p, %p), dimensions={0}"),
    case("slice-limit", "V400", P + "ROOT %r = f32[8] slice(%p), slice={[1:9]}"),
    case("slice-stride", "", P + "ROOT %r = f32[3] slice(%p), slice={[0:8:3]}"),
    case("dynamic-slice-indices", "V400", P + "ROOT %r = f32[4] dynamic-slice(%p), dynamic_slice_sizes={4}"),
    case("update-too-large", "V400", """
        %p = f32[8] parameter(0)
        %u = f32[9] parameter(1)
        %i = s32[] constant(0)
        ROOT %r = f32[8] dynamic-update-slice(%p, %u, %i)
        """),
    case("pad", "", P + "%z = f32[] constant(0)\nROOT %r = f32[16] pad(%p, %z), padding=1_0_1"),
    case("pad-wrong", "V402", P + "%z = f32[] constant(0)\nROOT %r = f32[9] pad(%p, %z), padding=1_1"),
    case("dot-contracting", "V400", "%a = f32[2,3] parameter(0)\n%b = f32[4,5] parameter(1)\nROOT %r = f32[2,5] dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
    case("dot-type-free", "", "%a = bf16[2,3] parameter(0)\n%b = bf16[3,5] parameter(1)\nROOT %r = f32[2,5] dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
    case("convolution", "", "%a = f32[1,8,8,3] parameter(0)\n%b = f32[3,3,3,16] parameter(1)\nROOT %r = f32[1,4,4,16] convolution(%a, %b), window={size=3x3 stride=2x2 pad=1_1x1_1}, dim_labels=b01f_01io->b01f"),
    case("convolution-window", "V400", "%a = f32[1,8,8,3] parameter(0)\n%b = f32[3,3,3,16] parameter(1)\nROOT %r = f32[1,4,4,16] convolution(%a, %b), window={size=2x2}, dim_labels=b01f_01io->b01f"),
    case("reduce", "", P + "%z = f32[] constant(0)\nROOT %r = f32[] reduce(%p, %z), dimensions={0}, to_apply=%add", before=ADD),
    case("reduce-dimension", "V400", P + "%z = f32[] constant(0)\nROOT %r = f32[] reduce(%p, %z), dimensions={1}, to_apply=%add", before=ADD),
    case("reduce-parameters", "V400", P + "%z = f32[] constant(0)\nROOT %r = f32[] reduce(%p, %z), dimensions={0}, to_apply=%one", before="%one {\n  ROOT %x = f32[] parameter(0)\n}\n"),
    case("gather", "", "%t = f32[100,4] parameter(0)\n%i = s32[10,1] parameter(1)\nROOT %r = f32[10,4] gather(%t, %i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,4}"),
    case("gather-slices", "V400", "%t = f32[100,4] parameter(0)\n%i = s32[10,1] parameter(1)\nROOT %r = f32[10,4] gather(%t, %i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={2,4}"),
    case("scatter", "", "%t = f32[100] parameter(0)\n%i = s32[10,1] parameter(1)\n%u = f32[10] parameter(2)\nROOT %r = f32[100] scatter(%t, %i, %u), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=%add", before=ADD),
    case("scatter-updates", "V400", "%t = f32[100] parameter(0)\n%i = s32[10,1] parameter(1)\n%u = f32[11] parameter(2)\nROOT %r = f32[100] scatter(%t, %i, %u), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=%add", before=ADD),
    case("tuple-element", "V400", "%p = (f32[8]) parameter(0)\nROOT %r = f32[8] get-tuple-element(%p), index=1"),
    case("bitcast-convert", "", "%p = f32[4] parameter(0)\nROOT %r = u8[4,4] bitcast-convert(%p)"),
    case("bitcast-convert-width", "V402", "%p = f32[4] parameter(0)\nROOT %r = u8[4,2] bitcast-convert(%p)"),
    case("select-predicate", "V400", P + "ROOT %r = f32[8] select(%p, %p, %p)"),
    case("clamp-scalars", "", P + "%z = f32[] constant(0)\nROOT %r = f32[8] clamp(%z, %p, %z)"),
    case("layout", "V403", "%p = f32[4,2]{0,0} parameter(0)\nROOT %r = f32[] constant(0)"),
    case("unbounded", "V405", "%p = f32[?] parameter(0)\nROOT %r = f32[] constant(0)"),
    case("copy-start-shape", "V402 V400", P + "%s = (f32[9], f32[8], u32[]) copy-start(%p)\nROOT %d = f32[9] copy-done(%s)"),
]  # fmt: skip

LITERALS: Final = [
    case("literal", "", "ROOT %c = s32[2,3] constant({ { 1, 2, 3 }, { 4, 5, 6 } })"),
    case("literal-bare", "", "ROOT %c = s32[3] constant(7)"),
    case("literal-elided", "", "ROOT %c = f32[300] constant({...})"),
    case("literal-count", "V404", "ROOT %c = s32[3] constant({1, 2})"),
    case("literal-nesting", "V404", "ROOT %c = s32[3] constant({{1, 2, 3}})"),
    case("literal-range", "V404", "ROOT %c = u8[] constant(256)"),
    case("literal-negative", "V404", "ROOT %c = u8[] constant(-1)"),
    case("literal-float-range", "V404", "ROOT %c = f16[] constant(1e6)"),
    case("literal-decimal", "V404", "ROOT %c = s32[] constant(1.5)"),
    case("literal-special", "", "ROOT %c = f32[3] constant({inf, -inf, nan})"),
    case("literal-scalar-elided", "V404", "ROOT %c = f32[] constant({...})"),
]  # fmt: skip


def _all_gather(groups: str, result: str, more: str = "") -> str:
    return f"{P}ROOT %r = f32[{result}] all-gather(%p), replica_groups={groups}, dimensions={{0}}{more}"


_CHANNEL: Final = ", channel_id=1, use_global_device_ids=true"
_FOUR: Final = ", num_partitions=4"


def _permute(pairs: str) -> str:
    return f"{P}ROOT %r = f32[8] collective-permute(%p), channel_id=1, source_target_pairs={pairs}"


COLLECTIVES: Final = [
    case("gather-sizes", "V400", _all_gather("{{0,1,2,3}}", "24", _CHANNEL), header=_FOUR),
    case("gather-iota", "", _all_gather("[2,2]<=[4]", "16", _CHANNEL), header=_FOUR),
    case("groups-unequal", "V400", _all_gather("{{0,1},{2}}", "16")),
    case("groups-repeat", "V400", _all_gather("{{0,1},{1,2}}", "16")),
    case("groups-range", "V400", _all_gather("{{0,9}}", "16")),
    case("groups-cover", "V400", _all_gather("{{0,1}}", "16", _CHANNEL), header=_FOUR),
    case("groups-empty-group", "V400", _all_gather("{{0,1},{}}", "16")),
    case("groups-empty-flattened", "V400", _all_gather("{}", "16", _CHANNEL), header=_FOUR),
    case("global-without-channel", "V400", _all_gather("{{0,1}}", "16", ", use_global_device_ids=true")),
    case("reduce-groups-unequal", "", P + "ROOT %r = f32[8] all-reduce(%p), replica_groups={{0,1},{2}}, to_apply=%add", before=ADD),
    case("reduce-global-without-channel", "V400", P + "ROOT %r = f32[8] all-reduce(%p), replica_groups={{0}}, use_global_device_ids=true, to_apply=%add", before=ADD),
    case("reduce-channel", "V308", P + "ROOT %r = f32[8] all-reduce(%p), channel_id=-1, replica_groups={{0}}, to_apply=%add", before=ADD, ask_xla=False),
    case("constrain-mixed", "V309", P + "%q = f32[8] all-reduce(%p), to_apply=%add, constrain_layout=true\nROOT %r = f32[8] all-reduce(%q), to_apply=%add", before=ADD),
    case("scatter-divides", "V400", "%p = f32[10] parameter(0)\nROOT %r = f32[3] reduce-scatter(%p), replica_groups={{0,1,2,3}}, dimensions={0}, to_apply=%add", before=ADD),
    case("all-to-all-tuple", "V400", P + "ROOT %r = (f32[8], f32[8]) all-to-all(%p, %p), replica_groups={{0,1,2}}"),
    case("all-to-all-array", "", P + "ROOT %r = f32[8] all-to-all(%p), replica_groups={{0,1,2,3}}, dimensions={0}"),
    case("all-to-all-array-divides", "V400", P + "ROOT %r = f32[8] all-to-all(%p), replica_groups={{0,1,2}}, dimensions={0}"),
    case("permute", "", _permute("{{0,1},{1,0}}"), header=_FOUR),
    case("permute-range", "V400", _permute("{{0,4}}"), header=_FOUR),
    case("permute-range-unknown", "", _permute("{{0,4}}")),
    case("permute-source-twice", "V400", _permute("{{0,1},{0,2}}"), header=_FOUR),
    case("permute-target-twice", "V400", _permute("{{0,2},{1,2}}"), header=_FOUR),
    case("permute-triple", "V103", _permute("{{0,1,2}}"), header=_FOUR),
    case("permute-empty", "", _permute("{}"), header=_FOUR),
    case("permute-several", "", P + "ROOT %r = (f32[8], f32[8]) collective-permute(%p, %p), channel_id=1, source_target_pairs={{0,1}}", header=_FOUR),
    case("permute-several-shape", "V402", P + "ROOT %r = (f32[8], f32[9]) collective-permute(%p, %p), channel_id=1, source_target_pairs={{0,1}}", header=_FOUR),
]  # fmt: skip

_START: Final = (
    P
    + "%s = (f32[8], f32[8]) collective-permute-start(%p), source_target_pairs={{0,1}}\n"
)
_WRAPPED: Final = "%w {\n  %a = f32[8] parameter(0)\n  ROOT %n = f32[8] negate(%a)\n}\n"
_GENERIC: Final = P + "%s = ((f32[8]), f32[8], u32[]) async-start(%p), calls=%w\n"
_SUGAR: Final = (
    P
    + "%s = ((f32[8]), f32[4]) reduce-scatter-start(%p), replica_groups={{0,1}}, dimensions={0}, to_apply=%add\n"
)

ASYNC: Final = [
    case("pair", "", _START + "ROOT %d = f32[8] collective-permute-done(%s)"),
    case("done-dropped", "V501", _START + "ROOT %d = f32[8] get-tuple-element(%s), index=1"),
    case("done-missing", "V501", _START + "ROOT %d = f32[8] negate(%p)"),
    case("done-twice", "V501", _START + "%d = f32[8] collective-permute-done(%s)\nROOT %e = f32[8] collective-permute-done(%s)"),
    case("done-of-another", "V501 V502", _START + "ROOT %d = f32[8] all-gather-done(%s)"),
    case("done-of-nothing", "V502", "%t = (f32[8], f32[8]) parameter(0)\nROOT %d = f32[8] all-gather-done(%t)"),
    case("done-shape", "V402", _START + "ROOT %d = f32[9] collective-permute-done(%s)"),
    case("start-context", "", P + "%s = (f32[8], f32[8], u32[], u32[]) collective-permute-start(%p), source_target_pairs={{0,1}}\nROOT %d = f32[8] collective-permute-done(%s)"),
    case("generic", "", _GENERIC + "ROOT %d = f32[8] async-done(%s), calls=%w", before=_WRAPPED),
    case("generic-update", "", _GENERIC + "%u = ((f32[8]), f32[8], u32[]) async-update(%s)\nROOT %d = f32[8] async-done(%u)", before=_WRAPPED),
    case("generic-done-shape", "V505", _GENERIC + "ROOT %d = f32[9] async-done(%s)", before=_WRAPPED),
    case("generic-start-shape", "V505 V505", P + "%s = (f32[8], f32[8], u32[]) async-start(%p), calls=%w\nROOT %d = f32[8] async-done(%s)", before=_WRAPPED),
    case("generic-unused", "V501", _GENERIC + "ROOT %d = f32[8] negate(%p)", before=_WRAPPED),
    case("generic-misused", "V501 V503", _GENERIC + "ROOT %d = (((f32[8]), f32[8], u32[])) tuple(%s)", before=_WRAPPED),
    case("generic-calls-differ", "V506", _GENERIC + "ROOT %d = f32[8] async-done(%s), calls=%w2", before=_WRAPPED + _WRAPPED.replace("%w", "%w2")),
    case("wrapped-two-operations", "V605", P + "%s = ((f32[8]), f32[8], u32[]) async-start(%p), calls=%w\nROOT %d = f32[8] async-done(%s)", before="%w {\n  %a = f32[8] parameter(0)\n  %b = f32[8] negate(%a)\n  ROOT %n = f32[8] negate(%b)\n}\n"),
    case("sugar", "", _SUGAR + "ROOT %d = f32[4] reduce-scatter-done(%s)", before=ADD),
    case("sugar-other-done", "V502", _SUGAR + "ROOT %d = f32[4] all-to-all-done(%s)", before=ADD),
    case("sugar-groups", "V400", _SUGAR.replace("{{0,1}}", "{{0,1,2}}") + "ROOT %d = f32[4] reduce-scatter-done(%s)", before=ADD),
    case("send", "", P + "%k = token[] after-all()\n%s = (f32[8], u32[], token[]) send(%p, %k), channel_id=1\nROOT %d = token[] send-done(%s), channel_id=1"),
    case("send-channel", "V508", P + "%k = token[] after-all()\n%s = (f32[8], u32[], token[]) send(%p, %k), channel_id=1\nROOT %d = token[] send-done(%s), channel_id=2"),
    case("send-host", "V508", P + "%k = token[] after-all()\n%s = (f32[8], u32[], token[]) send(%p, %k), channel_id=1, is_host_transfer=true\nROOT %d = token[] send-done(%s), channel_id=1"),
    case("recv-unused", "V501 V507", P + "%k = token[] after-all()\n%s = (f32[8], u32[], token[]) recv(%k), channel_id=1\nROOT %d = f32[8] negate(%p)"),
]  # fmt: skip

_BODY: Final = "%body {\n  %b = (s32[], f32[8]) parameter(0)\n  ROOT %t = (s32[], f32[8]) copy(%b)\n}\n"
_CONDITION: Final = "%cond {\n  %c = (s32[], f32[8]) parameter(0)\n  ROOT %q = pred[] constant(true)\n}\n"
_LOOP: Final = "%p = (s32[], f32[8]) parameter(0)\nROOT %r = (s32[], f32[8]) while(%p), condition=%cond, body=%body"
_FUSED: Final = (
    "%fused {\n  %a = f32[8] parameter(0)\n  ROOT %n = f32[8] negate(%a)\n}\n"
)

CALLS: Final = [
    case("while", "", _LOOP, before=_BODY + _CONDITION),
    case("while-condition", "V400", _LOOP, before=_BODY + _CONDITION.replace("pred[] constant(true)", "s32[] constant(1)")),
    case("while-body", "V400", _LOOP, before=_BODY.replace("f32[8]", "f32[9]") + _CONDITION),
    case("while-thread", "V604", _LOOP, before=_BODY.rstrip() + ', execution_thread="other"\n' + _CONDITION),
    case("fusion", "", P + "ROOT %r = f32[8] fusion(%p), kind=kLoop, calls=%fused", before=_FUSED),
    case("fusion-shape", "V601", P + "ROOT %r = f32[9] fusion(%p), kind=kLoop, calls=%fused", before=_FUSED),
    case("fusion-operand", "V601", "%p = f32[9] parameter(0)\nROOT %r = f32[8] fusion(%p), kind=kLoop, calls=%fused", before=_FUSED),
    case("fusion-operands", "V601", "ROOT %r = f32[8] fusion(), kind=kLoop, calls=%fused", before=_FUSED),
    case("fusion-shared", "V602", P + "%q = f32[8] fusion(%p), kind=kLoop, calls=%fused\nROOT %r = f32[8] fusion(%q), kind=kLoop, calls=%fused", before=_FUSED),
    case("fusion-dead-value", "V606", P + "ROOT %r = f32[8] fusion(%p), kind=kLoop, calls=%fused", before=_FUSED.replace("  ROOT", "  %z = f32[] constant(0)\n  ROOT")),
    case("fusion-kind", "V103", P + "ROOT %r = f32[8] fusion(%p), kind=kBig, calls=%fused", before=_FUSED),
    case("call-shape", "V402", P + "ROOT %r = f32[9] call(%p), to_apply=%fused", before=_FUSED),
    case("call-operands", "V400", "ROOT %r = f32[8] call(), to_apply=%fused", before=_FUSED),
    case("output-alias-missing", "V607", P + 'ROOT %r = f32[8] custom-call(%p), custom_call_target="t", output_to_operand_aliasing={{}: (1, {})}'),
    case("output-alias-shape", "V607", P + 'ROOT %r = f32[9] custom-call(%p), custom_call_target="t", output_to_operand_aliasing={{}: (0, {})}'),
    case("constraints-count", "V608", P + 'ROOT %r = f32[8] custom-call(%p), custom_call_target="t", operand_layout_constraints={f32[8]{0}, f32[8]{0}}'),
    case("constraints-shape", "V608", P + 'ROOT %r = f32[8] custom-call(%p), custom_call_target="t", operand_layout_constraints={f32[9]{0}}'),
    case("composite", "V609", P + "ROOT %r = f32[8] call(%p), to_apply=%fused, is_composite=true", before=_FUSED),
    case("sort-compare", "V400", P + "ROOT %r = f32[8] sort(%p), dimensions={0}, to_apply=%add", before=ADD),
]  # fmt: skip

HEADER: Final = [
    case("layout-parameters", "V701", P + "ROOT %r = f32[8] negate(%p)", header=", entry_computation_layout={(f32[9])->f32[8]}", ask_xla=False),
    case("layout-result", "V701", P + "ROOT %r = f32[8] negate(%p)", header=", entry_computation_layout={(f32[8])->f32[9]}", ask_xla=False),
    case("alias", "", P + "ROOT %r = f32[8] negate(%p)", header=", input_output_alias={ {}: (0, {}, must-alias) }"),
    case("alias-parameter", "V702", P + "ROOT %r = f32[8] negate(%p)", header=", input_output_alias={ {}: (1, {}) }"),
    case("alias-output", "V702", P + "ROOT %r = f32[8] negate(%p)", header=", input_output_alias={ {0}: (0, {}) }"),
    case("alias-twice", "V702", P + "ROOT %r = (f32[8], f32[8]) tuple(%p, %p)", header=", input_output_alias={ {0}: (0, {}), {1}: (0, {}) }"),
    case("donor-aliased", "V703", P + "ROOT %r = f32[8] negate(%p)", header=", input_output_alias={ {}: (0, {}) }, buffer_donor={ (0, {}) }"),
    case("donor-missing", "V703", P + "ROOT %r = f32[8] negate(%p)", header=", buffer_donor={ (3, {}) }"),
    case("header-value", "V106", P + "ROOT %r = f32[8] negate(%p)", header=", num_partitions=many"),
]  # fmt: skip

SHARDINGS: Final = [
    case("sharding", "", "%p = f32[8,4] parameter(0), sharding={devices=[2,2]<=[4]}\nROOT %r = f32[] constant(0)", header=_FOUR),
    case("sharding-rank", "V801", "%p = f32[8,4] parameter(0), sharding={devices=[4]<=[4]}\nROOT %r = f32[] constant(0)", header=_FOUR),
    case("sharding-devices", "V801", "%p = f32[8] parameter(0), sharding={devices=[2]<=[2]}\nROOT %r = f32[] constant(0)", header=_FOUR),
    case("sharding-maximal", "V801", "%p = f32[8] parameter(0), sharding={maximal device=4}\nROOT %r = f32[] constant(0)", header=_FOUR),
    case("sharding-leaves", "V801", "%p = (f32[8], f32[8]) parameter(0), sharding={{replicated}, {replicated}, {replicated}}\nROOT %r = f32[] constant(0)", header=_FOUR),
    case("origin", "V805", "%p = (f32[8], f32[8]) parameter(0), origin={({\"a\"}, {\"b\"}, {\"c\"})}\nROOT %r = f32[] constant(0)"),
]  # fmt: skip

CASES: Final = [
    *NAMES, *ATTRIBUTES, *SHAPES, *LITERALS, *COLLECTIVES, *ASYNC, *CALLS, *HEADER,
    *SHARDINGS,
]  # fmt: skip
