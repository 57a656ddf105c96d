"""The page in a browser: draws, zooms, finds, explains; says and loads nothing else."""

from __future__ import annotations

import json
import pathlib
import statistics

import pytest

from hlo_passes.files import read_module
from hlo_passes.pricing import Pricing
from hlo_passes.scheduler.advice.advise import advised
from hlo_passes.scheduler.page.document import render_page
from hlo_passes.scheduler.page.encoding import Side
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.simulation.simulate import simulate, simulate_on
from tests.modules import REPOSITORY, SHARED, read_text
from tests.scheduler.page.browser import browser, visit
from tests.scheduler.page.long_timelines import long_timeline
from tests.scheduler.schedules import COSTS, EARLY, LATE, module, write_costs

_GOLDEN = SHARED / "golden" / "llama31_8b_bf16_1x8" / "sol"
_SCHEDULED = "latency-hiding-scheduler.{}.hlo.gz"
#: What sixty frames a second leave for one.
_SLOWEST_FRAME_MS = 16.0
#: A loop is higher than the lane by what is drawn inside it.
_GUTTER_PX, _COMPUTE_Y_PX, _INSIDE_PX = 132, 58, 35
_STREAM_Y_PX = 88 + _INSIDE_PX


@pytest.fixture(scope="module")
def running():
    with browser() as started:
        yield started


def side_of(text: str, costs: str, label: str = "") -> Side:
    read = module(text)
    return Side(simulate(read, costs=costs), label, f"{label}.hlo", read)


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, pathlib.Path]:
    folder = tmp_path_factory.mktemp("pages")
    costs = write_costs(folder)
    no_costs = str(folder / "none.json")
    pathlib.Path(no_costs).write_text('{"node_cost_us": {}, "latency_us": {}}')
    late, early = side_of(LATE, costs, "before"), side_of(EARLY, costs, "after")
    texts = {
        "one": render_page(late),
        "two": render_page(early, late),
        "long": render_page(Side(long_timeline(20_000))),
        "none": render_page(side_of(_WITHOUT_COLLECTIVES, costs)),
        "chain": render_page(side_of(_CHAIN, costs)),
        "free": render_page(Side(simulate(module(LATE), costs=no_costs))),
        "bare": render_page(Side(simulate(module(LATE), costs=costs))),
    }
    files = {name: folder / f"{name}.html" for name in texts}
    for name, text in texts.items():
        files[name].write_text(text, encoding="utf-8")
    return files


_CHAIN = LATE.replace("all-gather-start(%y)", "all-gather-start(%scaled)").replace(
    "  %dot =", "  %scaled = f32[64]{0} negate(%y)\n  %dot ="
)
_WITHOUT_COLLECTIVES = """\
HloModule quiet, is_scheduled=true

ENTRY %main (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  ROOT %neg = f32[8]{0} negate(%x)
}
"""


def point_at(seen, share: float, y: float) -> tuple[float, float]:
    """A place of the last timeline: its share of the time axis, and a height."""
    box = seen.page.locator("canvas.lanes").last.bounding_box()
    return box["x"] + _GUTTER_PX + share * (box["width"] - _GUTTER_PX), box["y"] + y


def colours(seen) -> int:
    """How many colors the timeline shows."""
    return seen.page.evaluate(
        """() => {
            const c = document.querySelector('canvas.lanes');
            const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
            return new Set(new Uint32Array(d.buffer)).size;
        }"""
    )


def test_the_first_screen_answers_the_question(running, pages) -> None:
    with visit(running, pages["one"]) as seen:
        cards = seen.text("#cards")
        assert "110 µs" in cards
        assert "65.0 µs" in cards
        assert "59.1 % of the step" in cards
        assert "The most expensive is %ag-start, 50.0 µs:" in seen.text("#verdict")
        assert colours(seen) > 20
        assert seen.is_silent()


