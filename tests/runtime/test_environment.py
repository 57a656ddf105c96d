"""`HLO_PASSES`: passes for programs that nobody can edit."""

from __future__ import annotations

import inspect
import pathlib
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import jax
import pytest

from hlo_passes import HloError, PassContext, runtime
from hlo_passes.runtime import jax_private
from hlo_passes.runtime.installation import environment
from tests.modules import REPOSITORY
from tests.runtime.programs import over_devices, rows

Devices = Callable[[int], Sequence[Any]]


def test_nothing_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HLO_PASSES", raising=False)
    assert runtime.install_from_environment() == ()
    monkeypatch.setenv("HLO_PASSES", " ")
    assert runtime.install_from_environment() == ()


def test_the_text_of_a_pipeline(
    host_devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HLO_PASSES", "collective-permute-combiner,hlo-dce")
    (installed,) = runtime.install_from_environment()
    with installed:
        jax.jit(over_devices(host_devices(8)))(rows())
    assert installed.changed == 1
    assert installed.stage == "pre-scheduler"


def test_a_file(
    host_devices: Devices, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "passes.toml"
    file.write_text(
        '[[install]]\npipeline = "collective-permute-combiner"\nmodules = "permutes"\n'
        '[[install]]\npipeline = "hlo-dce"\nstage = "post-scheduler"\n'
        'min_instructions = 3\non_error = "pass-through"\nmultiprocess = "off"\n'
        'target = "a100_sxm_80"\nhosts = 1\ngpus_per_host = 8\n'
    )
    monkeypatch.setenv("HLO_PASSES", str(file))
    first, second = runtime.install_from_environment()
    with first, second:
        jax.jit(over_devices(host_devices(8)))(rows())
    assert (first.changed, second.stage) == (1, "post-scheduler")
    pricing = second.pipeline.context.pricing
    assert (pricing.hosts, pricing.gpus_per_host) == (1, 8)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r"passes.toml:1:1: error\[U062\]: expected tables"),
        ("[install]\npipeline = 'hlo-dce'\n", "U062.*expected tables"),
        ("other = 1\n", "U062.*found other"),
        ("[[install]\n", "U062"),
        ("[[install]]\nstage = 'pre-scheduler'\n", "U062.*without pipeline"),
        ("[[install]]\npipelin = 'hlo-dce'\n", "unknown key pipelin\n.*mean pipeline"),
        ("[[install]]\npipeline = 'hlo-dcee'\n", "U011"),
        (
            "[[install]]\npipeline = 'hlo-dce{'\n",
            r"<pipeline>:1:9: error\[U010\]: .*passes.toml: \[\[install\]\] 1: exp",
        ),
        (
            "[[install]]\npipeline = 'hlo-dce'\nstage = 'x'\n",
            r"passes.toml:1:1: error\[U060\]: \[\[install\]\] 1: stage='x'",
        ),
        (f"install = {'1' * 5000}\n", "U062"),
        (f"install = {'[' * 5000}\n", "U062"),
        ("install = [3]\n", "U062.*expected tables"),
        ("install = []\n", "U062.*expected tables"),
        (
            "[[install]]\npipeline = 3\n",
            r"U062\]: \[\[install\]\] 1: pipeline = 3\n.*text",
        ),
        *(
            (
                f"[[install]]\npipeline = 'hlo-dce'\n"
                f"[[install]]\npipeline = 'hlo-dce'\n{key} = {value}\n",
                rf"passes.toml:1:1: error\[{code}\]: \[\[install\]\] 2: {key}\b",
            )
            for key, value, code in [
                ("platforms", "3", "U062"),
                ("platforms", "['cpu', 3]", "U062"),
                ("modules", "3", "U062"),
                ("modules", "'('", "U060"),
                ("min_instructions", "'x'", "U062"),
                ("min_instructions", "true", "U062"),
                ("min_instructions", "-3", "U060"),
                ("max_instructions", "0", "U060"),
                ("has_collectives", "'yes'", "U062"),
                ("on_error", "1.5", "U062"),
                ("target", "3", "U062"),
                ("target", "'h100'", "U200"),
                ("topology", "5", "U062"),
                ("topology", "'1x1'", "U202"),
                ("topology", "'1x1x16'", "U225"),
                ("hosts", "'2'", "U062"),
                ("hosts", "0", "U225"),
                ("gpus_per_host", "9", "U225"),
                ("costs", "'nosuch.json'", "U001"),
            ]
        ),
    ],
)
def test_refused_files_install_nothing(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    content: str,
    message: str,
) -> None:
    file = tmp_path / "passes.toml"
    file.write_text(f"{content}")
    monkeypatch.setenv("HLO_PASSES", str(file))
    hook = jax_private.cache_key_hook()
    with pytest.raises(HloError, match=message):
        runtime.install_from_environment()
    assert jax_private.cache_key_hook() is hook


def test_a_file_that_is_no_text(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "passes.toml"
    file.write_bytes(b"# \xff\n")
    monkeypatch.setenv("HLO_PASSES", str(file))
    with pytest.raises(HloError, match=r"passes.toml:1:1: error\[U062\]: no UTF-8"):
        runtime.install_from_environment()


def test_a_table_takes_the_arguments_of_install() -> None:
    arguments = set(inspect.signature(runtime.install).parameters) - {"context"}
    assert set(environment._KEYS) == arguments | set(environment._CONTEXT_KEYS)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"min_instructions": 10, "max_instructions": 5}, "U060"),
        ({"context": PassContext(target="h100")}, "U200"),
        ({"context": PassContext(topology="1x1")}, "U202"),
        ({"context": PassContext(costs="nosuch.json")}, "U001"),
    ],
)
def test_values_that_can_never_do_are_refused_at_once(
    arguments: dict[str, Any], code: str
) -> None:
    with pytest.raises(HloError, match=code):
        runtime.install("hlo-dce", **arguments)


def test_a_file_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLO_PASSES", "not-there.toml")
    with pytest.raises(HloError, match="U001"):
        runtime.install_from_environment()


def test_nothing_happens_at_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLO_PASSES", "no-such-pass")
    done = subprocess.run(
        [sys.executable, "-c", "from hlo_passes import runtime"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
