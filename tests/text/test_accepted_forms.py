"""Forms that XLA reads or refuses: the same verdict, and the same module."""

from __future__ import annotations

import jax
import pytest
from jaxlib import _hlo  # pyright: ignore[reportAttributeAccessIssue]

import hlo_passes
from hlo_passes.errors import HloError
from hlo_passes.text.reader import parse_completely
from hlo_passes.verify import verify

CEIL = "{ t0 = f32[5]{0} parameter(0)\n ROOT t1 = f32[5]{0} ceil(t0) }"
FLOOR = "{ ROOT t = f32[5]{0} parameter(0) }"
SUM = "{ a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT s = f32[] add(a, b) }"
NAMED = "named { a = f32[5]{0} parameter(0)\n ROOT b = f32[5]{0} negate(a) }\n\n"


def entry(body: str, before: str = "") -> str:
    return f"HloModule m\n\n{before}ENTRY %e {{\n{body}\n}}\n"


def choice(branches: str) -> str:
    """Two branches of f32[5]."""
    return entry(
        "  %i = s32[] parameter(0)\n  %x = f32[5]{0} parameter(1)\n"
        "  %y = f32[5]{0} parameter(2)\n"
        f"  ROOT %c = f32[5]{{0}} conditional(%i, %x, %y), "
        f"branch_computations={branches}",
        NAMED,
    )


def called(attributes: str, opcode: str = "call") -> str:
    return entry(
        "  %x = f32[5]{0} parameter(0)\n"
        f"  ROOT %c = f32[5]{{0}} {opcode}(%x), {attributes}"
    )


def shaped(shape: str) -> str:
    return entry(f"  ROOT %a = {shape} parameter(0)")


def transferred(lines: str) -> str:
    return entry(
        "  %x = bf16[8]{0} parameter(0)\n  %k = token[] parameter(1)\n" + lines
    )


def header(attribute: str) -> str:
    return f"HloModule m, {attribute}\n\nENTRY e {{\n  ROOT c = s32[] constant(1)\n}}\n"


COMMENTS = """HloModule m: // Garbage {
ENTRY c1 { // Foo bar }
  a = f32[2, // x ]
    1]{0, // }
    1} parameter(0)
  ROOT b = f32[1,2] transpose(a), dimensions={1, // }
    0} // Something else
} // the end"""

