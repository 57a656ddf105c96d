"""The judge: equal up to names, and every kind of fault is found."""

from __future__ import annotations

import gzip
import json
import pathlib

import pytest

import hlo_passes
from hlo_passes.cli.main import main
from hlo_passes.conformance.equality import first_difference
from tests.modules import SHARED

_TEXT = """\
HloModule m, entry_computation_layout={(f32[8]{0}, f32[8]{0})->(f32[8]{0}, f32[8]{0})}

%add (p: f32[], q: f32[]) -> f32[] {
  %p = f32[] parameter(0)
  %q = f32[] parameter(1)
  ROOT %s = f32[] add(%p, %q)
}

ENTRY %main (x: f32[8], y: f32[8]) -> (f32[8], f32[8]) {
  %x = f32[8]{0} parameter(0)
  %y = f32[8]{0} parameter(1)
  %c = f32[] constant(2)
  %b = f32[8]{0} broadcast(%c), dimensions={}
  %m = f32[8]{0} subtract(%x, %b)
  %r = f32[8]{0} all-reduce(%m), channel_id=1, replica_groups={{0,1},{2,3}}, \
use_global_device_ids=true, to_apply=%add, metadata={op_name="r" stack_frame_id=3}
  %dead = f32[8]{0} cosine(%y)
  %n = f32[8]{0} negate(%y), control-predecessors={%r}
  ROOT %t = (f32[8]{0}, f32[8]{0}) tuple(%r, %n)
}
"""


def _difference(ours: str, theirs: str) -> str:
    return first_difference(hlo_passes.parse(ours), hlo_passes.parse(theirs))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("%m", "%other"),
        ("%add", "%sum"),
        ("{{0,1},{2,3}}", "[2,2]<=[4]"),
        (" stack_frame_id=3", " stack_frame_id=7"),
        ("%dead", "%gone"),
    ],
)
def test_names_and_spellings_do_not_count(old: str, new: str) -> None:
    """Renamed instructions and computations, groups in another form."""
    assert _difference(_TEXT, _TEXT.replace(old, new)) == ""


def test_text_order_counts_only_in_a_schedule() -> None:
    """Two independent instructions swapped."""
    lines = _TEXT.splitlines(keepends=True)
    place = next(k for k, line in enumerate(lines) if "%dead" in line)
    lines[place], lines[place - 1] = lines[place - 1], lines[place]
    swapped = "".join(lines)
    assert _difference(_TEXT, swapped) == ""
    ours, theirs = (
        text.replace("HloModule m,", "HloModule m, is_scheduled=true,")
        for text in (_TEXT, swapped)
    )
    assert _difference(ours, theirs) == (
        "in %main: place 5 of the schedule: %r, expected %dead"
    )


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("subtract(%x, %b)", "subtract(%b, %x)", "%x (expected %b): opcode parameter"),
        ("negate(", "abs(", "%n (expected %n): opcode negate, expected abs"),
        ("constant(2)", "constant(3)", "%c (expected %c): (2), expected (3)"),
        ("channel_id=1", "channel_id=2", "channel_id: 1, expected 2"),
        ("{{0,1},{2,3}}", "{{1,0},{2,3}}", "replica_groups"),
        ('op_name="r"', 'op_name="s"', "metadata"),
        (", control-predecessors={%r}", "", "%n: control predecessors differ in %r"),
        ("  %dead = f32[8]{0} cosine(%y)\n", "", "%dead (cosine), which nothing reads"),
        ("cosine(", "sine(", "opcode cosine, expected sine"),
        ("ROOT %s = f32[] add", "ROOT %s = f32[] maximum", "in %add: %s"),
        ("HloModule m,", "HloModule m, num_partitions=2,", "header: num_partitions"),
        ("tuple(%r, %n)", "tuple(%r, %r)", "opcode negate, expected all-reduce"),
    ],
)
def test_faults_are_named(old: str, new: str, words: str) -> None:
    """Each in words, with the instruction."""
    assert words in _difference(_TEXT, _TEXT.replace(old, new))


def test_a_name_that_xla_did_not_print_before_is_not_missed() -> None:
    """`deduplicated_name` beside a `scheduling_name` alone; elsewhere it counts."""
    ours = _TEXT.replace("cosine(%y)", 'cosine(%y), metadata={scheduling_name="c"}')
    name = '{deduplicated_name="d" scheduling_name='
    theirs = ours.replace("{scheduling_name=", name)
    assert _difference(ours, theirs) == ""
    assert "metadata" in _difference(theirs, ours)
    assert "metadata" in _difference(ours, theirs.replace('="c"', '="e"'))
    ours, theirs = (t.replace('="c"}', '="c" op_name="o"}') for t in (ours, theirs))
    assert "metadata" in _difference(ours, theirs)


def test_shared_and_repeated_instructions_differ() -> None:
    """One instruction read twice is not two equal ones."""
    twice = _TEXT.replace(
        "  %n =", "  %k = f32[8]{0} broadcast(%c), dimensions={}\n  %n ="
    ).replace("subtract(%x, %b)", "subtract(%b, %b)")
    two = twice.replace("subtract(%b, %b)", "subtract(%b, %k)")
    two = two.replace("  %k = f32[8]{0} broadcast(%c), dimensions={}\n", "")
    two = two.replace("  %m =", "  %k = f32[8]{0} broadcast(%c), dimensions={}\n  %m =")
    assert "two instructions" in _difference(twice, two)


