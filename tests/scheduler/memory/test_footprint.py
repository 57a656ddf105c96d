"""Whether a step fits: the peak with parameters, what lives there, what a device has."""

import json
import random
import re

import pytest

import hlo_passes
from hlo_passes import scheduler
from hlo_passes.cli.main import main
from hlo_passes.files import read_module
from hlo_passes.scheduler import ModuleMemory
from hlo_passes.scheduler.hardware.target import (
    target,
    target_names,
    target_text,
)
from hlo_passes.scheduler.memory import footprint as footprints
from hlo_passes.scheduler.memory.footprint import available_bytes, footprint
from hlo_passes.scheduler.memory.memory_limit import device_bytes
from hlo_passes.scheduler.simulation.report import report_text
from tests.modules import REPOSITORY
from tests.scheduler.memory.programs import random_program

GIB = 1 << 30
#: One array of as many GiB as the parameter, and one of twice as many.
STEP = """HloModule step, is_scheduled=true

ENTRY %main (p: f32[{n},1073741824]) -> f32[{n}] {{
  %p = f32[{n},1073741824]{{1,0}} parameter(0), metadata={{op_name="params['w']"}}
  %double = f32[{m},1073741824]{{1,0}} concatenate(%p, %p), dimensions={{0}}, metadata={{op_name="jit(step)/concatenate" source_file="model.py" source_line=41}}
  %half = f32[{n},1073741824]{{1,0}} slice(%double), slice={{[0:{n}], [0:1073741824]}}
  %zero = f32[] constant(0)
  ROOT %sum = f32[{n}]{{0}} reduce(%half, %zero), dimensions={{1}}, to_apply=%add
}}
"""
ADD = """
%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}
"""


def step(quarters: int) -> hlo_passes.Module:
    """A parameter of 4 GiB times `quarters`, and three times that much at the peak."""
    head, body = STEP.format(n=quarters, m=2 * quarters).split("\n\n", 1)
    return hlo_passes.parse(f"{head}\n{ADD}\n{body}")


def simulated(quarters: int, **options):
    module = step(quarters)
    return scheduler.simulate(module, estimator="approximate", **options)


def test_the_peak_has_the_parameters_and_the_largest_come_first() -> None:
    found = footprint(ModuleMemory(step(1)))
    assert found.parameters_bytes == 4 * GIB
    # The constant is 4 bytes.
    assert found.peak_bytes == 4 * GIB + 12 * GIB
    assert found.at == "half"
    assert [(b.name, b.bytes, b.kind) for b in found.largest] == [
        ("double", 8 * GIB, "temporary"),
        ("half", 4 * GIB, "temporary"),
        ("p", 4 * GIB, "parameter"),
    ]
    assert found.largest[0].op_name == "jit(step)/concatenate"
    assert found.largest[0].source == "model.py:41"
    assert found.fits is None


def test_the_result_counts_where_no_parameter_is_donated() -> None:
    text = """HloModule m, is_scheduled=true{alias}

ENTRY %main (p: f32[256]) -> f32[256] {{
  %p = f32[256]{{0}} parameter(0)
  ROOT %r = f32[256]{{0}} negate(%p)
}}
"""
    alias = ", input_output_alias={ {}: (0, {}, may-alias) }"
    for there, peak in (("", 2048), (alias, 1024)):
        module = hlo_passes.parse(text.format(alias=there))
        assert footprint(ModuleMemory(module)).peak_bytes == peak


def test_the_peak_may_be_at_the_first_instruction() -> None:
    module = hlo_passes.parse("""HloModule m, is_scheduled=true

ENTRY %main () -> s32[256] {
  ROOT %r = s32[256]{0} iota(), iota_dimension=0
}
""")
    found = footprint(ModuleMemory(module))
    assert (found.at, found.peak_bytes) == ("r", 1024)


