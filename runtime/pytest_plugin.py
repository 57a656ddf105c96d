"""pytest plug-in: emulated devices, and tests that run on several emulated hosts.

    def test_ring(host_devices):
        devices = host_devices(8)

    @pytest.mark.hosts(2, devices_per_host=4)
    def test_two_hosts():
        assert jax.process_count() == 2

A test with the marker runs once in each of n processes, joined by `jax.distributed`
over gloo. It passes, is skipped or fails as expected if it does so in all of them; it
fails if it fails in one, with the output of that one.
"""

from __future__ import annotations

import sys
import unittest
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final

import pytest

from hlo_passes.runtime import host_processes
from hlo_passes.runtime.host_processes import Host, Verdict

#: Devices that the first `host_devices` of a session requests, even if it needs fewer:
#: their number cannot change after that, and other tests may need more.
_DEFAULT_DEVICES: Final = 8

#: pytest's name for this plug-in if the distribution is installed.
_ENTRY_POINT: Final = "hlo_passes"

#: The identity of this process, if it was started for one host.
_HOST: Final = pytest.StashKey[Host]()
#: The outcomes of the phases of a test so far, on one host.
_VERDICT: Final = pytest.StashKey[Verdict]()


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker; learn the identity of this process."""
    config.addinivalue_line(
        "markers",
        "hosts(n, devices_per_host=m): run the test in n processes with m emulated "
        "devices each, joined by jax.distributed over gloo",
    )
    host = host_processes.this_host()
    if host is not None:
        config.stash[_HOST] = host


@pytest.fixture(scope="session")
def host_devices() -> Callable[[int], Sequence[Any]]:
    """`host_devices(n)`: the first n emulated devices of this process."""
    from hlo_passes.runtime.devices import DeviceCountError, devices_for, emulate

    def first(count: int) -> Sequence[Any]:
        try:
            emulate(max(count, _DEFAULT_DEVICES))
        except DeviceCountError:
            emulate(count)  # a back end runs already; it may have enough
        return devices_for(count)

    return first


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: Sequence[pytest.Item]
) -> None:
    """Refuse invalid markers before anything runs."""
    if not _is_worker(config):
        for item in items:
            _require_sound(item)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Check the same in a worker of xdist, whose usage errors nobody would see."""
    if _is_worker(item.config):
        try:
            _require_sound(item)
        except pytest.UsageError as problem:
            raise pytest.fail.Exception(str(problem), pytrace=False) from None


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def _require_sound(item: pytest.Item) -> None:
    """Raise UsageError for an invalid marker."""
    marker = item.get_closest_marker("hosts")
    if marker is None:
        return
    _asked(item, marker)
    owner = getattr(item, "cls", None)
    if owner is not None and issubclass(owner, unittest.TestCase):
        raise pytest.UsageError(
            f"{item.nodeid}: pytest.mark.hosts is for functions and methods that "
            "pytest calls; it does not call those of a unittest.TestCase"
        )


def _asked(item: pytest.Item, marker: pytest.Mark) -> tuple[int, int]:
    """Hosts, and devices of each; UsageError if the numbers are invalid."""
    try:
        asked = _arguments(*marker.args, **marker.kwargs)
    except TypeError:
        asked = ()
    if not asked or any(not isinstance(n, int) or n < 1 for n in asked):
        given = [repr(a) for a in marker.args]
        given += [f"{name}={value!r}" for name, value in marker.kwargs.items()]
        raise pytest.UsageError(
            f"{item.nodeid}: pytest.mark.hosts({', '.join(given)}) is not "
            "hosts(n, devices_per_host=m) with positive integers"
        )
    return asked


def _arguments(n: int, *, devices_per_host: int = 1) -> tuple[int, int]:
    return n, devices_per_host


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test with the marker on its hosts."""
    marker = pyfuncitem.get_closest_marker("hosts")
    if marker is None:
        return None
    host = pyfuncitem.config.stash.get(_HOST, None)
    if host is not None:
        host_processes.join(host)
        return None
    count, per_host = _asked(pyfuncitem, marker)
    verdict = _on_hosts(pyfuncitem, count, per_host)
    if verdict.outcome == host_processes.FAILED:
        pytest.fail(verdict.reason, pytrace=False)
    if verdict.outcome == host_processes.XFAILED:
        pytest.xfail(verdict.reason)
    if verdict.outcome == host_processes.SKIPPED:
        pytest.skip(verdict.reason)
    return True


def _on_hosts(item: pytest.Function, count: int, per_host: int) -> Verdict:
    root = str(item.config.rootpath)
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "--tb=short"]
    command += ["-p", "no:cacheprovider", f"--rootdir={root}"]
    ends = host_processes.run_on_hosts(
        [*command, *_options(item.config), item.nodeid],
        count=count,
        environment={
            name: value
            for name, value in host_processes.environment_of_hosts(per_host).items()
            if not name.startswith("PYTEST_")
        },
        folder=root,
    )
    return host_processes.together(ends)


def _options(config: pytest.Config) -> list[str]:
    """Options for the processes, so that the test means the same there."""
    options = []
    if config.pluginmanager.has_plugin(__name__):
        # Named on the command line, so it is not installed or not found by itself.
        options += ["-p", f"no:{_ENTRY_POINT}", "-p", __name__]
    if config.pluginmanager.hasplugin("xdist"):
        options.append("-n0")  # even if the configuration file asks for more
    if config.getoption("runxfail"):
        options.append("--runxfail")
    return options


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """On a host: report the test's outcome."""
    report = yield
    host = item.config.stash.get(_HOST, None)
    if host is not None:
        before = item.stash.get(_VERDICT, Verdict())
        item.stash[_VERDICT] = before.and_then(_verdict_of(call, report))
        if report.when == "teardown":
            host.say(item.stash[_VERDICT])
    return report


def _verdict_of(call: pytest.CallInfo[None], report: pytest.TestReport) -> Verdict:
    """The outcome of one phase.

    For a test that passes although it should not, it is a pass: if all hosts report
    that, pytest in the process that started them knows what it means.
    """
    if call.excinfo is None:
        return Verdict()
    if not report.skipped:
        return Verdict(host_processes.FAILED)
    expected = getattr(report, "wasxfail", None)
    if expected is not None:
        return Verdict(host_processes.XFAILED, expected.removeprefix("reason: "))
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
    return Verdict(host_processes.SKIPPED, reason.removeprefix("Skipped: "))
