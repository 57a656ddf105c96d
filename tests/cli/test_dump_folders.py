"""Folders of XLA's dumps in the place of files."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

import hlo_passes
from hlo_passes.cli.main import main
from hlo_passes.dump_folder import Choice, assigned_bytes, dumped_modules, file_of_dump
from hlo_passes.errors import UsageError
from hlo_passes.files import read_module

TEXT = """HloModule {name}

ENTRY %main (p: f32[256]) -> f32[256] {{
  %p = f32[256]{{0}} parameter(0)
  ROOT %r = f32[256]{{0}} {opcode}(%p)
}}
"""
REPORT = """Memory Space: default (color=0)
Total bytes: 4096 (4.0KiB)
  cumulative_size;       size;       offset; used_by_n_values; shapes_list
"""
FINAL = "sm_9.0a_gpu_after_optimizations"
STEP = "module_0004.jit_step"


def fill(folder: pathlib.Path) -> pathlib.Path:
    """Two modules: one at two stages, one at five, with what XLA writes beside them."""
    folder.mkdir(exist_ok=True)

    def put(name: str, opcode: str, module: str = "jit_step") -> None:
        (folder / name).write_text(TEXT.format(name=module, opcode=opcode))

    put("module_0001.jit_small.before_optimizations.txt", "abs", "jit_small")
    put("module_0001.jit_small.cpu_after_optimizations.txt", "abs", "jit_small")
    put(f"{STEP}.before_optimizations.txt", "abs")
    put(f"{STEP}.0002.spmd.after_spmd-partitioning.before_hlo-dce.txt", "negate")
    put(f"{STEP}.0003.copy-insertion.after_adding_copies.txt", "cosine")
    put(f"{STEP}.0011.fusion.after_priority-fusion.before_pipeline-end.txt", "sine")
    put(f"{STEP}.{FINAL}.txt", "tanh")
    (folder / f"{STEP}.{FINAL}-memory-usage-report.txt").write_text(REPORT)
    for other in ("-buffer-assignment.txt", "-live-range.txt", ".thunk.txt", ".ll"):
        (folder / f"{STEP}.{FINAL}{other}").write_text("not a module")
    (folder / f"{STEP}.debug_options").write_text("")
    (folder / "notes.txt").write_text("")
    return folder


@pytest.fixture
def dump(tmp_path: pathlib.Path) -> pathlib.Path:
    return fill(tmp_path / "dump")


def opcode(path: str) -> str:
    return read_module(path).entry.root.opcode


@pytest.mark.parametrize(
    ("stage", "found"),
    [
        ("", "tanh"),
        ("after_optimizations", "tanh"),
        ("after-optimizations", "tanh"),
        ("gpu-scheduled", "tanh"),
        (FINAL, "tanh"),
        ("before_optimizations", "abs"),
        ("before-optimizations", "abs"),
        ("partitioned", "negate"),
        ("spmd-partitioning", "negate"),
        ("adding_copies", "cosine"),
        ("priority-fusion", "sine"),
        ("11", "sine"),
    ],
)
def test_a_module_and_a_stage_are_chosen(dump, stage: str, found: str) -> None:
    for module in ("jit_step", "step", "4"):
        assert opcode(file_of_dump(str(dump), Choice(module, stage))) == found


def test_without_the_final_stage_the_last_one_counts(dump) -> None:
    (dump / f"{STEP}.{FINAL}.txt").unlink()
    assert opcode(file_of_dump(str(dump), Choice("step"))) == "sine"
    (dump / f"{STEP}.before_config_assignment.txt").write_text(TEXT)
    (stages,) = [m.stages for m in dumped_modules(str(dump)) if m.number == 4]
    assert [s.label for s in stages][:2] == [
        "before_optimizations",
        "before_config_assignment",
    ]


def code_of(folder: pathlib.Path, *choice: str) -> str:
    with pytest.raises(UsageError) as caught:
        file_of_dump(str(folder), Choice(*choice))
    return f"{caught.value.code} {caught.value.render()}"


def test_what_cannot_be_chosen_is_told(dump, tmp_path) -> None:
    several = code_of(dump)
    assert several.startswith("U051")
    assert "1  jit_small  before_optimizations, cpu_after_optimizations, " in several
    assert f"4  jit_step  before_optimizations, {FINAL}, 3 between passes" in several
    assert " bytes" in several
    assert code_of(dump, "nix").startswith("U051")
    assert code_of(dump, "7").startswith("U051")
    stage = code_of(dump, "4", "layout")
    assert stage.startswith("U052")
    assert "after priority-fusion" in stage
    assert code_of(tmp_path).startswith("U050")
    assert code_of(tmp_path / "nothing").startswith("U001")


def test_two_modules_of_one_name_are_told_apart_by_number(dump) -> None:
    for file in sorted(dump.glob("module_0004.*")):
        twin = file.name.replace("module_0004", "module_0006")
        (dump / twin).write_bytes(file.read_bytes())
    assert "2 of that name" in code_of(dump, "jit_step")
    assert file_of_dump(str(dump), Choice("6")).endswith(f"0006.jit_step.{FINAL}.txt")


def test_text_is_preferred_except_to_run(dump) -> None:
    text = dump / f"{STEP}.{FINAL}.txt"
    proto = dump / f"{STEP}.{FINAL}.hlo.pb"
    proto.write_bytes(b"")
    assert file_of_dump(str(dump), Choice("4")) == str(text)
    assert file_of_dump(str(dump), Choice("4", "", True)) == str(proto)
    text.unlink()
    assert file_of_dump(str(dump), Choice("4")) == str(proto)


def test_every_command_takes_a_folder(dump, tmp_path, capsys) -> None:
    chosen = [str(dump), "--module=step"]
    assert main(["verify", *chosen]) == 0
    assert f"{STEP}.{FINAL}.txt: ok" in capsys.readouterr().out
    assert main(["estimate", *chosen]) == 0
    out = tmp_path / "out.hlo"
    passes = ["--passes=hlo-dce", "-o", str(out)]
    assert main(["opt", *chosen, "--stage=partitioned", *passes]) == 0
    assert hlo_passes.parse(out.read_text()).entry.root.opcode == "negate"
    assert main(["diff", str(dump), str(out), "--module=4", "--exit-code"]) == 4
    capsys.readouterr()
    assert main(["simulate", str(dump)]) == 2
    assert "error[U051]" in capsys.readouterr().err
    assert main(["simulate", str(out), "--module=4"]) == 2
    assert "error[U053]" in capsys.readouterr().err
    assert main(["simulate", str(tmp_path)]) == 2
    assert "error[U050]" in capsys.readouterr().err


def test_simulate_shows_what_xla_assigns(dump, capsys) -> None:
    final = dump / f"{STEP}.{FINAL}.txt"
    assert assigned_bytes(str(final)) == 4096
    assert assigned_bytes("m.hlo") is None
    for given in (["--module=4", str(dump)], [str(final)]):
        assert main(["simulate", *given]) == 0
        text = capsys.readouterr().out
        assert "as XLA packs it (its buffer assignment: 4.0 KiB)" in text
        assert main(["simulate", *given, "--json"]) == 0
        view = json.loads(capsys.readouterr().out)
        assert view["memory"]["xla_buffer_assignment_bytes"] == 4096
    assert main(["simulate", str(dump), "--module=1"]) == 0
    assert "buffer assignment" not in capsys.readouterr().out


def test_two_folders_are_compared_module_by_module(dump, tmp_path, capsys) -> None:
    other = fill(tmp_path / "other")
    assert main(["diff", str(dump), str(other), "--exit-code"]) == 0
    assert "2 modules: 2 equal, 0 differ" in capsys.readouterr().out
    (other / f"{STEP}.{FINAL}.txt").write_text(
        TEXT.format(name="jit_step", opcode="exponential")
    )
    extra = other / "module_0009.jit_new.before_optimizations.txt"
    extra.write_text(TEXT.format(name="jit_new", opcode="abs"))
    assert main(["diff", str(dump), str(other), "--exit-code"]) == 4
    text = capsys.readouterr().out
    assert f"jit_step (4 and 4), {FINAL}:" in text
    assert f"jit_new (9): only in {other}" in text
    assert "3 modules: 1 equal, 1 differ, 1 only after" in text
    assert main(["diff", str(dump), str(other), "--stage=partitioned"]) == 2
    capsys.readouterr()
    same = [str(dump), str(other), "--stage=before_optimizations", "--module=step"]
    assert main(["diff", *same, "--json", "--exit-code"]) == 0
    view = json.loads(capsys.readouterr().out)
    assert [p["equal"] for p in view["pairs"]] == [True]
    assert view["only_after"] == []


PROGRAM = """
import jax, jax.numpy as jnp
def step(x, w):
    return jnp.tanh(x @ w)
