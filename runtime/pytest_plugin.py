"""pytest plug-in: emulated devices, and tests that run on several emulated hosts.

    def test_ring(host_devices):
        devices = host_devices(8)

    @pytest.mark.hosts(2, devices_per_host=4)
    def test_two_hosts():
        assert jax.process_count() == 2

A test with the marker runs once in each of so many processes, joined by
`jax.distributed` over gloo; it passes when it passes in all of them.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest

#: Devices that the first `host_devices` of a session asks for, however few it needs:
#: their number is fixed from then on, and other tests need more.
_DEFAULT_DEVICES: Final = 8

#: How the processes of a test know who they are.
_INDEX, _COUNT, _ADDRESS = (
    "HLO_PASSES_HOST_INDEX",
    "HLO_PASSES_HOST_COUNT",
    "HLO_PASSES_HOST_ADDRESS",
)

#: For one test on all its hosts; starting JAX takes seconds on a busy machine.
_TIME_LIMIT_SECONDS: Final = 300


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers",
        "hosts(n, devices_per_host=m): run the test in n processes with m emulated "
        "devices each, joined by jax.distributed over gloo",
    )


@pytest.fixture(scope="session")
def host_devices() -> Callable[[int], Sequence[Any]]:
    """`host_devices(n)`: the first n emulated devices of this process."""
    from runtime.devices import DeviceCountError, devices_for, emulate

    def first(count: int) -> Sequence[Any]:
        try:
            emulate(max(count, _DEFAULT_DEVICES))
        except DeviceCountError:
            emulate(count)  # a back end is up already; it may still suffice
        return devices_for(count)

    return first


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test with the marker on its hosts."""
    marker = pyfuncitem.get_closest_marker("hosts")
    if marker is None:
        return None
    if _INDEX in os.environ:
        _join()
        return None
    count, per_host = _arguments(*marker.args, **marker.kwargs)
    failures = _run_on_hosts(pyfuncitem, count, per_host)
    if failures:
        pytest.fail("\n".join(failures), pytrace=False)
    return True


def _arguments(hosts: int, *, devices_per_host: int = 1) -> tuple[int, int]:
    return hosts, devices_per_host


def _join() -> None:
    import jax

    if jax.distributed.is_initialized():
        return
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        coordinator_address=os.environ[_ADDRESS],
        num_processes=int(os.environ[_COUNT]),
        process_id=int(os.environ[_INDEX]),
    )


def _run_on_hosts(item: pytest.Function, count: int, per_host: int) -> list[str]:
    """The test in `count` processes; what the failing ones say."""
    from runtime.devices import device_count_flag, without_device_count

    flags = without_device_count(os.environ.get("XLA_FLAGS", ""))
    address = f"127.0.0.1:{_free_port()}"
    root = str(item.config.rootpath)
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "--tb=short"]
    command += ["-p", "no:cacheprovider", f"--rootdir={root}", item.nodeid]
    with tempfile.TemporaryDirectory(prefix="hlo-passes-hosts-") as folder:
        logs = [os.path.join(folder, str(index)) for index in range(count)]
        processes = []
        for index, log in enumerate(logs):
            environment = {
                **{k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")},
                "XLA_FLAGS": f"{flags} {device_count_flag(per_host)}".strip(),
                "JAX_PLATFORMS": "cpu",
                "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
                _INDEX: str(index),
                _COUNT: str(count),
                _ADDRESS: address,
            }
            with open(log, "wb") as output:
                processes.append(
                    subprocess.Popen(
                        command,
                        cwd=root,
                        env=environment,
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=output,
                    )
                )
        codes = _wait(processes)
        failures = []
        for index, (code, log) in enumerate(zip(codes, logs, strict=True)):
            if code != 0:
                with open(log, errors="replace") as output:
                    said = output.read()
                ended = "did not end in time" if code is None else f"ended with {code}"
                failures.append(f"host {index} of {count} {ended}:\n{said}")
    return failures


def _wait(processes: Sequence[subprocess.Popen[bytes]]) -> list[int | None]:
    """Exit codes; None for a process that had to be ended."""
    codes: list[int | None] = []
    for process in processes:
        try:
            codes.append(process.wait(_TIME_LIMIT_SECONDS))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            codes.append(None)
    return codes


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
