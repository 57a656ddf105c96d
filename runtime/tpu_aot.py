"""TPUs that this machine does not have: their devices, and XLA's TPU compiler for them.

    devices = tpu_devices("v5e", "2x4")        # eight; nothing runs on them
    with scheduler_log() as log:               # what the compiler's scheduler says
        compile_for(lowered, devices, {})
    log.text

The package `libtpu` compiles ahead of time for TPUs that are not there. It is Google's,
not open source, and its terms are its own: the user installs it (extra `tpu-aot`), and
nothing of it is a part of this project.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jax

from hlo_passes import workers
from hlo_passes.errors import UsageError
from hlo_passes.runtime import jax_private
from hlo_passes.runtime.devices import without_device_count
from hlo_passes.runtime.executable import CompilationError
from hlo_passes.runtime.gpu_aot import NoGpuCompilerError, devices_taken
from hlo_passes.runtime.last_words import last_words, told_if_ended
from hlo_passes.scheduler.tpu.chips import Chip, chip
from hlo_passes.xla_release import RELEASES

PLATFORM: Final = "tpu"
_PACKAGE: Final = "libtpu"
_INSTALL: Final = (
    "pip install 'hlo-passes[tpu-aot]', in an environment of its own with Python 3.12; "
    "no TPU is needed"
)
_GRID: Final = re.compile(r"[1-9]\d{0,3}(x[1-9]\d{0,3}){0,2}")
#: What the library reads when it is loaded, unless the user has set it: no question to
#: a cloud's metadata, several processes at once, and the log on stderr.
_ENVIRONMENT: Final = {
    "TPU_SKIP_MDS_QUERY": "1",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}
_LOGGING: Final = {
    "TPU_STDERR_LOG_LEVEL": "0",
    "TPU_MIN_LOG_LEVEL": "0",
    "TPU_VMODULE": "latency_hiding_scheduler=10,cost_model=1",
}
FLAGS_VARIABLE: Final = "LIBTPU_INIT_ARGS"
#: Variables with flags, and what ends a process where one of them is unknown.
_ENDED_BY: Final = {
    "XLA_FLAGS": "jax.devices()",
    FLAGS_VARIABLE: "from jax.experimental import topologies as t\n"
    f" t.get_topology_desc(platform={PLATFORM!r}, topology_name='v5e:2x4')",
}
#: What the library writes before its sentence.
#: Signals that come from outside: SIGKILL and SIGTERM.
_ENDED_BY_OTHERS: Final = (-9, -15)
#: A library that takes longer to start is left to the compilation itself.
_MOST_SECONDS: Final = 120
_BEFORE_WORDS: Final = re.compile(r"F\d{4} [^\]]*\] |ERROR: ")
#: The first lines of an answer of the library that people have to read.
_SHOWN_LETTERS: Final = 400


class NoTpuCompilerError(NoGpuCompilerError):
    """The deviceless TPU compiler is not installed, or does not know the topology."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Chips to compile for.

    Attributes:
        part: the chip.
        text: chips in each dimension, as '2x4'.
        slices: so many grids, joined by the data center's network.
    """

    part: Chip
    text: str
    slices: int = 1

    @property
    def name(self) -> str:
        """As the library names it: 'v5e:2x4'."""
        return f"{self.part.name}:{self.text}"


#: The grid for eight devices, or the smallest larger one.
_DEFAULT_GRIDS: Final = {2: "2x4", 3: "2x2x2"}


def grid_to_compile_for(target: str, topology: str = "", slices: int = 1) -> Grid:
    """The chips that a user named; eight where nobody says how many.

    Raises UsageError U250 for an unknown chip, U252 for a text that is no grid of it.
    """
    part = chip(target)
    text = topology or _DEFAULT_GRIDS[part.dimensions]
    if not _GRID.fullmatch(text) or text.count("x") + 1 != part.dimensions:
        example = "2x4" if part.dimensions == 2 else "2x2x1"
        raise UsageError(
            f"--topology={text} is no grid of {target}, a {part.torus}",
            code="U252",
            hint=f"chips in each dimension, as in {example}",
        )
    if slices < 1:
        raise UsageError(f"--slices={slices} is not a number of slices", code="U252")
    return Grid(part, text, slices)


def require_library(target: str) -> None:
    """Check that the library is installed, and keep JAX from looking for a TPU.

    Call it before anything is traced. Raises NoTpuCompilerError R007, CompilationError
    R004 for a flag of the environment that is unknown.
    """
    jax.config.update("jax_platforms", "cpu")
    try:
        importlib.metadata.version(_PACKAGE)
    except importlib.metadata.PackageNotFoundError as problem:
        raise NoTpuCompilerError(
            f"the compiler for --target={target} is missing: {_PACKAGE} is not "
            "installed",
            hint=_INSTALL,
        ) from problem
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    for name in _ENDED_BY:
        _check_variable(name, without_device_count(os.environ.get(name, "")))


@functools.cache
def _check_variable(name: str, flags: str) -> None:
    """CompilationError R004 for flags over which a library ends its process."""
    if not flags:
        return
    with contextlib.suppress(subprocess.TimeoutExpired):
        _try_variable(name, flags)


def _try_variable(name: str, flags: str) -> None:
    tried = subprocess.run(
        [
            sys.executable,
            "-c",
            "import contextlib, jax\n"
            f"with contextlib.suppress(Exception):\n {_ENDED_BY[name]}",
        ],
        env=workers.environment(**{name: flags, "JAX_PLATFORMS": "cpu"}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_MOST_SECONDS,
        check=False,
    )
    # What somebody else ended says nothing of the flags.
    if tried.returncode and tried.returncode not in _ENDED_BY_OTHERS:
        said = _BEFORE_WORDS.sub("", last_words(tried.stderr), count=1)
        raise CompilationError(
            f"XLA refuses the flags of {name}: {said}",
            hint=f"{name} is a variable of the environment: correct or unset it",
        )


def require_passes_in_tpu_compilations() -> None:
    """NoTpuCompilerError R007 if this jax calls no passes in a TPU's compilation."""
    if not jax_private.XLA.calls_back_without_tpus:
        first = next(r for r in RELEASES if r.calls_back_without_tpus)
        raise NoTpuCompilerError(
            f"jax {jax.__version__} cannot run passes inside a compilation for a TPU: "
            "it takes them and never calls them",
            hint=f"jax {first.name} does; without passes: hlo-passes lower --target",
        )


