"""`hlo-passes run` and `lower` as a user types them. Some twenty seconds."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import zipfile

import numpy as np
import pytest

from hlo_passes import progress, runtime
from hlo_passes.errors import HloError, UsageError, VerificationError
from hlo_passes.exit_codes import exit_code_of
from hlo_passes.files import read_module
from hlo_passes.runtime.arrays_file import checksum, read_arrays
from hlo_passes.runtime.commands import LOWER, RUN
from hlo_passes.runtime.user_function import read_program
from hlo_passes.text.reader import parse
from tests.modules import REPOSITORY

RING = """HloModule ring, num_partitions=4

ENTRY %main (a: bf16[4], n: s32[]) -> (bf16[4], s32[]) {
  %a = bf16[4]{0} parameter(0)
  %n = s32[] parameter(1)
  %p = bf16[4]{0} collective-permute(%a), channel_id=1, source_target_pairs={{0,1},{1,2},{2,3},{3,0}}
  ROOT %t = (bf16[4]{0}, s32[]) tuple(%p, %n)
}
"""

DEADLOCK = """HloModule dead, num_partitions=4

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}

%yes (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  ROOT %inner = f32[8]{0} all-reduce(%x), channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=true, to_apply=%add
}

%no (y: f32[8]) -> f32[8] {
  ROOT %y = f32[8]{0} parameter(0)
}

ENTRY %e (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  %id = u32[] partition-id()
  %three = u32[] constant(3)
  %low = pred[] compare(%id, %three), direction=LT
  %c = f32[8]{0} conditional(%low, %p, %p), true_computation=%yes, false_computation=%no
  ROOT %last = f32[8]{0} collective-permute(%c), channel_id=2, source_target_pairs={{0,1},{1,2},{2,3},{3,0}}
}
"""


def call(command, *arguments: str) -> int:
    parser = argparse.ArgumentParser()
    command.configure(parser)
    try:
        return command.run(parser.parse_args(arguments))
    except HloError as problem:
        print(problem.render())
        return exit_code_of(problem)


@pytest.fixture
def ring(tmp_path):
    path = tmp_path / "ring.hlo"
    path.write_text(RING)
    return str(path)


def test_run_tells_what_came_out(ring, tmp_path, capfd):
    out = str(tmp_path / "out.npz")
    assert call(RUN, ring, "--json", "--seed=5", f"--outputs={out}", "--repeat=2") == 0
    answer = json.loads(capfd.readouterr().out)
    assert answer["devices"] == 4
    assert [o["dtype"] for o in answer["outputs"]] == ["bfloat16", "int32"]
    assert [o["shape"] for o in answer["outputs"]] == [[4], []]
    assert answer["matches"] is None
    assert len(answer["seconds"]) == 2
    with np.load(out) as file:
        assert sorted(file.files) == ["0", "0.dtype", "1"]
        assert file["0"].shape == (4, 4, 2)
    assert call(RUN, ring, "--json", f"--inputs={out}") == 0
    assert call(RUN, ring, "--json", "--seed=5") == 0
    _, again = map(json.loads, capfd.readouterr().out.splitlines())
    assert again["outputs"] == answer["outputs"]


def test_run_against_a_wrong_module_gives_4(ring, tmp_path, capfd):
    other = tmp_path / "other.hlo"
    other.write_text(RING.replace("{3,0}", "{3,1}").replace("{0,1},", "{0,0},"))
    assert call(RUN, ring, f"--against={ring}") == 0
    assert "every bit is the same" in capfd.readouterr().out
    assert call(RUN, ring, f"--against={other}", "--json") == 4
    answer = json.loads(capfd.readouterr().out)
    assert answer["bitwise_equal"] is False
    assert answer["max_abs_error"] > 0


#: Adam, one step: second moments and the step count lead to a root and a quotient.
ADAM = """HloModule adam

