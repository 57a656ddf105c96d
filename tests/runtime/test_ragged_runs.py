"""Ragged all-to-alls run on emulated devices as a second opinion says."""

from __future__ import annotations

import numpy as np
import pytest

import hlo_passes
from hlo_passes import runtime
from hlo_passes.errors import UnsupportedHloError
from hlo_passes.runtime.executable import RaggedRowsError
from hlo_passes.runtime.inputs import seeded_inputs
from hlo_passes.runtime.plain.legalize import plain_module
from hlo_passes.runtime.stepping.run import run_in_steps
from tests.runtime.evaluator import Evaluator

#: In a loop, in a branch, asynchronous, of several types, with tables of rank two.
PROGRAM = """HloModule m, num_partitions=4

%there (x.0: bf16[24,3], y.0: bf16[20,3], o.0: s32[8], s.0: s32[8], p.0: s32[8], q.0: s32[8]) -> bf16[20,3] {
  %x.0 = bf16[24,3]{1,0} parameter(0)
  %y.0 = bf16[20,3]{1,0} parameter(1)
  %o.0 = s32[8]{0} parameter(2)
  %s.0 = s32[8]{0} parameter(3)
  %p.0 = s32[8]{0} parameter(4)
  %q.0 = s32[8]{0} parameter(5)
  ROOT %r.0 = bf16[20,3]{1,0} ragged-all-to-all(%x.0, %y.0, %o.0, %s.0, %p.0, %q.0), channel_id=5, replica_groups={{2,0},{1,3}}
}, execution_thread="main"

%body (t: (s32[], f32[24,2], s32[8], s32[8], s32[8], s32[8])) -> (s32[], f32[24,2], s32[8], s32[8], s32[8], s32[8]) {
  %t = (s32[], f32[24,2]{1,0}, s32[8]{0}, s32[8]{0}, s32[8]{0}, s32[8]{0}) parameter(0)
  %k = s32[] get-tuple-element(%t), index=0
  %one = s32[] constant(1)
  %next = s32[] add(%k, %one)
  %v = f32[24,2]{1,0} get-tuple-element(%t), index=1
  %o = s32[8]{0} get-tuple-element(%t), index=2
  %s = s32[8]{0} get-tuple-element(%t), index=3
  %p = s32[8]{0} get-tuple-element(%t), index=4
  %q = s32[8]{0} get-tuple-element(%t), index=5
  %n = f32[24,2]{1,0} add(%v, %v)
  %in_loop = f32[24,2]{1,0} ragged-all-to-all(%v, %n, %o, %s, %p, %q), channel_id=1, replica_groups={{2,0},{1,3}}
  ROOT %u = (s32[], f32[24,2]{1,0}, s32[8]{0}, s32[8]{0}, s32[8]{0}, s32[8]{0}) tuple(%next, %in_loop, %o, %s, %p, %q)
}

%condition (c: (s32[], f32[24,2], s32[8], s32[8], s32[8], s32[8])) -> pred[] {
  %c = (s32[], f32[24,2]{1,0}, s32[8]{0}, s32[8]{0}, s32[8]{0}, s32[8]{0}) parameter(0)
  %at = s32[] get-tuple-element(%c), index=0
  %two = s32[] constant(2)
  ROOT %less = pred[] compare(%at, %two), direction=LT
}

ENTRY %main (x: bf16[24,3], y: bf16[20,3], f: s4[24], a: f32[24,2], o.1: s32[8], s.1: s32[8], p.1: s32[8], q.1: s32[8]) -> (bf16[20,3], s4[24], f32[24,2], f32[0,2]) {
  %x = bf16[24,3]{1,0} parameter(0)
  %y = bf16[20,3]{1,0} parameter(1)
  %f = s4[24]{0} parameter(2)
  %a = f32[24,2]{1,0} parameter(3)
  %o.1 = s32[8]{0} parameter(4)
  %s.1 = s32[8]{0} parameter(5)
  %p.1 = s32[8]{0} parameter(6)
  %q.1 = s32[8]{0} parameter(7)
  %start = ((bf16[24,3]{1,0}, bf16[20,3]{1,0}, s32[8]{0}, s32[8]{0}, s32[8]{0}, s32[8]{0}), bf16[20,3]{1,0}, u32[]) async-start(%x, %y, %o.1, %s.1, %p.1, %q.1), calls=%there
  %zero = s32[] constant(0)
  %w = (s32[], f32[24,2]{1,0}, s32[8]{0}, s32[8]{0}, s32[8]{0}, s32[8]{0}) tuple(%zero, %a, %o.1, %s.1, %p.1, %q.1)
  %loop = (s32[], f32[24,2]{1,0}, s32[8]{0}, s32[8]{0}, s32[8]{0}, s32[8]{0}) while(%w), condition=%condition, body=%body
  %looped = f32[24,2]{1,0} get-tuple-element(%loop), index=1
  %done = bf16[20,3]{1,0} async-done(%start), calls=%there
  %o.2 = s32[2,4]{1,0} reshape(%o.1)
  %s.2 = s32[2,4]{1,0} reshape(%s.1)
  %p.2 = s32[2,4]{1,0} reshape(%p.1)
  %q.2 = s32[2,4]{1,0} reshape(%q.1)
  %small = s4[24]{0} ragged-all-to-all(%f, %f, %o.2, %s.2, %p.2, %q.2), channel_id=2, replica_groups={{2,0},{1,3}}
  %nothing = f32[0,2]{1,0} constant({})
  %none = s32[4]{0} constant({0, 0, 0, 0})
  %empty = f32[0,2]{1,0} ragged-all-to-all(%a, %nothing, %none, %none, %none, %none), channel_id=3, replica_groups={{0,1,2,3}}
  ROOT %all = (bf16[20,3]{1,0}, s4[24]{0}, f32[24,2]{1,0}, f32[0,2]{1,0}) tuple(%done, %small, %looped, %empty)
}
"""  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def _devices(host_devices) -> None:
    host_devices(4)


