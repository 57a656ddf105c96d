/* The panel of the selection: what it is, when it ran, and why it is exposed. */

const LONGEST_TEXT = 96, MOST_OPERANDS = 4;

const row = (name, ...value) => [make("dt", {}, name), make("dd", {}, ...value)];

function showDetails(app) {
  const box = byId("details");
  const { view, span } = app.selection;
  if (span < 0) {
    fill(box, make("p", { class: "muted" }, "Click a span or a table row to see what it is, what it waits for, and why."));
    return;
  }
  const { schedule } = view;
  const found = schedule.collectiveOf.get(span);
  // First what one can do, so that nothing long can push it off the screen.
  fill(box,
    actions(app, schedule, span),
    ...(found ? collectiveDetails(app, schedule, found) : spanDetails(app, schedule, span)),
    ...otherSides(app, view, span));
  box.scrollTop = 0;
}

/* The same instruction in the other schedule, and a way there. */
function otherSides(app, view, span) {
  const name = view.schedule.names[span];
  return app.views.filter((other) => other !== view).map((other) => {
    const there = other.schedule.find(name);
    const { label } = SIDES[other.side];
    if (there < 0) return make("p", { class: "muted" }, `Not in the schedule ${label}.`);
    const found = other.schedule.collectiveOf.get(there);
    return make("dl", {},
      ...row(`Starts ${label}`, exactTime(other.schedule.starts[there])),
      ...(found ? row(`Exposed ${label}`, exactTime(found.exposed_us)) : []),
      ...row("", make("button", { type: "button", class: "link", onclick: () => app.jump(other.schedule, there) }, `Show it ${label}`)));
  });
}

function head(name, opcode, badge) {
  return make("div", { class: "head" }, make("h3", {}, name), badge, make("span", { class: "muted" }, opcode));
}

function times(schedule, span) {
  const start = schedule.starts[span], end = schedule.ends[span];
  return [
    ...row("Start", exactTime(start)),
    ...row("End", exactTime(end)),
    ...row("Takes", `${exactTime(end - start)} (${shownShare(end - start, schedule.facts.step_time_us)} of ${schedule.facts.is_entry ? "the step" : "one run"})`),
  ];
}

function collectiveDetails(app, schedule, found) {
  const hidden = Math.max(0, found.latency_us - found.exposed_us);
  const share = found.latency_us > 0 ? hidden / found.latency_us : 1;
  return [
    head(found.name, found.opcode, make("span", { class: `badge ${found.class}` }, CLASS_NAMES[found.class])),
    make("div", { class: "split", role: "img", "aria-label": `${(100 * share).toFixed(0)} % hidden` },
      make("i", { style: `width: ${100 * share}%; background: var(--hidden)` }),
      make("i", { style: `width: ${100 - 100 * share}%; background: var(--exposed)` })),
    make("p", { class: "why" }, make("strong", {}, found.exposed_us > 0 ? "Why exposed: " : "Cause: "), found.cause),
    ...adviceLines(found),
    make("dl", {},
      ...row("Exposed", `${exactTime(found.exposed_us)} (${shownShare(found.exposed_us, found.latency_us)})`),
      ...row("Latency", `${exactTime(found.latency_us)}, by ${found.model}`),
      ...(found.executions > 1 ? row("In a step", `${shownTime(found.total_us)} in ${shownCount(found.executions)} runs`) : []),
      ...(found.parameter ? row("Parameter", make("span", { class: "mono" }, found.parameter)) : []),
      ...(found.op_name ? row("From", folded(found.op_name)) : []),
      ...(found.source ? row("Line", make("span", { class: "mono" }, found.source)) : []),
      ...(found.members.length ? row(`Combines ${shownCount(found.members.length)}`, members(found)) : []),
      ...row("Message", found.bytes === null ? "unknown" : `${shownBytes(found.bytes)} (${shownCount(found.bytes)} B)`),
      ...row("Lane", found.stream),
      ...(found.queued_us > 0 ? row("Queued", exactTime(found.queued_us)) : []),
      ...times(schedule, found.span),
      ...row("Groups", folded(found.groups || "one group of all devices")),
      ...(found.done ? row("Done", make("span", { class: "mono" }, found.done)) : []),
      ...row(`Operands (${found.operands.length})`, operandList(app, schedule, found.operands))),
  ];
}

/* What a combined collective transfers, one line each; they open on demand. */
function members({ label, members: all }) {
  const items = all.map(([name, source]) => make("li", { class: "mono" }, name || "unnamed", source && make("span", { class: "muted" }, ` ${source}`)));
  return make("details", {}, make("summary", { class: "mono" }, label || "unnamed"), make("ul", { class: "members" }, ...items));
}

function operandList(app, schedule, operands) {
  const list = make("ul", { class: "operands" }, ...operands.map((text) => operand(app, schedule, text)));
  if (operands.length <= MOST_OPERANDS) return list;
  return make("details", {}, make("summary", { class: "mono" }, `${operands[0]} and ${shownCount(operands.length - 1)} more`), list);
}

/* A long text on one line that opens on demand. */
function folded(text) {
  if (text.length <= LONGEST_TEXT) return make("span", { class: "mono" }, text);
  return make("details", { class: "mono" }, make("summary", {}, `${text.slice(0, LONGEST_TEXT)}\u2026`), text);
}

/* An operand as printed; its name links to its span if it has one. */
function operand(app, schedule, text) {
  const words = text.split(/(%\S+)/).filter(Boolean).map((word) => {
    const span = word.startsWith("%") ? schedule.find(word.slice(1)) : -1;
    if (span < 0) return word;
    return make("button", { type: "button", class: "link mono", onclick: () => app.jump(schedule, span) }, word);
  });
  return make("li", { class: "mono" }, ...words);
}

function spanDetails(app, schedule, span) {
  const kind = schedule.kind(span);
  if (kind === "wait") return waitDetails(app, schedule, span);
  const calls = schedule.calls(span);
  return [
    head(schedule.names[span], schedule.opcode(span), null),
    make("dl", {}, ...times(schedule, span), ...(calls ? callRows(calls) : [])),
  ];
}

function callRows(calls) {
  return [
    ...row("Runs", `${calls.is_counted ? shownCount(calls.trips) : "counted once, not known how often"}, each ${exactTime(calls.run_us)}`),
    ...row("Exposed", `${exactTime(calls.exposed_us * calls.trips)} in all (${shownShare(calls.exposed_us, calls.run_us)})`),
  ];
}

function waitDetails(app, schedule, span) {
  const target = schedule.find(schedule.names[span]);
  return [
    head("Device waits", "", null),
    make("dl", {}, ...times(schedule, span)),
    target >= 0 ? make("p", {}, "For ", make("button", { type: "button", class: "link mono", onclick: () => app.jump(schedule, target) }, schedule.names[span])) : null,
  ].filter((part) => part !== null);
}

function actions(app, schedule, span) {
  const calls = schedule.kind(span) === "wait" ? null : schedule.calls(span);
  return make("div", { class: "actions" },
    make("button", { type: "button", class: "button", onclick: () => app.zoomTo(app.viewOf(schedule), span) }, "Zoom to it"),
    ...(calls?.names ?? []).map((name) => make("button", { type: "button", class: "button", title: name, onclick: () => app.open(name) }, `Open ${name}`)),
    make("button", { type: "button", class: "button", onclick: () => app.select(null, -1) }, "Close"));
}
