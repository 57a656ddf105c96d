"""The GPU's backend config reads the same in every spelling that XLA accepts."""

from __future__ import annotations

import json

import pytest

import hlo_passes
from hlo_passes.ir import gpu_config as configs
from hlo_passes.ir.instruction import Instruction

VALUE = {
    "operation_queue_id": "5",
    "collective_backend_config": {"is_sync": True, "kernel_strategy": "A"},
    "fusion_backend_config": {
        "kind": "__triton_collective",
        "block_level_fusion_config": {
            "num_warps": "4",
            "output_tiles": [{"sizes": ["16", "8"]}],
        },
    },
}
PLAIN = json.dumps(VALUE, separators=(",", ":"))
SPELLINGS = {
    "plain": PLAIN,
    "blanks": json.dumps(VALUE, indent=1, separators=(" , ", " : ")),
    "another order": json.dumps(dict(reversed(VALUE.items()))),
    "quoted": json.dumps(PLAIN),
    "quoted, with blanks": json.dumps(json.dumps(VALUE)),
    "a comma at the end": PLAIN[:-1] + ",\n }",
}


def instruction_with(config: str) -> Instruction:
    text = f"""HloModule m

%f (a: f32[4]) -> f32[4] {{
  ROOT %a = f32[4]{{0}} parameter(0)
}}

ENTRY %e (a: f32[4]) -> f32[4] {{
  %a = f32[4]{{0}} parameter(0)
  ROOT %r = f32[4]{{0}} fusion(%a), kind=kCustom, calls=%f, backend_config={config}
}}
"""
    return hlo_passes.parse(text).entry.root


@pytest.mark.parametrize("config", SPELLINGS.values(), ids=list(SPELLINGS))
def test_spelling_makes_no_difference(config: str) -> None:
    read = instruction_with(config)
    assert dict(configs.gpu_config(read)) == VALUE
    assert configs.has_gpu_config(read)
    assert configs.is_marked_sync(read)
    assert configs.operation_queue_id(read) == 5
    assert configs.is_collective_fusion(read)
    assert not configs.is_convolution_fusion(read)
    assert configs.triton_tiles(read) == ((16, 8), 4)


@pytest.mark.parametrize("config", ['"3"', '"a word"', "{0}", '"{"', "[1]"])
def test_what_is_no_json_dict_reads_as_empty(config: str) -> None:
    read = instruction_with('""')
    read.set_attribute("backend_config", config)
    assert not configs.gpu_config(read)
    assert not configs.has_gpu_config(read)
    assert not configs.is_marked_sync(read)
    assert configs.operation_queue_id(read) == 0
    assert configs.fusion_kind(read) == ""


@pytest.mark.parametrize("queue", ["-1", "1.5", "9" * 5000, "٣", "", "x"])
def test_a_queue_that_is_no_number_is_the_default_one(queue: str) -> None:
    read = instruction_with(json.dumps({"operation_queue_id": queue}))
    assert configs.operation_queue_id(read) == 0


def test_no_config_is_an_empty_one_that_may_be_written() -> None:
    read = instruction_with('""')
    read.set_attribute("backend_config", None)
    assert not configs.gpu_config(read)
    assert configs.has_gpu_config(read)


@pytest.mark.parametrize(
    ("config", "told"),
    [('{"a":}', 1), ("{a = 1 : i32}", 1), ('{"a":1,}', 0), ('"free text"', 0)],
)
def test_config_in_braces_that_is_not_json(
    config: str, told: int, caplog: pytest.LogCaptureFixture
) -> None:
    configs._tell_unreadable.cache_clear()
    for _ in range(2):
        assert configs.gpu_config(instruction_with(config)).get("b") is None
    messages = [r.getMessage() for r in caplog.records]
    assert (
        messages
        == [
            f"a backend config is not JSON as XLA writes it, and nothing in it counts: {config}"
        ]
        * told
    )


@pytest.mark.parametrize(
    ("part", "reads"),
    [
        ('"known_init_step":{"init":"0","step":1}', True),
        ('"known_init_step":{"init":"-3","step":null}', True),
        ('"known_init_step":{"init":"0is_scheduled=true","step":"1"}', False),
        ('"known_init_step":{"init":true}', False),
        ('"known_init_step":"0"', False),
        ('"known_init_step":{"init":"9223372036854775807"}', True),
        ('"known_init_step":{"init":"-9223372036854775808"}', True),
        ('"known_init_step":{"init":"9223372036854775808"}', False),
        ('"known_init_step":{"init":"-9223372036854775809"}', False),
        ('"known_induction_variable":{"tuple_index":1.5}', False),
        ('"dynamic_variables":[{"tuple_index":"1"},{}]', True),
        ('"dynamic_variables":[{"tuple_index":""}]', False),
        ('"dynamic_variables":{"tuple_index":"1"}', False),
        ('"dynamic_variables":["1"]', False),
        ('"dynamic_slice_config":{"byte_offset":"8","linear":{"byte_stride":8}}', True),
        ('"dynamic_slice_config":{"linear":{"byte_stride":"8 bytes"}}', False),
        ('"reification_cost":[{"compute_time_us":0.5}]', True),
        ('"reification_cost":[{"compute_time_us":"long"}]', False),
        ('"reification_cost":[{"memory_access_time_us":false}]', False),
        ('"gemm_backend_config":{"dot_dimension_numbers":{}}', True),
        (
            '"gemm_backend_config":{"dot_dimension_numbers":'
            '{"lhs_batch_dimensions":["zero"]}}',
            False,
        ),
        ('"other_config":{"init":"any text"}', True),
    ],
)
def test_fields_of_other_forms_make_it_unreadable(part: str, *, reads: bool) -> None:
    instruction = instruction_with(f'{{{part},"b":1}}')
    assert configs.gpu_config(instruction).get("b") == (1 if reads else None)
    assert configs.has_gpu_config(instruction) == reads
