"""The fast combiner decides as the plain loop does, and the splitter undoes it."""

from __future__ import annotations

import re
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

import hlo_passes
from hlo_passes.analysis.post_order import post_order
from hlo_passes.ir.module import Module
from hlo_passes.passes.cleanup.hlo_dce import HloDce
from hlo_passes.passes.combining import combining
from hlo_passes.passes.combining.collective_permute_combiner import (
    CollectivePermuteCombiner,
)
from hlo_passes.passes.combining.gpu_all_gather_combiner import GpuAllGatherCombiner
from hlo_passes.passes.combining.gpu_all_reduce_combiner import GpuAllReduceCombiner
from hlo_passes.passes.framework.base import PassContext, Report
from hlo_passes.passes.transfers.collective_permute_splitter import (
    CollectivePermuteSplitter,
)
from hlo_passes.verify.verifier import verify
from tests.passes.combiner_model import Model

_PAIRS = ("{{0,1}}", "{{1,0}}", "{{0,1},{1,0}}", "{{1,0},{0,1}}")


@st.composite
def programs(draw: st.DrawFn) -> tuple[str, Model]:
    """A module of permutes and adds on bytes, and the same as a model."""
    operands: dict[str, tuple[str, ...]] = {"x0": (), "x1": ()}
    keys: dict[str, int] = {}
    sizes: dict[str, int] = {}
    lines = [
        f"  %{name} = s8[1]{{0}} parameter({k})" for k, name in enumerate(operands)
    ]
    for k in range(draw(st.integers(1, 24))):
        known = list(operands)
        if draw(st.booleans()):
            name, key = f"p{k}", draw(st.integers(0, 3))
            source = draw(st.sampled_from(known))
            operands[name], keys[name], sizes[name] = (source,), key, 1
            lines.append(
                f"  %{name} = s8[1]{{0}} collective-permute(%{source}), "
                f"channel_id={k + 1}, source_target_pairs={_PAIRS[key]}"
            )
        else:
            name = f"n{k}"
            one, other = draw(st.sampled_from(known)), draw(st.sampled_from(known))
            operands[name] = (one, other)
            lines.append(f"  %{name} = s8[1]{{0}} add(%{one}, %{other})")
    read = {o for given_operands in operands.values() for o in given_operands}
    ends = [name for name in operands if name not in read]
    if draw(st.booleans()):
        kept = draw(st.permutations(ends))
        operands["t"] = tuple(kept)
        shape = ", ".join(["s8[1]{0}"] * len(kept))
        listed = ", ".join(f"%{name}" for name in kept)
        lines.append(f"  ROOT %t = ({shape}) tuple({listed})")
        root, result = "t", f"({', '.join(['s8[1]'] * len(kept))})"
    else:
        root, result = ends[-1], "s8[1]"
        mark = f"  %{root} ="
        lines = [
            line.replace(mark, f"  ROOT %{root} =") if line.startswith(mark) else line
            for line in lines
        ]
    layout = re.sub(r"s8\[1\]", "s8[1]{0}", result)
    text = "\n".join(
        (
            "HloModule laws, entry_computation_layout="
            f"{{(s8[1]{{0}}, s8[1]{{0}})->{layout}}}, num_partitions=2",
            "",
            f"ENTRY %main (x0: s8[1], x1: s8[1]) -> {result} {{",
            *lines,
            "}",
            "",
        )
    )
    return text, Model(operands, keys, sizes, root)


def _number(name: str) -> int:
    _, dot, number = name.partition(".")
    return int(number) if dot else 0


def _combined(module: Module) -> list[tuple[str, ...]]:
    """Operand names of combined permutes, in the order in which they were made."""
    found = [
        i
        for i in module.entry.instructions
        if i.opcode == "collective-permute" and i.shape.is_tuple
    ]
    found.sort(key=lambda i: _number(i.name))
    return [tuple(o.name for o in i.operands) for i in found]


@settings(max_examples=150, deadline=None)
@given(
    program=programs(),
    threshold_bytes=st.sampled_from((1, 2, 3, 1000)),
    threshold_count=st.sampled_from((1, 2, 3, 1000)),
    past_dependence=st.booleans(),
)
def test_decides_as_the_plain_loop(
    program: tuple[str, Model],
    threshold_bytes: int,
    threshold_count: int,
    past_dependence: bool,
) -> None:
    """The same batches, with the same members in the same order."""
    text, model = program
    module = hlo_passes.parse(text)
    options = CollectivePermuteCombiner(
        threshold_bytes, threshold_count, past_dependence
    )
    changed = options.run(module, PassContext(), Report())
    model.run(threshold_bytes, threshold_count, past=past_dependence)
    assert _combined(module) == model.batches
    assert changed == (bool(model.batches) or model.merged)
    assert module.entry.root.name == model.root
    # A second run may find more, as XLA's would: what a dependence left alone in its
    # batch may meet another such.
    verify(hlo_passes.parse(module.to_text()))


@settings(max_examples=50, deadline=None)
@given(program=programs())
def test_splitting_undoes_combining(program: tuple[str, Model]) -> None:
    """As many permutes as before, over the same pairs, and a legal text order."""
    module = hlo_passes.parse(program[0])
    before = _pairs(module)
    CollectivePermuteCombiner().run(module, PassContext(), Report())
    CollectivePermuteSplitter().run(module, PassContext(), Report())
    assert _pairs(module) == before
    verify(hlo_passes.parse(module.to_text()))


