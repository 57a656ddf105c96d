"""Copies of what is called twice at each level of nesting: counted before it is made."""

from __future__ import annotations

import pathlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hlo_passes import Pipeline, parse
from hlo_passes.cli.main import main
from hlo_passes.errors import TooLargeError
from hlo_passes.ir.calls import call_instead
from hlo_passes.ir.module import Module
from hlo_passes.passes.rewriting.cloning import call_copies, size_of_copy
from hlo_passes.passes.rewriting.flattening import flatten_call_graph

_CALLS = {
    "call": "call({0}), to_apply=%c{1}",
    "while": "while({0}), condition=%goes_on, body=%c{1}",
    "conditional": (
        "conditional(%is{2}, {0}, {0}), true_computation=%c{1}, false_computation=%c{1}"
    ),
    "custom-call": 'custom-call({0}), custom_call_target="x", called_computations={{%c{1}}}',
}
_COUNT = ', backend_config={"known_trip_count":{"n":"4"}}'


def _nest(opcode: str, levels: int, *, once: bool = False) -> str:
    """Each computation runs the one below it twice, or once."""

    def call(operand: str, level: int, inside: int) -> str:
        text = _CALLS[opcode].format(operand, level, inside)
        return text + (_COUNT if opcode == "while" else "")

    parts = [
        """HloModule nest

%goes_on (a: f32[]) -> pred[] {
  %a = f32[] parameter(0)
  ROOT %yes = pred[] constant(true)
}

%c0 (p0: f32[]) -> f32[] {
  %p0 = f32[] parameter(0)
  ROOT %q0 = f32[] add(%p0, %p0)
}
"""
    ]
    for level in range(1, levels + 1):
        inner = f"%v{level}"
        last = f"negate({inner})" if once else call(inner, level - 1, level)
        parts.append(f"""
%c{level} (p{level}: f32[]) -> f32[] {{
  %p{level} = f32[] parameter(0)
  %is{level} = pred[] constant(true)
  %v{level} = f32[] {call(f"%p{level}", level - 1, level)}
  ROOT %q{level} = f32[] {last}
}}
""")
    parts.append(f"""
ENTRY %main (p: f32[]) -> f32[] {{
  %p = f32[] parameter(0)
  ROOT %r = f32[] call(%p), to_apply=%c{levels}
}}
""")
    return "".join(parts)


def _flat_size(opcode: str, levels: int) -> int:
    module = parse(_nest(opcode, levels))
    flatten_call_graph(module, xla_quirks=False)
    return module.instruction_count


@pytest.mark.parametrize("opcode", ["call", "while", "conditional"])
@pytest.mark.parametrize("levels", [1, 2, 5])
def test_the_size_is_known_before_anything_is_copied(opcode: str, levels: int) -> None:
    size = _flat_size(opcode, levels)
    module = parse(_nest(opcode, levels))
    module.most_instructions = size - 1
    with pytest.raises(TooLargeError) as caught:
        flatten_call_graph(module, xla_quirks=False)
    assert (caught.value.instructions, caught.value.most) == (size, size - 1)
    assert module.is_as_read
    module.most_instructions = size
    flatten_call_graph(module, xla_quirks=False)
    assert module.instruction_count == size


def test_what_is_removed_makes_room() -> None:
    module = parse(_nest("call", 1))
    module.most_instructions = 2 * module.instruction_count
    for _ in range(10):
        module.make_room(module.instruction_count)
    with pytest.raises(TooLargeError):
        module.make_room(module.instruction_count + 1)


def test_a_module_may_become_four_times_as_large() -> None:
    module = parse(_nest("call", 1))
    module.make_room(999_000)
    with pytest.raises(TooLargeError, match="more than 1,000,000"):
        module.make_room(1_000_000)


@pytest.mark.parametrize("opcode", ["call", "while", "conditional"])
def test_sixty_levels_are_refused_at_once(opcode: str) -> None:
    module = parse(_nest(opcode, 60))
    with pytest.raises(TooLargeError):
        flatten_call_graph(module, xla_quirks=True)


def _copy_custom_calls(levels: int) -> Module:
    module = parse(_nest("custom-call", levels))
    call_copies(module.entry.root)
    return module


def test_bodies_of_custom_calls() -> None:
    few = _copy_custom_calls(5)
    module = parse(_nest("custom-call", 5))
    module.most_instructions = few.instruction_count - 1
    with pytest.raises(TooLargeError) as caught:
        call_copies(module.entry.root)
    assert caught.value.instructions == few.instruction_count
    assert module.is_as_read
    with pytest.raises(TooLargeError):
        _copy_custom_calls(60)