ENTRY %main {
  %g = f32[64]{0} parameter(0)
  %nu = f32[64]{0} parameter(1)
  %mu = f32[64]{0} parameter(2)
  %count = s32[] parameter(3)
  %x = f32[64]{0} parameter(4)
  %one = s32[] constant(1)
  %next = s32[] add(%count, %one)
  %steps = f32[] convert(%next)
  %decay = f32[] constant(0.9)
  %power = f32[] power(%decay, %steps)
  %unit = f32[] constant(1)
  %left = f32[] subtract(%unit, %power)
  %correction = f32[64]{0} broadcast(%left), dimensions={}
  %decays = f32[64]{0} broadcast(%decay), dimensions={}
  %old = f32[64]{0} multiply(%decays, %nu)
  %square = f32[64]{0} multiply(%g, %g)
  %new = f32[64]{0} add(%old, %square)
  %hat = f32[64]{0} divide(%new, %correction)
  %root = f32[64]{0} sqrt(%hat)
  %step = f32[64]{0} divide(%mu, %root)
  %moved = f32[64]{0} subtract(%x, %step)
  ROOT %t = (f32[64]{0}, f32[64]{0}, f32[64]{0}) tuple(%moved, %new, %x)
}
"""


@pytest.fixture
def adam(tmp_path):
    """Files of Adam, of one whose step has the other sign, and of a broken one."""
    paths = [tmp_path / f"{name}.hlo" for name in ("adam", "swapped", "broken")]
    for path, after in zip(
        paths,
        ("subtract(%x, %step)", "subtract(%step, %x)", "log(%old)"),
        strict=True,
    ):
        text = ADAM.replace("subtract(%x, %step)", after)
        if after == "log(%old)":
            text = text.replace("%decay = f32[] constant(0.9)",
                                "%decay = f32[] constant(-0.9)")  # fmt: skip
        path.write_text(text)
    return [str(path) for path in paths]


@pytest.mark.parametrize("seed", range(3))
def test_made_up_inputs_of_an_optimizer_give_finite_results(adam, seed, capfd):
    assert call(RUN, adam[0], "--json", f"--seed={seed}") == 0
    outputs = json.loads(capfd.readouterr().out)["outputs"]
    assert [(o["nan"], o["infinite"]) for o in outputs] == [(0, 0)] * 3


def test_elements_that_are_not_finite_are_counted(adam, capfd):
    assert call(RUN, adam[2], f"--against={adam[2]}") == 0
    said = capfd.readouterr().out
    assert "  0: float32[64] sha256 " in said
    assert "  64 NaN of 64 elements (100.0%)" in said
    assert "every bit is the same" in said
    assert "beware: 1 of 3 outputs have elements that are not finite, which" in said


def test_a_row_for_every_output_that_differs(adam, capfd):
    assert call(RUN, adam[0], f"--against={adam[1]}") == 4
    said = capfd.readouterr().out.splitlines()
    assert f"{adam[1]}: results differ, in 1 of 3 outputs" in said
    assert said[-2].split()[:4] == ["output", "type", "differ", "of"]
    row = said[-1].split()
    assert row[:4] == ["0", "float32[64]", "64", "64"]
    assert float(row[5]) == 2  # it has the other sign
    # One side is not finite.
    assert call(RUN, adam[0], f"--against={adam[2]}", "--json") == 4
    (first, _) = json.loads(capfd.readouterr().out)["differences"]
    assert (first["result"], first["one_sided"], first["beyond"]) == (0, 64, 64)


def test_tolerances_decide_the_exit_code(adam, capfd):
    close = ("--rtol=0.5", "--atol=100")
    assert call(RUN, adam[0], f"--against={adam[1]}", *close) == 0
    said = capfd.readouterr().out
    assert "differ in 1 of 3 outputs, all of them within rtol=0.5, atol=100" in said
    assert call(RUN, adam[0], f"--against={adam[1]}", "--rtol=0.5", "--json") == 4
    answer = json.loads(capfd.readouterr().out)
    assert not answer["matches"]
    assert call(RUN, adam[0], "--rtol=0.5") == 2
    assert "--rtol and --atol are for a comparison" in capfd.readouterr().out
    with pytest.raises(SystemExit):
        call(RUN, adam[0], f"--against={adam[1]}", "--rtol=-1")


def test_a_deadlock_is_named(tmp_path, capfd):
    path = tmp_path / "dead.hlo"
    # XLA's number of a run is negative for 8 devices, and positive for 4.
    path.write_text(
        DEADLOCK.replace("num_partitions=4", "num_partitions=8")
        .replace("{{0,1,2,3}}", "{{0,1,2,3,4,5,6,7}}")
        .replace("{3,0}}", "{3,0},{4,4},{5,5},{6,6},{7,7}}")
    )
    assert call(RUN, str(path), "--timeout-seconds=1") == 5
    said = capfd.readouterr().out
    assert "%inner (all-reduce) waits for devices 3,4,5,6,7 of 0,1,2,3,4,5,6,7" in said
    assert "%last (collective-permute) waits for devices 0,1,2 of 0,1,2,3" in said


def test_an_invalid_module_is_refused_before_a_start(ring, tmp_path, capfd):
    bad = tmp_path / "bad.hlo"
    bad.write_text(RING.replace("s32[]) tuple(%p, %n)", "s32[]) tuple(%p)"))
    for arguments in ((str(bad),), (ring, f"--against={bad}")):
        assert call(RUN, *arguments) == 1
        assert capfd.readouterr().out.startswith(f"{bad}:7:9: error[V")
    unknown = tmp_path / "unknown.hlo"
    unknown.write_text(RING.replace(" collective-permute(", " frobnicate("))
    assert call(RUN, str(unknown)) == 5
    said = capfd.readouterr().out
    assert said.startswith(f"{unknown}:6:")
    assert "error[S010]: %p cannot run here" in said
    assert "frobnicate" in said


def test_load_and_compare_refuse_an_invalid_module():
    bad = parse(RING.replace("s32[]) tuple(%p, %n)", "s32[]) tuple(%p)"))
    with pytest.raises(VerificationError):
        runtime.load(bad)
    with pytest.raises(VerificationError):
        runtime.compare(parse(RING), bad)


def test_devices_that_the_collectives_lack_are_refused(ring, capfd):
    assert call(RUN, ring, "--devices=1") == 2
    assert "error[U027]: ring has collectives for device 3" in capfd.readouterr().out


@pytest.mark.parametrize(
    "groups", ["replica_groups={{0,1,2,3}}", "replica_groups={{0,1},{2,3}}"]
)
def test_devices_that_groups_leave_out_are_refused(tmp_path, capfd, groups):
    path = tmp_path / "total.hlo"
    path.write_text(f"""HloModule total, num_partitions=4

