"""Every program of the corpus computes the same bits after every pass.

Passes run without XLA's quirks. After those that reorder sums results may differ by
rounding. Each module runs once; so does what each pass alone, and a few random pipelines, make of
it. `--hypothesis-profile=campaign` tries more pipelines.
"""

from __future__ import annotations

import pathlib
import random
from collections.abc import Callable

import pytest
from hypothesis import settings

import hlo_passes
from hlo_passes import runtime
from hlo_passes.passes.framework.base import PassContext
from hlo_passes.passes.framework.registry import PASSES
from hlo_passes.runtime.comparison import compare_outputs, require_same_signature
from hlo_passes.runtime.devices import topology_of
from hlo_passes.runtime.executable import load_plain
from hlo_passes.runtime.inputs import seeded_inputs
from hlo_passes.runtime.plain.legalize import plain_module
from tests.modules import CORPUS, read_text
from tests.runtime.pipelines_campaign import tolerance
from tests.spmd_modules import random_pipeline

STAGES = ("partitioned", "scheduled", "gpu-scheduled")
#: Passes that need a schedule do nothing without one; that is a run as well.
SINGLE_PASSES = tuple(PASSES)
_SAFE = PassContext(xla_quirks=False)


def corpus_modules(*stages: str) -> list[pathlib.Path]:
    """Module files of these stages, both releases."""
    return sorted(
        f
        for f in (CORPUS / "modules").rglob("*.hlo*")
        if f.name.removesuffix(".gz").split(".")[-2] in stages
    )


#: Of one file the suite tries so many passes alone, and runs so many rewritten modules;
#: the campaign takes all.
TRIED, SAMPLE = 20, 3


def rewritten(text: str, pipelines: list[str]) -> dict[str, hlo_passes.Module]:
    """What each pipeline makes of a module; those that change nothing left out."""
    found: dict[str, hlo_passes.Module] = {}
    seen = {text}
    for pipeline in pipelines:
        module = hlo_passes.parse(text)
        hlo_passes.Pipeline.parse(pipeline, _SAFE).run(module)
        if module.to_text() not in seen:
            seen.add(module.to_text())
            found[pipeline] = module
    return found


class Original:
    """A module that has run once, for all that is made of it.

    `runtime.compare` would compile and run it again each time.
    """

    def __init__(self, module: hlo_passes.Module) -> None:
        plain = plain_module(module)
        self._module = module
        self._executable = load_plain(plain, module, *topology_of(module))
        count = self._executable.device_count
        self._inputs = seeded_inputs(plain, module, device_count=count, seed=1)
        self._outputs = self._executable(*self._inputs)

    def require_equal(self, after: hlo_passes.Module, what: str, pipeline: str) -> None:
        """Fail where the results of what a pipeline made of it are others."""
        executable = runtime.load(after)
        require_same_signature(self._executable, executable)
        allowed = tolerance(self._module, pipeline)
        outputs = executable(*self._inputs)
        assert compare_outputs(self._outputs, outputs, allowed).matches, what


def pipelines_for(file: pathlib.Path, count: int, alone: int = 0) -> list[str]:
    """`count` random pipelines, and so many passes alone; 0: every pass."""
    draw = random.Random(file.name)
    singles = draw.sample(SINGLE_PASSES, alone) if alone else SINGLE_PASSES
    return [*singles, *(random_pipeline(draw) for _ in range(count))]


def check(file: pathlib.Path, *, pipelines: int, alone: int, sample: int) -> int:
    """Compare; the number of rewritten modules that ran."""
    text = read_text(file)
    before = hlo_passes.parse(text, filename=file.name)
    made = list(rewritten(text, pipelines_for(file, pipelines, alone)).items())
    if sample:
        made = random.Random(file.name).sample(made, min(sample, len(made)))
    if made:
        original = Original(before)
        for pipeline, after in made:
            original.require_equal(after, f"{file.name}: {pipeline}", pipeline)
    return len(made)


def _id(file: pathlib.Path) -> str:
    return f"{file.parent.name}/{file.name}"


@pytest.mark.parametrize("file", corpus_modules(*STAGES), ids=_id)
def test_every_pass_keeps_every_bit(
    file: pathlib.Path, host_devices: Callable[[int], object]
) -> None:
    host_devices(8)
    campaign = settings.get_current_profile_name() == "campaign"
    if not campaign and file.parent.name != "0.10.2":
        pytest.skip("the other release's print of the same programs: in the campaign")
    check(
        file,
        pipelines=6 if campaign else 2,
        alone=0 if campaign else TRIED,
        sample=0 if campaign else SAMPLE,
    )


@pytest.mark.hosts(2, devices_per_host=4)
def test_every_pass_keeps_every_bit_on_two_hosts() -> None:
    import jax

    assert jax.process_count() == 2
    campaign = settings.get_current_profile_name() == "campaign"
    ran = 0
    for file in corpus_modules("partitioned"):
        if file.parent.name != "0.10.2":
            continue
        text = read_text(file)
        before = hlo_passes.parse(text, filename=file.name)
        wanted = [
            pipeline
            for pipeline in pipelines_for(file, 3 if campaign else 1)
            if campaign or "combiner" in pipeline or "splitter" in pipeline
        ]
        made = rewritten(text, wanted)
        if made:
            original = Original(before)
            for pipeline, after in made.items():
                original.require_equal(after, f"{file.name}: {pipeline}", pipeline)
        ran += len(made)
        if ran > SAMPLE and not campaign:
            break
    assert ran >= SAMPLE
