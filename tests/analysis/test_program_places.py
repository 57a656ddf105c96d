"""Where a collective comes from: name, line, and the parameter it gathers or updates."""

from __future__ import annotations

import pytest

import hlo_passes
from hlo_passes.analysis.layer_names import without_layers
from hlo_passes.analysis.program_places import ProgramPlace, program_places
from tests.modules import REPOSITORY

_SUM = """\
%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}
"""
_ALL = "replica_groups={{0,1,2,3,4,5,6,7}}, use_global_device_ids=true"


def place(text: str, name: str, header: str = "") -> ProgramPlace:
    """The place of the operation of that name."""
    full = f"HloModule m, is_scheduled=true, num_partitions=8{header}\n\n{text}"
    module = hlo_passes.parse(full, filename="m.hlo")
    found = (c.find(name) for c in module.computations)
    operation = next(i for i in found if i is not None)
    return program_places(module).of(operation)


_TABLES = """\
FileNames
1 "/venv/lib/python3.12/site-packages/flax/linen.py"
2 "/home/me/model.py"

FunctionNames
1 "dense"
2 "layer"

FileLocations
1 {file_name_id=1 function_name_id=1 line=9 end_line=9 column=1 end_column=2}
2 {file_name_id=2 function_name_id=2 line=41 end_line=41 column=1 end_column=2}

StackFrames
1 {file_location_id=2 parent_frame_id=1}
2 {file_location_id=1 parent_frame_id=2}

"""


def _gathered(metadata: str) -> str:
    return f"""\
ENTRY %main (w: f32[8,4]) -> f32[64,4] {{
  %w = f32[8,4]{{1,0}} parameter(0), metadata={{op_name="params['up']"}}
  ROOT %g = f32[64,4]{{1,0}} all-gather(%w), dimensions={{0}}, {_ALL}, metadata={{{metadata}}}
}}
"""


def test_the_line_is_the_innermost_one_outside_installed_packages() -> None:
    text = _TABLES + _gathered('op_name="jit(f)/dot" stack_frame_id=2')
    assert place(text, "g") == ProgramPlace(
        "jit(f)/dot", "/home/me/model.py", 41, "params['up']"
    )


def test_a_line_at_the_instruction_itself_is_read() -> None:
    found = place(_gathered('op_name="f/dot" source_file="a.py" source_line=3'), "g")
    assert (found.source, found.label) == ("a.py:3", "params['up']")


@pytest.mark.parametrize("tables", ["", "FileNames\n1 ]\n\n"])
def test_unreadable_or_missing_tables_name_no_line(tables: str) -> None:
    module = hlo_passes.parse(
        "HloModule m\n\n" + _gathered('op_name="f" stack_frame_id=7')
    )
    module.tables = tables
    (gather,) = (i for i in module.entry.instructions if i.opcode == "all-gather")
    assert program_places(module).of(gather).source == ""


def test_a_change_of_the_module_is_seen() -> None:
    module = hlo_passes.parse("HloModule m\n\n" + _gathered('op_name="f"'))
    (gather,) = (i for i in module.entry.instructions if i.opcode == "all-gather")
    assert program_places(module) is program_places(module)
    assert program_places(module).of(gather).op_name == "f"
    gather.metadata = gather.metadata.replace(op_name="g")
    assert program_places(module).of(gather).op_name == "g"


_COMBINED = f"""\
ENTRY %main (u: f32[8], d: f32[8]) -> (f32[64], f32[64]) {{
  %u = f32[8]{{0}} parameter(0), metadata={{op_name="params['up']"}}
  %d = f32[8]{{0}} parameter(1), metadata={{op_name="params['down']"}}
  ROOT %g = (f32[64]{{0}}, f32[64]{{0}}) all-gather(%u, %d), dimensions={{0}}, {_ALL}, metadata={{op_name="jit(f)/(jvp(a)/dot:b(c:d)/dot)" source_file="m.py:3,n.py:7"}}
}}
"""


