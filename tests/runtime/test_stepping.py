"""Modules that run step by step: the same bits, and the first value that parts."""

from __future__ import annotations

import collections
import json
import math
import weakref

import numpy as np
import pytest

from hlo_passes.errors import UnsupportedHloError
from hlo_passes.files import read_module
from hlo_passes.runtime import memory
from hlo_passes.runtime.commands import RUN
from hlo_passes.runtime.devices import topology_of
from hlo_passes.runtime.executable import load_plain
from hlo_passes.runtime.inputs import seeded_inputs
from hlo_passes.runtime.plain.legalize import plain_module
from hlo_passes.runtime.stepping.parting import Partings
from hlo_passes.runtime.stepping.run import run_in_steps
from hlo_passes.runtime.stepping.segments import Follow, Forward, Straight, cut
from hlo_passes.runtime.stepping.stepper import Stepper
from hlo_passes.text.reader import parse
from tests.modules import REPOSITORY
from tests.runtime.test_commands import call

LOOP = """HloModule step, num_partitions=4

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %r = f32[] add(%a, %b)
}

%body (s: (s32[], f32[8])) -> (s32[], f32[8]) {
  %s = (s32[], f32[8]{0}) parameter(0)
  %k = s32[] get-tuple-element(%s), index=0
  %x = f32[8]{0} get-tuple-element(%s), index=1
  %one = s32[] constant(1)
  %next = s32[] add(%k, %one)
  %start = f32[8]{0} all-reduce-start(%x), channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=true, to_apply=%add
  %c = f32[8]{0} cosine(%x)
  %done = f32[8]{0} all-reduce-done(%start)
  %y = f32[8]{0} multiply(%done, %c), metadata={op_name="jit(step)/mul" source_file="step.py" source_line=7}
  ROOT %t = (s32[], f32[8]{0}) tuple(%next, %y)
}

%cond (s: (s32[], f32[8])) -> pred[] {
  %s = (s32[], f32[8]{0}) parameter(0)
  %k = s32[] get-tuple-element(%s), index=0
  %n = s32[] constant(3)
  ROOT %lt = pred[] compare(%k, %n), direction=LT
}

ENTRY %e (p: f32[8], q: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  %q = f32[8]{0} parameter(1), sharding={replicated}
  %zero = s32[] constant(0)
  %t = (s32[], f32[8]{0}) tuple(%zero, %p)
  %w = (s32[], f32[8]{0}) while(%t), condition=%cond, body=%body
  %v = f32[8]{0} get-tuple-element(%w), index=1
  %twice = f32[8]{0} add(%q, %q)
  ROOT %n = f32[8]{0} add(%v, %twice)
}
"""

#: Devices leave the loop after another number of iterations each, and part at the branch.
APART = """HloModule apart, num_partitions=4

%body (s: (u32[], f32[8])) -> (u32[], f32[8]) {
  %s = (u32[], f32[8]{0}) parameter(0)
  %k = u32[] get-tuple-element(%s), index=0
  %x = f32[8]{0} get-tuple-element(%s), index=1
  %one = u32[] constant(1)
  %next = u32[] add(%k, %one)
  %c = f32[8]{0} cosine(%x)
  ROOT %t = (u32[], f32[8]{0}) tuple(%next, %c)
}

%cond (s: (u32[], f32[8])) -> pred[] {
  %s = (u32[], f32[8]{0}) parameter(0)
  %k = u32[] get-tuple-element(%s), index=0
  %n = u32[] constant(3)
  ROOT %lt = pred[] compare(%k, %n), direction=LT
}

%yes (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  ROOT %sine = f32[8]{0} sine(%x)
}

%no (y: f32[8]) -> f32[8] {
  ROOT %y = f32[8]{0} parameter(0)
}

ENTRY %e (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  %id = u32[] partition-id()
  %t = (u32[], f32[8]{0}) tuple(%id, %p)
  %w = (u32[], f32[8]{0}) while(%t), condition=%cond, body=%body
  %v = f32[8]{0} get-tuple-element(%w), index=1
  %two = u32[] constant(2)
  %low = pred[] compare(%id, %two), direction=LT
  %b = f32[8]{0} conditional(%low, %v, %v), true_computation=%yes, false_computation=%no
  %last = s32[] constant(7)
  ROOT %r = f32[8]{0} conditional(%last, %b, %b), branch_computations={%yes, %no}
}
"""

HANDWRITTEN = REPOSITORY / "corpus" / "handwritten"
MODULES = REPOSITORY / "corpus" / "modules" / "0.12.0.1"
FILES = (
    HANDWRITTEN / "async_overlapped.hlo",
    HANDWRITTEN / "in_conditional.hlo",
    HANDWRITTEN / "in_loop.hlo",
    HANDWRITTEN / "many_types.hlo",
    HANDWRITTEN / "scheduled_async_pairs.hlo",
    MODULES / "control_flow.scheduled.hlo",
    MODULES / "pipeline_scan.scheduled.hlo",
    MODULES / "swap_in_loop.partitioned.hlo",
)


