/* Mouse and touch on a timeline: drag pans, wheel with Ctrl zooms, Shift-drag or a drag
 * on the axis zooms to a range, a click selects, two fingers pinch. */

const CLICK_SLOP_PX = 4, WHEEL_ZOOM = 0.0022;

function followPointer(view) {
  const { canvas, viewport } = view;
  const pointers = new Map();
  let begun = null;

  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    view.measure();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };

  canvas.addEventListener("pointerdown", (event) => {
    const at = place(event);
    pointers.set(event.pointerId, at);
    canvas.setPointerCapture(event.pointerId);
    const stretch = event.shiftKey || at.y < AXIS_PX;
    begun = { at, from: viewport.from, to: viewport.to, moved: false, stretch, anchor: view.t(at.x) };
    hideTip();
  });

  canvas.addEventListener("pointermove", (event) => {
    const at = place(event);
    if (!pointers.has(event.pointerId) || !begun) {
      hover(view, at, event);
      return;
    }
    const before = [...pointers.values()];
    pointers.set(event.pointerId, at);
    const now = [...pointers.values()];
    if (now.length === 2) pinch(view, before, now);
    if (Math.abs(at.x - begun.at.x) > CLICK_SLOP_PX) begun.moved = true;
    if (!begun.moved || now.length > 1) return;
    if (begun.stretch) {
      view.stretch = [begun.at.x, at.x];
      view.queue();
    } else {
      canvas.classList.add("dragging");
      const shift = (begun.at.x - at.x) / view.scale;
      viewport.set(begun.from + shift, begun.to + shift);
    }
  });

  const release = (event) => {
    if (!pointers.delete(event.pointerId) || !begun) return;
    canvas.classList.remove("dragging");
    const at = place(event);
    if (!begun.moved && event.type === "pointerup") view.actions.select(view, view.spanAt(at.x, at.y));
    if (begun.moved && begun.stretch && view.stretch) {
      const [from, to] = [view.t(view.stretch[0]), view.t(view.stretch[1])].sort((a, b) => a - b);
      viewport.glideTo(Math.max(0, from), to);
    }
    view.stretch = null;
    if (pointers.size === 0) begun = null;
    view.queue();
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", hideTip);

  canvas.addEventListener("dblclick", (event) => {
    const at = place(event);
    const inside = insideAt(view, at.x, at.y);
    const span = view.spanAt(at.x, at.y);
    if (inside) view.actions.jumpToName(inside.body.name, inside.body.names[inside.span]);
    else if (span >= 0) view.actions.zoomTo(view, span);
  });

  canvas.addEventListener("wheel", (event) => {
    const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    if (event.ctrlKey || event.metaKey || event.altKey) {
      event.preventDefault();
      viewport.zoom(Math.exp(event.deltaY * WHEEL_ZOOM), view.t(place(event).x));
    } else if (sideways && Math.abs(sideways) >= Math.abs(event.shiftKey ? 0 : event.deltaY)) {
      event.preventDefault();
      viewport.move(sideways / view.scale);
    }
  }, { passive: false });

  followOverview(view);
}

function pinch(view, before, now) {
  if (before.length < 2) return;
  const apart = (pair) => Math.max(20, Math.abs(pair[0].x - pair[1].x));
  const middle = (now[0].x + now[1].x) / 2;
  view.viewport.zoom(apart(before) / apart(now), view.t(middle));
}

function followOverview(view) {
  const { overview, viewport } = view;
  const centre = (event) => {
    const box = overview.getBoundingClientRect();
    const t = (event.clientX - box.left - view.gutter) / Math.max(1, box.width - view.gutter) * viewport.end;
    viewport.set(t - viewport.length / 2, t + viewport.length / 2);
  };
  overview.addEventListener("pointerdown", (event) => {
    overview.setPointerCapture(event.pointerId);
    centre(event);
  });
  overview.addEventListener("pointermove", (event) => {
    if (event.buttons & 1) centre(event);
  });
}

function hover(view, at, event) {
  const inside = insideAt(view, at.x, at.y);
  const span = inside ? inside.span : view.spanAt(at.x, at.y);
  if (span >= 0) {
    const schedule = inside ? inside.body : view.schedule;
    const found = schedule.collectiveOf.get(span);
    const took = shownTime(schedule.ends[span] - schedule.starts[span]);
    const lines = [
      make("div", { class: "mono" }, schedule.names[span]),
      make("div", {}, schedule.kind(span) === "wait" ? `the device waits ${took}` : `${schedule.opcode(span)}, ${took}`),
    ];
    if (found?.label) lines.push(make("div", {}, found.label));
    if (inside) lines.push(make("div", {}, `in one run of ${inside.loop}, \u00d7${shownCount(inside.trips)}; double click opens it`));
    if (found) lines.push(make("div", {}, `${CLASS_NAMES[found.class]}: ${shownTime(found.exposed_us)} of ${shownTime(found.latency_us)} exposed`));
    showTip(lines, event);
  } else if (view.schedule?.memory && at.y > view.memoryY && at.x > view.gutter) {
    const t = view.t(at.x);
    showTip([make("div", {}, `${shownBytes(memoryBetween(view.schedule.memory, t, t))} live at ${shownTime(Math.max(0, t))}`)], event);
  } else hideTip();
}

function showTip(lines, event) {
  const tip = byId("tip");
  fill(tip, ...lines);
  tip.hidden = false;
  const left = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8);
  const top = event.clientY + 18 + tip.offsetHeight > window.innerHeight ? event.clientY - tip.offsetHeight - 10 : event.clientY + 18;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${Math.max(4, top)}px`;
}

function hideTip() {
  byId("tip").hidden = true;
}
