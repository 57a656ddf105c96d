"""`.mlir` files, jitted functions with --args, and XLA's own dumps, through `lower`."""

from __future__ import annotations

import argparse
import gzip
import os
import subprocess
import sys

import jax
import numpy as np
import pytest

from hlo_passes import HloError, ParseError, UsageError, parse
from hlo_passes.exit_codes import exit_code_of
from hlo_passes.files import read_module
from hlo_passes.runtime.commands import LOWER
from hlo_passes.runtime.dump_folder import dump_folder
from hlo_passes.runtime.lower_file import lower_file
from hlo_passes.runtime.program_arguments import read_arguments
from hlo_passes.runtime.stablehlo_program import read_program
from hlo_passes.runtime.user_function import read_program as read_function
from hlo_passes.scheduler import simulate
from tests.modules import REPOSITORY
from tests.runtime.stablehlo_table import compared, programs

DEVICES = 8
#: Collectives by hand, and by the partitioner, which may choose results' shardings.
SAMPLE = ("mixture_of_experts:moe", "fsdp_mlp:fsdp_mlp_partitioner", "fsdp:small_step")


def call(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    LOWER.configure(parser)
    try:
        return LOWER.run(parser.parse_args(arguments))
    except HloError as problem:
        print(problem.render())
        return exit_code_of(problem)


@pytest.fixture(params=[True, False], ids=["shardy", "gspmd"])
def dialect(request):
    before = jax.config.jax_use_shardy_partitioner
    jax.config.update("jax_use_shardy_partitioner", request.param)
    yield request.param
    jax.config.update("jax_use_shardy_partitioner", before)


def program_text(devices, **options) -> str:
    mesh = jax.sharding.Mesh(np.array(devices), ("x",))
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    jitted = jax.jit(
        lambda x, w: (x @ w, x.sum(0)), in_shardings=(rows, None), donate_argnums=0
    )
    x = jax.ShapeDtypeStruct((16, 8), "float32")
    return jitted.lower(x, jax.ShapeDtypeStruct((8, 8), "float32")).as_text(**options)


@pytest.mark.parametrize("name", SAMPLE)
def test_the_module_is_that_of_the_function(name, dialect, host_devices):
    devices = host_devices(DEVICES)[:DEVICES]
    program = dict(programs())[name]
    how = compared(program, devices, debug_info=True)
    assert how == "every byte" or (not dialect and how == "up to metadata")
    how = compared(program, devices, debug_info=False)
    assert how == "up to metadata and names"


def test_what_jax_tells_xla_is_told_from_the_text(dialect, tmp_path, host_devices):
    file = tmp_path / "step.mlir"
    file.write_text(program_text(host_devices(DEVICES)[:DEVICES]))
    program = read_program(str(file))
    assert program.is_shardy == dialect
    assert (program.replica_count, program.num_partitions) == (1, DEVICES)
    assert program.free_inputs == (False, True)
    assert program.free_outputs == (True, True)


def test_a_mesh_says_how_many_devices(tmp_path, host_devices):
    text = program_text(host_devices(DEVICES)[:DEVICES])
    file = tmp_path / "step.mlir"
    file.write_text(text.replace("mhlo.num_partitions = 8 : i32, ", ""))
    assert read_program(str(file)).device_count == DEVICES


def test_a_function_for_one_device(tmp_path, host_devices):
    host_devices(DEVICES)
    file = tmp_path / "one.mlir"
    file.write_text(jax.jit(lambda x: x * 2).lower(1.0).as_text())
    assert lower_file(str(file), stage=None, target=None).num_partitions == 1


@pytest.mark.parametrize("stage", ["before-optimizations", "partitioned", "scheduled"])
def test_lower_a_file(stage, tmp_path, host_devices):
    devices = host_devices(DEVICES)[:DEVICES]
    file, out = tmp_path / "step.mlir.gz", tmp_path / "step.hlo"
    file.write_bytes(gzip.compress(program_text(devices).encode()))
    assert call(str(file), f"--stage={stage}", "-o", str(out)) == 0
    module = parse(out.read_text())
    assert module.num_partitions == DEVICES
    assert module.is_scheduled == (stage == "scheduled")
    rows = 16 if stage == "before-optimizations" else 2
    assert module.entry.parameters[0].shape.dimensions == (rows, 8)


def test_bytecode(tmp_path, host_devices):
    from hlo_passes.runtime import jax_private

    devices = host_devices(DEVICES)[:DEVICES]
    text, code = tmp_path / "step.mlir", tmp_path / "code.mlir"
    text.write_text(program_text(devices))
    module = jax_private.parse_stablehlo(text.read_bytes())
    with code.open("wb") as file:
        module.operation.write_bytecode(file)
    assert code.read_bytes().startswith(b"ML\xefR")
    lowered = [
        lower_file(str(f), stage=None, target=None).to_text() for f in (text, code)
    ]
    assert lowered[0] == lowered[1]


def test_files_that_are_refused(tmp_path, host_devices, capsys):
    text = program_text(host_devices(DEVICES)[:DEVICES])
    file = tmp_path / "step.mlir"
    file.write_text(text)
    assert call(str(file), "--hosts=2") == 2
    assert "step.mlir is for 8 devices, not for 16" in capsys.readouterr().out
    assert call(str(file), "--args=f32[8]") == 2
    assert "error[U025]: --args=f32[8] is for a jitted" in capsys.readouterr().out
    file.write_text(text.replace("stablehlo.dot_general", "stablehlo.dot_special"))
    assert call(str(file)) == 1
    printed = capsys.readouterr().out
    assert "step.mlir:4:10: error[P042]" in printed
    assert "'stablehlo.dot_special' is unknown" in printed
    file.write_text("module @m {}")
    with pytest.raises(ParseError, match="no function main"):
        read_program(str(file))
    for said in ("-8 : i32", "0 : i32", '"many"'):
        file.write_text(
            text.replace("num_partitions = 8 : i32", f"num_partitions = {said}")
        )
        with pytest.raises(ParseError, match=r"P042.*num_partitions = "):
            read_program(str(file))
    file.write_text(text.replace("num_partitions = 8", "num_partitions = 80000000"))
    assert call(str(file)) == 2
    assert "error[U026]" in capsys.readouterr().out


def test_what_would_end_the_process_is_refused(tmp_path, host_devices):
    """XLA aborts over replicas of partitions, and over a main without a body."""
    text = program_text(host_devices(DEVICES)[:DEVICES])
    file = tmp_path / "step.mlir"
    file.write_text(
        text.replace("num_replicas = 1", "num_replicas = 2").replace(
            "num_partitions = 8", "num_partitions = 4"
        )
    )
    with pytest.raises(HloError, match=r"R004.*2 replicas of 4 partitions"):
        lower_file(str(file), stage=None, target=None)
    file.write_text(
        "module { func.func private @main(tensor<4xf32>) -> tensor<4xf32> }"
    )
    for read in (read_program, read_module):
        with pytest.raises(ParseError, match=r"P042.*no function main with a body"):
            read(str(file))


def test_the_cure_names_stablehlo(tmp_path, host_devices):
    file = tmp_path / "step.mlir"
    file.write_text(program_text(host_devices(DEVICES)[:DEVICES]))
    with pytest.raises(HloError, match="S017") as refused:
        simulate(read_module(str(file)))
    assert refused.value.hint == (
        "partition it: hlo-passes lower FILE.mlir --stage=partitioned"
    )


# -- functions with --args ---------------------------------------------------------

MODEL = """
from __future__ import annotations

import dataclasses

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

@dataclasses.dataclass
class Sizes:
    rows: int = 16

mesh = Mesh(np.array(jax.devices()[:8]), ("x",))
rows = NamedSharding(mesh, PartitionSpec("x"))
plain = lambda p, x: (x @ p["w"], x.sum(0))
step = jax.jit(plain, in_shardings=(None, rows))

def arguments():
    import beside
    return {"w": np.ones((8, 8), "f4")}, np.ones((beside.ROWS, 8), "f4")

def of_devices(devices):
    assert len(devices) == 8
    return arguments()

def whole(devices):
    return step, arguments()

constant = arguments()

def raises():
    raise ValueError("no data")

def scalar():
    return 3

def takes_two(a, b):
    return step, a

def later(devices):
    def traced(x):
        import later_beside
        return x + later_beside.ROWS
    return jax.jit(traced), (1,)
"""
SHAPES = "{w: f32[8,8]}, f32[16,8]"


@pytest.fixture
def model(tmp_path, host_devices, monkeypatch):
    host_devices(DEVICES)
    for name in ("model", "beside", "later_beside"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "model.py").write_text(MODEL)
    for name in ("beside", "later_beside"):
        (tmp_path / f"{name}.py").write_text("ROWS = 16\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    for name in ("model", "beside", "later_beside"):
        sys.modules.pop(name, None)


def test_all_forms_name_the_same_program(model):
    texts = {
        lower_file(
            program, stage="before-optimizations", target=None, arguments=given
        ).to_text()
        for program, given in [
            ("model.py:whole", ""),
            ("model:whole", ""),
            ("model.py:step", "arguments"),
            ("model.py:step", "of_devices"),
            ("model.py:step", "constant"),
            ("model.py:step", "model.py:arguments"),
            ("model:step", "model:arguments"),
            ("model:step", SHAPES),
        ]
    }
    assert len(texts) == 1
    assert "num_partitions=8" in texts.pop()


def test_what_is_imported_while_tracing_is_found(model):
    assert lower_file("model.py:later", stage=None, target=None).entry


@pytest.mark.parametrize(
    ("program", "given", "said"),
    [
        ("model.py:step", "", "is a jitted function, and nothing says its arguments"),
        ("model.py:plain", "arguments", "is not a jitted function, so --args is"),
        ("model.py:step", "argument", "did you mean arguments?"),
        ("model.py:step", "raises", "raises raises ValueError: no data"),
        ("model.py:step", "scalar", "scalar returns int as the arguments"),
        ("model.py:step", "f32[8", "element type without sizes"),
        ("model.py:takes_two", "", "it was called with the devices; FUNCTION(devices)"),
        ("model.py:constant", "", "model.py:constant is not a function"),
        ("modl:step", "", "there is no module modl"),
        ("model", "", "is not of the form FILE.py:FUNCTION or MODULE:FUNCTION"),
    ],
)
def test_programs_that_are_refused(model, program, given, said):
    with pytest.raises(UsageError, match="U025") as refused:
        read_function(program, jax.devices(), given)
    assert said in refused.value.render()


def test_arguments_that_do_not_fit(model, capsys):
    assert call("model.py:step", "--args=f32[8]") == 2
    printed = capsys.readouterr().out
    assert "error[U025]: model.py:step cannot be traced: ValueError" in printed


def leaves(text: str) -> str:
    """Abstract arrays as text again, in their structure."""
    return str(
        jax.tree.map(
            lambda a: f"{a.dtype}{list(a.shape)}" if hasattr(a, "shape") else a,
            read_arguments(text),
        )
    ).replace("'", "")


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("f32[8,128],s32[]", "(float32[8, 128], int32[])"),
        (" bf16[ 8 , 2 ]{1,0} ", "(bfloat16[8, 2],)"),
        ("{w: f32[8], 'b': [pred[], None]}", "({b: [bool[], None], w: float32[8]},)"),
        ("(f32[1],), (f32[2]), ()", "((float32[1],), float32[2], ())"),
        ("3, -1.5e2, true, 'adam', F32[2]", "(3, -150.0, True, adam, float32[2])"),
        ("{1: f32[],},", "({1: float32[]},)"),
        ("", "()"),
    ],
)
def test_arguments_as_text(text, read):
    assert leaves(text) == read


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("f32[8", "an element type without sizes"),
        ("f31[8]", "f31 is no element type, did you mean f32?: character 1"),
        ("f32[8] s32[]", "expected ',': character 8, 's32[]'"),
        ("f32[,8]", "sizes are whole numbers"),
        ("(f32[8]", "expected ',': at its end"),
        ("{f32[8]}", "expected a key"),
        ("{a: f32[], a: f32[]}", "the key a is there twice"),
        ("f32[8], data", "expected a shape: character 9, 'data'"),
        ("f32[8]; x", "this is no shape: character 7"),
        ("(" * 1000, "nested deeper than 100"),
    ],
)
def test_arguments_that_are_no_text(text, said):
    with pytest.raises(UsageError, match="U025") as refused:
        read_arguments(text)
    assert said in str(refused.value)


