"""What XLA's scheduler did, read from folders and archives of recordings.

    FOLDER/latency-hiding-scheduler.before.hlo[.gz]   the module as XLA had it
    FOLDER/latency-hiding-scheduler.after.hlo[.gz]    in XLA's order
    FOLDER/costs.json[.gz]         what XLA's estimator answered
    FOLDER/statistics.json         wasted and total time, peak bytes, before and after
    FOLDER/decisions.tsv[.gz]      chosen, other, reason
    FOLDER/oracle.json             target, topology, flags
    FOLDER/profile.pbtxt           the measured costs that XLA was given in place of a model

An archive `INPUT.tar.xz` (corpus/schedules) holds such folders, one per setting.
"""

from __future__ import annotations

import gzip
import json
import pathlib
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

SCHEDULER = "latency-hiding-scheduler"
BEFORE = f"{SCHEDULER}.before.hlo"
AFTER = f"{SCHEDULER}.after.hlo"
PROFILE_FILE = "profile.pbtxt"
#: Computation -> name of the figure -> value, as XLA's log has them.
Statistics = dict[str, dict[str, float]]

_COMPUTATION = re.compile(r"(ENTRY )?%?([\w.\-]+) \(.*\{$")
_SPELLED_ELEMENT = re.compile(r"%[\w.\-]+#\d")
_INSTRUCTION = re.compile(r"  (ROOT )?%?([\w.\-]+) = ")


@dataclass(frozen=True)
class Recording:
    """One compilation, its files as text.

    Attributes:
        name: its place, for messages.
        texts: file name without `.gz` -> text.
    """

    name: str
    texts: dict[str, str]

    @property
    def before(self) -> str:
        return self.texts[BEFORE]

    @property
    def after(self) -> str:
        return self.texts[AFTER]

    @cached_property
    def oracle(self) -> dict[str, object]:
        return json.loads(self.texts["oracle.json"])

    @property
    def topology(self) -> str:
        return str(self.oracle["topology"])

    @property
    def target(self) -> str:
        return str(self.oracle["target"])

    @property
    def device_memory_bytes(self) -> int | None:
        """Of a target whose memory was changed for the recording."""
        found = self.oracle.get("device_memory_bytes")
        return found if isinstance(found, int) else None

    @cached_property
    def flags(self) -> dict[str, str]:
        flags = self.oracle["flags"]
        assert isinstance(flags, list)
        return dict(flag.split("=", 1) for flag in flags)

    @property
    def release(self) -> str:
        """Of jax; recordings without one are of 0.10.2."""
        versions = self.oracle.get("versions")
        return str(versions["jax"]) if isinstance(versions, dict) else "0.10.2"

    @property
    def leaves_out_elements(self) -> bool:
        """Whether get-tuple-elements are spelled only at their users (`%t#0`).

        Jax 0.12 prints so; their place in the base order is lost with it.
        """
        return _SPELLED_ELEMENT.search(self.before) is not None

    @property
    def is_priced(self) -> bool:
        """Whether XLA's analytical estimator answered: its log has costs."""
        costs = json.loads(self.texts.get("costs.json", "{}"))
        return any(costs.values())

    @cached_property
    def decisions(self) -> list[tuple[str, str, str]] | None:
        """(chosen, other, reason) in XLA's order; None where none were recorded."""
        text = self.texts.get("decisions.tsv")
        if text is None:
            return None
        rows = []
        for line in text.splitlines():
            chosen, other, reason = line.split("\t")
            rows.append((chosen, other, reason))
        return rows

    @cached_property
    def statistics(self) -> dict[str, Statistics]:
        """'before' and 'after' -> computation -> figures."""
        return json.loads(self.texts["statistics.json"])

    @cached_property
    def orders(self) -> dict[str, list[str]]:
        """Computation -> instruction names as XLA's scheduler left them."""
        return computation_orders(self.after)


def computation_orders(text: str) -> dict[str, list[str]]:
    """Computation -> instruction names in text order, of a module that XLA printed."""
    orders: dict[str, list[str]] = {}
    names: list[str] = []
    for line in text.splitlines():
        if match := _INSTRUCTION.match(line):
            names.append(match[2])
        elif match := _COMPUTATION.match(line):
            names = orders[match[2]] = []
    return orders


def find_recordings(*places: pathlib.Path) -> Iterator[Recording]:
    """Every recording below the places, folders first, by name."""
    for place in places:
        if place.is_file():
            yield from _of_archive(place, place.parent)
            continue
        for file in sorted(place.rglob(f"{BEFORE}*")):
            yield _of_folder(file.parent, place)
        for file in sorted(place.rglob("*.tar.xz")):
            yield from _of_archive(file, place)


def _of_folder(folder: pathlib.Path, place: pathlib.Path) -> Recording:
    texts = {}
    for file in sorted(folder.iterdir()):
        name = file.name.removesuffix(".gz")
        if name in (BEFORE, AFTER) or not name.endswith(".hlo"):
            data = file.read_bytes()
            packed = file.name.endswith(".gz")
            texts[name] = (gzip.decompress(data) if packed else data).decode()
    name = str(folder.relative_to(place))
    return Recording(folder.name if name == "." else name, texts)


def _of_archive(file: pathlib.Path, place: pathlib.Path) -> Iterator[Recording]:
    folders: dict[str, dict[str, str]] = {}
    with tarfile.open(file, "r:xz") as archive:
        for entry in archive:
            data = archive.extractfile(entry)
            assert data is not None
            folder, _, name = entry.name.rpartition("/")
            folders.setdefault(folder, {})[name] = data.read().decode()
    stem = str(file.relative_to(place)).removesuffix(".tar.xz")
    for folder in sorted(folders):
        yield Recording(f"{stem}/{folder}", folders[folder])
