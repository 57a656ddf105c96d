"""What a library said last before it ended the process, while nobody could see it.

    with tempfile.TemporaryFile() as file, told_if_ended(file.fileno()):
        ...                      stderr goes to the file; a library may call exit()

A process of its own waits for the end of the block. If this process ends first, it
writes the last words of the file on the stderr that was there before the block.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Final

_LETTERS: Final = 300
#: The end of a log that is read: more than a trace of frames takes.
_READ_BYTES: Final = 1 << 20
_DONE: Final = b"."
#: What begins the line with the reason, the best first; frames come after it.
_FATAL: Final = (re.compile(r"F\d{4} "), re.compile(r"\*\*\* "))


def last_words(log: str) -> str:
    """The line of a log that says why its process ended; '' for an empty one."""
    lines = [line for line in log.split("\n") if line.strip()]
    for begins in _FATAL:
        fatal = [line for line in lines if begins.match(line)]
        if fatal:
            return fatal[-1].strip()[:_LETTERS]
    return (lines or [""])[-1].strip()[:_LETTERS]


@contextlib.contextmanager
def told_if_ended(file: int) -> Iterator[None]:
    """Within, the end of this process is told on stderr with the file's last words.

    Args:
        file: a descriptor to read them from.
    """
    os.set_inheritable(file, True)
    # It inherits what this process lets its children have: who waits for the end of
    # such a pipe waits for these words, too. Ctrl-C is not for it.
    process = subprocess.Popen(
        [sys.executable, "-S", "-P", __file__, str(file)],
        stdin=subprocess.PIPE,
        close_fds=False,
        start_new_session=True,
    )
    try:
        yield
    finally:
        with contextlib.suppress(BrokenPipeError):
            process.communicate(_DONE)


def _tell(file: int) -> None:
    size = os.fstat(file).st_size
    data = os.pread(file, _READ_BYTES, max(0, size - _READ_BYTES))
    words = last_words(data.decode(errors="replace")) or "nothing"
    said = "".join(each if each.isprintable() else " " for each in words)
    what = "this process ended while a library was at work, which said last"
    os.write(sys.stderr.fileno(), f"error[R006]: {what}:\n  {said}\n".encode())


if __name__ == "__main__":
    if sys.stdin.buffer.read() != _DONE:
        _tell(int(sys.argv[1]))