# -- XLA's own dumps --------------------------------------------------------------


def test_xla_flags_dump_what_they_ask_for(tmp_path, host_devices):
    devices = host_devices(DEVICES)[:DEVICES]
    (tmp_path / "step.mlir").write_text(program_text(devices))
    flags = (
        "--xla_dump_to=dump/deep --xla_dump_hlo_module_re=nothing "
        "--xla_dump_hlo_pass_re=^dce --xla_dump_hlo_as_proto"
    )
    run = subprocess.run(
        [sys.executable, "-m", "hlo_passes", "lower", "step.mlir", "-o", "step.hlo"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=os.environ | {"XLA_FLAGS": flags, "PYTHONPATH": str(REPOSITORY)},
    )
    assert run.returncode == 0, run.stderr
    assert "files of XLA to dump/deep" in run.stderr
    found = {f.name for f in (tmp_path / "dump" / "deep").iterdir()}
    for ending in ("before_optimizations.txt", "after_optimizations.hlo.pb"):
        assert any(name.endswith(ending) for name in found)
    assert any(".after_dce." in name for name in found)
    assert read_module(str(tmp_path / "step.hlo")).num_partitions == DEVICES


@pytest.mark.parametrize("flags", ["--xla_dump_to={}", '--xla_dump_to="{}"', "file"])
def test_flags_as_xla_reads_them(flags, tmp_path, monkeypatch):
    if flags == "file":
        (tmp_path / "flags").write_text(f"--xla_dump_to={tmp_path / 'd'}\n")
        flags = str(tmp_path / "flags")
    monkeypatch.setenv("XLA_FLAGS", f"{flags.format(tmp_path / 'd')} ".lstrip())
    with dump_folder("spmd") as dump:
        (dump.folder / "m.after_spmd.txt").write_text("HloModule m")
        (dump.folder / "m.memory.after_spmd.txt").write_text("HloModule many bytes")
        assert dump.text_after("after_spmd") == "HloModule m"
        assert dump.text_after("after_dce") is None
    assert (tmp_path / "d" / "m.after_spmd.txt").exists()
    assert not dump.folder.exists()


def test_a_dump_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XLA_FLAGS", f"--xla_dump_to={tmp_path / 'file'}")
    with pytest.raises(UsageError, match="U003"), dump_folder("spmd"):
        pass
