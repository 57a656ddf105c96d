"""Rules and estimators of another distribution, by entry point."""

from __future__ import annotations

import importlib
import json
import pathlib
import shutil
import tomllib

import pytest

import hlo_passes
from hlo_passes import plugins, scheduler
from hlo_passes.cli.main import main
from hlo_passes.errors import PassError, UsageError
from hlo_passes.passes.framework.base import PassContext
from hlo_passes.scheduler.estimators.choice import ESTIMATOR_NAMES
from hlo_passes.scheduler.latency_hiding.rule_list import parse_rules
from hlo_passes.scheduler.latency_hiding.rules import RULES
from tests.modules import REPOSITORY
from tests.scheduler.schedules import LATE

PACKAGE = REPOSITORY / "examples" / "extension_package"
BROKEN = """
from hlo_passes.scheduler.latency.estimate import Estimate

class Failing:
    name = "failing"
    def __init__(self, answer): self.answer = answer
    def node_cost(self, instruction): return self.answer()
    def latency(self, start, user): return None

def raises(pricing): return Failing(lambda: 1 / 0)
def number(pricing): return Failing(lambda: 1.0)
def endless(pricing): return Failing(lambda: Estimate(float("nan"), "x"))
def nothing(pricing): return None
def unmade(pricing): raise KeyError("no costs")
rule = "a text"
"""


def _installed(
    folder: pathlib.Path, name: str, entry_points: dict[str, dict[str, str]]
) -> None:
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
    )
    text = ""
    for group, entries in entry_points.items():
        text += f"[{group}]\n"
        text += "".join(f"{entry} = {target}\n" for entry, target in entries.items())
    (info / "entry_points.txt").write_text(text)
    importlib.invalidate_caches()


@pytest.fixture
def package(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """What `pip install examples/extension_package` installs, and a broken one."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    shutil.copy(PACKAGE / "my_overlap.py", tmp_path)
    (tmp_path / "my_broken.py").write_text(BROKEN)
    _installed(tmp_path, project["name"], project["entry-points"])
    estimators = ("raises", "number", "endless", "nothing", "unmade", "absent")
    _installed(tmp_path, "my-broken", {
        "hlo_passes.estimators": {name: f"my_broken:{name}" for name in estimators},
        "hlo_passes.rules": {"text-rule": "my_broken:rule"},
    })  # fmt: skip
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.fixture
def file(tmp_path: pathlib.Path) -> str:
    path = tmp_path / "late.hlo"
    path.write_text(LATE)
    return str(path)


@pytest.mark.usefixtures("package")
def test_an_estimator_is_known_by_name(file: str, capsys) -> None:
    assert main(["estimate", file, "--estimator=by-bytes", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["instructions"]
    assert {row["model"] for row in rows} == {"by-bytes", "none"}
    assert main(["simulate", file, "--estimator=by-bytes+sol"]) == 0
    assert "costs: by-bytes+sol" in capsys.readouterr().out


@pytest.mark.usefixtures("package")
def test_rule_and_estimator_are_options_of_the_scheduler(file: str, capsys) -> None:
    options = "rules='most-expensive<less-stall',estimator=by-bytes+sol"
    passes = f"--passes=latency-hiding-scheduler{{{options}}}"
    assert main(["opt", file, passes, "-o", "/dev/null"]) == 0
    swept = "--sweep=rules='-avoid-waste','most-expensive<less-stall'"
    # Processes of the sweep find them, too.
    words = ["--passes=latency-hiding-scheduler", swept, "--estimator=by-bytes+sol"]
    assert main(["simulate", file, *words, "--processes=2", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["combinations"]
    assert ["problem" in row for row in rows] == [False, False]


@pytest.mark.usefixtures("package")
def test_a_rule_joins_the_list_only_where_it_is_named() -> None:
    assert parse_rules("") == RULES
    names = [rule.name for rule in parse_rules("most-expensive<less-stall")]
    assert names[names.index("less-stall") - 1] == "most-expensive"
    assert len(names) == len(RULES) + 1
    (alone,) = parse_rules("most-expensive")
    assert alone.reason == "kMostExpensive"
    with pytest.raises(UsageError) as unknown:
        parse_rules("-most-expensiv")
    assert "did you mean most-expensive?" in unknown.value.hint


@pytest.mark.usefixtures("package")
def test_the_list_shows_them(capsys) -> None:
    assert main(["list"]) == 0
    out = capsys.readouterr().out
    assert "estimators of other distributions\n" in out
    assert "      by-bytes (my-overlap)\n" in out
    assert "rules of other distributions\n      most-expensive (my-overlap)\n" in out
    assert main(["list", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {each["name"] for each in told["rules"]} == {"most-expensive", "text-rule"}


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("name", "code", "says"),
    [
        ("raises", "E005", "ZeroDivisionError: division by zero"),
        ("number", "E005", "1.0 is not an Estimate"),
        ("endless", "E005", "nan us is not a time"),
        ("nothing", "U015", "NoneType has no method node_cost"),
        ("unmade", "U015", "KeyError: 'no costs'"),
        ("absent", "U015", "has no attribute 'absent'"),
    ],
)
def test_a_broken_estimator_is_an_error_and_no_traceback(
    file: str, capsys, name: str, code: str, says: str
) -> None:
    exit_code = main(["simulate", file, f"--estimator={name}"])
    said = capsys.readouterr().err
    assert f"error[{code}]" in said
    assert says in said
    assert exit_code == (3 if code == "E005" else 2)
    with pytest.raises((PassError, UsageError)):
        scheduler.simulate(hlo_passes.parse(LATE), estimator=name)


@pytest.mark.usefixtures("package")
def test_what_is_no_rule_is_refused() -> None:
    with pytest.raises(UsageError, match="is not a Rule") as refused:
        parse_rules("text-rule")
    assert refused.value.code == "U015"


def test_a_name_that_two_offer_is_refused(package: pathlib.Path) -> None:
    _installed(package, "other", {"hlo_passes.estimators": {"by-bytes": "other:made"}})
    plugins.offers(plugins.ESTIMATORS)
    with pytest.raises(UsageError, match="my-overlap and other") as refused:
        scheduler.make_estimator("by-bytes")
    assert refused.value.code == "U014"


def test_an_unknown_estimator_lists_all(package: pathlib.Path, file: str, capsys):
    assert main(["simulate", file, "--estimator=roofline"]) == 2
    said = capsys.readouterr().err
    assert f"there are: {', '.join(ESTIMATOR_NAMES)}" in said
    assert "by-bytes" in said


@pytest.mark.usefixtures("package")
def test_a_pipeline_refuses_an_unknown_rule_with_its_code() -> None:
    pipeline = hlo_passes.Pipeline.parse(
        "latency-hiding-scheduler{rules='nothing-such'}", PassContext()
    )
    with pytest.raises(UsageError) as unknown:
        pipeline.run(hlo_passes.parse(LATE))
    assert unknown.value.code == "U215"


def test_what_others_offer_is_part_of_the_key_of_compiled_programs(
    package: pathlib.Path,
) -> None:
    """A persistent cache must not serve what another version of a rule made."""
    from hlo_passes.runtime.installation.fingerprint import fingerprint

    text = "latency-hiding-scheduler{rules='most-expensive<less-stall'}"
    pipeline = hlo_passes.Pipeline.parse(text)
    with_both = fingerprint(pipeline)
    shutil.rmtree(package / "my_overlap-1.0.dist-info")
    importlib.invalidate_caches()
    assert fingerprint(pipeline) != with_both
