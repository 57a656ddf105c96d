"""XLA's process: a proto over which XLA ends costs nobody's process but that one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from hlo_passes import parse
from hlo_passes import proto_messages as messages
from hlo_passes import proto_wire as wire
from hlo_passes.errors import HloError
from hlo_passes.ir.module import Module
from hlo_passes.proto_process import (
    XlaEndedError,
    XlaRefusalError,
    _apart,
    run_apart,
)
from hlo_passes.proto_worker import PROTO_OF_TEXT, TEXT, run_task
from hlo_passes.workers import environment

PAIR = """HloModule pair

ENTRY %main (p: f32[2]) -> f32[2] {
  %p = f32[2]{0} parameter(0)
  %t = (f32[2]{0}, f32[2]{0}) tuple(%p, %p)
  ROOT %g = f32[2]{0} get-tuple-element(%t), index=1
}
"""
#: Copies a slice of an operand into a place of another.
IN_PLACE = """HloModule in_place

ENTRY %main (a: f32[8], b: f32[8]) -> f32[8] {
  %a = f32[8]{0} parameter(0)
  %b = f32[8]{0} parameter(1)
  %c0 = s32[] constant(0)
  %c4 = s32[] constant(4)
  %from = (s32[]) tuple(%c0)
  %to = (s32[]) tuple(%c4)
  ROOT %cp = f32[8]{0} collective-permute(%a, %b, %from, %to), channel_id=1, source_target_pairs={{0,1}}, slice_sizes={{4}}
}
"""
#: The index of a get-tuple-element.
_TUPLE_INDEX = 13


def _beyond_the_tuple() -> bytes:
    """It asks for an element that the tuple does not have."""
    proto = parse(PAIR).to_proto()
    index = wire.varint_field(_TUPLE_INDEX, 1)
    assert proto.count(index) == 1
    return proto.replace(index, wire.varint_field(_TUPLE_INDEX, 7))


def _no_tuple_of_indices() -> bytes:
    """It takes an array for the tuple with the indices of a slice."""
    proto = parse(IN_PLACE).to_proto()
    main = messages.ModuleProto(proto).computations["main"]
    permute = main.instructions["cp"]
    a, b, _, to = permute.operands
    operands = permute.bytes_of(messages.OPERANDS)
    assert proto.count(operands) == 1
    changed = wire.packed_field(messages.OPERANDS, [a, b, a, to])
    return proto.replace(operands, changed)


@pytest.mark.parametrize(
    ("fatal", "why"),
    [
        (_beyond_the_tuple, "XLA's process was ended by signal"),
        (_no_tuple_of_indices, "Check failed: .*tuple"),
    ],
)
def test_a_proto_over_which_xla_ends_is_refused(
    fatal: Callable[[], bytes], why: str
) -> None:
    data = fatal()
    for _ in range(2):
        with pytest.raises(HloError, match=f"m.pb:1:1: error.P042.: .*{why}"):
            Module.from_proto(data, filename="m.pb")
    # The next one is read, by another process.
    assert Module.from_proto(parse(PAIR).to_proto()).to_text()


def test_the_answer_is_that_of_xla_in_this_process() -> None:
    proto = parse(PAIR).to_proto()
    assert run_apart(TEXT, proto) == run_task(TEXT, proto)
    text = PAIR.replace("tuple(%p", "tipple(%p")
    with pytest.raises(Exception) as here:
        run_task(PROTO_OF_TEXT, text.encode())
    with pytest.raises(XlaRefusalError) as apart:
        run_apart(PROTO_OF_TEXT, text.encode())
    assert str(apart.value) == str(here.value)


def test_a_process_that_was_killed_is_replaced() -> None:
    proto = parse(PAIR).to_proto()
    before = _apart.worker
    assert before is not None
    os.kill(before._process.pid, signal.SIGKILL)
    before._process.wait()
    assert run_apart(TEXT, proto)
    assert _apart.worker is not before


def test_an_interrupted_task_answers_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    proto = parse(PAIR).to_proto()
    worker = _apart.worker
    assert worker is not None

    def interrupted(length: int) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr(worker, "_receive", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_apart(PROTO_OF_TEXT, PAIR.encode())
    assert run_apart(TEXT, proto).startswith(b"HloModule pair")


def test_threads_take_turns() -> None:
    texts = [PAIR.replace("pair", f"pair{k}") for k in range(8)]
    protos = [Module.to_proto(parse(text)) for text in texts]
    found = [b""] * len(protos)

    def read(k: int) -> None:
        for _ in range(20):
            found[k] = run_apart(TEXT, protos[k])

    threads = [threading.Thread(target=read, args=(k,)) for k in range(len(protos))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k, text in enumerate(found):
        assert text.startswith(f"HloModule pair{k},".encode())


def test_a_forked_child_has_a_process_of_its_own() -> None:
    asked = f"""if True:
        import os
        from hlo_passes import parse
        from hlo_passes.ir.module import Module
        proto = parse({PAIR!r}).to_proto()
        child = os.fork()
        assert Module.from_proto(proto).to_text()
        if not child:
            os._exit(7)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 7
        assert Module.from_proto(proto).to_text()
    """
    subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-c", asked],
        env=environment(),
        check=True,
        timeout=60,
    )


def test_a_death_without_a_word_names_the_signal() -> None:
    run_apart(PROTO_OF_TEXT, PAIR.encode())
    worker = _apart.worker
    assert worker is not None
    os.kill(worker._process.pid, signal.SIGSTOP)
    killer = threading.Timer(0.2, os.kill, (worker._process.pid, signal.SIGKILL))
    killer.start()
    with pytest.raises(XlaEndedError, match="XLA's process was ended by signal 9"):
        run_apart(PROTO_OF_TEXT, PAIR.encode())
    killer.join()