def test_a_combined_collective_lists_its_members() -> None:
    found = place(_COMBINED, "g")
    assert found.members == (
        ProgramPlace("jit(f)/jvp(a)/dot", "m.py", 3, "params['up']"),
        ProgramPlace("jit(f)/b(c:d)/dot", "n.py", 7, "params['down']"),
    )
    assert found.label == "params['up'] and 1 more"
    assert found.to_json()["members"][1] == {
        "op_name": "jit(f)/b(c:d)/dot",
        "source": {"file": "n.py", "line": 7},
        "parameter": "params['down']",
    }


#: A stack of weights is sliced, converted in a fusion, and gathered, in a loop that
#: gathers for the trip after the next; its gradient's shards are stacked the same way.
_LOOP = f"""\
{_SUM}
%cast (p: f32[4,8,4], i: s32[]) -> bf16[8,4] {{
  %p = f32[4,8,4]{{2,1,0}} parameter(0)
  %i = s32[] parameter(1)
  %o = s32[] constant(0)
  %slice = f32[1,8,4]{{2,1,0}} dynamic-slice(%p, %i, %o, %o), dynamic_slice_sizes={{1,8,4}}
  %flat = f32[8,4]{{1,0}} bitcast(%slice)
  ROOT %c = bf16[8,4]{{1,0}} convert(%flat)
}}

%stack (q: f32[4,8,4], g: f32[8,4], j: s32[]) -> f32[4,8,4] {{
  %q = f32[4,8,4]{{2,1,0}} parameter(0)
  %gradient = f32[8,4]{{1,0}} parameter(1)
  %j = s32[] parameter(2)
  %nil = s32[] constant(0)
  %row = f32[1,8,4]{{2,1,0}} bitcast(%gradient)
  ROOT %put = f32[4,8,4]{{2,1,0}} dynamic-update-slice(%q, %row, %j, %nil, %nil)
}}

%body (t: (s32[], f32[4,8,4], f32[4,8,4], bf16[64,4])) -> (s32[], f32[4,8,4], f32[4,8,4], bf16[64,4]) {{
  %t = (s32[], f32[4,8,4]{{2,1,0}}, f32[4,8,4]{{2,1,0}}, bf16[64,4]{{1,0}}) parameter(0)
  %k = s32[] get-tuple-element(%t), index=0
  %w = f32[4,8,4]{{2,1,0}} get-tuple-element(%t), index=1
  %dw = f32[4,8,4]{{2,1,0}} get-tuple-element(%t), index=2
  %early = bf16[64,4]{{1,0}} get-tuple-element(%t), index=3
  %again = bf16[512,4]{{1,0}} all-gather(%early), dimensions={{0}}, {_ALL}
  %mine = bf16[8,4]{{1,0}} fusion(%w, %k), kind=kLoop, calls=%cast
  %ag = (bf16[8,4]{{1,0}}, bf16[64,4]{{1,0}}) all-gather-start(%mine), dimensions={{0}}, {_ALL}
  %whole = bf16[64,4]{{1,0}} all-gather-done(%ag)
  %partial = f32[64,4]{{1,0}} convert(%whole)
  %turn = f32[64,4]{{1,0}} sine(%partial)
  %rs = f32[8,4]{{1,0}} reduce-scatter(%turn), dimensions={{0}}, {_ALL}, to_apply=%sum
  %more = f32[4,8,4]{{2,1,0}} fusion(%dw, %rs, %k), kind=kLoop, calls=%stack
  ROOT %u = (s32[], f32[4,8,4]{{2,1,0}}, f32[4,8,4]{{2,1,0}}, bf16[64,4]{{1,0}}) tuple(%k, %w, %more, %whole)
}}

%cond (c: (s32[], f32[4,8,4], f32[4,8,4], bf16[64,4])) -> pred[] {{
  %c = (s32[], f32[4,8,4]{{2,1,0}}, f32[4,8,4]{{2,1,0}}, bf16[64,4]{{1,0}}) parameter(0)
  %n = s32[] get-tuple-element(%c), index=0
  ROOT %less = pred[] compare(%n, %n), direction=LT
}}

ENTRY %main (x: f32[4,8,4], m: f32[4,8,4], z: s32[], e: f32[]) -> (f32[4,8,4], f32[4,8,4]) {{
  %x = f32[4,8,4]{{2,1,0}} parameter(0), metadata={{op_name="state['params']['up']"}}
  %m = f32[4,8,4]{{2,1,0}} parameter(1), metadata={{op_name="opt['up']"}}
  %z = s32[] parameter(2)
  %zero = f32[] parameter(3)
  %zeros = f32[4,8,4]{{2,1,0}} broadcast(%zero), dimensions={{}}
  %first = bf16[8,4]{{1,0}} fusion(%x, %z), kind=kLoop, calls=%cast
  %peeled = bf16[64,4]{{1,0}} all-gather(%first), dimensions={{0}}, {_ALL}
  %init = (s32[], f32[4,8,4]{{2,1,0}}, f32[4,8,4]{{2,1,0}}, bf16[64,4]{{1,0}}) tuple(%z, %x, %zeros, %peeled)
  %loop = (s32[], f32[4,8,4]{{2,1,0}}, f32[4,8,4]{{2,1,0}}, bf16[64,4]{{1,0}}) while(%init), condition=%cond, body=%body
  %grad = f32[4,8,4]{{2,1,0}} get-tuple-element(%loop), index=2
  %scaled = f32[4,8,4]{{2,1,0}} multiply(%grad, %zeros)
  %average = f32[4,8,4]{{2,1,0}} add(%m, %scaled){{BACKWARD}}
  %new = f32[4,8,4]{{2,1,0}} subtract(%x, %average)
  ROOT %out = (f32[4,8,4]{{2,1,0}}, f32[4,8,4]{{2,1,0}}) tuple(%new, %average)
}}
"""
_PLAIN = _LOOP.replace("{BACKWARD}", "")
_BACKWARD = _LOOP.replace("{BACKWARD}", ', metadata={op_name="transpose(jvp(f))/add"}')
_DONATED = ", input_output_alias={ {0}: (0, {}, may-alias), {1}: (1, {}, may-alias) }"