jax.jit(step)(jnp.ones((64, 64)), jnp.ones((64, 64)))
"""


def test_a_dump_that_jax_makes(tmp_path, capsys) -> None:
    pytest.importorskip("jax")
    for flags, ending in (
        ("", ".txt"),
        (" --xla_dump_hlo_as_proto", ".pb"),
        (" --xla_dump_hlo_as_text --xla_dump_hlo_pass_re=.*", ".txt"),
    ):
        folder = tmp_path / str(len(flags))
        environment = {
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": f"--xla_dump_to={folder}{flags}",
        }
        subprocess.run([sys.executable, "-c", PROGRAM], env=environment, check=True)
        found = file_of_dump(str(folder), Choice("step"))
        stem = "cpu_after_optimizations"
        assert found.endswith((f"{stem}.hlo{ending}", f"{stem}{ending}"))
        assert main(["simulate", str(folder), "--module=step"]) == 0
        text = capsys.readouterr().out
        assert "compiled for a CPU (XLA's dump" in text
        assert ("its buffer assignment: " in text) is (ending == ".txt")
        if "pass_re" in flags:
            # Every file of a module is one of its stages.
            stages = next(m for m in dumped_modules(str(folder)) if "step" in m.name)
            texts = list(folder.glob("*jit_step*.txt"))
            reports = [f for f in texts if "after_optimizations-" in f.name]
            assert len(stages.stages) == len(texts) - len(reports)