%add (x: f32[], y: f32[]) -> f32[] {{
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(%x, %y)
}}

ENTRY %main (a: f32[4]) -> f32[4] {{
  %a = f32[4]{{0}} parameter(0)
  ROOT %r = f32[4]{{0}} all-reduce(%a), channel_id=1, {groups}, use_global_device_ids=true, to_apply=%add
}}
""")
    assert call(RUN, str(path), "--devices=8") == 2
    said = capfd.readouterr().out
    assert said.startswith(f"{path}:11:")
    assert "error[U027]: the groups of %r do not cover all of 8 devices" in said


@pytest.mark.parametrize("limit", ["0.001", "0", "-1", "soon"])
def test_a_limit_that_is_no_count_is_refused(ring, capsys, limit):
    with pytest.raises(SystemExit) as ended:
        call(RUN, ring, f"--time-limit-seconds={limit}")
    assert ended.value.code == 2
    assert f"{limit} is not a positive integer" in capsys.readouterr().err


def test_a_loop_without_end_is_ended(tmp_path, capfd, monkeypatch):
    path = tmp_path / "loop.hlo"
    path.write_text("""HloModule loop

%always (s: s32[]) -> pred[] {
  %s = s32[] parameter(0)
  ROOT %yes = pred[] compare(%s, %s), direction=EQ
}

%same (s: s32[]) -> s32[] {
  %s = s32[] parameter(0)
  %one = s32[] constant(1)
  ROOT %t = s32[] add(%s, %one)
}

