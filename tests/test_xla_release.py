"""Releases of XLA: one table, one option, one release in a run."""

from __future__ import annotations

import ast
import dataclasses
import importlib.metadata
import itertools
import json
import logging
import pathlib
import re

import pytest

import hlo_passes
from hlo_passes.analysis import followed_release as choice
from hlo_passes.analysis.followed_release import followed_release, releases_of
from hlo_passes.errors import PipelineSpecError, UsageError
from hlo_passes.files import read_module
from hlo_passes.passes.framework import spec
from hlo_passes.passes.framework.base import PassContext
from hlo_passes.passes.framework.pipeline import Pipeline
from hlo_passes.xla_release import (
    NEWEST,
    OLDEST,
    RELEASE_NAMES,
    RELEASES,
    XlaRelease,
    is_beyond_known,
    xla_release,
)
from tests.modules import CORPUS, REPOSITORY

TABLE = "hlo_passes/xla_release.py"
LITERAL = re.compile(r"0\.1\d(\.\d+)*")
NO_COMMUNICATION = """HloModule m

ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  ROOT %n = f32[8]{0} negate(%p)
}
"""
COMBINED = """HloModule m, num_partitions=2

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}

ENTRY %main (p: f32[8], q: f32[8]) -> (f32[8], f32[8]) {
  %p = f32[8]{0} parameter(0)
  %q = f32[8]{0} parameter(1)
  %x = f32[8]{0} all-reduce(%p), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=%add
  %y = f32[8]{0} all-reduce(%q), channel_id=2, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=%add
  ROOT %t = (f32[8]{0}, f32[8]{0}) tuple(%x, %y)
}
"""


def config_of(release: str, *without: str) -> str:
    fields = dict(xla_release(release).collective_fields)
    kept = {name: value for name, value in fields.items() if name not in without}
    return json.dumps({"collective_backend_config": kept})


def with_config(config: str) -> hlo_passes.Module:
    text = NO_COMMUNICATION.replace(
        "negate(%p)", f"negate(%p), backend_config={config}"
    )
    return hlo_passes.parse(text)


def literals(file: pathlib.Path) -> list[str]:
    """Releases that a file's code spells, alone in a text or as a pair of numbers."""
    found = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found += [node.value] if LITERAL.fullmatch(node.value) else []
        elif isinstance(node, ast.Tuple):
            values = [e.value for e in node.elts if isinstance(e, ast.Constant)]
            if len(values) == len(node.elts) == 2 and values[0] == 0:
                found += [f"0.{values[1]}"] if values[1] in (10, 11, 12, 13) else []
    return found


@pytest.mark.parametrize("package", ["hlo_passes", "scheduler", "runtime"])
def test_only_the_table_spells_releases(package: str) -> None:
    files = (REPOSITORY / package).rglob("*.py")
    spelled = {
        str(file.relative_to(REPOSITORY)): found
        for file in files
        if (found := literals(file))
    }
    assert set(spelled) <= {TABLE}


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("0.10", "0.10.2"),
        ("0.10.2", "0.10.2"),
        ("0.10.9", "0.10.2"),
        ("0.11.0", "0.11"),
        ("0.11.2", "0.11"),
        ("0.12", "0.12"),
        ("0.12.0.1", "0.12"),
        ("0.12.3.dev20261001+cuda12", "0.12"),
        ("0.99", RELEASE_NAMES[-1]),
        ("1.0", RELEASE_NAMES[-1]),
    ],
)
def test_newest_row_that_is_not_newer(version: str, name: str) -> None:
    assert xla_release(version).name == name


@pytest.mark.parametrize("version", ["", "x", "0", "12", "0.9", "0.10.1", "none"])
def test_no_row(version: str) -> None:
    with pytest.raises(ValueError, match=r"0\.10\.2, 0\.11, 0\.12"):
        xla_release(version)


def test_rows_are_in_order_and_differ() -> None:
    numbers = [tuple(map(int, name.split("."))) for name in RELEASE_NAMES]
    assert numbers == sorted(numbers)
    facts = [dataclasses.replace(release, name="") for release in RELEASES]
    assert all(one != other for one, other in itertools.pairwise(facts))


def test_beyond_known() -> None:
    assert is_beyond_known("0.99.0")
    assert not is_beyond_known(f"{NEWEST}.7")
    assert not is_beyond_known("0.10.2")


@pytest.mark.parametrize("folder", ["0.10.2", "0.11.2", "0.12.0.1"])
def test_what_modules_of_a_release_say(folder: str) -> None:
    """Every recorded module of a release that says anything says that release."""
    said = 0
    for file in sorted((CORPUS / "golden" / folder).glob("*/*scheduler.after.hlo.gz")):
        found = releases_of(read_module(str(file)))
        assert not found or xla_release(folder) in found
        said += bool(found)
    assert said or not (CORPUS / "golden" / folder).exists()


def names_with_fields_of(version: str) -> list[str]:
    """The releases that print the same fields as one of them, oldest first."""
    fields = xla_release(version).collective_fields
    return [str(r) for r in RELEASES if r.collective_fields == fields]


@pytest.mark.parametrize(
    ("config", "names"),
    [
        (config_of("0.10.2"), ["0.10.2"]),
        (config_of("0.12"), names_with_fields_of("0.12")),
        (config_of("0.12", "is_sync"), []),
        ('{"operation_queue_id":"0"}', []),
        ('"is_sync and no JSON"', []),
    ],
)
def test_what_a_config_says(config: str, names: list[str]) -> None:
    assert [str(r) for r in releases_of(with_config(config))] == names