def test_rows_arrive_where_a_second_opinion_puts_them() -> None:
    module = hlo_passes.parse(PROGRAM)
    plain = plain_module(module)
    inputs = seeded_inputs(plain, module, device_count=4, seed=3)
    sizes = inputs[5].reshape(4, 2, 4)
    assert sizes.any()
    assert (sizes[[2, 1]].transpose(1, 0, 2)[1] == sizes[[0, 3]][:, 0]).all()
    executable = runtime.load(module)
    assert len(executable.results) == 4
    found = executable(*inputs)
    expected = Evaluator(module, 1, 4).run(inputs)
    assert [f.tobytes() for f in found] == [e.tobytes() for e in expected]


SHORT = """HloModule m, replica_count=2

%double (v: f32[6]) -> f32[6] {
  %v = f32[6]{0} parameter(0)
  ROOT %d = f32[6]{0} add(%v, %v)
}

%send (t: (f32[6], s64[2], s64[2], s64[2], s64[2])) -> f32[6] {
  %t = (f32[6]{0}, s64[2]{0}, s64[2]{0}, s64[2]{0}, s64[2]{0}) parameter(0)
  %x = f32[6]{0} get-tuple-element(%t), index=0
  %o = s64[2]{0} get-tuple-element(%t), index=1
  %s = s64[2]{0} get-tuple-element(%t), index=2
  %p = s64[2]{0} get-tuple-element(%t), index=3
  %q = s64[2]{0} get-tuple-element(%t), index=4
  ROOT %r = f32[6]{0} ragged-all-to-all(%x, %x, %o, %s, %p, %q), replica_groups={{0,1}}
}

ENTRY %main (a: pred[], b: f32[6], o.1: s64[2], s.1: s64[2], p.1: s64[2], q.1: s64[2]) -> f32[6] {
  %a = pred[] parameter(0)
  %b = f32[6]{0} parameter(1)
  %o.1 = s64[2]{0} parameter(2)
  %s.1 = s64[2]{0} parameter(3)
  %p.1 = s64[2]{0} parameter(4)
  %q.1 = s64[2]{0} parameter(5)
  %given = (f32[6]{0}, s64[2]{0}, s64[2]{0}, s64[2]{0}, s64[2]{0}) tuple(%b, %o.1, %s.1, %p.1, %q.1)
  ROOT %c = f32[6]{0} conditional(%a, %given, %b), true_computation=%send, false_computation=%double
}
"""  # fmt: skip

#: Offsets and sizes on both devices: three rows to each device.
FITTING = {
    "o": [[0, 3], [0, 3]], "s": [[3, 3], [3, 3]],
    "p": [[0, 0], [3, 3]], "q": [[3, 3], [3, 3]],
}  # fmt: skip

WRONG = {
    "two updates are written to one row": (1, {"p": [[0, 0], [2, 3]]}),
    "rows are written that its output does not have": (2, {"p": [[0, 0], [3, 4]]}),
    "another number of rows than the sender sends": (1, {"s": [[2, 3], [3, 3]]}),
    "rows are sent that its input does not have": (2, {"o": [[0, 3], [0, 4]]}),
    "a size is below zero": (1, {"s": [[-1, 3], [3, 3]], "q": [[-1, 3], [3, 3]]}),
}


def test_tables_that_do_not_fit_are_refused_by_name() -> None:
    """Also in a branch; not where it is not taken."""
    executable = runtime.load(hlo_passes.parse(SHORT))
    rows = np.arange(12, dtype=np.float32).reshape(2, 6)

    def run(taken: bool, **changed: list[list[int]]) -> np.ndarray:
        tables = [np.array(t, np.int64) for t in {**FITTING, **changed}.values()]
        return executable(np.array([taken] * 2), rows, *tables)[0]

    assert run(True)[0].tolist() == [0, 1, 2, 6, 7, 8]
    for text, (device, changed) in WRONG.items():
        with pytest.raises(RaggedRowsError, match=rf"\[R012\].*%r .*{text}.*") as error:
            run(True, **changed)
        assert f"on device {device - 1}" in str(error.value)
        assert (run(False, **changed) == rows * 2).all()
    wrong = [np.array(t) for t in {**FITTING, "o": [[0, 4], [0, 3]]}.values()]
    inputs, module = [np.array([True] * 2), rows, *wrong], hlo_passes.parse(SHORT)
    with pytest.raises(RaggedRowsError, match="device 0"):
        run_in_steps(
            module, None, inputs, (2, 1), each=False, tolerance=None, say=print
        )
    # An update of no rows may be anywhere.
    none = {"s": [[0, 3], [3, 3]], "q": [[0, 3], [3, 3]], "o": [[99, 3], [0, 3]]}
    assert run(True, **none, p=[[-5, 0], [3, 3]])[0].tolist() == [0, 1, 2, 6, 7, 8]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("replica_groups={{0,1}}", "replica_groups={{0},{1,2}}", "different sizes"),
        ("replica_groups={{0,1}}", "replica_groups={{0,1,2}}", "number of updates"),
    ],
)
def test_what_has_no_meaning_is_refused_before_it_runs(
    old: str, new: str, reason: str
) -> None:
    text = SHORT.replace(old, new).replace("replica_count=2", "replica_count=3")
    with pytest.raises(UnsupportedHloError, match=reason):
        plain_module(hlo_passes.parse(text))
