"""`hlo-passes capture`: what a program compiles, and how the program fares under it."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time
from functools import partial
from typing import Any

import jax
import pytest

from hlo_passes.files import read_module
from hlo_passes.runtime.recording import bootstrap
from hlo_passes.runtime.recording.recorder import Recorder
from hlo_passes.runtime.stablehlo_program import read_program
from tests.modules import REPOSITORY
from tests.runtime.test_gpu_aot import needs_plug_in

TRAIN = """
import os, sys
import jax, jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

def whole(*sizes):
    return np.ones(sizes, "float32")

def main():
    mesh = Mesh(np.array(jax.devices()), ("x",))
    rows = NamedSharding(mesh, PartitionSpec("x"))

    def step(w, x):
        return w - (x @ w).sum(0)

    train = jax.jit(step, in_shardings=(None, rows), out_shardings=None)
    train(whole(8), whole(16, 8))
    train(whole(8), whole(16, 8))
    train(whole(8), whole(32, 8))
    jax.clear_caches()
    train(whole(8), whole(16, 8))
    jax.jit(lambda x: jax.debug.print("sum {}", x.sum()))(whole(3))

if __name__ == "__main__":
    main()
    print(*sys.argv[1:], flush=True)
    print(any("capture" in p for p in sys.path), sys.argv[0], __name__)
    print([f for f in sys.meta_path if "hlo" in type(f).__module__])
    print(type(jax.__spec__.loader).__name__, "exec_module" in vars(jax.__spec__.loader))
    sys.stdout.flush()
    exec(os.environ.get("THEN", ""))
