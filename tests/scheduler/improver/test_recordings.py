"""A sample of XLA's recordings: improved, or left alone, and never worse."""

from __future__ import annotations

import pytest

from tests.modules import CORPUS
from tests.scheduler.conformance.recordings import find_recordings
from tests.scheduler.improver.recordings import improve_recording, summary

#: Archive -> setting.
_SAMPLE = {
    "0.12.0.1/experts_training": "1x1x8.sol",
    "0.12.0.1/transformer_unrolled": "1x2x8.multi_streaming",
    "0.12.0.1/host_offload": "1x2x8.approx",
    "0.10.2/transformer_scan": "1x2x8.start_delay",
    "0.10.2/pipeline_training": "1x2x8.tight_memory",
}


@pytest.mark.parametrize("name", _SAMPLE)
def test_the_schedule_of_a_recording_is_never_worse(name: str) -> None:
    archive = CORPUS / "schedules" / f"{name}.tar.xz"
    recording = next(
        r for r in find_recordings(archive) if r.name.endswith(_SAMPLE[name])
    )
    outcome = improve_recording(recording)
    assert outcome.worse == ()
    assert outcome.ratio < 1.0 or outcome.why
    if name.endswith("experts_training"):
        assert outcome.ratio < 0.95
    assert summary([outcome]).startswith("1 recordings, 0 worse; ")