READ = {
    "bodies in a list": choice(f"{{ {CEIL}, {FLOOR} }}"),
    "bodies in a list, on one line": choice(f"{{{FLOOR},{FLOOR}}}"),
    "body and name": choice(f"{{ %named, {FLOOR} }}"),
    "name after body": choice(f"{{{CEIL},named}}"),
    "bodies and comments": choice(f"{{ /*a*/ {CEIL}, // x }}\n {FLOOR} }}"),
    "bodies and an attribute": choice(
        f'{{ {CEIL}, {FLOOR} }}, metadata={{op_name="z"}}'
    ),
    "bodies of a custom call": called(
        f'custom_call_target="t", called_computations={{{CEIL}, {FLOOR}}}',
        "custom-call",
    ),
    "no bodies": called(
        'custom_call_target="t", called_computations={}', "custom-call"
    ),
    "body on one line": called(f"to_apply={FLOOR}"),
    "body, fusion": called(f"kind=kLoop, calls={CEIL}", "fusion"),
    "body, while": called(
        "condition={ a = f32[5] parameter(0)\n ROOT p = pred[] constant(false) }, "
        f"body={CEIL}",
        "while",
    ),
    "lone, with a body": f"%f = f32[5] fusion(f32[5] %p), kind=kLoop, calls=\n{CEIL}\n",
    "lone, with a body, no name": f"f32[5] fusion(f32[5] p), kind=kLoop, calls={CEIL}",
    "lone, with a body and more": (
        f"f32[5] call(f32[5] p), to_apply={CEIL}, metadata={{op_name=\"x\"}}"
    ),
    "lone, with bodies": (
        "f32[5] conditional(s32[] i, f32[5] x, f32[5] y), "
        f"branch_computations={{{CEIL}, {FLOOR}}}"
    ),
    "lone, a sum": f"f32[] reduce(f32[8] x, f32[] y), dimensions={{0}}, to_apply={SUM}",
    "lone, named _": f"_ = f32[5] call(f32[5] x), to_apply={CEIL}",
    "lone root": "ROOT R = f32[] add(f32[] a, f32[] b)",
    "lone, no shape": "r = add(f32[] a, f32[] b)",
    "lone, nested of one opcode": (
        "f32[] add(f32[] constant(0), f32[] add(f32[] constant(1), f32[] constant(2)))"
    ),
    "lone, nested without shapes": (
        "f32[] add(add(f32[] x, f32[] y), f32[] add(f32[] z, f32[] w))"
    ),
    "lone, nested twice": "f32[] add(negate(f32[] x), negate(f32[] x))",
    "lone, no names": "f32[] add(f32[] _1, f32[])",
    "comments end at \\n": COMMENTS,
    "comments end at \\r\\n": COMMENTS.replace("\n", "\r\n"),
    "comments end at \\r": COMMENTS.replace("\n", "\r"),
    "send-done is a token": transferred(
        "  %s = (bf16[8]{0}, token[]) send(%x, %k), channel_id=1\n"
        "  %d = bf16[8]{0} send-done(%s), channel_id=1\n"
        "  ROOT %t = (token[], token[]) tuple(%d, %k)"
    ),
    "send is a tuple": transferred(
        "  %s = f32[3] send(%x, %k), channel_id=1\n"
        "  ROOT %d = token[] send-done(%s), channel_id=1"
    ),
    "recv has a context": transferred(
        "  %s = (bf16[8]{0}, token[]) recv(%k), channel_id=1\n"
        "  ROOT %d = f32[2] recv-done(%s), channel_id=1"
    ),
    "outfeed is a token": transferred("  ROOT %d = bf16[8]{0} outfeed(%x, %k)"),
    "after-all is a token": transferred("  ROOT %d = bf16[8]{0} after-all(%k)"),
    "add-dependency is its operand": transferred(
        "  ROOT %d = f32[3]{0} add-dependency(%x, %k)"
    ),
    **{
        f"layout {layout}": shaped(f"f32[4,6,8]{layout}")
        for layout in (
            "{2,1,0:T(2, * , 128)}", "{2,1,0:T (2,128) ( 4 , 1 )}", "{2,1,0:T()}",
            "{2,/*}*/1 , 0 :D( D+ , C ~,H)T(2)L( 32 )#( u8 ) *(u8)E( 4 )S( 1 )}",
            "{2,1,0:SC(0:1) ( 1 : 2 , 3 )M( 8 )}", "/*c*/{2,1,0:S(-1)}",
            "{2,1,0:S(9223372036854775807)}",
        )
    },
    **{
        f"shape {shape}": shaped(shape)
        for shape in (
            "f32/*c*/ [2]", "f32[<= 2]{0}", "( f32[] , s32[] )", "f32[ /*c*/ ]",
        )
    },
}  # fmt: skip

REFUSED = {
    "comma after the last body": choice(f"{{ {CEIL}, {FLOOR}, }}"),
    "no comma between bodies": choice(f"{{ {CEIL} {FLOOR} }}"),
    "empty body": choice(f"{{ {{}}, {FLOOR} }}"),
    "unknown name beside a body": choice(f"{{ nope, {FLOOR} }}"),
    "lone, neither name nor shape": "multiply(f32[2] %b, f32[2] %x)",
    "lone root without a name": "ROOT f32[] add(f32[] a, f32[] b)",
    "lone, type without brackets": "f32 add(f32[] a, f32[] b)",
    "lone, operands without shapes": "f32[] add(a, b)",
    "lone, parameter in a body": (
        "f32[5] call(f32[5] x), to_apply={ ROOT t1 = f32[5]{0} ceil(f32[5] zz) }"
    ),
    "zero byte in a comment": entry("  ROOT %a = f32[] parameter(0) // \0"),
    "layout 1 0": shaped("f32[1,2]{1 0}"),
    "layout S C": shaped("f32[1,2]{1,0:S C(0:1)}"),
    "layout T(2,)": shaped("f32[1,2]{1,0:T(2,)}"),
    "order of layout parts": shaped("f32[1,2]{1,0:S(1)E(4)}"),
    "size < = 2": shaped("f32[< =2]{0}"),
    "is_scheduled": header("is_scheduled=yes"),
    "may-alias": header("input_output_alias={ {}: (0, {}, xx-alias) }"),
    "origin_recovery_table": header("origin_recovery_table=5"),
    "recovery with commas": header(
        'origin_recovery_table={ {"a"} : {"b"}, {"c"} : {"d"} }'
    ),
}

