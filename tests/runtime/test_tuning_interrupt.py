"""SIGTERM ends a search as Ctrl-C does: what was found is told."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from hlo_passes.runtime.tuning.searching import sigterm_interrupts


def test_sigterm_is_an_interrupt_within() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with sigterm_interrupts(), pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_second_one_ends_the_process() -> None:
    with sigterm_interrupts():
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_other_threads_leave_signals_alone() -> None:
    kept = []

    def within() -> None:
        with sigterm_interrupts():
            kept.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=within)
    thread.start()
    thread.join()
    assert kept == [before]
