"""Mutate modules for a given time or number of cases.

    python -m tests.fuzz --cases=100000 --seed=1 --jobs=2
    python -m tests.fuzz --seconds=30 corpus ../shared/corpus

The modules are those of the corpus, XLA's own before and after each pass among them,
and of the cases of all passes. A mutant that is valid goes through every pass
(tests/fuzz/check.py). A case that fails is written to the folder of --failures, and the
exit code is 1.
"""

from __future__ import annotations

import argparse
import gzip
import pathlib
import random
import re
import sys
from collections.abc import Sequence

from tests.fuzz import campaign
from tests.fuzz.check import check
from tests.fuzz.mutations import mutate

#: Seeds larger than this are left out: a mutant of a small module says as much.
MAXIMUM_SEED_BYTES = 30_000
FOLDERS = ("corpus", "tests/cases", "tests/scheduler/passes/cases")
#: What follows the module of a case.
_SECTION = re.compile(
    r"^// (?:output|unchanged|remarks|schedule|refused)\b", re.MULTILINE
)
_COMMENT = re.compile(r"^//.*\n", re.MULTILINE)


def load_seeds(paths: Sequence[str]) -> list[str]:
    """Texts of the modules under `paths` that are small enough, in name order."""
    texts = []
    for root in paths:
        for file in sorted(pathlib.Path(root).rglob("*")):
            if file.name.endswith((".hlo", ".hlo.gz", ".txt")) and file.is_file():
                data = file.read_bytes()
                data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
                if len(data) <= MAXIMUM_SEED_BYTES:
                    text = _SECTION.split(data.decode("utf-8", "replace"), 1)[0]
                    texts.append(_COMMENT.sub("", text))
    return texts


def main() -> int:
    """Run the fuzzer; prints counts of what became of the cases."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="*", default=FOLDERS)
    campaign.add_arguments(parser)
    arguments = parser.parse_args()
    seeds = load_seeds(arguments.paths)
    if not seeds:
        parser.error("no seeds in " + " ".join(arguments.paths))

    def make(rng: random.Random) -> campaign.Case:
        text, how = mutate(rng, rng.choice(seeds), rng.choice(seeds))
        return campaign.Case("module", ".hlo", text.encode("utf-8", "replace"), how)

    def check_case(case: campaign.Case, rng: random.Random) -> str:
        return check(case.contents.decode(), rng)

    about = f"from {len(seeds)} modules"
    return campaign.run(make, check_case, arguments, about)


if __name__ == "__main__":
    sys.exit(main())
