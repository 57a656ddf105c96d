"""What XLA does with protos: as a function, and as a process that may die of it.

    run_task(TEXT, proto)                          in this process
    python -P hlo_passes/proto_worker.py           tasks on stdin, answers on stdout

A task is one byte and the length of its data, then the data; an answer likewise. The
process ends at the end of stdin. It imports nothing of this package: it starts at once.
"""

from __future__ import annotations

import signal
import struct
import sys
from typing import Any, BinaryIO, Final

#: Proto -> its text, with or without large constants; -> the proto that XLA writes of
#: it. Text -> proto.
TEXT, SHORT_TEXT, REWRITTEN, PROTO_OF_TEXT = range(4)
#: What an answer holds: the result; why XLA refuses; that jaxlib lacks the functions.
DONE, REFUSED, MISSING = range(3)

HEAD: Final = struct.Struct("<BQ")


def run_task(task: int, data: bytes) -> bytes:
    """The result of one task; ImportError, or XLA's own error."""
    from jaxlib import _hlo  # type: ignore[attr-defined]

    if task == PROTO_OF_TEXT:
        return _hlo.hlo_module_from_text(data.decode()).as_serialized_hlo_module_proto()
    module: Any = _hlo.HloModule.from_serialized_hlo_module_proto(data)
    if task == REWRITTEN:
        return module.as_serialized_hlo_module_proto()
    options = _hlo.HloPrintOptions()
    options.print_large_constants = task == TEXT
    return module.to_string(options).encode()


def main() -> None:
    """Answer tasks until there are no more."""
    # Ctrl-C reaches this process too; the one that waits for it decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asked, answers = sys.stdin.buffer, sys.stdout.buffer
    while head := asked.read(HEAD.size):
        task, length = HEAD.unpack(head)
        kind, data = _answer(task, asked.read(length))
        _write(answers, kind, data)


def _answer(task: int, data: bytes) -> tuple[int, bytes]:
    try:
        return DONE, run_task(task, data)
    except ImportError as problem:
        return MISSING, str(problem).encode()
    except Exception as problem:
        return REFUSED, str(problem).encode(errors="replace")


def _write(answers: BinaryIO, kind: int, data: bytes) -> None:
    answers.write(HEAD.pack(kind, len(data)))
    answers.write(data)
    answers.flush()


if __name__ == "__main__":
    main()
