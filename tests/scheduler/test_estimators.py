"""Estimators other than `sol`, their stack, and what a module costs."""

from __future__ import annotations

import gzip
import json

import pytest

import hlo_passes
from hlo_passes import HloError, Module, Pricing, UsageError
from hlo_passes.scheduler import (
    Profile,
    estimate,
    make_estimator,
    read_profile,
)
from hlo_passes.scheduler.estimators.stack import EstimatorStack
from hlo_passes.scheduler.estimators.table import TableEstimator
from hlo_passes.scheduler.latency.estimate import Estimate
from hlo_passes.scheduler.latency_hiding.latency_hiding_scheduler import (
    as_scheduled_by_xla,
)
from hlo_passes.scheduler.written_profile import profile_of
from tests.modules import CORPUS, SHARED, read_text

TEXT = """HloModule m, is_scheduled=true, num_partitions=8

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %s = f32[] add(%x, %y)
}

%body (p: f32[1024]) -> f32[1024] {
  %p = f32[1024] parameter(0)
  ROOT %r = f32[1024] add(%p, %p)
}

ENTRY %main (a: f32[1024]) -> (f32[1024], f32[8192]) {
  %a = f32[1024]{0} parameter(0)
  %start = (f32[1024]{0}, f32[8192]{0}) all-gather-start(%a), channel_id=1, replica_groups=[1,8]<=[8], dimensions={0}, use_global_device_ids=true
  %f = f32[1024]{0} fusion(%a), kind=kLoop, calls=%body
  %call = f32[1024]{0} custom-call(%f), custom_call_target="mine"
  %sync = f32[1024]{0} all-reduce(%call), channel_id=2, replica_groups=[1,8]<=[8], use_global_device_ids=true, to_apply=%add
  %done = f32[8192]{0} all-gather-done(%start)
  ROOT %t = (f32[1024]{0}, f32[8192]{0}) tuple(%sync, %done)
}
"""


@pytest.fixture
def module() -> Module:
    return hlo_passes.parse(TEXT)


def costs(module: Module, **arguments) -> dict[str, tuple[float, float | None, str]]:
    report = estimate(module, **arguments)
    return {r.name: (r.node_cost_us, r.latency_us, r.model) for r in report.rows}


def test_only_scheduled_computations_are_priced(module) -> None:
    report = estimate(module)
    assert {row.computation for row in report.rows} == {"main"}
    assert [row.name for row in report.rows] == [
        i.name for i in module.entry.instructions
    ]


def test_the_answer_says_who_gave_it(module) -> None:
    found = costs(module)
    assert found["start"] == (1.0, pytest.approx(27.2, abs=40), "sol/table")
    assert found["f"][2] == "sol/roofline"
    assert found["call"] == (10.0, None, "sol/constant")
    assert found["a"][0] == 0.0
    # A synchronous collective carries its whole time.
    assert found["sync"][0] > 10
    assert found["sync"][2] == "sol/table"


def test_coarse_estimators(module) -> None:
    generic = costs(module, estimator="approximate")
    assert generic["start"][:2] == (1.0, 5000.0)
    assert generic["f"][0] == 1000.0
    assert generic["a"][0] == 1.0
    gpu = costs(module, estimator="gpu-approximate")
    assert gpu["call"][0] == 1000.0
    assert gpu["a"][0] == 0.0


def test_table_alone_answers_and_absent_names_cost_nothing(module, tmp_path) -> None:
    file = tmp_path / "costs.json.gz"
    file.write_bytes(
        gzip.compress(
            json.dumps(
                {
                    "node_cost_us": {"f": 7},
                    "latency_us": {},
                    "latency_fallback": {"start": 9},
                }
            ).encode()
        )
    )
    found = costs(module, costs=str(file))
    assert found["f"] == (7.0, None, "table")
    assert found["start"] == (0.0, 9.0, "table")
    assert found["call"][0] == 0.0


TRANSFERS = """
HloModule m, is_scheduled=true

ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  %t = token[] after-all()
  %r = (f32[8]{0}, u32[], token[]) recv(%t), channel_id=1
  %s = (f32[8]{0}, u32[], token[]) send(%p, %t), channel_id=1, \
frontend_attributes={_xla_gpu_collective_stream="p2p"}
  %sd = token[] send-done(%s), channel_id=1
  %rd = (f32[8]{0}, token[]) recv-done(%r), channel_id=1
  ROOT %o = f32[8]{0} get-tuple-element(%rd), index=0
}
"""


