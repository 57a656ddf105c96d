"""Compiled-program caches and installations: nothing stale is served. Ten seconds."""

from __future__ import annotations

import functools
import pathlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import numpy as np
import pytest

from hlo_passes import Module, Pass, PassContext, Pipeline, Report, runtime, workers
from hlo_passes.runtime import jax_private
from hlo_passes.runtime.installation.fingerprint import fingerprint
from hlo_passes.scheduler.hardware.target import target, target_text
from tests.runtime.programs import COMBINER, over_devices, rows

Devices = Callable[[int], Sequence[Any]]
NAME = "jit_two_permutes"


@dataclass(frozen=True, slots=True)
class Idle(Pass):
    name: ClassVar[str] = "idle"
    number: int = 0

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        return False


#: Whether `Broken` fails: outside the pass, so that its fingerprint stays the same.
_broken = threading.Event()


@dataclass(frozen=True, slots=True)
class Broken(Pass):
    name: ClassVar[str] = "broken"

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        if _broken.is_set():
            raise ZeroDivisionError("planted")
        return False


@pytest.fixture
def broken() -> Iterator[threading.Event]:
    """Set: `Broken` fails."""
    _broken.set()
    yield _broken
    _broken.clear()


@pytest.fixture
def cache_folder(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """JAX's persistent compilation cache, in a folder of its own."""
    from jax.experimental.compilation_cache import compilation_cache

    names = (
        "jax_compilation_cache_dir",
        "jax_persistent_cache_min_compile_time_secs",
        "jax_persistent_cache_min_entry_size_bytes",
    )
    before = {name: getattr(jax.config, name) for name in names}
    for name, value in zip(names, (str(tmp_path), 0, -1), strict=True):
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    yield tmp_path
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


def permutes(jitted: Any) -> int:
    return jitted.lower(rows()).compile().as_text().count(" collective-permute(")


def test_the_persistent_cache_tells_programs_apart(
    host_devices: Devices, cache_folder: pathlib.Path
) -> None:
    mapped = over_devices(host_devices(8))

    def entries() -> int:
        return len(list(cache_folder.glob(f"{NAME}-*-cache")))

    assert permutes(jax.jit(mapped)) == 2
    assert entries() == 1
    with runtime.install(COMBINER, modules=NAME) as installed:
        assert permutes(jax.jit(mapped)) == 1
        assert entries() == 2
        assert installed.fired == 1
    with runtime.install("collective-permute-combiner", modules=NAME) as other:
        assert permutes(jax.jit(mapped)) == 1
        assert entries() == 3
        assert other.fired == 1
    assert permutes(jax.jit(mapped)) == 2
    assert entries() == 3
    with runtime.install(COMBINER, modules=NAME) as again:
        assert permutes(jax.jit(mapped)) == 1
        assert entries() == 3
    # Served from disk: nothing was compiled, so no pass ran.
    assert again.fired == 0


def test_functions_with_passes_in_the_persistent_cache(
    host_devices: Devices, cache_folder: pathlib.Path
) -> None:
    mapped = over_devices(host_devices(8))
    assert permutes(runtime.jit(mapped, passes=COMBINER)) == 1
    assert permutes(jax.jit(mapped)) == 2
    jax.clear_caches()
    again = runtime.jit(mapped, passes=COMBINER)
    fired = again.installation.fired
    assert permutes(again) == 1
    assert again.installation.fired == fired
    assert permutes(jax.jit(mapped)) == 2


@pytest.mark.parametrize("name", ["failing", "é\N{HIRAGANA LETTER A}"])
def test_what_was_compiled_without_passes_is_not_written(
    host_devices: Devices,
    cache_folder: pathlib.Path,
    broken: threading.Event,
    name: str,
) -> None:
    host_devices(8)

    def failing(x: Any) -> Any:
        return x + 1

    failing.__name__ = name

    def compiled() -> runtime.Installation:
        with runtime.install(
            Pipeline((Broken(),)), on_error="pass-through"
        ) as installed:
            jax.jit(failing).lower(1.0).compile()
            jax.jit(lambda x: x * 2).lower(1.0).compile()
        return installed

    assert [len(compiled().failures) for _ in range(2)] == [2, 2]
    assert not any(cache_folder.glob("*-cache"))
    broken.clear()
    mended, served = compiled(), compiled()
    assert (mended.fired, served.fired) == (2, 0)
    assert len(list(cache_folder.glob("*-cache"))) == 2


def test_other_programs_are_written_beside_one_that_failed(
    host_devices: Devices, cache_folder: pathlib.Path, broken: threading.Event
) -> None:
    host_devices(8)

    def failing(x: Any) -> Any:
        return x + 1

    def other(x: Any) -> Any:
        return x * 2

    with runtime.install(
        Pipeline((Broken(),)), on_error="pass-through", modules="failing"
    ) as installed:
        jax.jit(failing).lower(1.0).compile()
        jax.jit(other).lower(1.0).compile()
    assert len(installed.failures) == 1
    assert [f.name.partition("-")[0] for f in cache_folder.glob("*-cache")] == [
        "jit_other"
    ]
    jax.jit(failing).lower(1.0).compile()
    assert len(list(cache_folder.glob("jit_failing-*-cache"))) == 1


def test_a_function_that_its_passes_failed_on_is_not_written(
    host_devices: Devices, cache_folder: pathlib.Path, broken: threading.Event
) -> None:
    host_devices(8)
    function = runtime.jit(
        lambda x: x + 3, passes=Pipeline((Broken(),)), on_error="pass-through"
    )
    function.lower(1.0).compile()
    assert len(function.installation.failures) == 1
    assert not any(cache_folder.glob("*-cache"))
    function.installation.remove()


def test_the_writer_is_chained_and_put_back(
    host_devices: Devices, cache_folder: pathlib.Path
) -> None:
    host_devices(8)
    original = jax_private.cache_writer()
    written: list[str] = []

    def theirs(key: str, module: str, *rest: Any, **named: Any) -> None:
        written.append(module)
        original(key, module, *rest, **named)

    jax_private.set_cache_writer(theirs)
    try:
        with runtime.install(Pipeline((Broken(),)), on_error="fail"):
            assert jax_private.cache_writer() is theirs
        first = runtime.install(Pipeline((Broken(),)), on_error="pass-through")
        second = runtime.install("hlo-dce", on_error="pass-through")
        assert jax_private.cache_writer() is not theirs
        first.remove()
        jax.jit(lambda x: x + 4).lower(1.0).compile()
        assert len(written) == 1
        second.remove()
        assert jax_private.cache_writer() is theirs
    finally:
        jax_private.set_cache_writer(original)


def test_the_hook_is_chained_and_put_back(
    host_devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    host_devices(8)

    def theirs() -> str:
        return "theirs"

    original = jax_private.cache_key_hook()
    jax_private.set_cache_key_hook(theirs)
    try:
        first = runtime.install(COMBINER)
        second = runtime.install("hlo-dce")
        word = jax_private.cache_key_hook()()
        assert word == f"theirs{first.fingerprint}{second.fingerprint}"
        first.remove()
        assert jax_private.cache_key_hook()() == f"theirs{second.fingerprint}"
        second.remove()
        assert jax_private.cache_key_hook() is theirs
    finally:
        jax_private.set_cache_key_hook(original)


def test_a_hook_set_behind_ours_is_left_alone(host_devices: Devices) -> None:
    host_devices(8)
    original = jax_private.cache_key_hook()
    installed = runtime.install(COMBINER)
    ours = jax_private.cache_key_hook()

    def later() -> str:
        return f"later{ours()}"

    jax_private.set_cache_key_hook(later)
    try:
        installed.remove()
        assert jax_private.cache_key_hook() is later
        assert later() == f"later{original()}"
        with runtime.install(COMBINER) as again:
            assert later() == f"later{original()}{again.fingerprint}"
    finally:
        jax_private.set_cache_key_hook(ours)
        runtime.install(COMBINER).remove()
    assert jax_private.cache_key_hook() is original


def test_fingerprints() -> None:
    one = Pipeline((Idle(),))
    assert fingerprint(one, "pre") == fingerprint(Pipeline((Idle(),)), "pre")
    assert fingerprint(one, "pre") != fingerprint(one, "post")
    assert fingerprint(one) != fingerprint(Pipeline((Idle(number=1),)))
    assert fingerprint(one) != fingerprint(
        Pipeline((Idle(),), PassContext(target="a100"))
    )
    fixed = [
        Pipeline.parse(f"fixed-point({p})") for p in ("hlo-dce", "hlo-dce,hlo-cse")
    ]
    assert fingerprint(fixed[0]) != fingerprint(fixed[1])


@pytest.mark.parametrize("name", ["costs", "profile", "target"])
@pytest.mark.parametrize(
    "pipeline",
    [
        "latency-hiding-scheduler{%s=%s}",
        "gpu-schedule{%s=%s}",
        "fixed-point(hlo-dce,latency-hiding-scheduler{%s=%s})",
    ],
)
def test_a_file_counts_by_its_contents(
    tmp_path: pathlib.Path, name: str, pipeline: str
) -> None:
    file = tmp_path / "file.txtpb"
    found = []
    for content in ("one", "two", "one"):
        file.write_text(content)
        in_a_pass = Pipeline.parse(pipeline % (name, file))
        in_the_context = Pipeline.parse("hlo-dce", PassContext(**{name: str(file)}))
        found.append((fingerprint(in_a_pass), fingerprint(in_the_context)))
    one, two, again = found
    assert one == again
    assert one[0] != two[0]
    assert one[1] != two[1]


def test_a_value_known_by_its_address_is_nobody_elses() -> None:
    class Mine:
        name = "mine"

    context = PassContext(estimator=Mine())
    mine = fingerprint(Pipeline((Idle(),), context))
    assert mine == fingerprint(Pipeline((Idle(),), context))
    assert mine != fingerprint(Pipeline((Idle(),), PassContext(estimator=Mine())))


def test_the_source_of_a_pass_is_part_of_the_fingerprint(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    source = (
        "from dataclasses import dataclass\n"
        "from hlo_passes import Pass\n"
        "@dataclass(frozen=True, slots=True)\n"
        "class Mine(Pass):\n"
        "    name = 'mine'\n"
    )
    (tmp_path / "my_plug_in.py").write_text(source)
    import my_plug_in  # pyright: ignore[reportMissingImports]

    before = fingerprint(Pipeline((my_plug_in.Mine(),)))
    assert before == fingerprint(Pipeline((my_plug_in.Mine(),)))
    (tmp_path / "my_plug_in.py").write_text(f"{source}# another day\n")
    assert before != fingerprint(Pipeline((my_plug_in.Mine(),)))


def test_what_a_pass_imports_is_part_of_the_fingerprint(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "my_limits.py").write_text("LIMIT = 1\n")
    (tmp_path / "my_helpers.py").write_text(
        "import my_limits\ndef limit():\n    return my_limits.LIMIT\n"
    )
    (tmp_path / "my_importing.py").write_text(
        "import json\n"
        "from dataclasses import dataclass\n"
        "from hlo_passes import Pass\n"
        "from my_helpers import limit\n"
        "@dataclass(frozen=True, slots=True)\n"
        "class Mine(Pass):\n"
        "    name = 'mine'\n"
    )
    import my_importing  # pyright: ignore[reportMissingImports]

    found = [fingerprint(Pipeline((my_importing.Mine(),)))]
    for name in ("my_helpers.py", "my_limits.py"):
        with (tmp_path / name).open("a") as file:
            file.write("# another day\n")
        found.append(fingerprint(Pipeline((my_importing.Mine(),))))
    assert found[-1] == fingerprint(Pipeline((my_importing.Mine(),)))
    assert len(set(found)) == 3


def test_functions_that_closed_over_something_are_nobody_elses() -> None:
    def wants(limit: int) -> Callable[[Any], bool]:
        return lambda facts: facts.instruction_count > limit

    idle = Pipeline((Idle(),))
    assert fingerprint(idle, wants(1)) == fingerprint(idle, wants(1))
    assert fingerprint(idle, wants(1)) != fingerprint(idle, wants(2))
    assert fingerprint(idle, wants(1)) != fingerprint(idle, _large)


class _Wants:
    def __init__(self, limit: int) -> None:
        self.limit = limit

    def __call__(self, facts: Any) -> bool:
        return facts.instruction_count > self.limit

    def judge(self, facts: Any) -> bool:
        return facts.instruction_count > self.limit


@pytest.mark.parametrize(
    "made",
    [
        lambda limit: _Wants(limit).judge,
        _Wants,
        lambda limit: functools.partial(_Wants.judge, _Wants(limit)),
        lambda limit: eval(f"lambda facts: facts.instruction_count > {limit}"),
        lambda limit: lambda facts, limit=limit: facts.instruction_count > limit,
        lambda limit: (lambda facts: 0, lambda facts: 1)[limit],
        lambda limit: Parted(limit),
        lambda limit: np.arange(5000) == 2500 * limit,
    ],
    ids=["method", "object", "partial", "typed", "default", "lambda", "pass", "array"],
)
def test_values_of_one_name_are_told_apart(made: Callable[[int], Any]) -> None:
    one, other = made(0), made(1)
    idle = Pipeline((Idle(),))
    assert fingerprint(idle, one) == fingerprint(idle, one)
    assert fingerprint(idle, one) != fingerprint(idle, other)


class Parted(Pass):
    """A pass that is no dataclass."""

    name: ClassVar[str] = "parted"

    def __init__(self, number: int) -> None:
        object.__setattr__(self, "number", number)


def test_the_rules_of_this_package_have_one_fingerprint_everywhere() -> None:
    def everywhere(text: str) -> str:
        code = (
            "from hlo_passes import Pipeline\n"
            "from hlo_passes.runtime.installation.fingerprint import fingerprint\n"
            "from hlo_passes.scheduler.latency_hiding.rule_list import parse_rules\n"
            "from hlo_passes.scheduler.latency_hiding.latency_hiding_scheduler import "
            "LatencyHidingScheduler\n"
            f"rules = tuple(parse_rules({text!r}))\n"
            "print(fingerprint(Pipeline((LatencyHidingScheduler(rules=rules),))))\n"
        )
        command = [sys.executable, "-c", code]
        return subprocess.run(
            command, env=workers.environment(), stdout=subprocess.PIPE, check=True
        ).stdout.decode()

    assert everywhere("") == everywhere("") != everywhere("-kScheduleDone")


def test_a_target_is_read_anew(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "mine.txtpb"
    text = target_text("h100_sxm")
    found = []
    for count in (132, 66):
        file.write_text(text.replace("core_count: 132", f"core_count: {count}"))
        found.append(target(str(file)).sm_count)
    assert found == [132, 66]


def _large(facts: Any) -> bool:
    return facts.instruction_count > 100
