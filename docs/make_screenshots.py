"""Make the pictures of README.md and docs/page.md with a headless chromium.

    python docs/make_screenshots.py                 all but side_by_side, improved
    python docs/make_screenshots.py DUMPS           all; a folder of XLA's own dumps

Needs the extra `test` and chromium.
"""

from __future__ import annotations

import pathlib
import shutil
import sys
import tempfile
from typing import Any

from playwright.sync_api import sync_playwright

import hlo_passes
from hlo_passes import scheduler
from hlo_passes.files import read_module
from hlo_passes.passes.framework.base import PassContext
from hlo_passes.passes.framework.pipeline import Pipeline
from hlo_passes.pricing import Pricing
from hlo_passes.runtime.lower_file import lower_file
from hlo_passes.scheduler.advice.advise import advised
from hlo_passes.scheduler.page.document import render_page
from hlo_passes.scheduler.page.encoding import Side
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.simulation.simulate import simulate_on

IMAGES = pathlib.Path(__file__).parent / "images"
SCHEDULED = "latency-hiding-scheduler.{}.hlo.gz"


def side(folder: pathlib.Path, which: str, hosts: int) -> Side:
    """XLA's schedule of a module, 'before' or 'after', simulated with XLA's costs."""
    name = SCHEDULED.format(which)
    module = read_module(str(folder / name))
    timeline = scheduler.simulate(
        module, costs=str(folder / "costs.json.gz"), hosts=hosts
    )
    return Side(timeline, which, name, module)


def tutorial_sides() -> list[Side]:
    """The two schedules of docs/tutorial.md."""
    function = f"{IMAGES.parent / 'tutorial' / 'fsdp.py'}:step"
    program = lower_file(function, stage=None, target=None, hosts=1)
    # Name the file as seen from the repository.
    program = hlo_passes.parse(program.to_text().replace(f"{IMAGES.parents[1]}/", ""))
    passes = "async-collective-creator,hlo-memory-scheduler,latency-hiding-scheduler"
    sides: list[Side] = []
    for name, label, limit in (("first", "before", 1), ("second", "after", 2)):
        module = program.clone()
        options = f"{{parallel-collective-overlap-limit={limit}}}"
        Pipeline.parse(passes + options).run(module)
        sides.append(Side(scheduler.simulate(module), label, f"{name}.hlo", module))
    return sides


def shoot(
    browser: Any,
    page: str,
    image: str,
    theme: str,
    act: str,
    high: int,
    position: dict[str, float] | None = None,
) -> None:
    """Open a page, click what a selector names, keep a picture of the screen."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "page.html"
        file.write_text(page, encoding="utf-8")
        view = browser.new_page(
            viewport={"width": 1440, "height": high}, color_scheme=theme
        )
        view.goto(file.as_uri())
        view.wait_for_selector("html[data-drawn='1']", state="attached")
        view.click(act, position=position)
        view.mouse.move(0, 0)
        view.wait_for_timeout(600)
        view.evaluate("scrollTo(0, 0)")
        view.screenshot(path=IMAGES / image)
        view.close()


def pipelining_sides() -> list[Side]:
    """The step of docs/pipelining.md on two hosts, as it is and pipelined."""
    passes = (
        "collective-pipeliner-forward{op=all-reduce},collective-pipeliner-backward,"
        "collective-pipeliner-forward{op=reduce-scatter},"
    )
    on: dict[str, Any] = {"target": "h100_sxm", "hosts": 2, "xla": "0.12"}
    sides: list[Side] = []
    for name, first in (("as it is", ""), ("pipelined", passes)):
        module = read_module(str(IMAGES.parent / "pipelining" / "fsdp.hlo.gz"))
        last = "xla-gpu{parallel-collective-overlap-limit=4}"
        Pipeline.parse(first + last, PassContext(**on)).run(module)
        sides.append(Side(scheduler.simulate(module, **on), name, name, module))
    return sides


def improved_sides(folder: pathlib.Path) -> list[Side]:
    """XLA's schedule of a public module on four GPUs, and the improved one."""
    name = SCHEDULED.format("after")
    costs = str(folder / "costs.json.gz")
    on: dict[str, Any] = {"costs": costs, "topology": "1x1x4"}
    sides: list[Side] = []
    for label, passes in (("XLA's", ""), ("improved", "schedule-improver")):
        module = read_module(str(folder / name))
        if passes:
            Pipeline.parse(passes, PassContext(Pricing(**on))).run(module)
        sides.append(Side(scheduler.simulate(module, **on), label, label, module))
    return sides


def recorded_side() -> Side:
    """XLA's own schedule of docs/tutorial/training.py on two hosts of H100s.

    With advice, as `hlo-passes simulate --html` has it for one module.
    """
    file = IMAGES.parent / "tutorial" / "training.h100_sxm.hlo"
    module = read_module(str(file))
    on, rules = Pricing(hosts=2), Rules()
    timeline = simulate_on(module, on, rules, with_range=True)
    return Side(advised(timeline, module, on, rules), "step", file.name, module)


def main(dumps: pathlib.Path | None) -> None:
    """Make all of them that can be made."""
    IMAGES.mkdir(exist_ok=True)
    with sync_playwright() as driver:
        chromium = shutil.which("chromium")
        browser = driver.chromium.launch(
            executable_path=chromium, args=["--no-sandbox"]
        )
        page = render_page(recorded_side())
        backward = {"x": 600.0, "y": 58.0}
        shoot(browser, page, "page.png", "light", "canvas.lanes", 1240, backward)
        if dumps:
            loops = dumps / "llama31_70b_bf16_16x8" / "sol"
            moved = "#moves td .link >> nth=1"
            both = render_page(
                side(loops, "after", hosts=16), side(loops, "before", hosts=16)
            )
            shoot(browser, both, "side_by_side.png", "dark", moved, 1240)
            given, improved = improved_sides(dumps / "llama3_8b_cp_bf16_1x4" / "sol")
            page = render_page(improved, given)
            shoot(browser, page, "improved.png", "light", moved, 1240)
        plain, pipelined = pipelining_sides()
        shoot(
            browser,
            render_page(pipelined, plain),
            "pipelining.png",
            "light",
            "canvas.lanes",
            1120,
        )
        first, second = tutorial_sides()
        gather = "#moves td .link >> text=all-gather-start.1"
        shoot(
            browser, render_page(second, first), "tutorial.png", "light", gather, 1120
        )
        browser.close()


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if sys.argv[1:] else None)