ENTRY %e (s: s32[]) -> s32[] {
  %s = s32[] parameter(0)
  ROOT %w = s32[] while(%s), condition=%always, body=%same
}
""")
    # Long enough to be told once a second on a terminal, and twice in a file.
    monkeypatch.setattr(progress, "_QUIET_STATUS_S", 1.5)
    assert call(RUN, str(path), "--time-limit-seconds=12") == 5
    shown = capfd.readouterr()
    assert "did not end in 12 seconds; it was in run 1 of 1" in shown.out
    assert "s of at most 12 s" in shown.err


def test_a_program_too_large_for_the_cpu_is_not_started(tmp_path, capfd):
    path = tmp_path / "huge.hlo"
    path.write_text("""HloModule huge

ENTRY %e {
  %s = f32[] parameter(0)
  %p = f32[1000000,1000000]{1,0} broadcast(%s), dimensions={}
  %d = f32[1000000,1000000]{1,0} dot(%p, %p), \
lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %r = f32[1,1]{1,0} slice(%d), slice={[0:1], [0:1]}
}
""")
    assert call(RUN, str(path)) == 5
    shown = capfd.readouterr().out
    assert "R006" in shown
    assert "s at least on this CPU, 3600 are allowed" in shown


def test_wrong_inputs_are_wrong_usage(ring, tmp_path, capfd):
    path = tmp_path / "in.npz"
    np.savez(path, **{"0": np.zeros((4, 4), np.float32), "1": np.zeros(4, np.int32)})
    assert call(RUN, ring, f"--inputs={path}") == 2
    assert "parameter 0 of ring is bfloat16[4, 4]" in capfd.readouterr().out
    assert call(RUN, ring, f"--inputs={tmp_path / 'none.npz'}") == 2


@pytest.mark.parametrize(
    "entries",
    [
        {"0": np.zeros((4, 3), np.uint8), "0.dtype": np.array("bfloat16")},
        {"0": np.zeros((4, 4), np.float32), "0.dtype": np.array("bfloat16")},
        {"1": np.zeros(4, np.int32)},
        {"00": np.zeros(4, np.int32)},
        {"0": np.zeros(4, np.int32), "x": np.zeros(4, np.int32)},
        None,
    ],
)
def test_a_file_that_is_not_of_arrays_is_wrong_usage(entries, tmp_path):
    path = tmp_path / "in.npz"
    with path.open("wb") as file:
        if entries is None:
            np.save(file, np.zeros(4))
        else:
            np.savez(file, **entries)
    with pytest.raises(UsageError) as caught:
        read_arrays(str(path), name="in.npz")
    assert caught.value.code == "U022"
    assert str(tmp_path) not in str(caught.value)
    assert "pickle" not in str(caught.value)


@pytest.mark.parametrize(
    "header",
    [
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), ",
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (9999999999999,), }",
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (%s,), }" % (b"9" * 400),
        b"{'descr': '<f4',\t'fortran_order': \\, 'shape': (), }",
    ],
)
def test_an_array_with_a_broken_header_is_wrong_usage(header, tmp_path):
    path = tmp_path / "in.npz"
    with zipfile.ZipFile(path, "w") as archive:
        length = len(header).to_bytes(2, "little")
        archive.writestr("0.npy", b"\x93NUMPY\x01\x00" + length + header)
    with pytest.raises(UsageError) as caught:
        read_arrays(str(path))
    assert caught.value.code == "U022"


@pytest.mark.parametrize("member", ["0", "0.npy", "0.dtype.npy"])
def test_what_is_no_array_is_wrong_usage(member, tmp_path):
    path = tmp_path / "in.npz"
    np.savez(path, **({"0": np.zeros(4)} if "dtype" in member else {}))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(member, b"no array")
    with pytest.raises(UsageError) as caught:
        read_arrays(str(path))
    assert caught.value.code == "U022"


@pytest.mark.parametrize(
    "array",
    [
        np.array(["a"]),
        np.array(["2026-01-01"], "M8[D]"),
        np.zeros(3, [("a", "i4")]),
        np.zeros(3, "S2"),
    ],
)
def test_an_array_of_a_type_that_hlo_lacks_is_wrong_usage(array, tmp_path):
    path = tmp_path / "in.npz"
    np.savez(path, **{"0": array})
    with pytest.raises(UsageError, match="0 is of type") as caught:
        read_arrays(str(path))
    assert caught.value.code == "U022"


def test_an_array_of_the_other_byte_order_is_read(tmp_path):
    path = tmp_path / "in.npz"
    np.savez(path, **{"0": np.arange(3, dtype=">f4")})
    assert checksum(read_arrays(str(path))[0]) == checksum(np.arange(3, dtype="<f4"))


def test_inputs_are_named_as_given(ring, tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("in.npz").write_bytes(b"no archive")
    assert call(RUN, ring, "--inputs=in.npz") == 2
    assert "error[U022]: in.npz is not an .npz file" in capfd.readouterr().out


def test_errors_without_bound_are_null_in_json(tmp_path, capfd):
    one, other = tmp_path / "one.hlo", tmp_path / "other.hlo"
    text = "HloModule m\n\nENTRY %e () -> f32[] {\n  ROOT %c = f32[] constant(1)\n}\n"
    one.write_text(text)
    other.write_text(text.replace("(1)", "(inf)"))
    assert call(RUN, str(one), f"--against={other}", "--json") == 4
    answer = json.loads(capfd.readouterr().out)
    assert answer["max_abs_error"] is None
    assert answer["max_ulp_error"] is None
    assert call(RUN, str(one), f"--against={other}") == 4
    assert "not finite on one side" in capfd.readouterr().out


@pytest.mark.skipif(not pathlib.Path("/proc").is_dir(), reason="looks into /proc")
def test_sigterm_ends_the_worker_too(tmp_path):
    path = tmp_path / "dead.hlo"
    path.write_text(DEADLOCK)
    command = [sys.executable, "-m", "hlo_passes", "run", str(path)]
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as parent:
        assert parent.stderr is not None
        # JAX's GPU plug-in may complain first.
        assert any(b"emulated devices" in line for line in parent.stderr)
        (folder,) = tmp_path.glob("hlo-passes-run-*")
        assert _processes_with(str(folder))
        parent.send_signal(signal.SIGTERM)
        assert parent.wait(20) == 128 + signal.SIGTERM
    assert not folder.exists()
    assert not _processes_with(str(folder))


def _processes_with(word: str) -> list[str]:
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = entry.read_bytes().decode(errors="replace")
        except OSError:  # it has ended
            continue
        if word in text:
            found.append(text)
    return found


def test_what_cannot_run_gives_5_and_starts_nothing(tmp_path, capfd):
    path = tmp_path / "feed.hlo"
    path.write_text(
        "HloModule m\n\nENTRY %e (t: token[]) -> token[] {\n"
        "  %t = token[] after-all()\n  %f = (f32[2], token[]) infeed(%t)\n"
        "  ROOT %r = token[] get-tuple-element(%f), index=1\n}\n"
    )
    assert call(RUN, str(path)) == 5
    assert "%f (infeed) cannot run here" in capfd.readouterr().out


MODEL = """
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def step(devices):
    sharding = NamedSharding(Mesh(devices, ("x",)), PartitionSpec("x"))
    x = jax.ShapeDtypeStruct((16, 4), jnp.float32, sharding=sharding)
    return jax.jit(lambda x: (jnp.sum(x, 0), x * 2)), (x,)


