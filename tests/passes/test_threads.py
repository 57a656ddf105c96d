"""Passes on what runs on a thread of its own: new computations run on it, too.

    ENTRY %main (x) {..}     %main (x) {..}, execution_thread="parallel"
                             %started (x) {call(x), to_apply=%main}, the same thread
                             ENTRY %around (x) {async-start(x), calls=%started ..}

Callee and caller of a fusion, call or loop that are on two threads are refused (V604).
"""

from __future__ import annotations

import pathlib
import re

import pytest

import hlo_passes
from hlo_passes.errors import HloError
from hlo_passes.passes.framework.base import PassContext
from hlo_passes.passes.framework.pipeline import Pipeline
from hlo_passes.verify.verifier import verify
from tests.modules import REPOSITORY
from tests.passes.case_files import case_files, read_case

_CASES = [*case_files(), *case_files(REPOSITORY / "tests/scheduler/passes/cases")]
_THREAD = ', execution_thread="parallel"'


def _beside(module: hlo_passes.Module) -> hlo_passes.Module | None:
    """The module with all that it does beside an entry that only waits for it."""
    text = module.to_canonical_text()
    header, _, rest = text.partition("\n")
    header = header.partition(",")[0] + "".join(
        f", {key}={value}"
        for key, value in re.findall(r"(num_partitions|replica_count)=(\d+)", header)
    )
    if "execution_thread" in rest:
        return None
    rest = re.sub(r"^\}$", "}" + _THREAD, rest, flags=re.MULTILINE)
    rest = rest.replace("ENTRY ", "").replace(
        ", calls=%async", f"{_THREAD.replace(' exec', ' async_exec')}, calls=%async"
    )
    shapes = [p.shape.text for p in module.entry.parameters]
    root = module.entry.root.shape.text
    names = ", ".join(f"%p{k}" for k in range(len(shapes)))
    given = "".join(
        f"  %p{k} = {shape} parameter({k})\n" for k, shape in enumerate(shapes)
    )
    # What a start runs itself, some passes leave alone: it calls what they shall see.
    around = (
        f"\n\n%started {{\n{given}"
        f"  ROOT %all = {root} call({names}), to_apply=%{module.entry.name}\n}}{_THREAD}"
        f"\n\nENTRY %around {{\n{given}"
        f"  %begin = (({', '.join(shapes)}), {root}) async-start({names})"
        f"{_THREAD.replace(' exec', ' async_exec')}, calls=%started\n"
        f"  ROOT %end = {root} async-done(%begin)\n}}\n"
    )
    try:
        made = hlo_passes.parse(header + "\n" + rest + around)
        verify(made, allow_unknown=True)
    except HloError:
        return None
    return made


@pytest.mark.parametrize("path", _CASES, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_what_a_pass_makes_is_on_its_callers_thread(path: pathlib.Path) -> None:
    case = read_case(path)
    if "error[E00" in case.sections.get("refused", ""):
        pytest.skip("XLA's own result is refused")
    module = _beside(case.module())
    if module is None:
        pytest.skip("it has threads, or cannot run beside another one")
    pipeline = Pipeline.parse(
        case.head["pipeline"], PassContext(xla_quirks=case.quirks)
    )
    try:
        pipeline.run(module)
    except HloError as problem:
        # E001 and E002: a pass that broke, or made what the verifier refuses.
        assert problem.code not in ("E001", "E002"), problem.render()
        return
    verify(module, allow_unknown=True)