def tpu_devices(grid: Grid) -> tuple[Any, ...]:
    """Devices of absent TPUs, to compile for.

    Raises NoTpuCompilerError R007: no library, or one that refuses the topology.
    """
    from jax.experimental import topologies

    require_library(grid.part.name)
    more = {"num_slices": grid.slices} if grid.slices > 1 else {}
    try:
        # The library greets at length when it is loaded.
        with scheduler_log():
            described = topologies.get_topology_desc(
                platform=PLATFORM, topology_name=grid.name, **more
            )
    except (RuntimeError, ValueError, NotImplementedError) as problem:
        raise NoTpuCompilerError(
            f"libtpu does not compile for {grid.name}: {_said(problem)}",
            hint="another --topology: v5e and v6e have grids as 1x1, 2x2, 2x4, 4x8, "
            "16x16; v4, v5p and tpu7x as 2x2x1, 2x2x2, 4x4x4",
        ) from problem
    return tuple(described.devices)


def _said(problem: Exception) -> str:
    """What the library says, in one line."""
    text = " ".join(str(problem).split()) or type(problem).__name__
    return text[:_SHOWN_LETTERS]


def compile_for(
    lowered: Any, devices: Sequence[Any], options: Mapping[str, Any]
) -> Any:
    """Compile a lowered function for absent TPUs; returns the executable.

    Args:
        lowered: from `jitted.trace(...).lower(lowering_platforms=("tpu",))`.
        devices: from `tpu_devices`.
        options: XLA's flags by name.

    Raises:
        UsageError: U026, the function is for another number of devices.
        RuntimeError: XLA refuses it.
    """
    hint = "use a --topology with {count} devices"
    return jax_private.compile_ahead(
        lowered, devices_taken(lowered, devices, hint), options
    )


@dataclass(slots=True)
class Log:
    """What the library wrote to stderr; complete after `scheduler_log`."""

    text: str = ""


def ask_for_log() -> None:
    """Let the library log its scheduler; call it before the library is loaded."""
    os.environ.update(_LOGGING)


@contextlib.contextmanager
def scheduler_log() -> Iterator[Log]:
    """Catch what the library logs; only a process that ends within tells of it."""
    log = Log()
    sys.stderr.flush()
    with tempfile.TemporaryFile() as file, told_if_ended(file.fileno()):
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield log
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            log.text = file.read().decode(errors="replace")
