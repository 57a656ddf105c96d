"""The marker's verdicts, and the ends of its processes. Some twenty seconds."""

from __future__ import annotations

import itertools
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from hlo_passes.runtime.host_processes import (
    ENDED,
    FAILED,
    PASSED,
    SKIPPED,
    XFAILED,
    HostEnd,
    Verdict,
    run_on_hosts,
    together,
)
from tests.modules import REPOSITORY

pytest_plugins = ["pytester"]

CONFTEST = pathlib.Path(__file__).with_name("conftest.py").read_text(encoding="utf-8")


def run_tests(pytester: pytest.Pytester, text: str) -> pytest.RunResult:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(f"import pytest\n{text}")
    return pytester.runpytest_inprocess("-rA", "-p", "no:cacheprovider")


def test_verdicts_are_those_of_the_test(pytester: pytest.Pytester) -> None:
    result = run_tests(
        pytester,
        """
@pytest.mark.hosts(1)
def test_skips():
    pytest.skip("no such thing")

@pytest.mark.hosts(1)
@pytest.mark.xfail(strict=True, raises=ValueError, reason="known")
def test_fails_as_expected():
    raise ValueError

@pytest.mark.hosts(1)
@pytest.mark.xfail(strict=True, reason="known")
def test_passes_unexpectedly():
    pass
""",
    )
    result.assert_outcomes(skipped=1, xfailed=1, failed=1)
    result.stdout.fnmatch_lines_random(
        [
            "SKIPPED * no such thing",
            "XFAIL *test_fails_as_expected - known",
            "*XPASS(strict)* known",
        ]
    )


def test_a_failure_of_one_host_fails(pytester: pytest.Pytester) -> None:
    result = run_tests(
        pytester,
        """
@pytest.mark.hosts(2)
def test_one():
    import jax

    assert jax.process_index() == 0, "not on this one"
""",
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["host 1 of 2 failed:", "*not on this one*"])


@pytest.mark.parametrize(
    "arguments", ["", "()", "(0)", "('x')", "(2, devices=3)", "(2, devices_per_host=0)"]
)
def test_arguments_that_are_none_are_refused(
    pytester: pytest.Pytester, arguments: str
) -> None:
    result = run_tests(
        pytester, f"@pytest.mark.hosts{arguments}\ndef test_none():\n    assert False"
    )
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    given = arguments or "()"
    said = [line for line in result.stderr.lines if line.startswith("ERROR: ")]
    assert len(said) == 1
    assert f"::test_none: pytest.mark.hosts{given} is not hosts(n," in said[0]


def test_a_worker_of_xdist_says_so_of_the_test(pytester: pytest.Pytester) -> None:
    text = "@pytest.mark.hosts(0)\n@pytest.mark.xfail\ndef test_none():\n    pass"
    pytester.makeconftest(
        f"{CONFTEST}\n\ndef pytest_sessionstart(session):\n"
        "    session.config.workerinput = {}\n"
    )
    pytester.makepyfile(f"import pytest\n{text}")
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:xdist")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*::test_none: pytest.mark.hosts(0) is not hosts(*"])


def test_methods_of_unittest_are_refused(pytester: pytest.Pytester) -> None:
    result = run_tests(
        pytester,
        """
import unittest

class TestOne(unittest.TestCase):
    @pytest.mark.hosts(2)
    def test_method(self):
        pass
""",
    )
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *::TestOne::test_method: *unittest.TestCase*"])


def ends(*outcomes: str) -> list[HostEnd]:
    return [HostEnd(Verdict(o, f"for {o}"), o, f"output {o}") for o in outcomes]


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ((PASSED, PASSED), PASSED),
        ((SKIPPED, SKIPPED), SKIPPED),
        ((PASSED, SKIPPED), FAILED),
        ((ENDED, SKIPPED), FAILED),
        ((PASSED, XFAILED), XFAILED),
        ((ENDED, XFAILED), XFAILED),
        ((XFAILED, FAILED), FAILED),
        ((ENDED, FAILED), FAILED),
    ],
)
def test_hosts_must_agree(outcomes: tuple[str, str], expected: str) -> None:
    for order in itertools.permutations(outcomes):
        verdict = together(ends(*order))
        assert verdict.outcome == expected
        if expected != FAILED:
            assert verdict.reason == f"for {expected}"
        else:
            shown = {o for o in order if FAILED not in order or o in (FAILED, ENDED)}
            assert all(f"output {outcome}" in verdict.reason for outcome in shown)


#: The first process dies, the others wait.
ONE_DIES = """
import json, os, sys, time
print("here", flush=True)
if json.loads(os.environ["HLO_PASSES_HOST"])["index"] == 0:
    sys.exit(3)
time.sleep(60)
"""


def test_a_process_that_dies_ends_the_others(tmp_path: pathlib.Path) -> None:
    start = time.monotonic()
    found = run_on_hosts(
        [sys.executable, "-c", ONE_DIES],
        count=3,
        environment=os.environ,
        folder=str(tmp_path),
        grace_seconds=0.5,
    )
    assert time.monotonic() - start < 30
    assert [end.verdict.outcome for end in found] == [FAILED, ENDED, ENDED]
    assert found[0].how == "ended with 3 before the test's end"
    assert [end.output for end in found] == ["here\n"] * 3


def test_processes_without_end_are_ended(tmp_path: pathlib.Path) -> None:
    found = run_on_hosts(
        [sys.executable, "-c", "import time; time.sleep(60)"],
        count=2,
        environment=os.environ,
        folder=str(tmp_path),
        time_limit_seconds=0.5,
    )
    assert [end.how for end in found] == ["did not end in 0.5 seconds"] * 2
    assert together(found).outcome == FAILED


#: Starts two processes that say their number and wait. A shell lets what it starts in
#: the background ignore interrupts; this one does not.
PARENT = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from hlo_passes.runtime.host_processes import run_on_hosts
child = (
    "import os, sys, time\\n"
    "from hlo_passes.runtime.host_processes import this_host\\n"
    "host = this_host()\\n"
    "open(f'pid{host.index}.part', 'w').write(str(os.getpid()))\\n"
    "os.rename(f'pid{host.index}.part', f'pid{host.index}')\\n"
    "time.sleep(60)\\n"
)
command = [sys.executable, "-c", child]
run_on_hosts(command, count=2, environment=os.environ, folder=sys.argv[1])
"""


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = pathlib.Path(f"/proc/{pid}/stat")
    return (
        not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"
    )


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_no_process_outlives_its_parent(tmp_path: pathlib.Path, number: int) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stderr=subprocess.DEVNULL,
    )
    files = [tmp_path / "pid0", tmp_path / "pid1"]
    try:
        wait_for(lambda: all(file.exists() for file in files))
    finally:
        parent.send_signal(number)
        parent.wait()
    pids = [int(file.read_text()) for file in files]
    wait_for(lambda: not any(is_alive(pid) for pid in pids))


def wait_for(condition: Callable[[], bool]) -> None:
    too_late = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < too_late
        time.sleep(0.05)


def test_the_example_of_the_documentation_passes() -> None:
    folder = REPOSITORY / "examples" / "pytest_example"
    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
            "-p", "hlo_passes.runtime.pytest_plugin", str(folder),
        ],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(REPOSITORY),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert "3 passed" in done.stdout, done.stdout + done.stderr
