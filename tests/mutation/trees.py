"""A copy of the repository that a mutant lives in, and tests that run there.

Commands that tests start are mutated with it, which an import hook would not do.
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType

_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """What the tests said.

    Attributes:
        verdict: `passed`, `failed`, or `too long`.
        first: the first test that failed.
        seconds: of wall time.
        output: of pytest.
    """

    verdict: str
    first: str
    seconds: float
    output: str


def without_plug_in(tests: Sequence[str]) -> list[str]:
    """Options for tests that need no devices: our plug-in starts JAX, which is slow."""
    return [] if any("runtime" in test for test in tests) else ["-p", "no:hlo_passes"]


def environment(root: pathlib.Path) -> dict[str, str]:
    """Of processes that import the tree at `root`, and leave it as it is."""
    return os.environ | {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}


class Tree:
    """A copy of what git has of the repository, `../shared` beside it where it is there.

    Large folders of data are linked: no mutant is in them.
    """

    _LINKED = ("corpus",)

    def __init__(self, repository: pathlib.Path) -> None:
        """Copy the files.

        Args:
            repository: its top.
        """
        self._above = tempfile.TemporaryDirectory(prefix="mutants-")
        above = pathlib.Path(self._above.name)
        self.root = above / repository.name
        self._replaced: dict[str, str] = {}
        listed = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard", "-z"],
            cwd=repository, check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
        for name in filter(None, listed.split("\0")):
            source, copy = repository / name, self.root / name
            if name.split("/")[0] in self._LINKED or not os.path.lexists(source):
                continue
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy, follow_symlinks=False)
        for name in self._LINKED:
            (self.root / name).symlink_to(repository / name)
        shared = repository.parent / "shared"
        if shared.exists():
            (above / "shared").symlink_to(shared.resolve())

    def __enter__(self) -> Tree:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._above.cleanup()

    def write(self, file: str, source: str) -> None:
        """Put a mutant in place of a file."""
        path = self.root / file
        self._replaced.setdefault(file, path.read_text())
        path.write_text(source)

    def restore(self, file: str) -> None:
        """Put the file back as it was copied, whatever the repository has by now."""
        (self.root / file).write_text(self._replaced.pop(file))

    def run(self, tests: Sequence[str], limit: float) -> Outcome:
        """Run tests up to the first failure; the limit in seconds ends all its processes."""
        command = [
            sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p",
            "no:cacheprovider", "--hypothesis-seed=0", *without_plug_in(tests), *tests,
        ]  # fmt: skip
        began = time.monotonic()
        process = subprocess.Popen(
            command, cwd=self.root, env=environment(self.root), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            output, _ = process.communicate(timeout=limit)
            verdict = "passed" if process.returncode == 0 else "failed"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            verdict = "too long"
        first = _FAILED.search(output)
        seconds = time.monotonic() - began
        return Outcome(verdict, first[1] if first else "", seconds, output)
