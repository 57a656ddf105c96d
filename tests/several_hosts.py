"""Runs a campaign on emulated devices: of this process, or of several hosts.

    return run("tests.loops_campaign", campaign, hosts=2, devices=8)

With several hosts, the same command runs once in a process for each of them, joined by
`jax.distributed` over gloo; each compares the results of its own devices.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final

from hlo_passes.runtime import host_processes
from hlo_passes.runtime.host_processes import FAILED, PASSED, Verdict
from tests.modules import REPOSITORY

_MOST_SECONDS: Final = 12 * 3600


def run(command: str, campaign: Callable[[], int], *, hosts: int, devices: int) -> int:
    """The campaign's exit code; 1 if it failed on any host.

    Args:
        command: the module that `python -m` runs, for the other processes.
        campaign: everything that runs after JAX knows its devices.
        hosts: 1 to stay in this process.
        devices: of all hosts together.
    """
    host = host_processes.this_host()
    if host is not None:
        host_processes.join(host)
        code = campaign()
        host.say(Verdict(FAILED if code else PASSED))
        return code
    if hosts == 1:
        from hlo_passes import runtime

        runtime.emulate(devices)
        return campaign()
    ends = host_processes.run_on_hosts(
        [sys.executable, "-m", command, *sys.argv[1:]],
        count=hosts,
        environment=host_processes.environment_of_hosts(devices // hosts),
        folder=str(REPOSITORY),
        time_limit_seconds=_MOST_SECONDS,
    )
    for index, end in enumerate(ends):
        print(f"host {index} of {hosts} {end.how}:\n{end.output}")
    return int(host_processes.together(ends).outcome != PASSED)