def _pairs(module: Module) -> list[str]:
    HloDce().run(module, PassContext(), Report())
    return sorted(
        i.attributes["source_target_pairs"]
        for i in module.entry.instructions
        if i.opcode == "collective-permute"
    )


@settings(max_examples=50, deadline=None)
@given(program=programs())
def test_post_order_is_the_models(program: tuple[str, Model]) -> None:
    """Two ways to write the same walk."""
    text, model = program
    computation = hlo_passes.parse(text).entry
    assert [i.name for i in post_order(computation)] == model.post_order()


@st.composite
def gathers(draw: st.DrawFn) -> str:
    """All-gathers along either dimension, of slices of one another and of sums."""
    lines, values = [], ["x0", "x1"]
    for k in range(draw(st.integers(2, 14))):
        a, b = draw(st.sampled_from(values)), draw(st.sampled_from(values))
        kind = draw(st.sampled_from(("gather", "gather", "gather", "add", "dead")))
        if kind == "add":
            lines.append(f"  %v{k} = f32[4,4]{{1,0}} add(%{a}, %{b})")
            values.append(f"v{k}")
            continue
        along = draw(st.integers(0, 1))
        shape = ("f32[8,4]{1,0}", "f32[4,8]{1,0}")[along]
        groups = draw(st.sampled_from(("{{0,1}}", "{{1,0}}")))
        lines.append(
            f"  %g{k} = {shape} all-gather(%{a}), channel_id={k + 1}, "
            f"replica_groups={groups}, dimensions={{{along}}}, "
            "use_global_device_ids=true"
        )
        if kind == "gather":
            lines.append(
                f"  %v{k} = f32[4,4]{{1,0}} slice(%g{k}), slice={{[0:4], [0:4]}}"
            )
            values.append(f"v{k}")
    root = draw(st.sampled_from(values))
    shapes = "f32[4,4]{1,0}, f32[4,4]{1,0}"
    return "\n".join(
        (
            "HloModule gathers, num_partitions=2\n",
            "ENTRY %main {",
            "  %x0 = f32[4,4]{1,0} parameter(0)",
            "  %x1 = f32[4,4]{1,0} parameter(1)",
            *lines,
            f"  ROOT %root = ({shapes}) tuple(%{root}, %x1)",
            "}\n",
        )
    )


@settings(max_examples=150, deadline=None)
@given(
    text=gathers(),
    threshold_bytes=st.sampled_from((128, 256, 384, 1 << 20)),
    by_dim=st.booleans(),
)
def test_places_are_those_of_a_new_post_order(
    text: str, threshold_bytes: int, by_dim: bool
) -> None:
    """Batches are the same if all is numbered anew after each."""
    quick, slow = hlo_passes.parse(text), hlo_passes.parse(text)
    combiner = GpuAllGatherCombiner(
        threshold_bytes=threshold_bytes, combine_by_dim=by_dim
    )
    combiner.run(quick, PassContext(), Report())
    anew = mock.patch.object(combining._Run, "_must_number_anew", return_value=True)
    with anew:
        combiner.run(slow, PassContext(), Report())
    assert quick.to_text() == slow.to_text()


def test_what_a_candidate_needs_is_walked_once() -> None:
    """Sixty sums of a value with itself are 2^60 paths."""
    sums = "\n".join(f"  %n{k + 1} = s8[1] add(%n{k}, %n{k})" for k in range(60))
    pairs = "source_target_pairs={{0,1}}"
    module = hlo_passes.parse(f"""HloModule m, num_partitions=2

ENTRY %main {{
  %n0 = s8[1] parameter(0)
  %a = s8[1] collective-permute(%n0), channel_id=1, {pairs}
{sums}
  %b = s8[1] collective-permute(%n60), channel_id=2, {pairs}
  ROOT %t = (s8[1], s8[1]) tuple(%a, %b)
}}
""")
    assert CollectivePermuteCombiner().run(module, PassContext(), Report())
    assert _combined(module) == [("n0", "n60")]


def test_an_element_of_a_batch_has_the_place_of_its_own_member() -> None:
    """%b needs %a2, so not %a1's place in the order says what %b may join."""
    groups = "replica_groups={{0,1}}"
    module = hlo_passes.parse(f"""HloModule m, replica_count=2

%add {{
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %z = f32[] add(%x, %y)
}}

%max {{
  %v = f32[] parameter(0)
  %w = f32[] parameter(1)
  ROOT %m = f32[] maximum(%v, %w)
}}

ENTRY %main {{
  %p = f32[8] parameter(0)
  %q = f32[8] parameter(1)
  %a1 = f32[8] all-reduce(%p), {groups}, to_apply=%add
  %b0 = f32[8] all-reduce(%q), {groups}, to_apply=%max
  %f = f32[8] negate(%b0)
  %a2 = f32[8] all-reduce(%f), {groups}, to_apply=%add
  %g = f32[8] negate(%a2)
  %b = f32[8] all-reduce(%g), {groups}, to_apply=%max
  ROOT %t = (f32[8]) tuple(%b)
}}
""")
    combiner = GpuAllReduceCombiner(threshold_bytes=1 << 20)
    assert combiner.run(module, PassContext(), Report())
    verify(module)
    reductions = [i for i in module.entry.instructions if i.opcode == "all-reduce"]
    assert [[o.name for o in i.operands] for i in reductions] == [
        ["q"],
        ["p", "f"],
        ["g"],
    ]