def test_elements_in_compact_text_compare_by_index() -> None:
    """`%t#1` says which element, and nothing else."""
    explicit = """\
HloModule m, entry_computation_layout={((f32[8]{0}, f32[8]{0}))->f32[8]{0}}

ENTRY %main (p: (f32[8], f32[8])) -> f32[8] {
  %p = (f32[8]{0}, f32[8]{0}) parameter(0)
  %g = f32[8]{0} get-tuple-element(%p), index=0, metadata={op_name="g"}
  %h = f32[8]{0} get-tuple-element(%p), index=0
  ROOT %r = f32[8]{0} add(%g, %h)
}
"""
    head = explicit[: explicit.index("  %g")]
    compact = head + "  ROOT %r = f32[8]{0} add(%p#0, %p#0)\n}\n"
    assert _difference(explicit, compact) == ""
    unread = explicit.replace(
        "  ROOT", "  %u = f32[8]{0} get-tuple-element(%p), index=1\n  ROOT"
    )
    assert _difference(unread, compact) == ""
    assert "which nothing reads" in _difference(unread, explicit)
    scheduled = [t.replace("m, ", "m, is_scheduled=true, ") for t in (unread, compact)]
    assert _difference(*scheduled) == ""
    other = head + "  ROOT %r = f32[8]{0} add(%p#0, %p#1)\n}\n"
    assert "index 0, expected 1" in _difference(explicit, other)


def test_what_nothing_calls_compares_whatever_its_name() -> None:
    """Left-over computations are partners if they are equal, each of one other."""
    left = """
%left_1 (p: f32[]) -> f32[] {
  %p = f32[] parameter(0)
  %q = f32[] constant(1)
  ROOT %r = f32[] add(%p, %q)
}

%left_2 (p.1: f32[]) -> f32[] {
  %p.1 = f32[] parameter(0)
  %q.1 = f32[] constant(3)
  ROOT %r.1 = f32[] add(%p.1, %q.1)
}

ENTRY"""
    ours = _TEXT.replace("\nENTRY", left)
    swapped = ours.replace("%left_1 ", "%x ").replace("%left_2 ", "%left_1 ")
    assert _difference(ours, swapped) == ""
    assert "%left_1, which nothing calls, is missing" in _difference(_TEXT, ours)
    assert "%left_1, which nothing calls, is not expected" in _difference(ours, _TEXT)
    changed = ours.replace("constant(3)", "constant(4)")
    assert "in %left_2: " in _difference(ours, changed)


def _folder(tmp_path: pathlib.Path, after: str) -> pathlib.Path:
    place = tmp_path / "module" / "variant"
    place.mkdir(parents=True)
    (place / "hlo-dce.before.hlo").write_text(_TEXT)
    (place / "hlo-dce.after.hlo.gz").write_bytes(b"")
    (place / "hlo-dce.after.hlo").write_text(after)
    (place / "hlo-dce.after.hlo.gz").unlink()
    (place / "no-such-pass.before.hlo.gz").write_bytes(gzip.compress(_TEXT.encode()))
    (place / "no-such-pass.after.hlo.gz").write_bytes(gzip.compress(_TEXT.encode()))
    return tmp_path


def test_command_says_equal_or_where_not(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 0 and 4; a table, or JSON."""
    cleaned = _TEXT.replace("  %dead = f32[8]{0} cosine(%y)\n", "")
    good = _folder(tmp_path / "good", cleaned)
    assert main(["conformance", str(good)]) == 0
    assert "no such pass: no-such-pass (1 pairs)" in capsys.readouterr().out
    bad = _folder(tmp_path / "bad", _TEXT)
    assert main(["conformance", str(bad), "--json"]) == 4
    found = json.loads(capsys.readouterr().out)
    assert found["passes_not_here"] == {"no-such-pass": 1}
    (verdict,) = found["verdicts"]
    assert verdict["difference"] == "in %main: %dead (cosine) is missing"
    assert verdict["xla_changed"] is False
    assert main(["conformance", str(tmp_path / "none")]) == 2


def test_a_file_that_cannot_be_read_ends_nothing(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Broken text, gzip, options and record: five lines; the other pair is judged."""
    cleaned = _TEXT.replace("  %dead = f32[8]{0} cosine(%y)\n", "")
    names = ("good", "text", "gzip", "options", "record", "nested")
    folders = {n: _folder(tmp_path / n, cleaned) / "module" / "variant" for n in names}
    (folders["text"] / "hlo-dce.before.hlo").write_text("HloModule m\n\nENTRY oh dear")
    (folders["gzip"] / "hlo-dce.after.hlo").write_bytes(b"\x1f\x8b broken")
    (folders["options"] / "hlo-dce.options").write_text("no-such-option=1")
    (folders["record"] / "oracle.json").write_text("{")
    (folders["nested"] / "oracle.json").write_text("[" * 100_000)
    assert main(["conformance", str(tmp_path)]) == 4
    row, *lines = capsys.readouterr().out.splitlines()[1:7]
    assert row.split()[:5] == ["hlo-dce", "6", "1", "1", "5"]
    told = {
        line.partition("/")[0]: line.partition(": not judged: ")[2] for line in lines
    }
    assert f"{folders['text']}/hlo-dce.before.hlo:3:10: [P" in told["text"]
    assert "[P041] this gzip file cannot be read: Error -3" in told["gzip"]
    assert "[U012]" in told["options"]
    assert "[U031]" in told["record"]
    assert "[U031]" in told["nested"]


def test_xlas_own_results(capsys: pytest.CaptureFixture[str]) -> None:
    """Every recorded run beside the checkout comes out as XLA's."""
    folder = SHARED / "golden"
    if not folder.is_dir():
        pytest.skip("not beside this checkout")
    code = main(["conformance", str(folder)])
    assert code == 0, capsys.readouterr().out