def broken(devices):
    return 1


def uneven(devices):
    rows = NamedSharding(Mesh(devices, ("d",)), PartitionSpec("d"))
    return jax.jit(lambda x: x), (jax.ShapeDtypeStruct((9,), "f4", sharding=rows),)


def leaves(devices):
    raise SystemExit(7)


def bare(devices):
    return jax.jit(lambda x: x), jnp.ones(4)


def too_few(devices):
    return jax.jit(lambda x, y: x), (jnp.ones(4),)
"""


@pytest.mark.parametrize("stage", ["before-optimizations", "partitioned", "scheduled"])
def test_lower(stage, tmp_path, host_devices):
    host_devices(8)
    model, out = tmp_path / "model.py", tmp_path / "out.hlo"
    model.write_text(MODEL)
    assert call(LOWER, f"{model}:step", f"--stage={stage}", "-o", str(out)) == 0
    module = parse(out.read_text())
    assert module.num_partitions == 8
    assert module.is_scheduled == (stage == "scheduled")
    rows = 16 if stage == "before-optimizations" else 2
    assert module.entry.parameters[0].shape.dimensions == (rows, 4)
    opcodes = {i.opcode for c in module.computations for i in c.instructions}
    assert ("all-reduce" in opcodes) == (stage != "before-optimizations")


def test_lower_writes_the_form_of_its_suffix(tmp_path, host_devices, capfd):
    host_devices(8)
    model, out = tmp_path / "model.py", tmp_path / "out.pb"
    model.write_text(MODEL)
    assert call(LOWER, f"{model}:step", "-o", str(out)) == 0
    assert read_module(str(out)).num_partitions == 8
    refused = tmp_path / "out.mlir"
    assert call(LOWER, f"{model}:step", "-o", str(refused)) == 2
    assert "error[U002]" in capfd.readouterr().out
    assert not refused.exists()


def test_a_topology_without_a_target_is_refused(tmp_path, host_devices):
    (tmp_path / "model.py").write_text(MODEL)
    devices = host_devices(8)[:8]
    program, arguments = read_program(f"{tmp_path / 'model.py'}:step", devices)
    with pytest.raises(UsageError, match=r"U026.*needs a target"):
        runtime.lower(program, *arguments, topology="1x1x8")


def test_what_a_traced_program_raises_is_its_users(tmp_path, host_devices):
    model = tmp_path / "model.py"
    model.write_text(MODEL)
    program, arguments = read_program(f"{model}:uneven", host_devices(8)[:8])
    with pytest.raises(UsageError, match=r"U025.*partitioned 8 times"):
        program.lower(*arguments)
    with pytest.raises(UsageError, match=r"U025.*partitioned 8 times"):
        program.trace(*arguments).lower(lowering_platforms=("cpu",))


def test_a_function_of_pmap_is_refused_for_a_target(tmp_path, host_devices):
    import jax

    mapped = jax.pmap(lambda x: x + 1, devices=host_devices(8)[:8])
    with pytest.raises(UsageError, match=r"U021.*jax.pmap"):
        runtime.lower(mapped, np.ones(8), target="h100_sxm")
    (tmp_path / "model.py").write_text(
        "import jax\n"
        "def mapped(devices):\n"
        "    return jax.pmap(lambda x: x + 1, devices=list(devices)), (1,)\n"
    )
    program, arguments = read_program(f"{tmp_path / 'model.py'}:mapped", jax.devices())
    with pytest.raises(UsageError, match=r"U025.*jax.pmap"):
        program.trace(*arguments)


def test_lower_says_what_is_wrong(tmp_path, capfd, host_devices):
    host_devices(8)
    model = tmp_path / "model.py"
    model.write_text(MODEL)
    assert call(LOWER, f"{model}:broken") == 2
    assert "must return (jitted function, arguments)" in capfd.readouterr().out
    assert call(LOWER, f"{model}:bare") == 2
    assert "error[U025]" in capfd.readouterr().out
    assert call(LOWER, f"{model}:too_few") == 2
    assert "cannot be traced: TypeError" in capfd.readouterr().out
    assert call(LOWER, f"{model}:absent") == 2
    assert "has no function absent" in capfd.readouterr().out
    assert call(LOWER, f"{model}:stp") == 2
    assert "did you mean step?" in capfd.readouterr().out
    assert call(LOWER, f"{model}:step", "--passes-stage=pre-scheduler") == 2
    assert "--passes-stage=pre-scheduler without --passes" in capfd.readouterr().out
    assert call(LOWER, f"{model}:leaves") == 2
    assert "leaves raises SystemExit: 7" in capfd.readouterr().out
    assert call(LOWER, f"{model}:step", "--target=h100_sx") == 2
    assert "did you mean h100_sxm?" in capfd.readouterr().out