def test_transfers_that_a_table_leaves_out() -> None:
    """XLA's log has no latency of them: 0 here, its coarse one in the scheduler."""
    module = hlo_passes.parse(TRANSFERS)
    by_name = {i.name: i for i in module.entry.instructions}
    table = TableEstimator({}, {"listed": 3.0})
    stack = as_scheduled_by_xla(EstimatorStack((table,)))
    found = []
    for start, user in (("r", "rd"), ("s", "sd"), ("p", "s")):
        edge = by_name[start], by_name[user]
        priced = stack.latency(*edge)
        assert priced is not None
        found.append((table.latency(*edge).us, priced.us, priced.model))
    assert found == [
        (0.0, 5000.0, "gpu-approximate"),
        (0.0, 1024 * 5000.0, "gpu-approximate"),
        (1.0, 1.0, "table"),
    ]
    listed = as_scheduled_by_xla(EstimatorStack((TableEstimator({}, {"s": 3.0}),)))
    assert listed.latency(by_name["s"], by_name["sd"]) == Estimate(3.0, "table")


@pytest.mark.parametrize(
    "text", ["[]", "{}", "nonsense", '{"node_cost_us": {"f": "x"}}', '{"latency_us": [1]}',
             '{"node_cost_us": {"f": -1}}', '{"node_cost_us": {"f": NaN}}']
)  # fmt: skip
def test_a_bad_costs_file_is_refused(text, tmp_path) -> None:
    file = tmp_path / "costs.json"
    file.write_text(text)
    with pytest.raises(UsageError) as refused:
        make_estimator("table", Pricing(costs=str(file)))
    assert refused.value.code == "U206"
    # A file that is cut does not say whether it is of a TPU.
    assert "node_cost_us" in refused.value.hint
    assert "node_cost_cycles" in refused.value.hint


def test_a_profile_that_is_given_is_read(tmp_path) -> None:
    absent = Pricing(profile=str(tmp_path / "absent.pbtxt"))
    with pytest.raises(UsageError, match="absent"):
        make_estimator("", absent)


@pytest.mark.parametrize(
    ("names", "code"), [("soll", "U209"), ("table", "U208"), ("profile", "U208")]
)
def test_estimators_that_cannot_be_made(names, code) -> None:
    with pytest.raises(UsageError) as refused:
        make_estimator(names)
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("names", "given", "told"),
    [
        ("sol", {"costs": "c"}, "costs=c is given, but the estimator sol does not"),
        ("ring", {"profile": "p"}, "profile=p is given, but the estimator ring does"),
        ("", {"costs": "c", "profile": "p"}, "the estimator table does not read it"),
        ("profile", {"costs": "c", "profile": "p"}, "the estimator profile does not"),
    ],
)
def test_a_file_that_nothing_would_read_is_refused(names, given, told) -> None:
    with pytest.raises(UsageError, match=told) as refused:
        make_estimator(names, Pricing(**given))
    assert refused.value.code == "U219"
    module = hlo_passes.parse("ENTRY %e {\n  ROOT %p = f32[4] parameter(0)\n}\n")
    with pytest.raises(UsageError, match="does not read it"):
        estimate(module, estimator=make_estimator("sol"), **given)


def test_costs_stand_behind_a_profile(tmp_path) -> None:
    file = tmp_path / "costs.json"
    file.write_text('{"node_cost_us": {"f": 7}}')
    measured = tmp_path / "p.pbtxt"
    measured.write_text(Profile({"g": 3.0}).to_text())
    settings = Pricing(costs=str(file), profile=str(measured))
    assert make_estimator("profile + table", settings).name == "profile+table"


# -- profiles --------------------------------------------------------------------------


@pytest.mark.parametrize("binary", [False, True])
def test_a_profile_reads_back(binary, tmp_path) -> None:
    profile = Profile({'odd "name"': 1.25, "plain": 0.0}, {("start", "done"): 80.5})
    file = tmp_path / "p"
    file.write_bytes(profile.to_bytes() if binary else profile.to_text().encode())
    assert read_profile(str(file)) == profile


@pytest.mark.parametrize(
    "text",
    ["garbage", "", 'costs { name: "f" cost_us: -1 }', 'costs { cost_us: nan }',
     'costs { name: "f" cost_us: "7" }', f'costs {{ cost_us: {"9" * 400} }}',
     "costs { cost_us: 1e308 }",
     'latencies { source: "a" target: "b" latency_us: 1e400 }'],
)  # fmt: skip
def test_a_bad_profile_is_refused(text, tmp_path) -> None:
    file = tmp_path / "p.pbtxt"
    file.write_text(text)
    with pytest.raises(HloError) as refused:
        read_profile(str(file))
    assert refused.value.code == (
        "U205" if not text or "-1" in text or "e308" in text else "P400"
    )


