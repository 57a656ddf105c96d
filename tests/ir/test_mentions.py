"""What an instruction mentions does not depend on how it came to be."""

from __future__ import annotations

import hlo_passes
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.text.reader import parse_completely

TEXT = """HloModule m

ENTRY %e (a: f32[4]) -> f32[4] {
  %a = f32[4]{0} parameter(0)
  %b = f32[4]{0} negate(%a), control-predecessors={%a}, metadata={op_name="b"}
  %t = (f32[4]{0}, f32[4]{0}) tuple(%a, %b)
  %u = f32[4]{0} get-tuple-element(%t), index=1
  ROOT %r = f32[4]{0} custom-call(%u), custom_call_target="x", frontend_attributes={scheduler_hint="force_delay"}
}
"""
SPELLINGS = {
    "as XLA prints it": TEXT,
    "a comment": TEXT.replace("ENTRY", "// here\nENTRY"),
    "no percent signs": TEXT.replace("%", ""),
    "several lines": TEXT.replace(", custom", ",\n    custom").replace(
        ", front", ",\n    /* hint */ front"
    ),
    "another order": TEXT.replace(
        'custom_call_target="x", frontend_attributes={scheduler_hint="force_delay"}',
        'frontend_attributes={ scheduler_hint="force_delay" }, custom_call_target="x"',
    ),
}


def _all(module: Module) -> list[Instruction]:
    return [i for c in module.computations for i in c.instructions]


def test_readers_and_spellings_agree() -> None:
    words = ("scheduler_hint", "index", "metadata", "custom_call_target", "channel_id")
    modules = [hlo_passes.parse(text) for text in SPELLINGS.values()]
    modules += [parse_completely(text) for text in SPELLINGS.values()]
    expected = [[word in row for word in words] for row in _rows(TEXT)]
    for module in modules:
        assert [[i.mentions(w) for w in words] for i in _all(module)] == expected
        assert [i.attribute_text() for i in _all(module)] == [
            i.attribute_text() for i in _all(modules[0])
        ]
        assert module.entry.instructions[3].tuple_index == 1


def _rows(text: str) -> list[str]:
    return [line.partition(")")[2] for line in text.splitlines() if " = " in line]


def test_a_change_is_seen_at_once() -> None:
    for module in (hlo_passes.parse(TEXT), parse_completely(TEXT)):
        root = module.entry.root
        assert not root.mentions("_scheduling_group_id")
        root.set_attribute("frontend_attributes", '{_scheduling_group_id="3"}')
        assert root.mentions("_scheduling_group_id")
        assert not root.mentions("scheduler_hint")
        root.set_attribute("frontend_attributes", None)
        assert not root.mentions("_scheduling_group_id")


def test_what_a_pass_made_mentions_its_attributes() -> None:
    made = Instruction(
        "m", "custom-call", hlo_passes.parse(TEXT).entry.root.shape, (),
        {"custom_call_target": '"x"', "schedule": "SCHEDULE_LATEST"},
    )  # fmt: skip
    assert made.mentions("SCHEDULE_LATEST")
    assert not made.mentions("metadata")


def test_text_for_keys_has_one_spelling() -> None:
    def key(attributes: dict[str, str], *without: str) -> str:
        shape = hlo_passes.parse(TEXT).entry.root.shape
        made = Instruction("m", "all-gather", shape, (), attributes)
        return made.attribute_text(frozenset(without))

    plain = key(
        {"channel_id": "1", "replica_groups": "{{0,1}}", "dimensions": "{0}",
         "backend_config": '{"a":{"c":1,"b":"x y"}}'}
    )  # fmt: skip
    assert plain == key(
        {"backend_config": '"{ \\"a\\" : {\\"b\\":\\"x y\\",\\"c\\":1} }"',
         "dimensions": "{ 0 }", "replica_groups": "{ {0, 1} }", "channel_id": "1"}
    )  # fmt: skip
    assert key({"metadata": '{op_name="{"}', "channel_id": "1"}, "metadata") == (
        ", channel_id=1, replica_groups={}"
    )
    assert "dimensions=not a list" in key({"dimensions": "not a list"})
