/* Keys. Letters work unless the user is typing; arrows work when a timeline has focus. */

const KEYS = [
  ["\u2190 \u2192 or a d", "move"],
  ["+ \u2212 or w s", "zoom in, out"],
  ["0", "the whole computation"],
  ["/", "search"],
  ["n N", "next, previous match"],
  ["e E", "next, previous collective by exposure"],
  ["Tab, then , .", "previous, next span of the lane"],
  ["Enter", "zoom to the selection; into a loop, its body"],
  ["Esc", "clear the selection"],
  ["drag", "move; on the axis or with Shift: zoom to the selected time"],
  ["Ctrl + wheel", "zoom at the pointer; Shift + wheel moves"],
  ["double click", "zoom to a span; in a loop, open its body there"],
  ["?", "these keys"],
];
const STEP = 0.18, ZOOM = 0.7;

function followKeys(app) {
  const { viewport } = app;
  const acts = {
    a: () => viewport.move(-STEP * viewport.length),
    d: () => viewport.move(STEP * viewport.length),
    w: () => viewport.zoom(ZOOM),
    s: () => viewport.zoom(1 / ZOOM),
    "+": () => viewport.zoom(ZOOM),
    "=": () => viewport.zoom(ZOOM),
    "-": () => viewport.zoom(1 / ZOOM),
    0: () => viewport.glideTo(0, viewport.end),
    n: () => app.stepMatch(1),
    N: () => app.stepMatch(-1),
    e: () => app.stepExposed(1),
    E: () => app.stepExposed(-1),
    "/": () => byId("search").focus(),
    "?": () => byId("keys").click(),
    Escape: () => (byId("key-list").hidden ? app.select(null, -1) : byId("keys").click()),
  };
  const onCanvas = {
    ArrowLeft: acts.a, ArrowRight: acts.d, ArrowUp: acts.w, ArrowDown: acts.s,
    ",": () => app.stepSpan(-1),
    ".": () => app.stepSpan(1),
    Enter: () => app.enterSelection(),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = event.target.closest?.("input, select, textarea");
    if (typing) {
      if (event.key === "Escape") leave(app, event.target);
      return;
    }
    const onView = event.target.matches?.("canvas.lanes");
    const act = (onView && onCanvas[event.key]) || acts[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
  const button = byId("keys"), list = byId("key-list");
  fill(list, ...KEYS.map(([keys, what]) => make("div", {}, make("kbd", {}, keys), ` ${what}`)));
  button.addEventListener("click", () => {
    list.hidden = !list.hidden;
    button.setAttribute("aria-expanded", String(!list.hidden));
  });
}

/* Escape leaves a field; in the search it also clears the text and the matches. */
function leave(app, field) {
  if (field.id === "search") {
    field.value = "";
    app.find("");
  }
  field.blur();
}
