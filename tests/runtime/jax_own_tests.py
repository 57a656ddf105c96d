"""JAX's own tests with our passes in every compilation of theirs.

    python -m tests.runtime.jax_own_tests JAX_CHECKOUT
    python -m tests.runtime.jax_own_tests JAX_CHECKOUT --installed= -- -k pjit -x

JAX_CHECKOUT holds the repository of JAX at the tag of the installed release. With
`--installed=` nothing is installed: what fails then is not ours. Arguments after `--`
go to pytest. Prints pytest's report and what every installation did; exits as pytest.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
from collections.abc import Sequence
from typing import Final

import pytest

TESTS: Final = ("xla_transform_test.py", "shard_map_test.py", "pjit_test.py")
#: Name: pipeline and the stage that it is installed at.
PIPELINES: Final = {
    "no-op": ("hlo-dce", "pre-scheduler"),
    "combiner": (
        "gpu-all-gather-combiner,gpu-all-reduce-combiner,gpu-reduce-scatter-combiner,"
        "collective-permute-combiner",
        "pre-scheduler",
    ),
    "scheduler": (
        "async-collective-creator,latency-hiding-scheduler",
        "post-scheduler",
    ),
}
_DEVICES = 8


class _Installations:
    """Installs for a whole session of pytest, and reports at its end."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._installed: list[object] = []

    def pytest_sessionstart(self) -> None:
        from hlo_passes import runtime

        for name in self._names:
            pipeline, stage = PIPELINES[name]
            self._installed.append(runtime.install(pipeline, stage=stage))

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter
    ) -> None:
        for installed in self._installed:
            counts = " ".join(
                f"{what} {getattr(installed, what)}"
                for what in ("seen", "fired", "changed")
            )
            failures = installed.failures  # type: ignore[attr-defined]
            terminalreporter.write_line(
                f"{installed!r}: {counts} failed {len(failures)}"
            )
            for failure in failures:
                terminalreporter.write_line(f"  {failure}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("checkout", type=pathlib.Path)
    parser.add_argument("--installed", default=",".join(PIPELINES))
    given = list(sys.argv[1:] if arguments is None else arguments)
    end = given.index("--") if "--" in given else len(given)
    chosen, for_pytest = parser.parse_args(given[:end]), given[end + 1 :]
    names = [name for name in chosen.installed.split(",") if name]
    if unknown := [name for name in names if name not in PIPELINES]:
        parser.error(f"no pipeline {unknown[0]!r}; there are {', '.join(PIPELINES)}")
    files = [chosen.checkout / "tests" / name for name in TESTS]
    if missing := [str(file) for file in files if not file.is_file()]:
        parser.error(f"no {', '.join(missing)}")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    devices = f"--xla_force_host_platform_device_count={_DEVICES}"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {devices}".strip()
    options = ["-q", "--tb=short", "-W", "ignore", "-p", "no:hlo_passes"]
    options += ["-p", "no:cacheprovider", f"--rootdir={chosen.checkout}"]
    return int(
        pytest.main(
            [*options, *for_pytest, *map(str, files)],
            plugins=[_Installations(names)],
        )
    )


if __name__ == "__main__":
    sys.exit(main())