"""
STEPS = ("jit_step", "jit_step", "jit__lambda")


def command(
    folder: pathlib.Path, *arguments: str, **environment: str
) -> subprocess.Popen[str]:
    train = folder / "train.py"
    train.write_text(TRAIN)
    return subprocess.Popen(
        [sys.executable, "-m", "hlo_passes", "capture", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)} | environment,
    )


def capture(
    folder: pathlib.Path, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    with command(folder, *arguments, **environment) as run:
        out, err = run.communicate()
    assert "Traceback (most recent call last)" not in err or "THEN" in environment
    return subprocess.CompletedProcess(run.args, run.returncode, out, err)


def index(folder: pathlib.Path) -> dict[str, Any]:
    return json.loads((folder / "captured" / "modules.json").read_text())


def test_a_program_is_recorded_and_finds_itself_alone(tmp_path: pathlib.Path) -> None:
    words = ("--first=3", "--", "-o", "x", "--flagfile=none")
    run = capture(tmp_path, "--devices=8", "--", sys.executable, "train.py", *words)
    assert run.returncode == 0, run.stderr
    printed = [line for line in run.stdout.splitlines() if not line.startswith("sum")]
    assert printed == [
        " ".join(words),
        "False train.py __main__",
        "[]",
        "SourceFileLoader False",
    ]
    # The index: one row for each module, with its compilations.
    told = index(tmp_path)
    assert told["exit_code"] == 0
    assert told["command"][1:] == ["train.py", *words]
    assert told["jax_processes"] == 1
    rows = [row for row in told["modules"] if row["name"] in STEPS]
    assert [(r["name"], r["compilations"], r["devices"]) for r in rows] == [
        ("jit_step", 2, 8),
        ("jit_step", 1, 8),
        ("jit__lambda", 1, 1),
    ]
    assert [bool(r["collectives"]) for r in rows] == [True, True, False]
    assert all(row["seconds"] > 0 and not row["problem"] for row in rows)
    # The modules: StableHLO, and HLO of one device.
    folder = tmp_path / "captured"
    module = read_module(str(folder / rows[0]["hlo"]))
    assert module.num_partitions == 8
    assert rows[0]["module_state"] == "partitioned"
    assert rows[1]["hlo"] == "jit_step-2.hlo"
    assert read_program(str(folder / rows[0]["stablehlo"])).device_count == 8
    assert "captured " in run.stderr
    assert "jit_step-2.hlo" in run.stderr


def test_filters_modules_and_a_folder_again(tmp_path: pathlib.Path) -> None:
    arguments = ("--devices=2", "--module=jit_st*", "--stage=before-optimizations")
    run = capture(tmp_path, *arguments, "--", sys.executable, "-m", "train", "a")
    assert run.returncode == 0, run.stderr
    assert f"False {tmp_path / 'train.py'} __main__" in run.stdout
    assert [row["name"] for row in index(tmp_path)["modules"]] == ["jit_step"] * 2
    run = capture(tmp_path, *arguments, "--first=1", "--", sys.executable, "train.py")
    (row,) = index(tmp_path)["modules"]
    assert row["compilations"] == 2
    left = sorted(f.name for f in (tmp_path / "captured").iterdir())
    assert left == ["jit_step.hlo", "jit_step.mlir", "modules.json"]
    # A folder with anything else is left alone.
    (tmp_path / "captured" / "mine.txt").write_text("")
    run = capture(tmp_path, "--", sys.executable, "train.py")
    assert run.returncode == 2
    assert "captured holds mine.txt, which is not of an earlier" in run.stderr
    assert (tmp_path / "captured" / "mine.txt").exists()


@pytest.mark.parametrize(
    ("then", "code"),
    [
        ("raise ValueError('boom')", 1),
        ("os.kill(os.getpid(), 9)", 128 + 9),
    ],
)
def test_whatever_ends_the_program_leaves_its_modules(
    then: str, code: int, tmp_path: pathlib.Path
) -> None:
    run = capture(
        tmp_path, "--devices=2", "--module=jit_step", "--", sys.executable, "train.py",
        THEN=then,
    )  # fmt: skip
    assert run.returncode == code
    assert ("ValueError: boom" in run.stderr) == (code == 1)
    assert [row["hlo"] for row in index(tmp_path)["modules"]] == [
        "jit_step.hlo",
        "jit_step-2.hlo",
    ]
    assert index(tmp_path)["exit_code"] == code


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 5), (signal.SIGTERM, 128 + 15)]
)
def test_signals_are_for_the_program(
    number: int, code: int, tmp_path: pathlib.Path
) -> None:
    then = (
        "import time\ntry:\n    print('sleeping', flush=True)\n"
        "    time.sleep(600)\nexcept KeyboardInterrupt:\n    sys.exit(5)"
    )
    with command(
        tmp_path, "--devices=2", "--module=jit_step", "--", sys.executable, "train.py",
        THEN=then,
    ) as run:  # fmt: skip
        assert run.stdout is not None
        assert any(line == "sleeping\n" for line in run.stdout)
        if number == signal.SIGINT:
            # A terminal sends it to both.
            children = _children(run.pid)
            run.send_signal(number)
            os.kill(*children, number)
        else:
            run.send_signal(number)
        _, err = run.communicate(timeout=120)
    assert run.returncode == code
    assert "captured 2 modules" in err


def _children(process: int) -> list[int]:
    tasks = pathlib.Path(f"/proc/{process}/task/{process}/children")
    return [int(each) for each in tasks.read_text().split()]


def test_processes_of_the_program_are_recorded_too(tmp_path: pathlib.Path) -> None:
    (tmp_path / "many.py").write_text(
        textwrap.dedent("""
            import multiprocessing, subprocess, sys
            import train

            if __name__ == "__main__":
                context = multiprocessing.get_context("spawn")
                worker = context.Process(target=train.main)
                worker.start()
                subprocess.run([sys.executable, "train.py"], check=True)
                worker.join()
        """)
    )
    run = capture(
        tmp_path, "--devices=2", "--module=jit_step", "--stage=before-optimizations",
        "--", sys.executable, "many.py",
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    told = index(tmp_path)
    assert told["jax_processes"] == 3
    compilations = [row["compilations"] for row in told["modules"]]
    assert sum(compilations) == 6
    assert sum(len(row["processes"]) for row in told["modules"]) == 4


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (["-I", "train.py"], "started no Python that reads PYTHONPATH"),
        (["-c", "import importlib.util as u; u.find_spec('jax')"], "no process of"),
        (["-c", "import jax"], "no module was compiled"),
        (
            ["-c", "import sys; sys.modules['hlo_passes'] = None; import jax"],
            "(hlo-passes must be installed there, too)",
        ),
    ],
)
def test_nothing_to_record(
    program: list[str], said: str, tmp_path: pathlib.Path
) -> None:
    run = capture(tmp_path, "--", sys.executable, *program)
    assert run.returncode == 0, run.stderr
    assert said in run.stderr
    assert index(tmp_path)["modules"] == []


def test_the_programs_own_sitecustomize_runs(tmp_path: pathlib.Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('mine')\n")
    run = capture(
        tmp_path, "--module=jit_step", "--", sys.executable, "-c",
        "import sitecustomize as s; print(s.__file__)",
        PYTHONPATH=f"{tmp_path}{os.pathsep}{REPOSITORY}",
    )  # fmt: skip
    # Once for our own process, once for the program.
    assert run.stdout == f"mine\n{tmp_path / 'sitecustomize.py'}\n" or (
        run.stdout == f"mine\nmine\n{tmp_path / 'sitecustomize.py'}\n"
    )


def test_what_is_refused_before_the_program_runs(tmp_path: pathlib.Path) -> None:
    for arguments, said in (
        (("--", "no-such-program"), "error[U001]: cannot start no-such-program"),
        (("--stage=gpu-scheduled", "--", "true"), "needs a --target"),
        (("-o", "train.py", "--", "true"), "error[U003]: cannot write train.py"),
        ((), "error[U000]"),
    ):
        run = capture(tmp_path, *arguments)
        assert run.returncode == 2, run.stderr
        assert said in run.stderr
        assert not (tmp_path / "captured").exists()


@needs_plug_in
def test_for_an_absent_gpu(tmp_path: pathlib.Path) -> None:
    run = capture(
        tmp_path, "--devices=8", "--module=jit_step", "--first=1", "--target=h100_sxm",
        "--", sys.executable, "train.py",
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    (row,) = index(tmp_path)["modules"]
    assert (row["module_state"], row["problem"]) == ("gpu-scheduled", "")


# -- in this process ----------------------------------------------------------------


def test_a_recorder_that_fails_harms_nobody(tmp_path: pathlib.Path) -> None:
    journal = tmp_path / "journal"
    journal.mkdir()
    settings = {"modules": [], "first": None, "journal": str(journal)}
    settings["folder"] = str(tmp_path / "absent")
    recorder = Recorder(settings, partial(bootstrap.note, settings))
    module = jax.jit(lambda x: x).lower(1.0).compiler_ir()
    assert recorder.compiled(lambda: 3, module, "cpu", 1) == 3
    (file,) = journal.iterdir()
    assert "cannot record: FileNotFoundError" in file.read_text()
    # Its own journal may be gone, too.
    gone = settings | {"folder": str(tmp_path), "journal": str(tmp_path / "no")}
    assert (
        Recorder(gone, partial(bootstrap.note, gone)).compiled(
            lambda: 4, module, "cpu", 1
        )
        == 4
    )


def test_what_xla_refuses_is_noted(tmp_path: pathlib.Path) -> None:
    settings = {
        "modules": [], "first": None, "journal": str(tmp_path), "folder": str(tmp_path)
    }  # fmt: skip
    recorder = Recorder(settings, partial(bootstrap.note, settings))
    module = jax.jit(lambda x: x).lower(1.0).compiler_ir()

    def refuse() -> None:
        raise RuntimeError("too large\nfor you")

    with pytest.raises(RuntimeError, match="too large"):
        recorder.compiled(refuse, module, "cpu", 1)
    (journal,) = tmp_path.glob("*.jsonl")
    told = json.loads(journal.read_text())
    assert told["error"] == "RuntimeError: too large"
    assert (tmp_path / told["file"]).exists()


def test_a_module_of_another_process_is_one_file(tmp_path: pathlib.Path) -> None:
    settings = {
        "modules": [], "first": None, "journal": str(tmp_path), "folder": str(tmp_path)
    }  # fmt: skip
    module = jax.jit(lambda x: x).lower(1.0).compiler_ir()
    for _ in range(2):
        Recorder(settings, partial(bootstrap.note, settings)).compiled(
            time.time, module, "cpu", 1
        )
    assert [f.name for f in tmp_path.glob("*.mlir")] == ["jit__lambda.mlir"]


def test_the_bootstrap_needs_nothing_but_python(tmp_path: pathlib.Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", bootstrap.__file__],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
