"""What a source alone can spell comes back with the order."""

from __future__ import annotations

import itertools

import pytest

from hlo_passes import Module, Pass, PassContext, Pipeline, Report, parse
from hlo_passes.ir.spelling import Spelling

BLANKS = """HloModule m, is_scheduled=true

ENTRY %e (p: f32[4], q: f32[4]) -> f32[4] {
  %p = f32[4] parameter(0)

  %q = f32[4] parameter(1) // the other
  ROOT %a = f32[4] add(%p, %q)
}
"""
ONE_LINE = (
    "HloModule m, is_scheduled=true\n"
    "ENTRY e { p = f32[4] parameter(0) q = f32[4] parameter(1) a = f32[4] add(p, q) }\n"
)
UNMARKED_ROOT = """HloModule m

e {
  p = f32[4] parameter(0)
  q = f32[4] parameter(1)
  a = f32[4] add(p, q)
}
"""
NESTED_OPERANDS = """HloModule m

ENTRY e {
  p = f32[4] parameter(0)
  q = (f32[4], token[]) infeed(token[] after-all())
  ROOT a = f32[4] add(p, %q#0)
}
"""
BODIES_IN_PLACE = """HloModule m

ENTRY e {
  i = s32[] parameter(0)
  p = f32[4] parameter(1)
  ROOT c = f32[4] conditional(i, p, p), branch_computations={
    { x = f32[4] parameter(0) k = f32[4] add(x, x) ROOT n = f32[4] negate(k) },
    { y = f32[4] parameter(0) ROOT l = f32[4] abs(y) } }
}
"""
SPELLINGS = {
    "blanks": BLANKS,
    "one line": ONE_LINE,
    "unmarked root": UNMARKED_ROOT,
    "nested operands": NESTED_OPERANDS,
    "bodies in place": BODIES_IN_PLACE,
}


def _turn(module: Module) -> None:
    for computation in module.computations:
        computation.set_order(computation.instructions[::-1])


@pytest.mark.parametrize("text", SPELLINGS.values(), ids=SPELLINGS)
def test_orders_put_back_leave_no_trace(text: str) -> None:
    module = parse(text)
    spelling = Spelling(module)
    _turn(module)
    assert module.to_text() != text
    _turn(module)
    spelling.restore()
    assert module.to_text() == text
    assert module.is_as_read


@pytest.mark.parametrize("text", SPELLINGS.values(), ids=SPELLINGS)
def test_each_order_alone_may_come_back(text: str) -> None:
    """A computation with another order, or a change, is not spelled as before."""
    names = [c.name for c in parse(text).computations]
    for name, edited in itertools.product(names, [False, True]):
        module = parse(text)
        spelling = Spelling(module)
        _turn(module)
        _turn(module)
        computation = module.computation(name)
        assert computation is not None
        if edited:
            computation.root.set_attribute("backend_config", '"kept"')
        else:
            computation.set_order(computation.instructions[::-1])
        expected = module.to_canonical_text()
        spelling.restore()
        assert module.to_text() != text
        assert module.to_canonical_text() == expected
        if not edited:
            computation.set_order(computation.instructions[::-1])
        assert parse(module.to_text()).to_canonical_text() == module.to_canonical_text()


def test_a_second_change_is_not_forgotten() -> None:
    module = parse(UNMARKED_ROOT)
    spelling = Spelling(module)
    _turn(module)
    _turn(module)
    spelling.restore()
    module.entry.root.set_attribute("backend_config", '"kept"')
    assert not module.is_as_read
    assert '"kept"' in module.to_text()


class _Undecided(Pass):
    name = "undecided"

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        _turn(module)
        _turn(module)
        return False


@pytest.mark.parametrize("text", SPELLINGS.values(), ids=SPELLINGS)
def test_a_pass_may_try_orders(text: str) -> None:
    module = parse(text)
    result = Pipeline((_Undecided(),)).run(module)
    assert [r.changed for r in result.passes] == [False]
    assert module.to_text() == text
