"""Damage everything that hlo-passes reads besides HLO text.

    python -m tests.fuzz.formats --cases=100000 --seed=7 --jobs=2
    python -m tests.fuzz.formats --kinds=costs,profile --seconds=30
    python -m tests.fuzz.formats --seed=7 --first=1234 --cases=1       one case again

Protos, costs, profiles, targets, performance tables, arrays, measurements, StableHLO,
settings, and the texts of the command line. Each is read and then used. Either that
works, or it ends with an error of a documented code and form; never with a traceback,
never late, never with a gigabyte more. Some cases run as a whole command, which must
leave no part of an output. A case that fails is written to the folder of --failures.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import pathlib
import random
import re
import shutil
import sys
import tempfile
from typing import Final

from hlo_passes.cli.main import main as command_line
from hlo_passes.errors import HloError
from tests.fuzz import campaign
from tests.fuzz.damage import damage
from tests.fuzz.documented import (
    DEFECTS,
    DOCUMENTED,
    FORM,
    expected_exit_code,
    require_documented,
)
from tests.fuzz.readers import FORMATS, MODULE, Format

#: Of the cases of a format that has commands, this share runs as one.
COMMAND_SHARE: Final = 0.1


class Fuzzer:
    """Makes cases of the chosen formats, and checks them in a folder of its own."""

    def __init__(self, formats: tuple[Format, ...], folder: pathlib.Path) -> None:
        self.by_name = {each.name: each for each in formats}
        self.seeds = {each.name: each.seeds() for each in formats}
        self.names = [each.name for each in formats for _ in range(each.weight)]
        self.folder = folder

    def make(self, rng: random.Random) -> campaign.Case:
        """A damaged file."""
        chosen = self.by_name[rng.choice(self.names)]
        seeds = self.seeds[chosen.name]
        data, how = damage(rng, rng.choice(seeds), rng.choice(seeds), chosen.ways)
        return campaign.Case(chosen.name, chosen.suffix, data, how)

    def check(self, case: campaign.Case, rng: random.Random) -> str:
        """Read the case and use it, as a function or as a command."""
        chosen = self.by_name[case.kind]
        place = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        try:
            path = place / f"case{case.suffix}"
            path.write_bytes(case.contents)
            if chosen.commands and rng.random() < COMMAND_SHARE:
                return f"{case.kind} {self._command(chosen, path, rng)}"
            try:
                chosen.use(path, rng)
            except HloError as refused:
                require_documented(refused, path.name if chosen.is_file else "")
                return f"{case.kind} refused {refused.code}"
            return f"{case.kind} read"
        finally:
            shutil.rmtree(place)

    def _command(self, chosen: Format, path: pathlib.Path, rng: random.Random) -> str:
        template = rng.choice(chosen.commands)
        output = path.with_name("out" + rng.choice((".hlo", ".pb", ".hlo.gz")))
        words = {"FILE": str(path), "MODULE": str(MODULE), "OUT": str(output)}
        line = [
            re.sub(r"FILE|MODULE|OUT", lambda m: words[m[0]], word) for word in template
        ]
        said, told = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(told):
            code = command_line(line)
        wanted = {path} | ({output} if "OUT" in template and not code else set())
        assert set(path.parent.iterdir()) == wanted, sorted(path.parent.iterdir())
        if not code:
            return "command 0"
        said.flush()
        assert not said.buffer.tell(), "it failed, and wrote on stdout"  # type: ignore[attr-defined]
        errors = [m[1] for m in map(FORM.match, told.getvalue().split("\n")) if m]
        assert errors, f"exit code {code} without an error: {told.getvalue()[:200]}"
        assert set(errors) <= DOCUMENTED, errors
        assert not DEFECTS & set(errors), told.getvalue()[:300]
        assert code == expected_exit_code(errors[0]), (code, errors)
        return f"command {code} {errors[0]}"


def main() -> int:
    """Run the fuzzer; prints counts of what became of the cases."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    campaign.add_arguments(parser)
    names = [each.name for each in FORMATS]
    parser.add_argument("--kinds", default="", help=f"of {', '.join(names)}")
    arguments = parser.parse_args()
    kinds = arguments.kinds.split(",") if arguments.kinds else names
    chosen = tuple(each for each in FORMATS if each.name in kinds)
    if len(chosen) != len(kinds):
        parser.error(f"unknown kinds in {arguments.kinds}; there are {names}")
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        fuzzer = Fuzzer(chosen, pathlib.Path(folder))
        import hlo_passes.runtime.installation.environment  # noqa: F401  (once for all)

        about = f"of {len(chosen)} kinds"
        return campaign.run(fuzzer.make, fuzzer.check, arguments, about)


if __name__ == "__main__":
    sys.exit(main())