#: Header attributes that XLA knows since jaxlib 0.12.
NEWER_READ = {
    f"debug_attributes={value}": header(f"debug_attributes={value}")
    for value in (
        "{}",
        '{{"c"}:({log_mode=default,callback_id=1,partitioned=true,op_id=2})}',
        '{ {"c" {0}} : {log_mode=fusion_debugger}, {"d"}:({op_id=1},{op_id=2}) }',
    )
}
NEWER_REFUSED = {
    f"debug_attributes={value}": header(f"debug_attributes={value}")
    for value in (
        "1",
        '{{"c"}:({log_mode=invalid_mode})}',
        '{{"c"}:({log_mode=DEFAULT})}',
        '{{"c"}:({partitioned=1})}',
        '{{"c"}:({unknown=1})}',
        '{{"c"}:({})}',
        '{{"c"}:({op_id=1,})}',
    )
}
IS_NEWER = jax.__version_info__[:2] >= (0, 12)


def computations(text: str) -> list[str]:
    """A module as XLA prints it, the header apart."""
    return _hlo.hlo_module_from_text(text).to_string().strip().split("\n")[1:]


@pytest.mark.parametrize("gap", ["", " ", "\n", "/*c*/", " /*c*/ ", "//c\n"])
@pytest.mark.parametrize("known", ["f32[4,6]", "f32[4,6]{1,0}", "f32[4,6]{0,1:S(1)}"])
def test_what_was_read_before_does_not_matter(known: str, gap: str) -> None:
    """A shape without its layout is no answer where a layout follows."""
    before = f"HloModule m\n\nENTRY %e {{\n  ROOT %a = {known} parameter(0)\n}}\n"
    text = before.replace(known, f"f32[4,6]{gap}{{0,1:S(1)}}")
    hlo_passes.parse(before)
    root = hlo_passes.parse(text).entry.root
    assert root.shape.text == "f32[4,6]{0,1:S(1)}"


@pytest.mark.parametrize("text", [*READ.values(), *NEWER_READ.values()],
                         ids=[*READ, *NEWER_READ])  # fmt: skip
def test_read(text: str) -> None:
    module = hlo_passes.parse(text)
    assert [f.render() for f in verify(module)] == []
    printed = module.to_canonical_text()
    assert parse_completely(text).to_canonical_text() == printed
    if IS_NEWER or "debug_attributes" not in text:
        assert computations(printed) == computations(text)


@pytest.mark.parametrize("text", [*REFUSED.values(), *NEWER_REFUSED.values()],
                         ids=[*REFUSED, *NEWER_REFUSED])  # fmt: skip
def test_refused(text: str) -> None:
    with pytest.raises(HloError):
        hlo_passes.Pipeline(()).run(hlo_passes.parse(text))
    with pytest.raises(Exception, match="rror"):
        _hlo.hlo_module_from_text(text)


def test_bodies_in_a_list_become_computations() -> None:
    module = hlo_passes.parse(choice(f"{{ {CEIL}, {FLOOR} }}"))
    root = module.entry.root
    assert [c.name for c in root.called_computations] == ["_", "_.1"]
    root.set_attribute("metadata", '{op_name="z"}')
    again = hlo_passes.parse(module.to_text())
    assert len(again.entry.root.called_computations) == 2


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_place_of_an_error(end: str) -> None:
    text = (
        "HloModule m // x\n\nENTRY e {\n  a = f32[] parameter(0)\n  b = f32[] foo(c)\n}"
    )
    with pytest.raises(HloError) as caught:
        hlo_passes.parse(text.replace("\n", end), filename="m.hlo")
    assert str(caught.value).startswith(
        "m.hlo:5:17: error[P004]: %c is not defined\n  b = f32[] foo(c)\n"
    )
