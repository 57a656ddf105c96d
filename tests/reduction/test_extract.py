"""Parts of a module as modules of their own, and smaller arrays."""

from __future__ import annotations

import hlo_passes
from hlo_passes.reduction.changes import changed_instructions, slices
from hlo_passes.reduction.extract import extract
from hlo_passes.reduction.reducer import reduce_module
from hlo_passes.reduction.shrink import shrunk

TEXT = """HloModule m, input_output_alias={ {}: (0, {}, may-alias) }, num_partitions=2

%body (t: (s32[], f32[64])) -> (s32[], f32[64]) {
  %t = (s32[], f32[64]{0}) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %v = f32[64]{0} get-tuple-element(%t), index=1
  %one = s32[] constant(1)
  %more = s32[] add(%i, %one)
  %twice = f32[64]{0} add(%v, %v)
  %less = f32[64]{0} divide(%twice, %v)
  ROOT %out = (s32[], f32[64]{0}) tuple(%more, %less)
}

%condition (q: (s32[], f32[64])) -> pred[] {
  %q = (s32[], f32[64]{0}) parameter(0)
  %k = s32[] get-tuple-element(%q), index=0
  %limit = s32[] constant(3)
  ROOT %go = pred[] compare(%k, %limit), direction=LT
}

ENTRY %main (p: f32[64]) -> f32[64] {
  %p = f32[64]{0} parameter(0)
  %a = f32[64]{0} cosine(%p)
  %b = f32[64]{0} sine(%a), metadata={op_name="b"}
  %zero = s32[] constant(0)
  %init = (s32[], f32[64]{0}) tuple(%zero, %b)
  %w = (s32[], f32[64]{0}) while(%init), condition=%condition, body=%body
  %result = f32[64]{0} get-tuple-element(%w), index=1
  ROOT %r = f32[64]{0} subtract(%result, %a)
}
"""


def _module() -> hlo_passes.Module:
    return hlo_passes.parse(TEXT)


def test_extract_makes_parameters_and_results() -> None:
    module = _module()
    keep = [i for i in module.entry.instructions if i.name in ("a", "b")]
    made = extract(module, module.entry, keep, drop=("metadata",))
    assert made is not None
    assert made.to_text() == (
        "HloModule m, num_partitions=2\n\n"
        "ENTRY %main (p: f32[64]) -> (f32[64], f32[64]) {\n"
        "  %p = f32[64]{0} parameter(0)\n"
        "  %a = f32[64]{0} cosine(%p)\n"
        "  %b = f32[64]{0} sine(%a)\n"
        "  ROOT %result.1 = (f32[64]{0}, f32[64]{0}) tuple(%a, %b)\n"
        "}\n"
    )


def test_extract_brings_callees_along() -> None:
    module = _module()
    keep = [i for i in module.entry.instructions if i.name == "w"]
    made = extract(module, module.entry, keep)
    assert made is not None
    assert [c.name for c in made.computations] == ["body", "condition", "main"]
    assert [i.opcode for i in made.entry.instructions] == ["parameter", "while"]


def test_extract_of_a_body_alone() -> None:
    module = _module()
    body = module.computation("body")
    assert body is not None
    keep = [i for i in body.instructions if i.name in ("twice", "less")]
    made = extract(module, body, keep)
    assert made is not None
    assert made.entry.root.name == "less"
    assert [p.name for p in made.entry.parameters] == ["v"]


def test_arrays_shrink_together() -> None:
    sizes = {
        next(m.entry.parameters[0].shape.dimensions[0] for m in [module])
        for module in shrunk(_module())
    }
    assert 1 in sizes
    assert all(size < 64 for size in sizes)


def test_what_a_pass_changed() -> None:
    before, after = _module(), _module()
    root = after.entry.root
    after.entry.set_operands(root, reversed(root.operands))
    changed = changed_instructions(before, after)
    assert {c.name: [i.name for i in some] for c, some in changed.items()} == {
        "main": ["r"]
    }
    smallest = min(slices(before, after), key=lambda m: m.instruction_count)
    assert [i.opcode for i in smallest.entry.instructions] == [
        "parameter", "parameter", "subtract",
    ]  # fmt: skip


def test_reduction_finds_what_matters_inside_a_loop() -> None:
    def has_divide(module: hlo_passes.Module) -> bool:
        return any(
            i.opcode == "divide" for c in module.computations for i in c.instructions
        )

    small = reduce_module(_module(), has_divide)
    assert small.to_text().strip() == (
        "HloModule m, num_partitions=2\n\n"
        "ENTRY %main (twice: f32[1], v: f32[1]) -> f32[1] {\n"
        "  %twice = f32[1]{0} parameter(0)\n"
        "  %v = f32[1]{0} parameter(1)\n"
        "  ROOT %less = f32[1]{0} divide(%twice, %v)\n"
        "}"
    )
