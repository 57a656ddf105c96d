"""Processes that this one starts: they find this package, and never outlive it.

process = subprocess.Popen([sys.executable, "-m", ...], env=environment())
with ended(process):
    ...                      killed if it still runs, its streams closed
how_it_ended(-9)             was ended by signal 9
end_with_parent()            in a process of a pool, whose parent may be killed
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
import threading
from collections.abc import Iterator
from multiprocessing import parent_process
from typing import Any, Final


def environment(**others: str) -> dict[str, str]:
    """This process's environment, in which Python finds this package; and others."""
    package = pathlib.Path(__file__).parent
    folders = (str(package.parent), os.environ.get("PYTHONPATH"))
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(folder for folder in folders if folder),
        **others,
    }


#: How long to wait for a process that was killed.
_KILLED_SECONDS: Final = 10.0


def end(process: subprocess.Popen[Any]) -> None:
    """Kill a process unless it has ended, wait for that, and close its streams.

    The wait has a limit: a KeyboardInterrupt inside `Popen.poll` can leave its lock
    taken, and a wait without a limit would then never return.
    """
    if process.poll() is None:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_KILLED_SECONDS)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            # What was not written yet has no reader any more.
            with contextlib.suppress(BrokenPipeError):
                stream.close()


@contextlib.contextmanager
def ended(process: subprocess.Popen[Any]) -> Iterator[None]:
    """Within, a process may run; `end` it afterwards, whatever happens."""
    try:
        yield
    finally:
        end(process)


def how_it_ended(code: int) -> str:
    """The exit status of a process in words, as the end of a sentence."""
    return f"was ended by signal {-code}" if code < 0 else f"ended with {code}"


def end_with_parent() -> None:
    """Exit as soon as the process that began this one has ended.

    For processes of `multiprocessing`: a parent that was killed closes no pool.
    """
    threading.Thread(target=_exit_after_parent, daemon=True).start()


def _exit_after_parent() -> None:
    parent = parent_process()
    assert parent is not None, "this process was not begun by a pool"
    parent.join()
    os._exit(1)