@pytest.mark.parametrize(("other", "expected"), [("w", "params['up']"), ("x", "")])
def test_parts_that_a_tpu_joins_are_those_of_one_parameter(
    other: str, expected: str
) -> None:
    text = f"""\
ENTRY %main (w: f32[8,4], x: f32[8,4]) -> f32[64,4] {{
  %w = f32[8,4]{{1,0}} parameter(0), metadata={{op_name="params['up']"}}
  %x = f32[8,4]{{1,0}} parameter(1), metadata={{op_name="x"}}
  %s = ((f32[8,4]{{1,0}}), f32[4,4]{{1,0:S(1)}}, s32[]) slice-start(%w), slice={{[0:4], [0:4]}}
  %u = ((f32[8,4]{{1,0}}), f32[4,4]{{1,0:S(1)}}, s32[]) slice-start(%{other}), slice={{[4:8], [0:4]}}
  %low = f32[4,4]{{1,0:S(1)}} slice-done(%s)
  %high = f32[4,4]{{1,0:S(1)}} slice-done(%u)
  %whole = f32[8,4]{{1,0:S(1)}} custom-call(%low, %high), custom_call_target="ConcatBitcast"
  ROOT %g = f32[64,4]{{1,0}} all-gather(%whole), dimensions={{0}}, {_ALL}
}}
"""
    assert place(text, "g").parameter == expected


@pytest.mark.parametrize("name", ["peeled", "ag", "again"])
def test_a_gather_is_followed_to_its_parameter(name: str) -> None:
    assert place(_PLAIN, name).parameter == "state['params']['up']"


@pytest.mark.parametrize(
    ("text", "header", "expected"),
    [
        (_PLAIN, _DONATED, "state['params']['up']"),
        (_BACKWARD, "", "state['params']['up']"),
        # Without a backward pass these may be activations: nothing is claimed.
        (_PLAIN, "", ""),
    ],
)
def test_a_gradient_is_followed_to_what_it_updates(
    text: str, header: str, expected: str
) -> None:
    assert place(text, "rs", header).parameter == expected


