/* What a search over XLA's flags found: step over peak memory, and what each lever does. */

const PLOT = { width: 720, height: 260, left: 64, right: 14, top: 12, bottom: 40 };
const VERDICTS = { "set": "set", "helps alone": "no gain with the rest", "no effect": "no effect", "leave": "leave", "too much memory": "too much memory", "failed": "failed", "not priced": "not priced", "pointless": "not tried" };

function showTune() {
  const box = byId("tune");
  const { tune } = DATA;
  box.hidden = !tune;
  if (!tune) return;
  fill(box,
    make("h2", { id: "tune-title" }, "What to set"),
    make("p", { class: "mono set" }, tune.set || "nothing: no combination is faster"),
    make("div", { class: "tuned" },
      make("figure", {}, paretoOf(tune), make("figcaption", { class: "muted" }, tune.caption)),
      leverTable(tune)));
}

/* The namespace of a drawing is that of the empty one in the page, which so names no address. */
const svg = (tag, attributes, ...children) => {
  const element = document.createElementNS(byId("drawing").namespaceURI, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
};

/* A dot per combination; a line through those that no other beats in both. */
function paretoOf({ points, limit_bytes: limit }) {
  const { width, height, left, right, top, bottom } = PLOT;
  const span = (values) => {
    const low = Math.min(...values), high = Math.max(...values), room = (high - low || high || 1) * 0.06;
    return [low - room, high + room];
  };
  const [fast, slow] = span(points.map((p) => p.step_us));
  const [small, large] = span(points.map((p) => p.bytes));
  const x = (bytes) => left + (bytes - small) / (large - small) * (width - left - right);
  const y = (us) => top + (slow - us) / (slow - fast) * (height - top - bottom);
  const best = points.filter((p) => p.is_front).sort((a, b) => a.bytes - b.bytes);
  const line = best.map((p) => `${x(p.bytes)},${y(p.step_us)}`).join(" ");
  const text = (at, up, anchor, said) => svg("text", { x: at, y: up, "text-anchor": anchor }, said);
  const dot = (p) => svg("circle", { cx: x(p.bytes), cy: y(p.step_us), r: p.role ? 6 : 4, class: p.role || "point" },
    svg("title", {}, `${p.name}: ${shownTime(p.step_us)}, ${shownBytes(p.bytes)}`));
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", class: "pareto", "aria-label": `Step over peak memory of ${points.length} combinations` },
    svg("line", { x1: left, y1: height - bottom, x2: width - right, y2: height - bottom }),
    svg("line", { x1: left, y1: top, x2: left, y2: height - bottom }),
    ...(limit && limit > small && limit < large ? [svg("line", { x1: x(limit), y1: top, x2: x(limit), y2: height - bottom, class: "limit" })] : []),
    svg("polyline", { points: line }),
    ...points.filter((p) => !p.role).map(dot), ...points.filter((p) => p.role).map(dot),
    text(left - 6, y(fast) + 0, "end", shownTime(fast)),
    text(left - 6, y(slow) + 10, "end", shownTime(slow)),
    text(left, height - bottom + 16, "start", shownBytes(small)),
    text(width - right, height - bottom + 16, "end", shownBytes(large)),
    text((left + width - right) / 2, height - 6, "middle", "peak memory"),
    ...points.filter((p) => p.role).map((p) => text(x(p.bytes), y(p.step_us) - 9, x(p.bytes) > width * 0.7 ? "end" : "start", `${p.role}, ${shownTime(p.step_us)}`)));
}

function leverTable({ levers }) {
  const signed = (share) => `${share > 0 ? "+" : share < 0 ? "\u2212" : ""}${(100 * Math.abs(share)).toFixed(1)} %`;
  const known = (l) => l.step_us !== null;
  const columns = [
    { title: "Lever", value: (l) => l.text, class: "name", cell: (l) => make("span", { title: l.what }, l.text) },
    { title: "Step alone", number: true, value: (l) => (known(l) ? -l.change : -Infinity), cell: (l) => (known(l) ? `${shownTime(l.step_us)} (${signed(l.change)})` : "") },
    { title: "Without it", number: true, value: (l) => l.without ?? -Infinity, cell: (l) => (l.without === null ? "" : signed(l.without)) },
    { title: "Memory", number: true, value: (l) => l.bytes ?? -1, cell: (l) => (l.bytes === null ? "" : shownBytes(l.bytes)) },
    { title: "Verdict", value: (l) => l.verdict, cell: (l) => VERDICTS[l.verdict] },
    { title: "Flag", value: (l) => l.flag, class: "cause", cell: (l) => (l.flag ? make("span", { class: "mono" }, l.flag) : l.why) },
  ];
  return new SortedTable(columns, levers, { by: 1, caption: "Levers" }).element;
}
