"""Seeded faults over a corpus: what the verifier refuses, and what XLA says.

    python -m tests.verify.fault_campaign DIR... [--seed=1] [--each=2] [--xla=PYTHON]
        [--maximum-bytes=400000] [--list]

Every module of the directories (.hlo, .hlo.gz) that we accept is mutated once or more
by each kind of fault. Refused faults are counted by kind; with `--xla` the survivors
(and, with `--both`, the refused ones) are put before jaxlib's parser and verifier:

    harmless  XLA accepts the mutant too
    MISSED    XLA refuses, we accept: a fault of our verifier
    OVER      XLA accepts, we refuse (only with --both): the same
    unfit     XLA refuses the module without the fault already, for what a proto loses
    later     XLA's verifier accepts, an analysis after it does not

Exit code 1 when there is a MISSED or an OVER. The same seed gives the same mutants.
"""

from __future__ import annotations

import argparse
import gzip
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from hlo_passes.errors import HloError
from hlo_passes.text.reader import parse
from hlo_passes.verify import findings
from tests.verify.faults import mutants
from tests.verify.xla_verdict import XlaJudge

#: What XLA's verifier prints before a finding in a module that was handed to it.
_OF_THE_VERIFIER = "during context [apply-xla-transforms"


def show(line: str) -> None:
    """A line of the table, at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def modules(paths: list[str], maximum_bytes: int) -> Iterator[tuple[str, str]]:
    """(path, text) of the modules below the paths, in order of path."""
    for root in paths:
        start = Path(root)
        files = sorted(start.rglob("*.hlo*")) if start.is_dir() else [start]
        for file in files:
            if file.suffix not in (".hlo", ".gz"):
                continue
            data = file.read_bytes()
            if file.suffix == ".gz":
                data = gzip.decompress(data)
            if len(data) <= maximum_bytes:
                yield str(file), data.decode()


def our_verdict(text: str) -> str:
    """'' when we accept the text, else the first finding's code and message."""
    try:
        found = findings(parse(text))
    except HloError as problem:
        return f"{problem.code} {problem.message}"
    return f"{found[0].code} {found[0].message}" if found else ""


def refusal_of(judge: XlaJudge, text: str, stage: str, message: str) -> str:
    """What it means that XLA refused a mutant of `text` that we accept."""
    if judge.verdict(text)[0] != "accepted":
        return "unfit"
    if stage == "verify" and _OF_THE_VERIFIER not in message:
        return "later"
    return "MISSED"


def main() -> int:
    """Run a campaign and print its table."""
    parser = argparse.ArgumentParser(description="Seed faults and count the refusals.")
    parser.add_argument("paths", nargs="+")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--each", type=int, default=1)
    parser.add_argument("--maximum-bytes", type=int, default=400_000)
    parser.add_argument("--xla", default="", help="python whose jaxlib is asked")
    parser.add_argument(
        "--both", action="store_true", help="ask about refused ones too"
    )
    parser.add_argument("--list", action="store_true", help="list the survivors")
    options = parser.parse_args()
    judge = XlaJudge(options.xla) if options.xla else None
    seeded: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    verdicts: Counter[str] = Counter()
    for path, text in modules(options.paths, options.maximum_bytes):
        if our_verdict(text):
            continue
        for mutant in mutants(text, options.seed, each=options.each):
            seeded[mutant.kind] += 1
            ours = our_verdict(mutant.text)
            refused[mutant.kind] += bool(ours)
            if ours and not options.both:
                continue
            label = "survivor"
            message = ""
            if judge is not None:
                stage, message = judge.verdict(mutant.text)
                accepted = stage == "accepted"
                if ours:
                    label = "OVER" if accepted else "refused by both"
                elif stage in ("abort", "skip"):
                    label = f"not judged ({stage})"
                elif accepted:
                    label = "harmless"
                else:
                    label = refusal_of(judge, text, stage, message)
            verdicts[label] += 1
            if label in ("OVER", "MISSED", "later") or (options.list and not ours):
                show(f"{label}: {mutant.kind}: {path}:{mutant.line}: {ours or message}")
    for kind in sorted(seeded):
        show(f"{kind:28} {refused[kind]:6} of {seeded[kind]:6} refused")
    total, caught = sum(seeded.values()), sum(refused.values())
    show(f"{'all':28} {caught:6} of {total:6} refused ({caught / max(1, total):.2%})")
    for label in sorted(verdicts):
        show(f"{label:28} {verdicts[label]:6}")
    if judge is not None:
        judge.close()
    return 1 if verdicts["OVER"] or verdicts["MISSED"] else 0


if __name__ == "__main__":
    sys.exit(main())
