"""Read modules and write them back: `python -m tests.text.round_trip [PATH...]`.

PATHs are files, or folders in which every .hlo, .hlo.gz and .txt file is taken, such
as a checkout of openxla/xla; without one the corpus, and ../shared where it is there.
Asked of every file that jaxlib reads:

whole      the module, read, writes the bytes of the file
pieces     so it does put together from its parts, not from the file's text at once
printed    printed from the IR alone, jaxlib reads it to the same HloModuleProto

Protos are compared by bytes, without the module's id, a number of the process. jaxlib
fills elided constants, `{...}`, with other numbers at every reading: their literals
are left out, and counted. What jaxlib does not read is counted, and compared with
its own bytes where this project reads it. The exit code is 1 if anything differs.
"""

from __future__ import annotations

import argparse
import collections
import gzip
import os
import pathlib
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping

from jaxlib import _hlo  # pyright: ignore[reportAttributeAccessIssue]

import hlo_passes
from hlo_passes import proto_messages as messages
from hlo_passes.proto_messages import ComputationProto, InstructionProto, ModuleProto
from tests.modules import CORPUS, SHARED

SUFFIXES = (".hlo", ".hlo.gz", ".txt")
PLACES = (CORPUS, SHARED / "corpus", SHARED / "golden")
#: HloInstructionProto
_LITERAL = 8

#: Computation and instruction names of constants, without `%`.
Constants = frozenset[tuple[str, str]]
Counts = collections.Counter[str]


def files_of(places: list[pathlib.Path]) -> list[pathlib.Path]:
    """Files as given, and those in folders that may be HLO text, sorted."""
    found: dict[pathlib.Path, None] = {}
    for place in places:
        inside = sorted(place.rglob("*")) if place.is_dir() else [place]
        for file in inside:
            if file == place or (file.name.endswith(SUFFIXES) and file.is_file()):
                found[file] = None
    return list(found)


def text_of(file: pathlib.Path) -> str | None:
    """The contents of a file, unpacked; None if it is not text."""
    data = file.read_bytes()
    try:
        return (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()
    except (UnicodeDecodeError, EOFError, OSError, zlib.error):
        return None


def differences_of(text: str, counts: Counts) -> Iterator[str]:
    """What does not come back of a module; notes in `counts` what became of it."""
    try:
        expected = _proto(text)
    except RuntimeError:
        expected = None
    try:
        module = hlo_passes.parse(text)
        elided = elided_constants(module)
        whole = module.to_text()
        # What counts the changes says that there were some: nothing is kept whole.
        module.version = 1
        pieces = text if module.single_instruction else module.to_text()
        printed = module.to_canonical_text()
    except hlo_passes.HloError as refused:
        if expected is None:
            counts["left aside: jaxlib does not read it, nor do we"] += 1
        else:
            yield f"refused here: {refused}"
        return
    if whole != text:
        yield f"whole: {_first_difference(text, whole)}"
    if pieces != text:
        yield f"pieces: {_first_difference(text, pieces)}"
    if expected is None:
        counts["left aside: jaxlib does not read it; its bytes come back"] += 1
        return
    counts["read by jaxlib and compared"] += 1
    counts["of them with elided constants"] += bool(elided)
    counts["literals of elided constants left out"] += len(elided)
    try:
        found = _proto(printed)
    except RuntimeError as refused:
        yield f"printed: jaxlib refuses it: {refused}"
        return
    for difference in module_differences(expected, found, elided):
        yield f"printed: {difference}"


def elided_constants(module: hlo_passes.Module) -> Constants:
    """Constants whose numbers the text leaves out."""
    return frozenset(
        (computation.name, instruction.name)
        for computation in module.computations
        for instruction in computation.instructions
        if instruction.opcode == "constant" and "{...}" in (instruction.literal or "")
    )


def _proto(text: str) -> ModuleProto:
    module = _hlo.hlo_module_from_text(text)
    return ModuleProto(module.as_serialized_hlo_module_proto())


def _first_difference(expected: str, found: str) -> str:
    pairs = zip(expected, found, strict=False)
    short = min(len(expected), len(found))
    at = next((k for k, (a, b) in enumerate(pairs) if a != b), short)
    line = expected.count("\n", 0, at) + 1
    return f"line {line}: {expected[at:][:60]!r} came back as {found[at:][:60]!r}"


def module_differences(
    expected: ModuleProto, found: ModuleProto, elided: Constants
) -> Iterator[str]:
    """Where two protos part, the literals of `elided` aside."""
    for number in _parting(expected, found, messages.MODULE_ID, messages.COMPUTATIONS):
        yield f"field {number} of the module differs"
    computations = expected.computations, found.computations
    yield from _other_names("computation", *computations)
    for name, one in computations[0].items():
        other = computations[1].get(name)
        if other is not None and one.whole != other.whole:
            for difference in _computation_differences(one, other, elided):
                yield f"%{name}: {difference}"


def _computation_differences(
    expected: ComputationProto, found: ComputationProto, elided: Constants
) -> Iterator[str]:
    for number in _parting(expected, found, messages.INSTRUCTIONS):
        yield f"field {number} of the computation differs"
    yield from _other_names("instruction", expected.instructions, found.instructions)
    for name, one in expected.instructions.items():
        other = found.instructions.get(name)
        if other is None or one.whole == other.whole:
            continue
        aside = [_LITERAL] if (expected.name, name) in elided else []
        for number in _parting(one, other, *aside):
            yield f"field {number} of %{name} differs"


def _other_names(
    what: str, expected: Mapping[str, object], found: Mapping[str, object]
) -> Iterator[str]:
    """What is missing, new, or in another order."""
    yield from (f"{what} %{name} is missing" for name in expected if name not in found)
    yield from (f"{what} %{name} is new" for name in found if name not in expected)
    if expected.keys() == found.keys() and list(expected) != list(found):
        yield f"{what}s come in another order"


def _parting(
    expected: ModuleProto | ComputationProto | InstructionProto,
    found: ModuleProto | ComputationProto | InstructionProto,
    *but: int,
) -> list[int]:
    """Numbers of fields whose bytes differ, some left aside."""
    numbers = sorted((expected.fields.keys() | found.fields.keys()).difference(but))
    return [n for n in numbers if expected.bytes_of(n) != found.bytes_of(n)]


def round_trip(
    files: list[pathlib.Path], report: Callable[[str], object], most: int
) -> tuple[Counts, int]:
    """Counts of files by what became of them, and how many do not come back."""
    counts: Counts = collections.Counter()
    differing = 0
    for file in files:
        text = text_of(file)
        if text is None:
            counts["left aside: no text"] += 1
            continue
        differences = list(differences_of(text, counts))
        differing += bool(differences)
        for difference in differences[:most]:
            report(f"{file}: {difference}")
        if len(differences) > most:
            report(f"{file}: and {len(differences) - most} more")
    return counts, differing


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.text.round_trip",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("places", nargs="*", type=pathlib.Path, metavar="PATH")
    parser.add_argument(
        "--most", type=int, default=5, help="differences shown of a file (5)"
    )
    options = parser.parse_args()
    places = options.places or [place for place in PLACES if place.is_dir()]
    absent = [str(place) for place in places if not place.exists()]
    files = files_of([] if absent else places)
    if not files:
        parser.error(f"no module there: {' '.join(absent or map(str, places))}")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # jaxlib's own warnings
    counts, differing = round_trip(files, lambda s: print(s, flush=True), options.most)
    print(f"{len(files):8}  files")
    for what, count in sorted(counts.items()):
        print(f"{count:8}  {what}")
    print(f"{differing:8}  do not come back")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
