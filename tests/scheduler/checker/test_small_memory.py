"""Buffers in small modules made for one rule each: what is live, and written in place."""

from __future__ import annotations

import pytest

import hlo_passes
from hlo_passes.scheduler.checker.in_place import in_place_pairs
from hlo_passes.scheduler.checker.memory import peak_memory
from hlo_passes.scheduler.checker.schedule_checker import check_schedule
from hlo_passes.scheduler.memory.pressure import ModuleMemory
from tests.scheduler.checker.small_modules import codes, small_module


def test_the_peak_may_be_at_the_first_line() -> None:
    module = small_module(
        """
        %z = f32[64] iota(), iota_dimension=0
        ROOT %n = f32[64] negate(%z)
        """
    )
    found = check_schedule(module, memory_limit_bytes=255)
    assert [(f.code, f.instruction) for f in found] == [("C050", "z")]
    assert check_schedule(module, memory_limit_bytes=256) == []


def test_a_result_in_a_parameters_buffer_is_written_after_its_readers() -> None:
    def order(*names: str) -> hlo_passes.Module:
        module = small_module(
            """
            %p = f32[8] parameter(0)
            %q = f32[8] parameter(1)
            %s = (f32[8], f32[8]) collective-permute-start(%q), source_target_pairs={{0,1},{1,0}}
            %r = f32[8] negate(%p)
            %d = f32[8] collective-permute-done(%s)
            ROOT %t = (f32[8], f32[8]) tuple(%d, %r)
            """
        )
        module.set_attribute("input_output_alias", "{ {0}: (0, {}, may-alias) }")
        module.entry.set_order([module.entry.find(name) for name in names])
        return module

    assert codes(order(*"pqsrdt")) == [("C060", "r")]
    assert codes(order(*"pqrsdt")) == []


@pytest.mark.parametrize(
    ("lines", "pairs"),
    [
        (
            "ROOT %r = f32[8] scatter(%a, %i, %u), to_apply=%add",
            ((0, (), ()),),
        ),
        (
            "ROOT %r = (f32[8], f32[8]) scatter(%a, %b, %i, %u, %u), to_apply=%add",
            ((0, (), (0,)), (1, (), (1,))),
        ),
        ("ROOT %r = f32[8] fusion(%u, %a, %k), kind=kLoop, calls=%one", ((1, (), ()),)),
        (
            "ROOT %r = (f32[8], f32[8]) fusion(%u, %a, %k), kind=kLoop, calls=%two",
            ((1, (), (1,)),),
        ),
        (
            "ROOT %r = (f32[8], f32[8]) fusion(%u, %a, %k), kind=kLoop, calls=%several",
            (),
        ),
        (
            "%o = s32[2] iota(), iota_dimension=0\n"
            "ROOT %r = f32[8] ragged-all-to-all(%b, %a, %o, %o, %o, %o), "
            "replica_groups={{0,1}}",
            ((1, (), ()),),
        ),
        (
            "%t = (s32[]) tuple(%k)\n"
            "ROOT %r = f32[8] collective-permute(%a, %b, %t, %t), "
            "slice_sizes={{4}}, source_target_pairs={{0,1}}",
            ((1, (), ()),),
        ),
        (
            "%t = (s32[]) tuple(%k)\n"
            "ROOT %r = (f32[8], f32[8], u32[], u32[]) "
            "collective-permute-start(%a, %b, %t, %t), "
            "slice_sizes={{4}}, source_target_pairs={{0,1}}",
            ((1, (), (1,)),),
        ),
    ],
    ids=[
        "scatter",
        "scatter of two",
        "fusion",
        "fusion of two",
        "fusion of a scatter of two",
        "ragged",
        "permute",
        "started permute",
    ],
)
def test_which_operands_are_written_in_place(
    lines: str, pairs: tuple[tuple[int, tuple[int, ...], tuple[int, ...]], ...]
) -> None:
    def body(name: str, last: str) -> str:
        return f"""%{name} {{
  %u.{name} = f32[1] parameter(0)
  %a.{name} = f32[8] parameter(1)
  %k.{name} = s32[] parameter(2)
  {last}
}}
"""

    update = "f32[8] dynamic-update-slice(%a.{0}, %u.{0}, %k.{0})"
    module = small_module(
        f"""
        %a = f32[8] parameter(0)
        %b = f32[8] parameter(1)
        %i = s32[1,1] parameter(2)
        %u = f32[1] parameter(3)
        %k = s32[] parameter(4)
        {lines}
        """,
        body("one", f"ROOT %w.one = {update.format('one')}"),
        body(
            "two",
            f"%w.two = {update.format('two')}\n  %n.two = f32[8] broadcast(%u.two), dimensions={{0}}\n"
            "  ROOT %t.two = (f32[8], f32[8]) tuple(%n.two, %w.two)",
        ),
        # Which of its results has which operand's buffer is not looked for.
        body(
            "several",
            "%i.several = s32[1,1] reshape(%k.several)\n"
            "  %n.several = f32[8] negate(%a.several)\n"
            "  %w.several = (f32[8], f32[8]) scatter(%a.several, %n.several, "
            "%i.several, %u.several, %u.several), to_apply=%add\n"
            "  %x.several = f32[8] get-tuple-element(%w.several), index=0\n"
            "  %y.several = f32[8] get-tuple-element(%w.several), index=1\n"
            "  ROOT %t.several = (f32[8], f32[8]) tuple(%x.several, %y.several)",
        ),
    )
    assert in_place_pairs(module.entry.root) == pairs