def stepped(text, *, each=True, other=None, inputs=None):
    """A run in steps, and what a run at once gives."""
    module = parse(text)
    topology = topology_of(module)
    plain = plain_module(module)
    executable = load_plain(plain, module, *topology)
    if inputs is None:
        devices = math.prod(topology)
        inputs = seeded_inputs(plain, module, device_count=devices, seed=0)
    steps = run_in_steps(
        parse(text), None if other is None else parse(other), inputs, topology,
        each=each, tolerance=None, say=lambda _: None,
    )  # fmt: skip
    return steps, executable(*inputs)


def seen(text, *, each):
    """(name, iterations around it) of every value that is looked at."""
    module = parse(text)
    topology = topology_of(module)
    inputs = seeded_inputs(plain_module(module), module, device_count=4, seed=0)
    stepper = Stepper(module, topology, each=each)
    return [(value.instruction.name, value.path) for value in stepper.run(inputs)]


def assert_same_bits(steps, outputs):
    assert [a.tobytes() for a in steps.outputs] == [a.tobytes() for a in outputs]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.split(".")[0])
def test_steps_give_the_bits_of_the_whole(path):
    text = read_module(str(path)).to_text()
    steps, outputs = stepped(text)
    assert_same_bits(steps, outputs)
    assert not steps.report["not_the_same"]


@pytest.mark.parametrize("each", [True, False])
def test_a_loop_is_followed_once_per_iteration(each):
    steps, outputs = stepped(LOOP, each=each)
    assert_same_bits(steps, outputs)
    names = collections.Counter(name for name, _ in seen(LOOP, each=each))
    # The condition runs once more than the body.
    assert (names["done"], names["c"], names["next"], names["lt"]) == (3, 3, 3, 4)
    # What no other step reads is looked at only if each value is.
    kept_inside = (names["y"], names["one"], names["n"])
    assert kept_inside == ((3, 3, 5) if each else (0, 0, 1))
    assert steps.report["values"] == sum(names.values())
    assert steps.report["must_be_same"] >= names["done"]


@pytest.mark.parametrize("each", [True, False])
def test_what_devices_do_differently_runs_as_one_program(each):
    steps, outputs = stepped(APART, each=each)
    assert_same_bits(steps, outputs)


def test_steps_of_a_body():
    body = parse(LOOP).computation("body")
    named = [
        (type(step).__name__, [i.name for i in step.instructions])
        if isinstance(step, Straight)
        else (type(step).__name__, [step.instruction.name])
        for step in cut(body, lambda _: False, each=True)
    ]
    # Nothing is cut between a start and its done.
    assert named == [
        ("Forward", ["k"]),
        ("Forward", ["x"]),
        ("Straight", ["one", "next", "start", "c", "done"]),
        ("Straight", ["y", "t"]),
    ]
    entry = parse(LOOP).entry
    kinds = [
        type(step) for step in cut(entry, lambda i: i.opcode == "while", each=True)
    ]
    assert kinds == [Straight, Follow, Forward, Straight]
    assert Forward in kinds


def test_the_first_value_that_parts_is_named(tmp_path, capfd):
    one, other = tmp_path / "one.hlo", tmp_path / "other.hlo"
    one.write_text(LOOP)
    # The second iteration is the first with another value: k x 0 is added.
    other.write_text(
        LOOP.replace(
            "  %y = f32[8]{0} multiply(%done, %c)",
            "  %f = f32[] convert(%k)\n"
            "  %m = f32[8]{0} broadcast(%f), dimensions={}\n"
            "  %d2 = f32[8]{0} add(%done, %m)\n"
            "  %y = f32[8]{0} multiply(%d2, %c)",
        )
    )
    assert call(RUN, str(one), "--sync=each", f"--against={other}", "--json") == 4
    steps = json.loads(capfd.readouterr().out)["steps"]
    first = steps["first_difference"]
    assert (first["name"], first["opcode"]) == ("y", "multiply")
    assert first["iterations"] == [{"name": "w", "iteration": 2}]
    assert first["source"] == {"file": "step.py", "line": 7}
    assert first["operands"] == {"done": "differs", "c": "same"}
    # The other module has all values of the first, and three more in each iteration.
    assert steps["compared"] == steps["values"]
    # In text, with places.
    assert call(RUN, str(one), "--sync=collectives", f"--against={other}") == 4
    said = capfd.readouterr().out
    assert f"  {one}:16: %c = f32[8] cosine, iteration 3 of %w" in said


def test_a_module_agrees_with_itself(tmp_path, capfd):
    path = tmp_path / "m.hlo"
    path.write_text(LOOP)
    assert call(RUN, str(path), "--sync=each", f"--against={path}") == 0
    assert "none differs" in capfd.readouterr().out