def test_a_scanned_step_of_xla_s_names_the_weights_of_every_collective() -> None:
    file = REPOSITORY / "docs" / "tutorial" / "training.h100_sxm.hlo"
    module = hlo_passes.parse(file.read_text(encoding="utf-8"))
    places = program_places(module)
    found = {
        i.name: (places.of(i).label, places.of(i).source)
        for c in module.computations
        for i in c.instructions
        if i.opcode == "all-gather-start" or i.name == "reduce-scatter-start"
    }
    line = "docs/tutorial/training.py:27"
    up, down = "params['layers']['up']", "params['layers']['down']"
    assert found == {
        "all-gather-start": (up, line),
        "all-gather-start.1": (down, line),
        "all-gather-start.2": (up, line),
        "all-gather-start.3": (down, line),
        "reduce-scatter-start": (f"{down} and 1 more", ""),
    }


#: XLA reduces two gradients as one list, which fusions join and cut.
_JOINED = f"""\
{_SUM}
%join (a0: f32[4], b0: f32[6]) -> f32[10] {{
  %a0 = f32[4]{{0}} parameter(0)
  %b0 = f32[6]{{0}} parameter(1)
  ROOT %all = f32[10]{{0}} concatenate(%a0, %b0), dimensions={{0}}
}}

%cut (c0: f32[10]) -> f32[6] {{
  %c0 = f32[10]{{0}} parameter(0)
  ROOT %tail = f32[6]{{0}} slice(%c0), slice={{[4:10]}}
}}

ENTRY %main (u: f32[4], d: f32[2,3], x: f32[4], y: f32[6]) -> (f32[4], f32[2,3]) {{
  %u = f32[4]{{0}} parameter(0), metadata={{op_name="params['up']"}}
  %d = f32[2,3]{{1,0}} parameter(1), metadata={{op_name="params['down']"}}
  %x = f32[4]{{0}} parameter(2), metadata={{op_name="x"}}
  %y = f32[6]{{0}} parameter(3), metadata={{op_name="y"}}
  %up = f32[4]{{0}} sine(%x)
  %rs = f32[6]{{0}} all-reduce(%y), {_ALL}, to_apply=%sum
  %down = f32[6]{{0}} sine(%rs)
  %list = f32[10]{{0}} fusion(%up, %down), kind=kLoop, calls=%join
  %ar = f32[10]{{0}} all-reduce-start(%list), {_ALL}, to_apply=%sum, metadata={{op_name="sums"}}
  %done = f32[10]{{0}} all-reduce-done(%ar)
  %head = f32[4]{{0}} slice(%done), slice={{[0:4]}}
  %rest = f32[6]{{0}} fusion(%done), kind=kLoop, calls=%cut
  %square = f32[2,3]{{1,0}} bitcast(%rest)
  %new_u = f32[4]{{0}} subtract(%u, %head)
  %new_d = f32[2,3]{{1,0}} subtract(%d, %square)
  ROOT %out = (f32[4]{{0}}, f32[2,3]{{1,0}}) tuple(%new_u, %new_d)
}}
"""


def test_gradients_that_are_reduced_as_one_list_are_its_members() -> None:
    found = place(_JOINED, "ar", _DONATED)
    assert found.label == "params['up'] and 1 more"
    assert [m.parameter for m in found.members] == ["params['up']", "params['down']"]
    assert {m.op_name for m in found.members} == {"sums"}
    # A gradient that was reduced before keeps its place in the list.
    negated = _JOINED.replace("all-reduce(%y)", "all-reduce(%z)").replace(
        "  %rs =", "  %z = f32[6]{0} sine(%y)\n  %rs ="
    )
    assert place(negated, "rs", _DONATED).parameter == "params['down']"