def test_a_click_on_a_collective_tells_all_of_it(running, pages) -> None:
    with visit(running, pages["one"]) as seen:
        seen.page.mouse.click(*point_at(seen, 80 / 110, _STREAM_Y_PX))
        told = seen.text("#details")
        for part in (
            "ag-start", "all-gather", "exposed", "50 µs (100.0 %)", "2.00 KiB (2,048 B)",
            "{{0,1,2,3,4,5,6,7}}", "ag-done", "jit(step)/layer/gather", "f32[64]{0} %y",
            "Why exposed:", "Communication 0",
        ):  # fmt: skip
            assert part in told, part
        assert "ag-start, exposed." in seen.text("#announce")
        chosen = seen.text("#collectives tr.chosen")
        assert "ag-start" in chosen
        assert seen.is_silent()


def test_an_operand_leads_to_what_makes_it(running, pages) -> None:
    with visit(running, pages["chain"]) as seen:
        seen.page.fill("#search", "ag-start")
        seen.page.click("#details .operands .link >> text=%scaled")
        assert "negate" in seen.text("#details")
        assert seen.is_silent()


def test_a_loop_says_how_exposed_it_is_and_opens(running, pages) -> None:
    with visit(running, pages["one"]) as seen:
        seen.page.mouse.click(*point_at(seen, 9 / 110, _COMPUTE_Y_PX))
        told = seen.text("#details")
        assert "loop" in told
        assert "3, each 6 µs" in told
        assert "15 µs in all (83.3 %)" in told
        seen.page.click("text=Open body")
        assert "One run of 3 in a step." in seen.text("#scope")
        assert "body" in seen.text(".view h3")
        assert seen.page.input_value("#computation") == "body"
        seen.page.select_option("#computation", "main")
        assert "main" in seen.text(".view h3")
        assert seen.is_silent()


def painted(seen, *places: tuple[float, float]) -> list[str]:
    """Colors of the last timeline as 'r,g,b'; a place as for `point_at`."""
    return seen.page.evaluate(
        """([places, gutter]) => {
            const c = [...document.querySelectorAll('canvas.lanes')].at(-1);
            const ratio = c.width / c.clientWidth;
            const all = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
            return places.map(([share, y]) => {
                const x = Math.round((gutter + share * (c.clientWidth - gutter)) * ratio);
                const at = 4 * (Math.round(y * ratio) * c.width + x);
                return all.slice(at, at + 3).join(',');
            });
        }""",
        [places, _GUTTER_PX],
    )


def test_one_run_of_a_loop_is_drawn_inside_its_bar(running, pages) -> None:
    with visit(running, pages["one"]) as seen:
        # Of 6 us the first five are those of an exposed all-reduce.
        stream = _COMPUTE_Y_PX + 36
        exposed, compute = "200,67,27", "147,167,187"
        found = painted(
            seen, (8 / 110, stream), (17 / 110, stream), (17 / 110, stream - 11)
        )
        assert found[0] == exposed != found[1]
        assert found[2] == compute
        seen.page.mouse.move(*point_at(seen, 8 / 110, stream))
        tip = seen.text("#tip")
        assert "ar-start" in tip
        assert "in one run of loop, ×3" in tip
        seen.page.mouse.dblclick(*point_at(seen, 8 / 110, stream))
        assert seen.page.input_value("#computation") == "body"
        assert "ar-start" in seen.text("#details")
        assert seen.is_silent()


def test_advice_is_on_the_page(running, tmp_path) -> None:
    module = read_module(str(REPOSITORY / "docs" / "tutorial" / "step.h100_sxm.hlo"))
    on, rules = Pricing(), Rules()
    timeline = simulate_on(module, on, rules, with_range=True)
    page = tmp_path / "advice.html"
    page.write_text(advised(timeline, module, on, rules).to_html(module))
    with visit(running, page) as seen:
        told = seen.text("#advice")
        assert "A second collective in flight." in told
        assert "Faster in 27 of 27 settings." in told
        assert "parallel_collective_overlap_limit=2" in told
        seen.page.fill("#search", "all-gather-start.1")
        seen.page.press("#search", "Enter")
        assert "Advice: a second collective in flight" in seen.text("#details")
        assert seen.is_silent()


