"""The page itself: template, style, scripts and data joined into one text.

    pathlib.Path("step.html").write_text(render_page(Side(timeline, module=module)))

The page loads nothing: its content security policy forbids the browser to try.
"""

from __future__ import annotations

import html
import json
import pathlib
from collections.abc import Sequence
from typing import Any, Final

from hlo_passes.scheduler.estimators.tpu_final import range_premise
from hlo_passes.scheduler.page.advice import advice_of
from hlo_passes.scheduler.page.causes import causes_of, verdict, verdict_of_two
from hlo_passes.scheduler.page.encoding import (
    KINDS,
    Opcodes,
    Side,
    encode_side,
    readable,
    sentence,
)
from hlo_passes.scheduler.schedule_moves import (
    TAKES_NO_TIME,
    Move,
    Simulated,
    schedule_moves,
)
from hlo_passes.scheduler.simulation.notes import concerns_headline
from hlo_passes.scheduler.simulation.ranges import change_of

_DATA: Final = pathlib.Path(__file__).parent / "data"
#: In order of use: each script comes after those that it needs.
_SCRIPTS: Final = (
    "elements", "numbers", "model", "spans", "viewport", "paint", "view", "memory",
    "inside", "overview", "pointer", "keyboard", "footprint",
    "headline", "details", "tables", "change", "advice", "tune",
    "app",
)  # fmt: skip


def render_page(
    side: Side,
    before: Side | None = None,
    moves: Sequence[Move] | None = None,
    tune: dict[str, Any] | None = None,
) -> str:
    """A page of one timeline, or of two side by side.

    Args:
        side: what is drawn; with `before`, the later state.
        before: an earlier state of the same module.
        moves: what moved, if it is known already.
        tune: what a search over flags found (`page.tuning`).
    """
    sides = [side] if before is None else [before, side]
    data = _page_data(sides, _moves(sides) if moves is None else moves)
    data["tune"] = tune
    # A '<' in a name would close the element that holds the data.
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    text = text.replace("<", "\\u003c").replace("\N{LINE SEPARATOR}", "\\u2028")
    script = "\n".join((_DATA / f"{name}.js").read_text("utf-8") for name in _SCRIPTS)
    page = (_DATA / "page.html").read_text("utf-8")
    return (
        page.replace("@TITLE@", html.escape(data["title"]))
        .replace("@STYLE@", (_DATA / "page.css").read_text("utf-8"))
        .replace("@SCRIPT@", script)
        # Insert the data last, so that no instruction's name is taken for a
        # placeholder.
        .replace("@DATA@", text)
    )


def _page_data(sides: Sequence[Side], moves: Sequence[Move]) -> dict[str, Any]:
    opcodes = Opcodes()
    encoded = [encode_side(each, opcodes) for each in sides]
    for side, view in zip(sides, encoded, strict=True):
        view["causes"] = causes_of(side.timeline)
        view["advice"] = advice_of(side.timeline)
    last = sides[-1].timeline
    used = {k for v in encoded for c in v["computations"] for k in c["kinds"]}
    title = last.module if len(sides) == 1 else f"{last.module}: before and after"
    parts = [last.state.summary, last.priced_on, f"costs: {last.estimator}"]
    parts.append(_streams(last.streams))
    said = (
        verdict(last)
        if len(sides) == 1
        else verdict_of_two(sides[0].timeline, sides[1].timeline)
    )
    if last.state.cure:
        said = f"{sentence(last.state.summary)} {sentence(last.state.cure)} {said}"
    said = " ".join((said, *map(sentence, _range_of(sides))))
    remarks = [sentence(f"Beware: {remark}") for remark in last.remarks]
    beware = [sentence(note) for note in last.notes if concerns_headline(note)]
    others = [sentence(note) for note in last.notes if not concerns_headline(note)]
    if last.overlay is not None:
        others.append(sentence(last.overlay.to_sentence()))
    if last.how_to_change:
        others.append(sentence(last.how_to_change))
    return {
        "title": title,
        "subtitle": " \N{MIDDLE DOT} ".join(part for part in parts if part),
        "verdict": " ".join((said, *remarks, *beware)),
        "is_final": not last.state.cure,
        "bound_premise": last.bound_premise,
        "entry": last.entry,
        "entry_of": [side.timeline.entry for side in sides],
        "kinds": list(KINDS),
        "kinds_used": [kind for k, kind in enumerate(KINDS) if k in used],
        "opcodes": list(opcodes.numbers),
        "page_notes": others,
        "sides": encoded,
        **_listed(moves),
    }


def _moves(sides: Sequence[Side]) -> tuple[Move, ...]:
    """What moved from the first side to the last; nothing if modules are missing."""
    first, last = sides[0], sides[-1]
    if first is last or first.module is None or last.module is None:
        return ()
    return schedule_moves(
        Simulated(first.module, first.timeline), Simulated(last.module, last.timeline)
    )


def _listed(moves: Sequence[Move]) -> dict[str, Any]:
    """The moves that the page lists, and how many it leaves out."""
    listed = [
        {**move.to_json(), "bought": readable(move.bought)}
        for move in moves
        if move.bought != TAKES_NO_TIME
    ]
    note = f"{len(listed):,}, most expensive first"
    if silent := len(moves) - len(listed):
        note += f"; {silent:,} more take no time and are left out"
    return {"moves": listed, "moves_note": note}


def _range_of(sides: Sequence[Side]) -> list[str]:
    """How sure the verdict is."""
    ranges = [side.timeline.sensitivity for side in sides]
    last = ranges[-1]
    told = last if len(ranges) == 1 else change_of(ranges[0], last)
    if told is None:
        return []
    premise = range_premise(sides[-1].timeline.estimator)
    return [f"Range: {told.to_text()}{premise}"]


def _streams(streams: int) -> str:
    if streams == 0:
        return "nothing queues"
    return f"{streams} communication stream{'s' if streams > 1 else ''}"