def test_a_list_of_many_pieces_is_not_followed_piece_by_piece() -> None:
    count = 3_000
    pieces = ", ".join(f"%v{k}" for k in range(count))
    text = _SUM + "ENTRY %main (x: f32[4]) -> f32[4] {\n"
    text += "  %x = f32[4]{0} parameter(0)\n"
    for k in range(count):
        text += f"  %v{k} = f32[4]{{0}} sine(%x)\n"
    text += f"  %list = f32[{4 * count}]{{0}} concatenate({pieces}), dimensions={{0}}\n"
    text += f"  %ar = f32[{4 * count}]{{0}} all-reduce(%list), {_ALL}, to_apply=%sum\n"
    for k in range(count):
        cut = f"slice={{[{4 * k}:{4 * k + 4}]}}"
        text += f"  %cut{k} = f32[4]{{0}} slice(%ar), {cut}\n"
    text += "  ROOT %end = f32[4]{0} add(%cut0, %cut1)\n}\n"
    assert place(text, "ar", ", input_output_alias={ {}: (0, {}, may-alias) }") == (
        ProgramPlace(parameter="%x")
    )


@pytest.mark.parametrize("name", ["", ":)", "a/)", "(:", "(a", "f/(a)", "f(a:b)"])
def test_a_name_that_is_not_joined_stays_whole(name: str) -> None:
    text = _COMBINED.replace("jit(f)/(jvp(a)/dot:b(c:d)/dot)", name)
    assert {m.op_name for m in place(text, "g").members} == {name}


def test_what_is_computed_from_a_parameter_is_not_the_parameter() -> None:
    text = _gathered('op_name="f"').replace("all-gather(%w)", "all-gather(%r)")
    text = text.replace("  ROOT", "  %r = f32[8,4]{1,0} sine(%w)\n  ROOT")
    assert place(text, "g").parameter == ""
    text = text.replace("sine(%w)", "multiply(%w, %w)")
    assert place(text, "g").parameter == ""
    text = text.replace("multiply(%w, %w)", "negate(%w)")
    assert place(text, "g").parameter == "params['up']"


def test_a_step_that_uses_two_parameters_in_turn_names_neither() -> None:
    text = _PLAIN.replace("tuple(%k, %w, %more, %whole)", "tuple(%k, %dw, %w, %whole)")
    assert place(text, "ag").parameter == ""


def test_a_graph_of_many_ways_ends_soon() -> None:
    text = "ENTRY %main (v0: f32[8,4]) -> f32[64,4] {\n"
    text += "  %v0 = f32[8,4]{1,0} parameter(0)"
    for k in range(5_000):
        text += f"\n  %v{k + 1} = f32[8,4]{{1,0}} copy(%v{k})"
    text += f"\n  ROOT %g = f32[64,4]{{1,0}} all-gather(%v5000), dimensions={{0}}, {_ALL}\n}}\n"
    assert place(text, "g") == ProgramPlace(parameter="%v0")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["a[0]['up']", "a[1]['up']"], ["a[*]['up']"] * 2),
        (["a[0]['up']", "a[0]['down']"], ["a[0]['up']", "a[0]['down']"]),
        (["f/layers_0/dot", "f/layers_11/dot"], ["f/layers_*/dot"] * 2),
        (["w1", "w2"], ["w1", "w2"]),
        (
            ["layers[0][0]", "layers[0][1]", "layers[0][2]", "layers[1][0]"],
            ["layers[*][0]", "layers[*][1]", "layers[*][2]", "layers[*][0]"],
        ),
        (
            ["s[0]['layers_3']['w']", "s[0]['layers_4']['w']"],
            ["s[0]['layers_*']['w']"] * 2,
        ),
        (["h.0.1.w", "h.0.2.w", "h.0.3.w", "h.1.1.w"], ["h.*.1.w", "h.*.2.w", "h.*.3.w", "h.*.1.w"]),
    ],
)  # fmt: skip
def test_only_the_number_of_the_layer_is_left_out(
    names: list[str], expected: list[str]
) -> None:
    found = without_layers(names)
    assert [found[name] for name in names] == expected