@pytest.mark.parametrize("seed", range(60))
def test_what_lives_at_the_peak_is_as_large_as_the_peak(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(footprints, "_MOST_LISTED", 10**6)
    module = hlo_passes.parse(random_program(random.Random(seed)))
    memory = ModuleMemory(module)
    found = footprint(memory)
    tables = sum(
        device_bytes(p.shape) - sum(b.bytes for b in found.largest if b.name == p.name)
        for p in module.entry.parameters
    )
    assert sum(b.bytes for b in found.largest) + tables == found.peak_bytes
    pressure = memory.of(module.entry).peak_bytes()
    result = device_bytes(module.entry.root.shape)
    assert 0 <= found.peak_bytes - found.parameters_bytes - pressure <= result


def test_xla_takes_three_quarters_of_a_device() -> None:
    # 84942979072 * 0.75 = 63707234304, up to the next 2 MiB.
    assert available_bytes(84942979072) == 63707283456
    for name in target_names():
        assert available_bytes(target(name).memory_bytes) % (2 << 20) == 0


@pytest.mark.parametrize(
    ("quarters", "fits", "first_line", "memory"),
    [
        (
            1,
            True,
            "",
            "16.0 GiB at the peak with parameters (12.0 GiB without), 16.0 GiB as "
            "XLA packs it; fits",
        ),
        (
            4,
            False,
            "it fits only with XLA_CLIENT_MEM_FRACTION=0.81: it needs 64.0 GiB",
            "DOES NOT FIT into XLA's pool, 59.3 GiB of h100_sxm's 79.1 GiB; "
            "XLA_CLIENT_MEM_FRACTION=0.81 takes enough",
        ),
        (
            6,
            False,
            "it does not fit: it needs 96.0 GiB, h100_sxm has 79.1 GiB",
            "DOES NOT FIT, h100_sxm has 79.1 GiB",
        ),
    ],
)
def test_text_json_and_page_say_whether_it_fits(
    quarters: int, fits: bool, first_line: str, memory: str
) -> None:
    timeline = simulated(quarters)
    assert timeline.fits is fits
    assert timeline.peak_with_parameters_bytes == 16 * quarters * GIB
    assert timeline.target_memory_bytes == available_bytes(84942979072)
    lines = report_text(timeline).splitlines()
    assert first_line in lines[0]
    assert ("fit" in lines[0]) is not fits
    (line,) = [line for line in lines if line.startswith("memory ")]
    assert memory in line
    assert "of the module as it is" not in line
    listed = f"{8 * quarters}.0 GiB  %double  f32[{2 * quarters},1073741824]{{1,0}}"
    assert any(listed in line and "model.py:41" in line for line in lines) is not fits
    parameters = [line for line in lines if line.endswith("(parameter)")]
    assert ["%p" in line for line in parameters] == [True] * (not fits)
    view = json.loads(json.dumps(timeline.to_json()))
    assert view["memory"]["fits"] is fits
    assert view["memory"]["device_bytes"] == 84942979072
    assert view["memory"]["largest"][0] == {
        "name": "double",
        "computation": "main",
        "bytes": 8 * quarters * GIB,
        "shape": f"f32[{2 * quarters},1073741824]{{1,0}}",
        "kind": "temporary",
        "op_name": "jit(step)/concatenate",
        "source": {"file": "model.py", "line": 41},
    }
    assert any("fit" in remark for remark in view["remarks"]) is not fits
    data = re.search(r'type="application/json">(.*?)</script>', timeline.to_html())
    assert data is not None
    side = json.loads(data[1])["sides"][0]
    assert side["memory"]["fits"] is fits
    (curve,) = [c["memory"] for c in side["computations"] if c["memory"]]
    assert curve["base_bytes"] == 4 * quarters * GIB
    assert curve["peak_bytes"] == 16 * quarters * GIB
    assert curve["steps_bytes"][0] == 4 * quarters * GIB
    assert curve["limit_bytes"] == available_bytes(84942979072)


def test_a_gpu_of_unknown_memory_is_not_judged(tmp_path) -> None:
    text = re.sub(r"device_memory_size: \d+", "", target_text("h100_sxm"))
    part = tmp_path / "mine.txtpb"
    part.write_text(text)
    timeline = simulated(6, target=str(part))
    assert timeline.fits is None
    assert timeline.to_json()["memory"]["device_bytes"] is None
    assert "nobody says how much" in report_text(timeline)


def test_a_comparison_says_what_the_schedule_changed(tmp_path, capsys) -> None:
    late = """HloModule m, is_scheduled=true

ENTRY %main (p: f32[256]) -> f32[256] {
  %p = f32[256]{0} parameter(0)
  %a = f32[256]{0} negate(%p)
  %b = f32[1024]{0} concatenate(%p, %p, %p, %p), dimensions={0}
  %c = f32[256]{0} slice(%b), slice={[0:256]}
  ROOT %r = f32[256]{0} add(%a, %c)
}
"""
    lines = late.splitlines()
    lines[4:7] = [lines[5], lines[6], lines[4]]
    before, after = tmp_path / "before.hlo", tmp_path / "after.hlo"
    before.write_text(late)
    after.write_text("\n".join(lines) + "\n")
    options = [str(before), f"--against={after}", "--estimator=approximate"]
    assert main(["simulate", *options]) == 0
    text = capsys.readouterr().out
    assert (
        "memory: 7.0 KiB -> 6.0 KiB at the peak with parameters (1.0 KiB less)" in text
    )


#: What XLA's buffer assignment takes: `Total bytes` of its memory usage report for the
#: same compilation (jaxlib 0.10.2, h100_sxm).
ASSIGNED = {
    "docs/tutorial/step.h100_sxm.hlo": 570426368,
    "../shared/golden/llama3_8b_cp_bf16_1x4": 42049190868,
    "../shared/golden/llama31_70b_bf16_16x8": 61071819862,
}


@pytest.mark.parametrize(("place", "assigned"), ASSIGNED.items())
def test_packed_it_is_what_xla_assigns(place: str, assigned: int) -> None:
    path = REPOSITORY / place
    if not path.exists():
        pytest.skip("the recordings of large modules are not here")
    if path.is_dir():
        path = path / "sol" / "latency-hiding-scheduler.after.hlo.gz"
    found = footprint(ModuleMemory(read_module(str(path))))
    assert found.packed_bytes == pytest.approx(assigned, rel=1e-2)
    assert found.needed_bytes == found.packed_bytes


@pytest.mark.parametrize(
    ("needed", "fits", "fits_device"),
    [(74, True, True), (75, True, True), (76, False, True), (100, False, True),
     (101, False, False)],
)  # fmt: skip
def test_what_fits_exactly_fits(needed: int, fits: bool, fits_device: bool) -> None:
    found = footprints.Footprint(needed, 0, "", (), 100, 75)
    assert (found.fits, found.fits_device) == (fits, fits_device)
    packed = footprints.Footprint(1, 0, "", (), 100, 75, packed_bytes=needed)
    assert (packed.fits, packed.fits_device) == (fits, fits_device)
    unknown = footprints.Footprint(needed, 0, "", ())
    assert (unknown.fits, unknown.fits_device) == (None, None)
