"""What only the program can change: said where a module shows it, with a bound."""

from __future__ import annotations

import pytest

from hlo_passes import parse
from hlo_passes.files import read_module
from hlo_passes.pricing import Pricing
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.simulation.simulate import simulate_on
from hlo_passes.scheduler.tuning.in_program import (
    ProgramChange,
    changes_in_program,
)
from hlo_passes.scheduler.tuning.report import report_text
from tests.modules import REPOSITORY
from tests.scheduler.tuning.test_report import result

TUTORIAL = REPOSITORY / "docs" / "tutorial"
#: Pairs of devices that are eight apart, as an outer axis of a mesh has them.
OUTER = "{{0,8},{1,9},{2,10},{3,11},{4,12},{5,13},{6,14},{7,15}}"
INNER = "{{0,1},{2,3},{4,5},{6,7},{8,9},{10,11},{12,13},{14,15}}"
TEXT = """HloModule m, is_scheduled=true, num_partitions=16, entry_computation_layout={{(f32[4096,1024]{{1,0}})->f32[8192,1024]{{1,0}}}}
ENTRY %main (x: f32[4096,1024]) -> f32[8192,1024] {{
  %x = f32[4096,1024]{{1,0}} parameter(0)
  %s = (f32[4096,1024]{{1,0}}, f32[8192,1024]{{1,0}}) all-gather-start(%x), channel_id=1, replica_groups={groups}, dimensions={{0}}, use_global_device_ids=true
  ROOT %d = f32[8192,1024]{{1,0}} all-gather-done(%s)
}}
"""


def names(text: str, **priced_on) -> list[str]:
    found = changes_in_program(parse(text), Pricing(**priced_on), Rules())
    return [each.name for each in found]


def test_a_loop_that_recomputes() -> None:
    module = read_module(str(TUTORIAL / "training.h100_sxm.hlo"))
    on = Pricing(hosts=2)
    timeline = simulate_on(module, on, Rules())
    found = {c.name: c for c in changes_in_program(module, on, Rules())}
    assert set(found) == {"scan unroll", "remat policy"}
    # The same bytes and flops: the bound for any structure holds.
    unrolled = found["scan unroll"]
    assert unrolled.bound_us == timeline.lower_bound_any_structure_us
    assert timeline.lower_bound_any_structure_us <= timeline.step_time_us
    assert unrolled.exposed_us <= timeline.exposed_us * (1 + 1e-9)
    # What is not run again is less work: nothing bounds that.
    saved = found["remat policy"]
    assert saved.bound_us is None
    assert 0.0 < saved.exposed_us <= unrolled.exposed_us * (1 + 1e-9)


def test_groups_that_would_fit_into_one_domain() -> None:
    assert names(TEXT.format(groups=OUTER), hosts=2) == ["mesh axis"]
    # They lie in one, or all of the machine is one, or no domain is so large.
    assert names(TEXT.format(groups=INNER), hosts=2) == []
    assert names(TEXT.format(groups=OUTER), topology="1x2x8") == []
    whole = f"{{{{{','.join(map(str, range(16)))}}}}}"
    assert names(TEXT.format(groups=whole), hosts=2) == []


LOOP = """HloModule m, is_scheduled=true, num_partitions=4, entry_computation_layout={{(s32[], f32[1024])->(s32[], f32[1024])}}
%{body} (b: (s32[], f32[1024])) -> (s32[], f32[1024]) {{
  %b = (s32[], f32[1024]{{0}}) parameter(0)
  %i = s32[] get-tuple-element(%b), index=0
  %v = f32[1024]{{0}} get-tuple-element(%b), index=1
  %one = s32[] constant(1)
  %n = s32[] add(%i, %one)
  %p = f32[1024]{{0}} collective-permute(%v), channel_id=1, source_target_pairs={{{{0,1}},{{1,2}},{{2,3}}}}
  ROOT %r = (s32[], f32[1024]{{0}}) tuple(%n, %p)
}}
%test (c: (s32[], f32[1024])) -> pred[] {{
  %c = (s32[], f32[1024]{{0}}) parameter(0)
  %j = s32[] get-tuple-element(%c), index=0
  %end = s32[] constant(8)
  ROOT %less = pred[] compare(%j, %end), direction=LT
}}
ENTRY %main (x: (s32[], f32[1024])) -> (s32[], f32[1024]) {{
  %x = (s32[], f32[1024]{{0}}) parameter(0)
  ROOT %w = (s32[], f32[1024]{{0}}) while(%x), condition=%test, body=%{body}, backend_config={{"known_trip_count":{{"n":"8"}}}}
}}
"""


def test_a_loop_that_hands_on() -> None:
    assert names(LOOP.format(body="stages")) == ["scan unroll", "microbatches"]
    # XLA made this loop of a product and a collective.
    assert names(LOOP.format(body="windowed_dot_general_body_ag.1")) == []


def test_a_program_without_a_pattern() -> None:
    assert names((TUTORIAL / "faster.h100_sxm.hlo").read_text()) == []


def test_the_report_says_what_bounds_it() -> None:
    change = ProgramChange("scan unroll", "unroll=2", 3, 12_000.0, 60_000.0, "compute")
    free = ProgramChange("remat policy", "save", 1, 2000.0, None, "")
    found = result(in_program=(change, free))
    lines = report_text(found).splitlines()
    at = lines.index(
        "program     scan unroll, not tried: unroll=2; 12.00 ms exposed in 3 "
        "collectives; at most -32.6%, to 60.00 ms (compute)"
    )
    assert lines[at + 1] == (
        "            remat policy, not tried: save; 2.00 ms exposed in 1 collective; it "
        "changes what is moved or computed, so that bound does not hold"
    )
    first, second = found.to_json()["in_program"]
    assert first["bound_us"] == pytest.approx(60_000.0)
    assert second["bound_us"] is None
