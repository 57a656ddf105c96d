"""Draw the samples that the tests keep of XLA's logged values.

python -m tests.scheduler.make_samples ../shared/data

Every tenth row of each table, so that each class, target and option set is there.
"""

from __future__ import annotations

import csv
import io
import pathlib
import sys

SAMPLES = pathlib.Path(__file__).parent / "samples"
COLLECTIVES, MATMULS, FUSIONS = "collectives.csv", "matmuls.csv", "fusions.jsonl"
_SOURCES = {
    COLLECTIVES: "sol_golden_collectives.csv",
    MATMULS: "sol_golden_matmul.csv",
    FUSIONS: "sol_golden_fusions.jsonl",
}
_COLLECTIVE_COLUMNS = (
    "target", "estimator_options", "num_partitions", "instruction", "operand_shapes",
    "result_shapes", "groups_or_pairs", "status", "expected_latency_us",
    "kernel_strategy",
)  # fmt: skip
_STEP = {COLLECTIVES: 10, MATMULS: 6, FUSIONS: 10}
_COMMENT = (
    "# Logged by XLA's own estimator (jaxlib 0.10.2, compiled ahead of time for the\n"
    "# target); openxla/xla is Apache-2.0. Microseconds, six significant digits.\n"
)


def collective_rows(path: pathlib.Path) -> list[dict[str, str]]:
    """Rows of a CSV with `#` comments."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def _write_rows(
    name: str, rows: list[dict[str, str]], columns: tuple[str, ...]
) -> None:
    buffer = io.StringIO()
    buffer.write(_COMMENT)
    writer = csv.DictWriter(buffer, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    (SAMPLES / name).write_text(buffer.getvalue(), encoding="utf-8")


def main(source: pathlib.Path) -> None:
    """Write the samples."""
    SAMPLES.mkdir(exist_ok=True)
    rows = collective_rows(source / _SOURCES[COLLECTIVES])[:: _STEP[COLLECTIVES]]
    _write_rows(COLLECTIVES, rows, _COLLECTIVE_COLUMNS)
    rows = collective_rows(source / _SOURCES[MATMULS])[:: _STEP[MATMULS]]
    _write_rows(MATMULS, rows, tuple(rows[0])[:-1])
    lines = (source / _SOURCES[FUSIONS]).read_text(encoding="utf-8").splitlines()
    kept = [lines[0], *lines[1 :: _STEP[FUSIONS]]]
    (SAMPLES / FUSIONS).write_text("\n".join(kept) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