def test_a_parameter_is_there_before_its_line() -> None:
    """The caller holds what it passes on, wherever the callee names it."""
    early = """%f (a: f32[8], b: f32[8]) -> f32[8] {
  %a = f32[8] parameter(0)
  %b = f32[8] parameter(1)
  %m = f32[8,8] broadcast(%a), dimensions={0}
  %n = f32[8,8] sine(%m)
  %s = f32[1,8] slice(%n), slice={[0:1], [0:8]}
  %v = f32[8] bitcast(%s)
  ROOT %r = f32[8] add(%v, %b)
}
"""
    line = "  %b = f32[8] parameter(1)\n"
    late = early.replace(line, "").replace("  ROOT", f"{line}  ROOT")
    entry = """
        %p = f32[8] parameter(0)
        %x = f32[8] negate(%p)
        %y = f32[8] sine(%p)
        %c = f32[8] call(%x, %y), to_apply=%f
        ROOT %w = f32[8] negate(%c)
        """
    sizes = [peak_memory(small_module(entry, f)).size_bytes for f in (early, late)]
    # One array of the caller, its other one was read, and two of the callee.
    assert sizes == [32 + 512] * 2


def test_a_copy_of_a_tuple_has_its_elements() -> None:
    text = """
        %p = f32[8] parameter(0)
        %a = f32[8] negate(%p)
        %b = f32[8] sine(%p)
        %t = (f32[8], f32[8]) tuple(%a, %b)
        %c = (f32[8], f32[8]) copy(%t)
        %x = f32[8] get-tuple-element(%c), index=0
        %y = f32[8] get-tuple-element(%c), index=1
        ROOT %r = f32[8] add(%x, %y)
        """
    found = peak_memory(small_module(text)).size_bytes
    assert found == 32 + 32 + 32


def test_a_transfer_has_its_data_once() -> None:
    """A send reads its operand's buffer, and what a recv fills is its done's result."""
    module = small_module(
        """
        %p = f32[8] parameter(0)
        %k = token[] after-all()
        %x = f32[8] negate(%p)
        %s = (f32[8], u32[], token[]) send(%x, %k), channel_id=1
        %sd = token[] send-done(%s), channel_id=1
        %r = (f32[64], u32[], token[]) recv(%k), channel_id=2
        %rd = (f32[64], token[]) recv-done(%r), channel_id=2
        %y = f32[64] get-tuple-element(%rd), index=0
        ROOT %z = f32[64] negate(%y)
        """
    )
    # At the end of the recv: the data, 24 and 4 of the start, the done's table of 16.
    assert peak_memory(module).size_bytes == 256 + 24 + 4 + 16
    sent = small_module(
        """
        %p = f32[8] parameter(0)
        %k = token[] after-all()
        %x = f32[8] negate(%p)
        %s = (f32[8], u32[], token[]) send(%x, %k), channel_id=1
        ROOT %sd = token[] send-done(%s), channel_id=1
        """
    )
    assert peak_memory(sent).size_bytes == 32 + 24 + 4


def test_a_result_that_both_branches_make_is_there_from_the_top() -> None:
    """The second branch has room for it before its first line, which needs much."""
    branches = """%big () -> f32[] {
  %z = f32[64] iota(), iota_dimension=0
  %y = f32[64] negate(%z)
  ROOT %c = f32[] constant(0)
}

%first (a: f32[8]) -> f32[8] {
  %a = f32[8] parameter(0)
  ROOT %n1 = f32[8] negate(%a)
}

%second (b: f32[8]) -> f32[8] {
  %none = f32[] call(), to_apply=%big
  %b = f32[8] parameter(0)
  ROOT %n2 = f32[8] negate(%b)
}
"""
    module = small_module(
        """
        %i = s32[] parameter(0)
        %p = f32[8] parameter(1)
        %x = f32[8] negate(%p)
        %c = f32[8] conditional(%i, %p, %p), branch_computations={%first, %second}
        ROOT %r = (f32[8], f32[8]) tuple(%c, %x)
        """,
        branches,
    )
    assert peak_memory(module).size_bytes == 32 + 32 + 256
    assert ModuleMemory(module).module_peak_bytes == 32 + 32 + 256