def test_values_of_condition_and_body_are_told_apart(tmp_path, capfd):
    """Both have a %one; the other module comes to its condition's after the body's."""
    one, other = tmp_path / "one.hlo", tmp_path / "other.hlo"
    text = LOOP.replace("%n = s32[] constant(3)", "%one = s32[] constant(3)")
    text = text.replace("compare(%k, %n)", "compare(%k, %one)")
    one.write_text(text)
    extra = "".join(f"  %extra.{k} = s32[] add(%k, %k)\n" for k in range(9))
    condition = "%cond (s: (s32[], f32[8])) -> pred[] {\n  %s = (s32[], f32[8]{0}) "
    condition += "parameter(0)\n  %k = s32[] get-tuple-element(%s), index=0\n"
    assert condition in text
    other.write_text(text.replace(condition, condition + extra))
    assert call(RUN, str(one), "--sync=each", f"--against={other}", "--json") == 0
    steps = json.loads(capfd.readouterr().out)["steps"]
    assert (steps["compared"], steps["different"]) == (steps["values"], 0)


TRANSFER = """HloModule moved, num_partitions=2

ENTRY %e (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  %one = token[] after-all()
  %s = (f32[8]{0}, u32[], token[]) send(%p, %one), channel_id=1, frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1}}"}
  %sent = token[] send-done(%s), channel_id=1
  %c = f32[8]{0} cosine(%p)
  %other = token[] after-all()
  %r = (f32[8]{0}, u32[], token[]) recv(%other), channel_id=1, frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1}}"}
  %received = (f32[8]{0}, token[]) recv-done(%r), channel_id=1
  %d = f32[8]{0} get-tuple-element(%received), index=0
  ROOT %x = f32[8]{0} add(%d, %c)
}
"""


def test_a_send_and_its_recv_are_in_one_step():
    """No token connects them: the send is done before its recv begins."""
    steps, outputs = stepped(TRANSFER)
    assert_same_bits(steps, outputs)
    assert steps.report["values"] == 2  # %c and %x


def chain(length, name="v"):
    """A chain of cosines."""
    lines = [
        f"  %{name}.{k + 1} = f32[8]{{0}} cosine(%{name}.{k})" for k in range(length)
    ]
    lines[-1] = lines[-1].replace("%", "ROOT %", 1)
    return (
        "HloModule long, num_partitions=2\n\n"
        f"ENTRY %e (p: f32[8]) -> f32[8] {{\n  %{name}.0 = f32[8]{{0}} parameter(0)\n"
        + "\n".join(lines)
        + "\n}\n"
    )


@pytest.mark.parametrize("against", [None, "v", "other"])
def test_values_that_no_later_step_reads_are_dropped(against):
    """Alive are those of one step of each module, also if no name is in both."""
    inputs, length = [np.ones((2, 8), np.float32)], 400
    steppers = [
        Stepper(parse(chain(length, name)), (1, 2), each=True)
        for name in ("v", against or "v")
    ]
    values = steppers[0].run(inputs)
    if against is not None:
        values = Partings(None).follow(*steppers, inputs)
    arrays, most = [], 0
    for value in values:
        arrays.append(weakref.ref(value.arrays[0]))
        most = max(most, sum(a() is not None for a in arrays))
    assert len(arrays) == length
    assert most <= 130  # those of a step, its input, and the one in hand


def test_a_step_that_needs_more_memory_than_is_free_is_refused(monkeypatch):
    """With a loop's iteration and what else can be done."""
    monkeypatch.setattr(memory, "available_bytes", lambda: 1000)
    inputs = [np.ones((4, 8), np.float32)] * 2
    values = Stepper(parse(LOOP), (1, 4), each=True).run(inputs)
    with pytest.raises(UnsupportedHloError) as refused:
        collections.deque(values, maxlen=0)
    assert refused.value.code == "S013"
    assert str(refused.value) == (
        "error[S013]: the step from %one to %done, iteration 1 of %w, beside what later "
        "steps need, needs 0.0 MiB on all its devices together, 0.0 MiB are free\n"
        "  help: look at fewer values with --sync=collectives, run without --sync, or "
        "lower the program with smaller shapes"
    )


def test_inputs_that_break_a_promise_are_named(tmp_path, capfd):
    rows = np.repeat(np.arange(8, dtype=np.float32)[None], 4, axis=0)
    different = rows.copy()
    different[2, 5] = 9
    steps, _ = stepped(LOOP, inputs=[rows, different])
    (first,) = [r for r in steps.report["not_the_same"] if r["name"] == "twice"]
    assert first["devices"] == [0, 2]
    # And at the command line.
    path, arrays = tmp_path / "m.hlo", tmp_path / "in.npz"
    path.write_text(LOOP)
    np.savez(arrays, **{"0": rows, "1": different})
    assert call(RUN, str(path), "--sync=each", f"--inputs={arrays}") == 0
    said = capfd.readouterr().out
    assert "values that must be the same on several devices are not, first" in said
    assert "%twice = f32[8] add: devices 0 and 2 have different values" in said


def test_a_run_in_steps_is_not_repeated(tmp_path, capfd):
    path = tmp_path / "m.hlo"
    path.write_text(LOOP)
    assert call(RUN, str(path), "--sync=each", "--repeat=2") == 2
    assert "error[U024]" in capfd.readouterr().out