def test_the_size_of_what_calls_itself() -> None:
    """The verifier refuses it; a library's user may not have asked the verifier."""
    module = parse(_nest("custom-call", 2))
    lower, upper = module.computation("c1"), module.computation("c2")
    assert lower is not None
    assert upper is not None
    call_instead(lower.instructions[-1], 0, upper)
    assert size_of_copy(upper, {}) >= len(upper.instructions)


@pytest.mark.parametrize("once", [True, False])
def test_loops_in_loops_are_not_doubled_for_ever(
    once: bool, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two iterations as one, at each of sixty levels."""
    file, out = tmp_path / "nest.hlo", tmp_path / "out.hlo"
    file.write_text(_nest("while", 60, once=once))
    passes = "--passes=loop-double-buffer-transformer"
    assert main(["opt", str(file), passes, "-o", str(out)]) == 3
    assert "error[E028]: the module would have" in capsys.readouterr().err
    assert not out.exists()


def test_a_few_loops_in_loops_are_doubled() -> None:
    module = parse(_nest("while", 6, once=True))
    assert Pipeline.parse("loop-double-buffer-transformer").run(module).changed
    inner = [c for c in module.computations if c.name.startswith("c0")]
    assert len(inner) == 2**5


@st.composite
def _call_graphs(draw: st.DrawFn) -> str:
    """Computations that call some of those before them, each in some way."""
    parts = [_nest("call", 0).partition("\nENTRY")[0]]
    count = draw(st.integers(1, 7))
    for level in range(1, count + 1):
        lines, value = [], f"%p{level}"
        for k in range(draw(st.integers(0, 3))):
            name = f"%v{level}_{k}"
            opcode = draw(st.sampled_from([*_CALLS, "fusion"]))
            inside = draw(st.integers(0, level - 1))
            # The body of a fusion is the fusion's alone.
            if opcode == "fusion":
                body = f"%f{level}_{k}"
                parts.append(f"""
{body} (g{level}_{k}: f32[]) -> f32[] {{
  %g{level}_{k} = f32[] parameter(0)
  ROOT %h{level}_{k} = f32[] negate(%g{level}_{k})
}}
""")
                text = f"fusion({value}), kind=kLoop, calls={body}"
            else:
                text = _CALLS[opcode].format(value, inside, level)
            lines.append(f"  {name} = f32[] {text}\n")
            value = name
        parts.append(f"""
%c{level} (p{level}: f32[]) -> f32[] {{
  %p{level} = f32[] parameter(0)
  %is{level} = pred[] constant(true)
{"".join(lines)}  ROOT %q{level} = f32[] negate({value})
}}
""")
    parts.append(f"""
ENTRY %main (p: f32[]) -> f32[] {{
  %p = f32[] parameter(0)
  ROOT %r = f32[] call(%p), to_apply=%c{count}
}}
""")
    return "".join(parts)


@settings(max_examples=200, deadline=None)
@given(text=_call_graphs(), quirks=st.booleans())
def test_what_flattening_makes_is_counted_exactly(text: str, quirks: bool) -> None:
    module = parse(text)
    flatten_call_graph(module, xla_quirks=quirks)
    size = module.instruction_count
    module = parse(text)
    module.most_instructions = size
    flatten_call_graph(module, xla_quirks=quirks)
    if size > parse(text).instruction_count:
        module = parse(text)
        module.most_instructions = size - 1
        with pytest.raises(TooLargeError) as caught:
            flatten_call_graph(module, xla_quirks=quirks)
        assert caught.value.instructions == size
        assert module.is_as_read


def test_loops_and_custom_calls_of_one_computation() -> None:
    """XLA copies the bodies of custom calls in copies again."""
    text = _nest("while", 40)
    for level in range(1, 41):
        loop = f"%v{level} = f32[] {_CALLS['while'].format(f'%p{level}', level - 1)}"
        own = _CALLS["custom-call"].format(f"%p{level}", level - 1)
        text = text.replace(f"{loop}{_COUNT}", f"%v{level} = f32[] {own}")
    module = parse(text)
    with pytest.raises(TooLargeError):
        flatten_call_graph(module, xla_quirks=True)
    assert module.is_as_read


def test_a_clone_may_become_as_large() -> None:
    module = parse(_nest("call", 1))
    assert module.clone().most_instructions is None
    module.most_instructions = 50
    assert module.clone().most_instructions == 50