def test_module_before_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "installed_release", lambda: xla_release("0.11"))
    assert str(followed_release(with_config(config_of("0.10.2")))) == "0.10.2"
    assert str(followed_release(with_config(config_of("0.12")))) == "0.11"
    assert str(followed_release(hlo_passes.parse(NO_COMMUNICATION))) == "0.11"
    assert str(followed_release(with_config(config_of("0.10.2")), "0.12")) == "0.12"
    monkeypatch.setattr(choice, "installed_release", lambda: OLDEST)
    assert followed_release(with_config(config_of("0.12"))) is NEWEST


def installed(monkeypatch: pytest.MonkeyPatch, version: str) -> XlaRelease:
    """What is found where this version of jaxlib is installed; '' for none."""

    def version_of(name: str) -> str:
        assert name == "jaxlib"
        if not version:
            raise importlib.metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(importlib.metadata, "version", version_of)
    return choice.release_of_jaxlib.__wrapped__()


def test_installed_jaxlib(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert str(installed(monkeypatch, "0.11.1")) == "0.11"
    assert installed(monkeypatch, "") is NEWEST
    assert not caplog.records
    assert installed(monkeypatch, "0.4.30") is OLDEST
    assert "jaxlib 0.4.30 is followed as XLA 0.10.2" in caplog.text
    caplog.clear()
    for _ in range(2):
        assert installed(monkeypatch, "0.97.1") is NEWEST
    assert [r.message for r in caplog.records] == [
        "XLA 0.97.1 is newer than this version of hlo-passes knows: it is followed as "
        f"XLA {NEWEST}"
    ]


def followed_by(pipeline: Pipeline, module: hlo_passes.Module) -> str:
    return str(pipeline.settled(module).release)


def test_one_release_for_all_passes_of_a_sequence() -> None:
    module = hlo_passes.parse(NO_COMMUNICATION)
    pipeline = Pipeline.parse("gpu-schedule{xla=0.12}")
    assert {getattr(p, "xla", "0.12") for p in pipeline.passes} == {"0.12"}
    assert followed_by(pipeline, module) == "0.12"
    scheduler = next(p for p in pipeline.passes if "hiding-scheduler" in p.name)
    assert scheduler.settings(module, pipeline.settled(module)).release is xla_release(
        "0.12"
    )


def test_what_one_pass_says_holds_for_all() -> None:
    text = "gpu-all-reduce-combiner,gpu-schedule{xla=0.12}"
    module = hlo_passes.parse(COMBINED)
    Pipeline.parse(text).run(module)
    combined = next(i for i in module.entry.instructions if "all-reduce" in i.name)
    assert "is_spmd_generated" in combined.attributes["backend_config"]
    assert followed_by(Pipeline.parse(f"fixed-point({text})"), module) == "0.12"


def test_release_stays_while_passes_change_what_the_module_says() -> None:
    """The first pass writes a config that 0.12 and 0.11 share; 0.11 was installed."""
    module = hlo_passes.parse(COMBINED)
    context = PassContext(release=xla_release("0.11"))
    pipeline = Pipeline.parse("gpu-all-reduce-combiner,gpu-schedule", context)
    pipeline.run(module)
    assert followed_by(pipeline, module) == "0.11"


@pytest.mark.parametrize(
    ("text", "context", "said"),
    [
        (
            "gpu-all-reduce-combiner{xla=0.10.2},gpu-schedule{xla=0.12}",
            PassContext(),
            "gpu-all-reduce-combiner 0.10.2 and async-collective-creator 0.12",
        ),
        (
            "hlo-dce,fixed-point(gpu-all-reduce-combiner{xla=0.10.2})",
            PassContext(release=NEWEST),
            f"the context {NEWEST} and gpu-all-reduce-combiner 0.10.2",
        ),
    ],
)
def test_two_releases_are_refused(text: str, context: PassContext, said: str) -> None:
    with pytest.raises(PipelineSpecError) as raised:
        Pipeline.parse(text, context)
    assert raised.value.code == "U016"
    assert said in raised.value.message


@pytest.mark.parametrize(
    "text",
    [
        "gpu-all-reduce-combiner{jax-release=0.12}",
        "latency-hiding-scheduler{xla-version=0.12}",
        "gpu-schedule{jax-release=0.12}",
        "gpu-schedule{xla-version=0.12}",
    ],
)
def test_old_names_say_the_new_one(text: str, caplog: pytest.LogCaptureFixture) -> None:
    spec.warn_of_old_name.cache_clear()
    for _ in range(2):
        pipeline = Pipeline.parse(text)
    assert {getattr(p, "xla", "0.12") for p in pipeline.passes} == {"0.12"}
    (record,) = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert "is called xla now" in record.message


def test_old_and_new_name_together() -> None:
    with pytest.raises(PipelineSpecError, match="one option, given twice"):
        Pipeline.parse("gpu-all-reduce-combiner{xla=0.12,jax-release=0.12}")


def test_no_release_by_the_old_name() -> None:
    text = "execution-stream-assignment{jax-release=none}"
    assert [p.xla for p in Pipeline.parse(text).passes] == [""]


def test_functions_take_a_release() -> None:
    from hlo_passes.scheduler import estimate, simulate

    module = hlo_passes.parse(NO_COMMUNICATION)
    for function in (estimate, simulate):
        function(module, xla="0.12")
        with pytest.raises(UsageError) as raised:
            function(module, xla="0.1")
        assert raised.value.code == "U207"