def test_what_costs_most_is_said_under_the_timeline(running, pages) -> None:
    with visit(running, pages["one"], height=900) as seen:
        told = seen.text("#causes")
        assert told.index("Some work overlaps it") < told.index("It starts late")
        assert "Move more work between its start and its done." in told
        assert "jit(step)/layer/gather" in told
        # It is on the first screen.
        box = seen.page.locator("#causes").bounding_box()
        assert box["y"] + 100 < 900
        assert seen.page.locator("#advice").is_hidden()
        seen.page.click("#causes .link >> text=jit(step)/layer/gather")
        assert "ag-start" in seen.text("#details")
        assert seen.is_silent()


_MANY = 40
_SHARDS = "".join(
    f"  %shard{k} = f32[64]{{0}} parameter({k + 3}), "
    f"metadata={{op_name=\"params['layers'][{k}]['a_rather_long_name']\"}}\n"
    for k in range(_MANY)
)
_NAMES = ":".join(f"layers_{k}/a_rather_long_name/dot" for k in range(_MANY))
_RESULT = "(" + ", ".join(["f32[512]{0}"] * _MANY) + ")"
_OPERANDS = ", ".join(f"%shard{k}" for k in range(_MANY))
_GROUPS = "replica_groups={{0,1,2,3,4,5,6,7}}, use_global_device_ids=true"
#: The gather of the late schedule and those of 40 shards are one.
_COMBINED = LATE.replace("z: s32[])", "z: s32[], " + ", ".join(
    f"shard{k}: f32[64]" for k in range(_MANY)) + ")").replace(
    "  %init =", f"{_SHARDS}  %init =").replace(
    "  %ag-done =", f"  %all = {_RESULT} all-gather({_OPERANDS}), channel_id=9, {_GROUPS}, "
    f'dimensions={{0}}, metadata={{op_name="jit(step)/({_NAMES})"}}\n  %ag-done =')  # fmt: skip


def test_the_buttons_of_the_panel_stay_on_the_screen(running, tmp_path) -> None:
    file = tmp_path / "combined.html"
    costs = tmp_path / "costs.json"
    costs.write_text(json.dumps({**COSTS, "latency_us": {"all": 70.0}}))
    file.write_text(render_page(side_of(_COMBINED, str(costs))), "utf-8")
    with visit(running, file, height=800) as seen:
        seen.page.goto(f"{file.as_uri()}#all")
        seen.page.reload()
        seen.page.evaluate("scrollTo(0, 0)")
        told = seen.text("#details")
        assert f"Combines {_MANY}" in told
        assert "params['layers'][0]['a_rather_long_name'] and 39 more" in told
        assert "params['layers'][1]" not in told
        for button in seen.page.locator("#details .actions button").all():
            box = button.bounding_box()
            assert box["y"] + box["height"] < 800
        seen.page.click("#details summary >> text=and 39 more >> nth=0")
        assert "params['layers'][39]['a_rather_long_name']" in seen.text("#details")
        assert not seen.console


def test_a_question_mark_shows_the_keys(running, pages) -> None:
    with visit(running, pages["one"]) as seen:
        assert seen.page.locator("#key-list").is_hidden()
        seen.page.keyboard.press("?")
        assert "zoom in, out" in seen.text("#key-list")
        assert "these keys" in seen.text("#key-list")
        seen.page.keyboard.press("Escape")
        assert seen.page.locator("#key-list").is_hidden()
        assert seen.is_silent()


def test_search_finds_by_name_done_and_opcode(running, pages) -> None:
    with visit(running, pages["one"]) as seen:
        seen.page.keyboard.press("/")
        seen.page.keyboard.type("ag-done")
        assert seen.text("#matches") == "1 of 1"
        assert "ag-start" in seen.text("#details")
        seen.page.fill("#search", "DOT")
        assert seen.text("#matches") == "1 of 1"
        seen.page.fill("#search", "there is no such")
        assert seen.text("#matches") == "none found"
        assert seen.page.is_disabled("#next")
        seen.page.keyboard.press("Escape")
        assert seen.text("#matches") == ""
        assert seen.page.input_value("#search") == ""
        assert seen.is_silent()


