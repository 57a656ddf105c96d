"""The documents say what is so: codes, examples, generated pages, blocks of code."""

from __future__ import annotations

import argparse
import gzip
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from typing import Literal

import pytest

import hlo_passes
from docs import generate, passes_page
from hlo_passes.cli.list_passes import type_text
from hlo_passes.cli.main import main
from hlo_passes.errors import HloError
from hlo_passes.ir.attribute_values import parse_header_value, parse_value
from hlo_passes.ir.metadata import BackendConfig
from hlo_passes.runtime.commands import RUN as RUN_COMMAND
from hlo_passes.scheduler.hardware.target import target
from hlo_passes.scheduler.hardware.topology import Topology
from hlo_passes.scheduler.latency.options import LatencyOptions
from hlo_passes.text.reader import parse_completely
from hlo_passes.verify import findings
from tests.modules import REPOSITORY

DOCS = REPOSITORY / "docs"
PACKAGES = ("hlo_passes", "scheduler", "runtime")
ERRORS = (DOCS / "errors.md").read_text(encoding="utf-8")

# -- the codes ------------------------------------------------------------------

_ROW = re.compile(r"^\| ([A-Z]\d{3}) \| (.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)
#: Code and example.
ROWS = [(row[1], row[3]) for row in _ROW.finditer(ERRORS)]
#: Examples that can be run: the whole cell is code.
RUN = [(code, e[1:-1]) for code, e in ROWS if re.fullmatch(r"`[^`]+`", e)]
FRAME = ERRORS.split("```hlo\n", 1)[1].split("```", 1)[0]
#: What an example of the library's Python may name.
PYTHON = {
    "BackendConfig": BackendConfig,
    "LatencyOptions": LatencyOptions,
    "Topology": Topology,
    "target": target,
}
HEADER_NAMES = {
    "input_output_alias",
    "buffer_donor",
    "entry_computation_layout",
    "debug_attributes",
    "origin_recovery_table",
}


def codes_in_the_packages() -> set[str]:
    """Codes that are in the source as a string of their own, or in a message."""
    found: set[str] = set()
    for package in PACKAGES:
        for file in sorted((REPOSITORY / package).rglob("*.py")):
            text = re.sub(r'"""(?s:.*?)"""', "", file.read_text(encoding="utf-8"))
            found |= set(re.findall(r'"([A-Z]\d{3})"', text))
            found |= set(re.findall(r"error\[([A-Z]\d{3})\]", text))
    return found


def test_every_code_is_explained_and_no_other() -> None:
    listed = [code for code, _ in ROWS]
    assert sorted(set(listed)) == sorted(listed)
    assert set(listed) == codes_in_the_packages()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The files that the commands of the examples name."""
    made = tmp_path_factory.mktemp("errors")
    (made / "m.hlo").write_text(FRAME)
    (made / "one.hlo").write_text("ENTRY %e {\n  ROOT %p = f32[] parameter(0)\n}\n")
    (made / "eight.hlo").write_text(
        FRAME.replace("num_partitions=4", "num_partitions=8")
    )
    (made / "sharded.hlo").write_text(
        "HloModule m, num_partitions=2\nENTRY %e {\n  %p = f32[8] parameter(0)\n"
        '  ROOT %s = f32[8] custom-call(%p), custom_call_target="Sharding", '
        "sharding={devices=[2]<=[2]}\n}\n"
    )
    (made / "tpu.hlo").write_text(
        "ENTRY %e {\n  ROOT %p = f32[8,128]{1,0:T(8,128)} parameter(0)\n}\n"
    )
    (made / "binary.hlo").write_bytes(b"\xff\xfe")
    (made / "cut.hlo.gz").write_bytes(gzip.compress(FRAME.encode())[:40])
    (made / "text.pb").write_text(FRAME)
    (made / "m.py").write_text("")
    return made


def _whole_text(example: str) -> str:
    text = example.replace("⏎", "\n")
    if text.startswith(("HloModule", "ENTRY", "f32")):
        return text
    before, _ = FRAME.rsplit("  ROOT ", 1)
    lines = "".join(f"  {line}\n" for line in text.split("\n"))
    return f"{before}{lines}}}\n"


def _errors_of_command(example: str, capfd: pytest.CaptureFixture[str]) -> str:
    words = shlex.split(example)[1:]
    if words[0] == "lower":  # asks for devices: a process of its own
        done = subprocess.run(
            [sys.executable, "-m", "hlo_passes", *words],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode
        return done.stderr
    assert main(words) != 0
    return capfd.readouterr().err


def _codes_of_text(code: str, text: str, folder: pathlib.Path) -> list[str]:
    if code[0] == "S":
        file = folder / "example.hlo"
        file.write_text(text)
        return [_code_raised(lambda: _run_here(file))]
    # The complete parser splits every attribute list, which `parse` leaves for later.
    read = parse_completely if code[0] == "P" else hlo_passes.parse
    try:
        found = findings(read(text))
    except HloError as problem:
        return [problem.code]
    return [finding.code for finding in found]


def _run_here(file: pathlib.Path) -> None:
    """`hlo-passes run`, whose error comes before anything runs."""
    parser = argparse.ArgumentParser()
    RUN_COMMAND.configure(parser)
    RUN_COMMAND.run(parser.parse_args([str(file)]))


def _code_raised(action: Callable[[], object]) -> str:
    try:
        action()
    except HloError as problem:
        return problem.code
    return ""


@pytest.mark.parametrize(("code", "example"), RUN, ids=[code for code, _ in RUN])
def test_example_has_its_code(
    code: str,
    example: str,
    folder: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    attribute = re.match(r"([a-z_]+)=", example)
    call = re.match(r"([A-Za-z]+)[.(]", example)
    if example.startswith("hlo-passes "):
        assert f"error[{code}]" in _errors_of_command(example, capfd)
    elif attribute:
        name, text = attribute[1], example[attribute.end() :]
        read = parse_header_value if name in HEADER_NAMES else parse_value
        assert _code_raised(lambda: read(name, text)) == code
    elif call and call[1] in PYTHON:
        assert _code_raised(lambda: eval(example, dict(PYTHON))) == code
    else:
        assert code in _codes_of_text(code, _whole_text(example), folder)


# -- generated pages --------------------------------------------------------------


def test_generated_pages_are_fresh() -> None:
    """If not: `python -m docs.generate`, and read the diff."""
    for path, text in generate.pages().items():
        assert path.read_text(encoding="utf-8") == text, "python -m docs.generate"


def test_option_types_are_written_as_a_user_writes_them() -> None:
    """Such as `0.10 or 0.12 or none`, without Python's brackets and dots."""
    kinds = re.findall(r"^\| `[\w-]+` \| (.+?) \|", passes_page.page(), re.MULTILINE)
    assert kinds
    assert [
        kind for kind in kinds if not re.fullmatch(r"[\w.-]+( [\w.-]+)*", kind)
    ] == []
    assert type_text(Literal["gpu", "off"] | None) == "gpu or off or none"
    assert type_text(int | None) == "integer or none"


def test_no_page_names_what_a_reader_does_not_have() -> None:
    pages = [
        *DOCS.rglob("*.md"),
        *REPOSITORY.glob("*.md"),
        REPOSITORY / "corpus/README.md",
    ]
    assert [page.name for page in pages if "../shared" in page.read_text("utf-8")] == []


def test_the_files_to_touch_exist() -> None:
    text = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    paths = [
        path
        for path in re.findall(r"`([\w.-]+/[\w./*-]+)`", text)
        if "NAME" not in path and "RELEASE" not in path
    ]
    assert len(paths) > 20
    assert [path for path in paths if not any(REPOSITORY.glob(path))] == []


# -- blocks of code -------------------------------------------------------------

#: The tutorial works in a folder of its own: tests/test_tutorial.py.
PAGES = sorted(page for page in DOCS.glob("*.md") if page.name != "tutorial.md")
#: ```python, and the ```text directly after it: what it prints.
_PYTHON = re.compile(r"```python\n(.*?)```(?:\n\n?```text\n(.*?)```)?", re.DOTALL)
_CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)
_COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
_SECONDS = re.compile(r"\d+\.\d+ s\b")
#: The release whose models are followed is that of the installed jaxlib.
_RELEASE = re.compile(r"\bXLA 0\.\d+(?:\.\d+)*")
#: Progress, and what JAX logs where its CUDA plug-in finds no GPU.
_LOGGED = re.compile(
    r"^(?:running |WARNING: All log messages before |[IWE]\d{4} |"
    r"\S+: .* s of at most ).*\n",
    re.MULTILINE,
)
#: Runs the blocks of a page one after another in one namespace.
_RUN_BLOCKS = """
import contextlib, io, json, sys
names, printed = {"__name__": "page"}, []
for block in json.load(sys.stdin):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(block, "<block>", "exec", dont_inherit=True), names)
    printed.append(out.getvalue())
json.dump(printed, sys.stdout)
"""


