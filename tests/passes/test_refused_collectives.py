"""What passes that make collectives of others refuse, with a place and a remedy."""

from __future__ import annotations

import pytest

import hlo_passes
from hlo_passes import Pipeline
from hlo_passes.errors import PassError

_RAGGED = """HloModule m, num_partitions=2

ENTRY %main (x: f32[4], o: s32[2]) -> f32[4] {
  %x = f32[4]{0} parameter(0)
  %o = s32[2]{0} parameter(1)
  ROOT %r = f32[4]{0} ragged-all-to-all(%x, %x, %o, %o, %o, %o), replica_groups={{0,1}}
}
"""


@pytest.mark.parametrize(
    "name", ["ragged-all-to-all-decomposer", "ragged-all-to-all-multi-host-decomposer"]
)
def test_narrow_offsets(name: str) -> None:
    with pytest.raises(PassError, match="%r has offsets that are not s64") as caught:
        Pipeline.parse(name).run(hlo_passes.parse(_RAGGED))
    assert caught.value.code == "E025"
    assert caught.value.location is not None


def _keyed(*lines: str) -> str:
    """Lines with `KEY:` for the frontend attribute; `%x` and `%y` are parameters."""
    text = "\n".join(f"  {line}" for line in lines)
    for key in "kl":
        attributes = f'frontend_attributes={{collective_group_key="{key}"}}'
        text = text.replace(f"KEY:{key}", f"{_GROUPS}, to_apply=%add, {attributes}")
    return f"""HloModule m, num_partitions=2

%add (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}}

ENTRY %main {{
  %x = f32[4] parameter(0)
{text}
}}
"""


_GROUPS = "replica_groups={{0,1}}, use_global_device_ids=true"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            (
                "%p = f32[4] all-reduce(%x), channel_id=1, KEY:k",
                "%n = f32[4] negate(%p)",
                "ROOT %q = f32[4] all-reduce(%n), channel_id=2, KEY:k",
            ),
            "%q needs %p, but both have the collective_group_key k",
        ),
        (
            (
                "%p = f32[4] all-reduce(%x), channel_id=1, KEY:k",
                "%q = f32[4] all-reduce(%p), channel_id=2, KEY:l",
                "%r = f32[4] all-reduce(%x), channel_id=3, KEY:l",
                "%s = f32[4] all-reduce(%r), channel_id=4, KEY:k",
                "ROOT %t = (f32[4], f32[4]) tuple(%q, %s)",
            ),
            "with the keys k, l wait for one another",
        ),
    ],
    ids=["member", "groups"],
)
def test_groups_that_wait_for_themselves(lines: tuple[str, ...], message: str) -> None:
    module = hlo_passes.parse(_keyed(*lines))
    with pytest.raises(PassError, match=message) as caught:
        Pipeline.parse("group-collectives-by-key{xla=0.12}").run(module)
    assert caught.value.code == "E026"


_CALL = """HloModule m

ENTRY %main (x: f32[4]) -> f32[8] {
  %x = f32[4]{0} parameter(0)
  %s = f32[8]{0} custom-call(%x), custom_call_target="KIND-start", backend_config=CONFIG
  ROOT %d = f32[8]{0} custom-call(%s), custom_call_target="KIND-done"
}
"""


@pytest.mark.parametrize(
    ("kind", "config", "message"),
    [
        ("all-gather", "{}", "without all_gather_dimension"),
        ("all-gather", '"[1"', "not a JSON object"),
        ("all-gather", '{"all_gather_dimension":1}', "but 1 dimensions"),
        (
            "all-gather",
            '{"all_gather_dimension":0,"replica_groups":[0]}',
            "no lists of numbers",
        ),
        ("all-reduce", "{}", "does not call one reduction"),
        ("collective-permute", '{"permutation":[[0,1,2]]}', "no list of pairs"),
        (
            "all-to-all",
            '{"split_dimension":0,"concat_dimension":0}',
            "without split_count",
        ),
    ],
)
def test_custom_calls_that_do_not_say_enough(
    kind: str, config: str, message: str
) -> None:
    text = _CALL.replace("KIND", kind).replace("CONFIG", config)
    pipeline = Pipeline.parse("async-collective-custom-call-rewriter")
    with pytest.raises(PassError, match=message) as caught:
        pipeline.run(hlo_passes.parse(text))
    assert caught.value.code == "E027"


@pytest.mark.parametrize(
    "lines",
    [
        (
            "%a = f32[8] collective-permute(%x), PAIRS",
            "%b = (f32[8], bf16[4]) collective-permute(%x, %y), PAIRS",
        ),
        (
            "%s = f32[4] slice(%x), slice={[0:4]}",
            "%a = (f32[4], bf16[4]) collective-permute(%s, %y), PAIRS",
            "%b = f32[8] collective-permute(%x), PAIRS",
        ),
        (
            "%s = f32[4] slice(%x), slice={[0:4]}",
            "%a = f32[4] collective-permute(%s), PAIRS",
            "%b = (f32[8], bf16[4]) collective-permute(%x, %y), PAIRS",
        ),
    ],
)
@pytest.mark.parametrize("quirks", [True, False])
def test_permutes_of_other_arrays_are_not_merged(
    lines: tuple[str, ...], *, quirks: bool
) -> None:
    body = "\n  ".join(lines).replace(
        "PAIRS", "channel_id=1, source_target_pairs={{0,1},{1,0}}"
    )
    module = hlo_passes.parse(
        "HloModule m, num_partitions=2\n\nENTRY %e {\n"
        "  %x = f32[8] parameter(0)\n  %y = bf16[4] parameter(1)\n"
        f"  {body}\n  ROOT %t = tuple(%a, %b)\n}}\n"
    )
    before = module.to_text()
    context = hlo_passes.PassContext(xla_quirks=quirks)
    Pipeline.parse("collective-permute-cse", context).run(module)
    assert module.to_text() == before