def test_keys_zoom_and_move(running, pages) -> None:
    with visit(running, pages["one"]) as seen:
        seen.page.focus("canvas.lanes")
        before = seen.page.screenshot()
        for key in ("ArrowUp", "ArrowUp", "ArrowRight", "w", "d"):
            seen.page.keyboard.press(key)
        seen.settle()
        near = seen.page.screenshot()
        assert near != before
        seen.page.keyboard.press("0")
        seen.settle()
        assert seen.page.screenshot() == before
        seen.page.keyboard.press("e")
        assert "ag-start" in seen.text("#details")
        seen.page.keyboard.press("Escape")
        assert "Click a span" in seen.text("#details")
        assert seen.is_silent()


def test_wheel_and_drag_zoom_and_move(running, pages) -> None:
    with visit(running, pages["one"]) as seen:
        canvas = seen.page.locator("canvas.lanes")
        whole = canvas.screenshot()
        seen.page.mouse.move(*point_at(seen, 0.5, _COMPUTE_Y_PX))
        seen.page.keyboard.down("Control")
        seen.page.mouse.wheel(0, -600)
        seen.page.keyboard.up("Control")
        seen.settle()
        near = canvas.screenshot()
        assert near != whole
        seen.page.mouse.down()
        seen.page.mouse.move(*point_at(seen, 0.2, _COMPUTE_Y_PX))
        seen.page.mouse.up()
        seen.settle()
        assert canvas.screenshot() != near
        seen.page.click("#fit")
        seen.page.mouse.move(0, 0)
        seen.settle()
        assert canvas.screenshot() == whole
        assert seen.is_silent()


def test_tables_sort_and_filter(running, pages) -> None:
    with visit(running, pages["one"]) as seen:
        names = "#collectives tbody tr td:first-child"
        assert seen.page.locator(names).all_inner_texts() == ["ag-start", "ar-start"]
        seen.page.click("#collectives th button >> text=Collective")
        assert seen.page.get_attribute("#collectives th", "aria-sort") == "ascending"
        seen.page.click("#collectives th button >> text=Collective")
        assert seen.page.locator(names).all_inner_texts() == ["ar-start", "ag-start"]
        seen.page.fill("#collectives input", "all-reduce")
        assert seen.page.locator(names).all_inner_texts() == ["ar-start"]
        seen.page.click(f"{names} >> text=ar-start")
        assert seen.page.input_value("#computation") == "body"
        assert seen.is_silent()


def test_both_themes_are_readable(running, pages) -> None:
    for theme, offered in (("light", "Dark theme"), ("dark", "Light theme")):
        with visit(running, pages["one"], theme=theme) as seen:
            assert seen.text("#theme") == offered
            assert _contrast(seen, "body") >= 7.0
            assert _contrast(seen, ".card .note") >= 4.5
            assert _contrast(seen, ".badge.exposed") >= 4.5
            seen.page.click("#theme")
            assert seen.text("#theme") != offered
            assert seen.is_silent()


def _contrast(seen, selector: str) -> float:
    """Contrast of a text with its background, as WCAG 2 counts it."""
    return seen.page.evaluate(
        """(selector) => {
            const light = (text) => {
                const [r, g, b] = text.match(/[\\d.]+/g).slice(0, 3).map((v) => {
                    const c = v / 255;
                    return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
                });
                return 0.2126 * r + 0.7152 * g + 0.0722 * b;
            };
            let at = document.querySelector(selector);
            const ink = light(getComputedStyle(at).color);
            while (getComputedStyle(at).backgroundColor === 'rgba(0, 0, 0, 0)')
                at = at.parentElement;
            const paper = light(getComputedStyle(at).backgroundColor);
            return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
        }""",
        selector,
    )