def test_the_page_shows_the_pass_of_the_example() -> None:
    example = (REPOSITORY / "examples/02_write_a_pass.py").read_text(encoding="utf-8")
    (shown,) = re.findall(r"@dataclass.*?\n\n\n", example, re.DOTALL)
    assert shown in (DOCS / "writing_a_pass.md").read_text(encoding="utf-8")


def pages_with(pattern: re.Pattern[str]) -> list[pathlib.Path]:
    return [page for page in PAGES if pattern.search(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", pages_with(_PYTHON), ids=lambda page: page.name)
def test_python_blocks_print_what_is_shown(page: pathlib.Path) -> None:
    blocks = _PYTHON.findall(page.read_text(encoding="utf-8"))
    done = subprocess.run(
        [sys.executable, "-c", _RUN_BLOCKS],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        input=json.dumps([code for code, _ in blocks]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for (_, shown), printed in zip(blocks, json.loads(done.stdout), strict=True):
        if shown:
            assert printed == shown


def _comparable(shown: str) -> str:
    return _RELEASE.sub("XLA N", _SECONDS.sub("N s", shown))


@pytest.mark.parametrize("page", pages_with(_CONSOLE), ids=lambda page: page.name)
def test_commands_print_what_is_shown(page: pathlib.Path) -> None:
    beside = pathlib.Path(sys.executable).parent
    environment = {
        **os.environ,
        "PATH": f"{beside}:{os.environ['PATH']}",
        "PYTHONPATH": str(REPOSITORY),
    }
    for block in _CONSOLE.findall(page.read_text(encoding="utf-8")):
        for command, shown in _COMMAND.findall(block):
            done = subprocess.run(
                ["sh", "-c", command],
                cwd=REPOSITORY,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            printed = _comparable(_LOGGED.sub("", done.stdout))
            assert printed == _comparable(shown), command
