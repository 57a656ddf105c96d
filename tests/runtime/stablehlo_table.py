"""Every program of the corpus as StableHLO: the same partitioned module as of Python?

    python -m tests.runtime.stablehlo_table

`jitted.lower(...).as_text()` is written to a file, in both dialects, and lowered again.
With `debug_info=True` the text keeps what XLA makes names and source lines of; without
it the modules are compared up to metadata and names. Minutes; a sample of it is
tests/runtime/test_stablehlo_program.py.
"""

from __future__ import annotations

import collections
import importlib.util
import inspect
import pathlib
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import jax

from hlo_passes import runtime
from hlo_passes.runtime.lower_file import lower_file
from tests.modules import CORPUS, REPOSITORY

DEVICES: Final = 8
#: FUNCTION(devices) -> (jitted function, arguments).
Program = Callable[[Any], tuple[Any, tuple[Any, ...]]]

_METADATA: Final = re.compile(
    r', metadata=\{(?:[^{}"]|"(?:[^"\\]|\\.)*"|\{[^{}]*\})*\}'
)
_TABLES: Final = re.compile(
    r"^(?:FileNames|FunctionNames|FileLocations|StackFrames)\n(?:\d+ .*\n)*\n*", re.M
)
_PARAMETER: Final = re.compile(r"(?<=[( ])([\w.-]+): ")
_NAME: Final = re.compile(r"%[\w.-]+")


def without_metadata(text: str) -> str:
    return re.sub(r"\n\n+", "\n", _METADATA.sub("", _TABLES.sub("", text)))


def renamed(text: str) -> str:
    """Without metadata, and with names in the order in which they appear."""
    names: dict[str, str] = {}
    text = _PARAMETER.sub(r"%\1: ", without_metadata(text))
    return _NAME.sub(lambda m: names.setdefault(m[0], f"%{len(names)}"), text)


def programs() -> Iterator[tuple[str, Program]]:
    files = [
        *sorted((CORPUS / "programs").glob("*.py")),
        *sorted((CORPUS / "held_out").glob("*.py")),
        REPOSITORY / "docs" / "tutorial" / "fsdp.py",
    ]
    for file in files:
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for name, value in vars(module).items():
            if (
                inspect.isfunction(value)
                and not name.startswith("_")
                and [*inspect.signature(value).parameters] == ["devices"]
            ):
                yield f"{file.stem}:{name}", value


def compared(program: Program, devices: Sequence[Any], *, debug_info: bool) -> str:
    """How near the module of the StableHLO is to the module of the function."""
    jitted, arguments = program(devices)
    wanted = runtime.lower(jitted, *arguments, stage="partitioned").to_text()
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "program.mlir"
        file.write_text(jitted.lower(*arguments).as_text(debug_info=debug_info))
        found = lower_file(str(file), stage="partitioned", target=None).to_text()
    if found == wanted:
        return "every byte"
    if without_metadata(found) == without_metadata(wanted):
        return "up to metadata"
    if renamed(found) == renamed(wanted):
        return "up to metadata and names"
    return "another module"


def main() -> None:
    runtime.emulate(DEVICES)
    counts: collections.Counter[str] = collections.Counter()
    for is_shardy in (True, False):
        jax.config.update("jax_use_shardy_partitioner", is_shardy)
        dialect = "Shardy" if is_shardy else "GSPMD"
        for name, program in programs():
            for debug_info in (True, False):
                how = compared(program, jax.devices(), debug_info=debug_info)
                counts[f"{dialect}, debug_info={debug_info}: {how}"] += 1
                if how == "another module":
                    print(f"{name} {dialect} debug_info={debug_info}: {how}")
    print(f"jax {jax.__version__}")
    for what, count in sorted(counts.items()):
        print(f"{count:5} {what}")


if __name__ == "__main__":
    main()