@pytest.mark.parametrize("width", [360, 800, 1400])
@pytest.mark.parametrize("name", ["one", "two", "none"])
def test_nothing_hangs_over_at_any_width(running, pages, name, width) -> None:
    with visit(running, pages[name], width=width) as seen:
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
        assert seen.is_silent()


def test_what_is_operated_has_a_name(running, pages) -> None:
    with visit(running, pages["two"]) as seen:
        nameless = seen.page.evaluate(
            """() => [...document.querySelectorAll('button, input, select, canvas')]
                .filter((e) => !(e.textContent.trim() || e.ariaLabel || e.ariaHidden
                    || e.labels?.length))
                .map((e) => e.outerHTML)"""
        )
        assert nameless == []


def test_side_by_side_shows_what_moved_and_what_it_bought(running, pages) -> None:
    with visit(running, pages["two"]) as seen:
        assert "The step takes 40.0 µs less (36.4 %)" in seen.text("#verdict")
        assert "was 110 µs" in seen.text("#cards")
        places = [
            seen.page.locator(part).bounding_box()["y"]
            for part in ("#views", "#moves", "#causes", "#collectives")
        ]
        assert places == sorted(places)
        moved = seen.text("#moves tbody tr")
        assert "7 → 6" in moved
        assert "40.0 µs earlier" in moved
        assert "50.0 µs → 10.0 µs" in moved
        assert "40.0 µs less exposed: now overlaps %dot" in moved
        seen.page.click("#moves tbody .link")
        told = seen.text("#details")
        assert "Exposed before" in told
        seen.page.click("text=Show it before")
        assert "50 µs (100.0 %)" in seen.text("#details")
        assert seen.page.locator("canvas.lanes").count() == 2
        assert seen.is_silent()


def test_a_module_without_collectives_says_so(running, pages) -> None:
    with visit(running, pages["none"]) as seen:
        assert "no collectives" in seen.text("#verdict")
        assert "Nothing is exposed" in seen.text("#causes")
        assert "nothing can be exposed" in seen.text("#collectives")
        assert seen.page.is_disabled("#worst")
        assert seen.is_silent()


def test_what_takes_no_time_is_listed_all_the_same(running, pages) -> None:
    with visit(running, pages["free"]) as seen:
        assert "Every collective ends before" in seen.text("#verdict")
        assert "Nothing here takes time." in seen.text("#scope")
        assert seen.page.locator("#collectives tbody tr").count() == 2
        assert seen.page.locator("#collectives tbody .link").count() == 0
        assert seen.is_silent()


def test_a_page_without_its_module_still_explains(running, pages) -> None:
    with visit(running, pages["bare"]) as seen:
        seen.page.keyboard.press("e")
        assert "f32[64]{0} %y" in seen.text("#details")
        assert seen.is_silent()


def test_an_address_names_the_instruction_to_open(running, pages) -> None:
    with visit(running, pages["one"]) as seen:
        seen.page.goto(f"{pages['one'].as_uri()}#ar-start")
        seen.page.reload()
        assert "ar-start" in seen.text("#details")
        assert seen.page.input_value("#computation") == "body"


#: Counts what each frame draws and how long its drawing takes.
_WATCH = """
window.frames_seen = [];
const draw = CanvasRenderingContext2D.prototype.fillRect;
let drawn = 0;
CanvasRenderingContext2D.prototype.fillRect = function (...box) {
    drawn++;
    return draw.apply(this, box);
};
const ask = window.requestAnimationFrame.bind(window);
window.requestAnimationFrame = (act) => ask((now) => {
    drawn = 0;
    const begun = performance.now();
    act(now);
    if (drawn) window.frames_seen.push([performance.now() - begun, drawn]);
});
"""


