"""What a program says about order is named by an explanation."""

from __future__ import annotations

import pytest

from hlo_passes import (
    PassContext,
    Pipeline,
    parse,
    scheduler,  # noqa: F401  (its passes)
)

HEAD = """HloModule m, is_scheduled=true, num_partitions=2, entry_computation_layout={(f32[64]{0})->f32[64]{0}}

ENTRY %main (p: f32[64]) -> f32[64] {
  %p = f32[64]{0} parameter(0)
"""
START = "(f32[64]{0}, f32[64]{0}) collective-permute-start"
PAIRS = "source_target_pairs={{0,1},{1,0}}"
GROUP = 'frontend_attributes={_scheduling_group_id="3"}'

GROUPED = f"""{HEAD}\
  %s = {START}(%p), channel_id=1, {PAIRS}, {GROUP}
  %w = f32[64]{{0}} sine(%p), {GROUP}
  %d = f32[64]{{0}} collective-permute-done(%s), {GROUP}
  ROOT %r = f32[64]{{0}} add(%w, %d)
}}
"""
BARRED = f"""{HEAD}\
  %s = {START}(%p), channel_id=1, {PAIRS}
  %d = f32[64]{{0}} collective-permute-done(%s)
  %t = (f32[64]{{0}}, f32[64]{{0}}) tuple(%p, %d)
  %b = (f32[64]{{0}}, f32[64]{{0}}) opt-barrier(%t)
  %x = f32[64]{{0}} get-tuple-element(%b), index=0
  %y = f32[64]{{0}} get-tuple-element(%b), index=1
  %w = f32[64]{{0}} sine(%x)
  ROOT %r = f32[64]{{0}} add(%w, %y)
}}
"""
EDGED = f"""{HEAD}\
  %w = f32[64]{{0}} sine(%p)
  %s = {START}(%p), channel_id=1, {PAIRS}, control-predecessors={{%w}}
  %d = f32[64]{{0}} collective-permute-done(%s)
  ROOT %r = f32[64]{{0}} add(%w, %d)
}}
"""
#: %w reads the barrier beside a tuple that has one operand twice.
TWICE = f"""{HEAD}\
  %s = {START}(%p), channel_id=1, {PAIRS}
  %d = f32[64]{{0}} collective-permute-done(%s)
  %b = f32[64]{{0}} opt-barrier(%p)
  %t = (f32[64]{{0}}, f32[64]{{0}}) tuple(%p, %p)
  %v = f32[64]{{0}} get-tuple-element(%t), index=1
  %w = f32[64]{{0}} add(%b, %v)
  ROOT %r = f32[64]{{0}} add(%w, %d)
}}
"""


def constraints(text: str, name: str) -> list[str]:
    pipeline = Pipeline.parse("latency-hiding-scheduler", PassContext(explain=name))
    (run,) = pipeline.run(parse(text)).passes
    (told,) = run.explanations
    lines = [line.strip() for line in told.splitlines()]
    return [line for line in lines if line.startswith("constraint: ")]


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        (GROUPED, "s", "scheduling group 3: one after the other with %w, %d"),
        (GROUPED, "w", "scheduling group 3: one after the other with %s, %d"),
        (BARRED, "s", "before optimization barrier %b"),
        (BARRED, "d", "before optimization barrier %b"),
        (BARRED, "w", "after optimization barrier %b"),
        (TWICE, "w", "after optimization barrier %b"),
        (EDGED, "s", "after %w: control edge"),
        (EDGED, "w", "before %s: control edge"),
    ],
)
def test_a_constraint_is_named(text: str, name: str, expected: str) -> None:
    assert constraints(text, name) == [f"constraint: {expected}"]


@pytest.mark.parametrize(("text", "name"), [(GROUPED, "r"), (EDGED, "d")])
def test_nothing_is_named_where_nothing_is_said(text: str, name: str) -> None:
    assert constraints(text, name) == []


def test_an_explanation_is_of_one_instruction() -> None:
    """Another of that name is told of only where the scheduler placed none."""
    body = "%f (b: f32[8]) -> f32[8] {\n  %b = f32[8] parameter(0)\n"
    body += "  ROOT %w = f32[8] negate(%b)\n}\n\nENTRY"
    text = EDGED.replace("ENTRY", body, 1)
    for name, begins in (
        ("w", "%w in %main: "),
        ("b", "%b in %f, which the scheduler does not order"),
    ):
        context = PassContext(explain=name)
        pipeline = Pipeline.parse("latency-hiding-scheduler", context)
        (told,) = pipeline.run(parse(text)).passes[0].explanations
        assert told.startswith(begins)


@pytest.mark.parametrize(
    ("one", "two", "together"),
    [
        ("{{0,1},{2,3}}", "{{0,2},{1,3}}", True),
        ("{{0,1},{2,3}}", "{{0,1},{2,3}}", False),
        ("{}", "{}", False),  # all devices
        ("{{0,1},{2,3}}", "{}", False),
    ],
)
def test_streams_of_their_own_are_for_collectives_that_share_no_two_ranks(
    one: str, two: str, *, together: bool
) -> None:
    def started(name: str, operand: str, channel: int, groups: str) -> str:
        by_id = "use_global_device_ids=true, " if groups != "{}" else ""
        return (
            f"  %{name} = f32[1048576] all-reduce-start(%{operand}), "
            f"channel_id={channel}, {by_id}replica_groups={groups}, to_apply=%add\n"
            f"  %{name}_end = f32[1048576] all-reduce-done(%{name})\n"
        )

    module = parse(f"""HloModule m, num_partitions=4, is_scheduled=true

%add {{
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %z = f32[] add(%x, %y)
}}

ENTRY %main {{
  %p = f32[1048576] parameter(0)
  %q = f32[1048576] parameter(1)
{started("one", "p", 1, one)}{started("two", "q", 2, two)}\
  ROOT %t = (f32[1048576], f32[1048576]) tuple(%one_end, %two_end)
}}
""")
    Pipeline.parse(
        "latency-hiding-scheduler{enable-collective-multi-streaming=true,"
        "parallel-collective-overlap-limit=2}"
    ).run(module)
    order = [i.opcode for i in module.entry.instructions if "all-reduce" in i.opcode]
    apart = ["all-reduce-start", "all-reduce-done"] * 2
    assert order == (sorted(apart, reverse=True) if together else apart)
