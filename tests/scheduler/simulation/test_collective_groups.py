"""Which line of the user's program: in the text, in JSON, equal layers together."""

from __future__ import annotations

import json

import hlo_passes
from hlo_passes import scheduler
from hlo_passes.scheduler.estimators.table import TableEstimator
from hlo_passes.scheduler.module_costs import estimate

_GROUPS = "channel_id=1, replica_groups={{0,1,2,3,4,5,6,7}}, use_global_device_ids=true"
_HEAD = """\
HloModule step, is_scheduled=true, num_partitions=8

FileNames
1 "model.py"

FunctionNames
1 "mlp"

FileLocations
1 {file_name_id=1 function_name_id=1 line=41 end_line=41 column=1 end_column=2}

StackFrames
1 {file_location_id=1 parent_frame_id=1}

"""


def _layer(k: int) -> str:
    name = f"params['layers_{k}']['up']"
    return f"""\
  %w{k} = f32[64]{{0}} parameter({k}), metadata={{op_name="{name}"}}
  %ag{k} = f32[512]{{0}} all-gather(%w{k}), dimensions={{0}}, {_GROUPS}, metadata={{op_name="jit(step)/layers_{k}/dot" stack_frame_id=1}}
"""


_LAYERS = "".join(map(_layer, range(3)))
_TEXT = f"""\
{_HEAD}ENTRY %main (w0: f32[64], w1: f32[64], w2: f32[64], d: f32[64]) -> (f32[512], f32[512], f32[512], (f32[512], f32[512], f32[512])) {{
{_LAYERS}  %d = f32[64]{{0}} parameter(3), metadata={{op_name="params['down']"}}
  %all = (f32[512]{{0}}, f32[512]{{0}}, f32[512]{{0}}) all-gather(%d, %w0, %w1), dimensions={{0}}, {_GROUPS}, metadata={{op_name="jit(step)/(down:up0:up1)" source_file="m.py:3,m.py:4,m.py:5"}}
  ROOT %out = (f32[512]{{0}}, f32[512]{{0}}, f32[512]{{0}}, (f32[512]{{0}}, f32[512]{{0}}, f32[512]{{0}})) tuple(%ag0, %ag1, %ag2, %all)
}}
"""
_COSTS = {"ag0": 5.0, "ag1": 7.0, "ag2": 5.0, "all": 10.0}


def _module() -> hlo_passes.Module:
    return hlo_passes.parse(_TEXT, filename="step.hlo")


def _timeline() -> scheduler.Timeline:
    return scheduler.simulate(_module(), estimator=TableEstimator(_COSTS, _COSTS))


def test_the_text_takes_equal_layers_together_and_names_the_line() -> None:
    said = _timeline().to_text().split("and why:\n")[1].split("\n\n")[0]
    assert said + "\n" == (
        "  1. 17.0 us  3 x params['layers_*']['up']  all-gather of 2.0 KiB, exposed\n"
        "     %ag1 and 2 more, model.py:41, jit(step)/layers_1/dot\n"
        "     synchronous: it has no start and done, so the compute stream runs it for 7.0 us; all compute here feeds it or needs it\n"
        "  2. 10.0 us  %all  all-gather of 6.0 KiB, exposed\n"
        "     params['down'] and 2 more, m.py:3, jit(step)/down\n"
        "     synchronous: it has no start and done, so the compute stream runs it for 10.0 us; all compute here feeds it or needs it\n"
    )


def test_the_json_has_rows_and_groups() -> None:
    view = json.loads(json.dumps(_timeline().to_json()))
    rows = {row["name"]: row for row in view["collectives"]}
    assert {k: rows["ag0"][k] for k in ("op_name", "source", "parameter", "members")} == {
        "op_name": "jit(step)/layers_0/dot",
        "source": {"file": "model.py", "line": 41},
        "parameter": "params['layers_0']['up']",
        "members": [],
    }  # fmt: skip
    assert [m["parameter"] for m in rows["all"]["members"]] == [
        "params['down']", "params['layers_0']['up']", "params['layers_1']['up']",
    ]  # fmt: skip
    assert view["groups"][0] == {
        "label": "params['layers_*']['up']",
        "opcode": "all-gather",
        "bytes": 2048,
        "count": 3.0,
        "total_exposed_us": 17.0,
        "source": {"file": "model.py", "line": 41},
        "collectives": ["ag1", "ag0", "ag2"],
    }
    assert [group["label"] for group in view["groups"]][1:] == [
        "params['down'] and 2 more"
    ]


def test_an_estimate_names_them_too() -> None:
    rows = {row.name: row for row in estimate(_module()).rows}
    assert rows["ag2"].place.label == "params['layers_2']['up']"
    told = json.loads(json.dumps(estimate(_module()).to_json()))
    view = {row["name"]: row for row in told["instructions"]}
    assert view["ag2"]["source"] == {"file": "model.py", "line": 41}
    assert "op_name" not in view["out"]