def pan_and_zoom(seen) -> tuple[float, int]:
    """Milliseconds and most rectangles of a frame while the page moves."""
    frames = seen.page.evaluate(
        """async () => {
            window.frames_seen.length = 0;
            for (const key of 'dwwwwwwdddddaaaaassssswwwwwdddddssss') {
                document.dispatchEvent(
                    new KeyboardEvent('keydown', { key, bubbles: true }));
                await new Promise(ask => setTimeout(ask, 20));
            }
            return window.frames_seen;
        }"""
    )
    # Other work on the machine makes frames slower: the quickest quarter is the page's.
    quarter = statistics.quantiles((ms for ms, _ in frames), n=4)[0]
    return quarter, max(n for _, n in frames)


def assert_fluid(seen, lanes: int) -> None:
    """Frames are quick, and what they draw depends on the screen, not the schedule."""
    milliseconds, rectangles = pan_and_zoom(seen)
    assert milliseconds < _SLOWEST_FRAME_MS
    width = seen.page.evaluate("document.querySelector('canvas.lanes').clientWidth")
    assert rectangles < lanes * width


def test_twenty_thousand_instructions_stay_fluid(running, pages) -> None:
    with visit(running, pages["long"], watch=_WATCH) as seen:
        assert seen.page.locator(".budget .bar span").count() == 1
        assert_fluid(seen, lanes=4)
        seen.page.fill("#search", "fusion.1999")
        assert seen.text("#matches").startswith("1 of 1")
        assert seen.is_silent()


def _many_loops(count: int) -> str:
    """That many loops, one after the other; each runs the body of the late schedule."""
    head = LATE.split("  %init =")[0]
    lines, before = [], "%x"
    for k in range(count):
        lines.append(
            f"  %init{k} = (s32[], f32[64]{{0}}) tuple(%z, {before})\n"
            f"  %loop{k} = (s32[], f32[64]{{0}}) while(%init{k}), condition=%cond, "
            'body=%body, backend_config={"known_trip_count":{"n":"3"}}\n'
            f"  %y{k} = f32[64]{{0}} get-tuple-element(%loop{k}), index=1\n"
        )
        before = f"%y{k}"
    head = head.replace("-> (f32[512], f32[64], f32[64])", "-> f32[64]")
    return f"{head}{''.join(lines)}  ROOT %neg = f32[64]{{0}} negate({before})\n}}\n"


def test_two_thousand_loops_stay_fluid(running, tmp_path) -> None:
    file = tmp_path / "loops.html"
    page = render_page(side_of(_many_loops(2_000), write_costs(tmp_path)))
    file.write_text(page, "utf-8")
    with visit(running, file, watch=_WATCH) as seen:
        # A loop that is too narrow for its body is one rectangle of the lane.
        milliseconds, rectangles = pan_and_zoom(seen)
        assert milliseconds < _SLOWEST_FRAME_MS
        width = seen.page.evaluate("document.querySelector('canvas.lanes').clientWidth")
        assert rectangles < 6 * width
        assert seen.is_silent()


@pytest.mark.skipif(not _GOLDEN.is_dir(), reason="no golden modules beside us")
def test_sixty_two_thousand_instructions(running, tmp_path) -> None:
    sides = []
    for which in ("before", "after"):
        read = module(read_text(_GOLDEN / _SCHEDULED.format(which)))
        timeline = simulate(read, costs=str(_GOLDEN / "costs.json.gz"))
        sides.append(Side(timeline, which, _SCHEDULED.format(which), read))
    assert len(sides[1].module.entry.instructions) > 13_000
    one, two = render_page(sides[1]), render_page(sides[1], sides[0])
    for name, text in (("one", one), ("two", two)):
        (tmp_path / f"{name}.html").write_text(text, encoding="utf-8")
        with visit(running, tmp_path / f"{name}.html", watch=_WATCH) as seen:
            assert colours(seen) > 20
            seen.page.fill("#search", "all-gather-start.162")
            seen.settle()
            assert seen.text("#matches") == "1 of 1"
            assert "all-gather-start.162" in seen.text("#details")
            seen.page.click("#fit")
            seen.settle()
            assert_fluid(seen, lanes=4)
            assert seen.is_silent()