WRAPPED = """HloModule m, is_scheduled=true, num_partitions=8

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %s = f32[] add(%x, %y)
}

%fused (p: f32[1024]) -> f32[1024] {
  %p = f32[1024]{0} parameter(0)
  ROOT %r = f32[1024]{0} all-reduce(%p), channel_id=1, replica_groups=[1,8]<=[8], use_global_device_ids=true, to_apply=%add
}

%wrapped (q: f32[1024]) -> f32[1024] {
  %q = f32[1024]{0} parameter(0)
  ROOT %f = f32[1024]{0} fusion(%q), kind=kCustom, calls=%fused
}

ENTRY %main (a: f32[1024]) -> f32[1024] {
  %a = f32[1024]{0} parameter(0)
  %start = ((f32[1024]{0}), f32[1024]{0}, u32[]) async-start(%a), calls=%wrapped
  ROOT %done = f32[1024]{0} async-done(%start)
}
"""


def test_a_start_that_wraps_a_fusion_costs_what_its_profile_says(tmp_path) -> None:
    file = tmp_path / "p.pbtxt"
    file.write_text(Profile({"start": 44.0}).to_text())
    found = costs(
        hlo_passes.parse(WRAPPED), estimator="profile", profile=str(file),
        xla="0.12",
    )  # fmt: skip
    assert found["start"] == (44.0, 44.0, "profile")
    assert found["done"][0] == 1.0


def test_a_profile_of_our_costs_gives_them_back(module, tmp_path) -> None:
    sol = make_estimator("sol")
    profile = profile_of(module, sol)
    assert "done" not in profile.costs
    file = tmp_path / "p.pb"
    file.write_bytes(profile.to_bytes())
    ours, again = costs(module), costs(module, estimator="profile", profile=str(file))
    for name, (node, latency, _) in ours.items():
        if name not in ("sync",):
            assert again[name][:2] == (node, latency), name
    assert again["start"][2] == "profile"


def test_gaps_of_a_profile_are_filled_by_the_next(module, tmp_path) -> None:
    file = tmp_path / "p.pbtxt"
    file.write_text('costs { name: "f" cost_us: 3.5 }')
    found = costs(module, estimator="profile", profile=str(file))
    assert found["f"] == (3.5, None, "profile")
    assert found["start"][2] == "sol/table"


def test_a_pair_without_latency_takes_the_cost_of_its_start(module, tmp_path) -> None:
    file = tmp_path / "p.pbtxt"
    file.write_text(
        'costs { name: "start" cost_us: 44 }\n'
        'latencies { source: "start" target: "other" latency_us: 9 }'
    )
    assert costs(module, estimator="profile", profile=str(file))["start"][:2] == (
        1.0,
        44.0,
    )


def test_clones_are_averaged_and_fingerprints_respected(tmp_path) -> None:
    file = tmp_path / "p.pbtxt"
    file.write_text(
        'costs { name: "f" cost_us: 1 } costs { name: "f.remat2" cost_us: 3 }\n'
        'costs { name: "abc::g" cost_us: 5 } costs { name: "xyz::h" cost_us: 7 }'
    )
    assert read_profile(str(file), "abc").costs == {"f": 2.0, "g": 5.0}


@pytest.mark.parametrize("data", [b"", b"\x0a\xff\xff", b"name: 1", b"\xff\xfe\x00"])
def test_what_is_no_profile_is_refused(data, tmp_path) -> None:
    file = tmp_path / "p"
    file.write_bytes(data)
    with pytest.raises(UsageError) as refused:
        read_profile(str(file))
    assert refused.value.code == "U205"


# -- XLA's own costs -----------------------------------------------------------------------


def disagreements(folder, release: str) -> list[str]:
    """Names whose cost differs from XLA's by more than 1% and 0.002 us."""
    costs_file = next(folder.glob("costs.json*"))
    logged = json.loads(read_text(costs_file))
    settings = json.loads((folder / "oracle.json").read_text())
    file = next(folder.glob("latency-hiding-scheduler.before.hlo*"))
    found = costs(
        hlo_passes.parse(read_text(file)), target=settings["target"],
        topology=settings["topology"],
        xla=release,
    )  # fmt: skip
    latencies = {**logged["latency_us"], **(logged.get("latency_fallback") or {})}
    wrong = []
    for place, table in ((0, logged["node_cost_us"]), (1, latencies)):
        for name, us in table.items():
            if name not in found:
                # The scheduler of 0.12 adds get-tuple-elements after the dump.
                if us or place:
                    wrong.append(f"{name}: absent, XLA has {us}")
                continue
            ours = found[name][place]
            if ours is None or abs(ours - us) > max(0.01 * us, 0.002):
                wrong.append(f"{name}: {ours}, XLA has {us}")
    return wrong


