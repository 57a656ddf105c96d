"""Lines that users measured: their text, their fit, and where they cost less."""

from __future__ import annotations

import json
import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlo_passes import UsageError
from hlo_passes.cli.main import main
from hlo_passes.scheduler.calibration import Measurement, read_measurements
from hlo_passes.scheduler.hardware.target import parse_target, target, target_text
from hlo_passes.scheduler.latency.measured_lines import (
    MeasuredLine,
    bytes_sent,
    spans_where_less,
)
from hlo_passes.scheduler.line_fits import fit_lines

H100 = target("h100_sxm")
SIZES = tuple(1 << k for k in range(10, 31))


@pytest.mark.parametrize(
    ("kind", "sent"),
    [("all-gather", 700), ("reduce-scatter", 700), ("all-to-all", 700),
     ("all-reduce", 1400), ("collective-permute", 800)],
)  # fmt: skip
def test_what_each_device_sends(kind: str, sent: int) -> None:
    assert bytes_sent(kind, 800, 8) == sent


@given(st.floats(0, 1e4), st.floats(1e-3, 1e5), st.integers(0, 1 << 40), st.integers(1, 1 << 40))  # fmt: skip
def test_a_line_rises(setup: float, rate: float, size: int, more: int) -> None:
    line = MeasuredLine("peer-permute", setup, rate)
    assert setup <= line.us(size) <= line.us(size + more)


@given(st.floats(0, 1e4), st.floats(1e-3, 1e5))
def test_text_comes_back(setup: float, rate: float) -> None:
    line = MeasuredLine("peer-permute", setup, rate)
    again = MeasuredLine.parse(line.text)
    assert again.row == line.row
    assert again.setup_us == pytest.approx(setup, rel=1e-5)
    assert again.gb_per_s == pytest.approx(rate, rel=1e-5)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a:1",
        "a:1:0",
        "a:-1:5",
        "a:nan:5",
        "a:1:inf",
        ":1:2",
        "a:1:2:3",
        "a:x:2",
        "a:1:1e-320",
        "a:1_0:2",
    ],
)
def test_texts_that_are_no_lines(text: str) -> None:
    with pytest.raises(ValueError, match="ROW:SETUP_US:GB_PER_S"):
        MeasuredLine.parse(text)


@given(st.integers(1, 1000), st.integers(1, 1000), st.integers(1, 500), st.integers(1, 500))  # fmt: skip
def test_two_lines_cross_where_they_must(a: int, b: int, fast: int, slow: int) -> None:
    """Setup + size / rate: the one with the greater setup wins beyond the crossing."""
    line, other = MeasuredLine("x", a, fast), MeasuredLine("y", b, slow)
    spans = spans_where_less(line.us, other.us, SIZES)
    inside = {s for low, high in spans for s in SIZES if low <= s <= high}
    assert inside == {s for s in SIZES if line.us(s) < other.us(s)}
    assert len(spans) <= 1
    if a > b and fast > slow:
        # a - b us are worth so many bytes of the difference of the rates.
        crossing = (a - b) * 1e3 * fast * slow / (fast - slow)
        first = next((s for s in SIZES if s > crossing * (1 + 1e-9)), None)
        assert spans == (() if first is None else ((first, SIZES[-1]),))


def rows(setup: float, rate: float) -> list[Measurement]:
    line = MeasuredLine("copied-exchange", setup, rate)
    return [
        Measurement(
            "copied-exchange", size, line.us(bytes_sent("all-to-all", size, n)), n, 1
        )
        for n in (2, 4, 8)
        for size in (1 << 10, 1 << 16, 1 << 22)
    ]


def test_a_fit_finds_the_line() -> None:
    (fit,) = fit_lines(rows(12.5, 95.0))
    assert fit.line.setup_us == pytest.approx(12.5, rel=1e-6)
    assert fit.line.gb_per_s == pytest.approx(95.0, rel=1e-6)
    assert fit.relative_rms < 1e-9
    assert fit.rows == 9


def test_a_row_that_is_far_off_hardly_counts() -> None:
    given = rows(12.5, 95.0)
    first = given[0]
    given.append(
        Measurement(first.kind, first.size_bytes, 10 * first.us, first.devices, 1)
    )
    (fit,) = fit_lines(given)
    assert fit.line.setup_us == pytest.approx(12.5, rel=0.02)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (rows(12.5, 95.0)[:1], "needs two sizes"),
        ([Measurement("peer-permute", 1 << 10, 9.0, 2, 1),
          Measurement("peer-permute", 1 << 20, 5.0, 2, 1)], "do not rise"),
    ],
)  # fmt: skip
def test_rows_that_are_no_line(given: list[Measurement], why: str) -> None:
    with pytest.raises(UsageError, match=why) as caught:
        fit_lines(given)
    assert caught.value.code == "U214"


CSV = """kind,bytes,us,devices,hosts
copied-exchange,1048576,22.1,8,1
copied-exchange,16777216,167.0,8,1
"""


def test_calibrate_writes_a_target_with_the_line(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, made = tmp_path / "rows.csv", tmp_path / "mine.txtpb"
    file.write_text(CSV)
    assert main(["calibrate", str(file), "-o", str(made), "--json"]) == 0
    view = json.loads(capsys.readouterr().out)
    assert [line["row"] for line in view["lines"]] == ["copied-exchange"]
    (line,) = target(str(made)).lines
    assert line.us(0) == pytest.approx(view["lines"][0]["setup_us"], rel=1e-5)
    # Nothing else of the target changed.
    assert made.read_text().splitlines()[1:] == target_text("h100_sxm").splitlines()
    assert main(["calibrate", str(file)]) == 0
    assert f"measured-lines='{line.text}'" in capsys.readouterr().out


def test_a_row_in_no_host_is_refused(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(CSV.replace(",8,1", ",8,0"))
    with pytest.raises(UsageError, match="hosts is 0"):
        read_measurements(str(file), H100)


def test_an_empty_comment_has_no_line() -> None:
    """It does not read on in the next line."""
    text = "# backend-lines:\n# latency-options:\n" + target_text("h100_sxm")
    assert parse_target(text, spec="mine").lines == target("h100_sxm").lines


def test_a_target_with_a_line_of_no_row() -> None:
    text = "# backend-lines: copied-exchanges:1:2\n" + target_text("h100_sxm")
    with pytest.raises(UsageError, match="not copied-exchanges") as caught:
        parse_target(text, spec="mine")
    assert caught.value.code == "U201"


def test_a_target_with_a_line_that_is_none() -> None:
    text = "# backend-lines: copied-exchange:1\n" + target_text("h100_sxm")
    with pytest.raises(UsageError, match="ROW:SETUP_US:GB_PER_S") as caught:
        parse_target(text, spec="mine")
    assert caught.value.code == "U201"
