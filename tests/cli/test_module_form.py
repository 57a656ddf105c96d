"""What is written to m.pb is read back from there; m.mlir is read only."""

from __future__ import annotations

import gzip
import pathlib

import pytest

from hlo_passes import Module, parse
from hlo_passes.cli.main import main
from hlo_passes.files import read_module
from hlo_passes.module_form import form_of, module_contents

MODULE = """HloModule t, num_partitions=2

ENTRY %e (a: f32[8]) -> f32[8] {
  %a = f32[8]{0} parameter(0)
  %dead = f32[8]{0} negate(%a)
  ROOT %p = f32[8]{0} collective-permute(%a), channel_id=1, source_target_pairs={{0,1}}
}
"""


@pytest.fixture
def given(tmp_path: pathlib.Path) -> pathlib.Path:
    file = tmp_path / "t.hlo"
    file.write_text(MODULE)
    return file


def optimized(given: pathlib.Path, name: str) -> tuple[int, pathlib.Path]:
    out = given.parent / name
    return main(["opt", str(given), "--passes=hlo-dce", "-o", str(out)]), out


@pytest.mark.parametrize("name", ["m.pb", "m.pb.gz", "m.hlo", "m.pb.hlo", "m.hlo.gz"])
def test_what_opt_writes_is_read_back(name: str, given: pathlib.Path) -> None:
    code, out = optimized(given, name)
    assert code == 0
    assert main(["verify", str(out)]) == 0
    module = read_module(str(out))
    assert [i.name for i in module.entry.instructions] == ["a", "p"]
    assert module.num_partitions == 2
    data = out.read_bytes()
    data = gzip.decompress(data) if name.endswith(".gz") else data
    assert (module.proto == data) == (".pb" in name and ".hlo" not in name)


def test_an_unchanged_proto_keeps_its_bytes(given: pathlib.Path) -> None:
    _, first = optimized(given, "first.pb")
    code, second = optimized(first, "second.pb")
    assert (code, second.read_bytes()) == (0, first.read_bytes())


@pytest.mark.parametrize("name", ["m.mlir", "m.mlir.gz"])
def test_stablehlo_is_not_written(
    name: str, given: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = optimized(given, name)
    assert (code, out.exists()) == (2, False)
    assert capsys.readouterr().err == (
        f"error[U002]: cannot write {out}: StableHLO is only read\n"
        "  help: write HLO text (m.hlo) or a proto (m.pb)\n"
    )


def test_contents() -> None:
    module = parse(MODULE)
    assert module_contents(None, module) == module_contents("-", module) == MODULE
    data = module_contents("m.pb", module)
    assert isinstance(data, bytes)
    assert Module.from_proto(data).num_partitions == 2
    assert [form_of(n) for n in (None, "-", "a.b/m", ".pb")] == ["", "", "", ""]