GOLDEN = sorted(
    f.parent for f in (SHARED / "golden").glob("*/sol/costs.json*") if f.is_file()
)
OWN = sorted(
    f.parent
    for f in (CORPUS / "golden").glob("*/*/costs.json*")
    if any(f.parent.glob("latency-hiding-scheduler.before.hlo*"))
    # There XLA's analytical estimator was switched off.
    and not f.parent.name.endswith(".approximate")
)


@pytest.mark.parametrize("folder", GOLDEN, ids=lambda f: f.parent.name)
def test_public_modules_cost_what_xla_says(folder) -> None:
    assert disagreements(folder, "0.10.2") == []


@pytest.mark.parametrize("folder", OWN, ids=lambda f: f"{f.parent.name}-{f.name}")
def test_our_programs_cost_what_xla_says(folder) -> None:
    assert disagreements(folder, folder.parent.name) == []


LLAMA = SHARED / "golden" / "llama31_8b_bf16_1x8" / "sol"


@pytest.mark.skipif(not LLAMA.is_dir(), reason="no llama31_8b module")
def test_every_scheduled_instruction_of_a_large_module_has_a_row() -> None:
    module = hlo_passes.parse(
        read_text(LLAMA / "latency-hiding-scheduler.before.hlo.gz")
    )
    assert len(estimate(module).rows) > 13_000


# -- the legacy estimator --------------------------------------------------------------------

TRITON = """HloModule m

%dot (p: f32[4,16], q: f32[16,32]) -> f32[4,32] {
  %p = f32[4,16]{1,0} parameter(0)
  %q = f32[16,32]{1,0} parameter(1)
  ROOT %d = f32[4,32]{1,0} dot(%p, %q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

ENTRY %main (a: f32[4,16], b: f32[16,32]) -> f32[4,32] {
  %a = f32[4,16]{1,0} parameter(0)
  %b = f32[16,32]{1,0} parameter(1)
  ROOT %f = f32[4,32]{1,0} fusion(%a, %b), kind=kCustom, calls=%dot, backend_config={"fusion_backend_config":{"kind":"__triton_nested_gemm_fusion","block_level_fusion_config":{"num_warps":"2","output_tiles":[{"sizes":["16","8"]}]}}}
}
"""


@pytest.mark.parametrize(
    ("target", "us"), [("h100_sxm", 0.0095), ("a100_sxm_80", 0.01325)]
)
def test_ring_sizes_triton_kernels_by_their_tiles(target, us) -> None:
    """Logged by XLA's legacy estimator (jaxlib 0.10.2)."""
    found = costs(hlo_passes.parse(TRITON), target=target, estimator="ring")
    assert found["f"] == (us, None, "ring/roofline")


def test_a_profile_names_what_xla_looks_at() -> None:
    """Computations without async operations are left out, as XLA leaves them."""
    text = TEXT.replace(
        "ENTRY %main",
        "%loop (l: f32[4]) -> f32[4] {\n  %l = f32[4] parameter(0)\n"
        "  ROOT %neg = f32[4] negate(%l)\n}\n\nENTRY %main",
    ).replace(
        "  %f = f32[1024]{0} fusion",
        "  %four = f32[4] constant({1, 2, 3, 4})\n"
        "  %called = f32[4] call(%four), to_apply=%loop\n  %f = f32[1024]{0} fusion",
    )
    module = hlo_passes.parse(text)
    assert "neg" in costs(module)
    profile = profile_of(module, make_estimator("sol"), with_constants=True)
    assert "called" in profile.costs
    assert "neg" not in profile.costs


def test_a_fusion_without_a_body_is_no_crash() -> None:
    text = "ENTRY %e {\n  %p = f32[4] parameter(0)\n  ROOT %f = f32[4] fusion(%p), kind=kLoop\n}\n"
    for name in ("sol", "ring", "gpu-approximate"):
        assert costs(hlo_passes.parse(text), estimator=name)["f"][0] >= 0
