/* Under the timeline (of two schedules, after what moved): what the exposed time is due to, most expensive first, what would
 * change that, and the collectives of each cause, equal layers together. */

function showCauses(app) {
  const box = byId("causes");
  const side = SIDES.at(-1), before = SIDES.length > 1 ? SIDES[0] : null;
  const total = side.causes.reduce((sum, c) => sum + c.exposed_us, 0);
  // Of two schedules, what moved comes first.
  if (before) byId("collectives").before(box.parentElement);
  const heading = make("h2", {}, before ? `What to change, ${side.label}` : "What to change");
  if (!(total > 0)) {
    fill(box, heading, make("p", { class: "empty" }, "Nothing is exposed: every collective ends before its result is needed."));
    return;
  }
  const was = (kind) => before?.causes.find((c) => c.kind === kind)?.exposed_us ?? 0;
  const width = before ? 5 : 4;
  const rows = side.causes.flatMap((c) => [
    make("tr", { class: "cause" },
      make("td", {}, c.label, make("span", { class: "lever" }, c.lever)),
      make("td", { class: "number" }, shownTime(c.exposed_us)),
      before && make("td", { class: "number muted" }, shownTime(was(c.kind))),
      make("td", {}, make("span", { class: "meter", role: "img", "aria-label": shownShare(c.exposed_us, total) }, make("i", { style: `width: ${100 * c.exposed_us / total}%` }))),
      make("td", { class: "number" }, shownCount(c.count))),
    make("tr", { class: "groups" }, make("td", { colspan: width }, ...c.groups.map((g) => groupLine(app, g)),
      c.more ? make("div", { class: "group muted" }, `and ${shownCount(c.more)} more in the table below`) : null)),
  ]);
  fill(box, heading, make("div", { class: "scrollx" }, make("table", {},
    make("thead", {}, make("tr", {}, ...["Why communication is exposed", "Exposed", before && `${before.label}`, "Share", "Collectives"].filter(Boolean).map((t, k) => make("th", { scope: "col", class: k === 0 || t === "Share" ? "" : "number" }, t)))),
    make("tbody", {}, ...rows))));
}

/* A group of collectives; its name leads to the one that costs most. */
function groupLine(app, g) {
  const name = g.count > 1 ? `${shownCount(g.count)} \u00d7 ${g.label}` : g.label;
  return make("div", { class: "group" },
    make("span", { class: "number" }, shownTime(g.exposed_us)),
    make("button", { type: "button", class: "link", title: name, onclick: () => app.jumpToName(g.computation, g.name) }, name),
    make("span", { class: "muted", title: g.source }, [`${g.opcode} of ${shownBytes(g.bytes)}`, g.source].filter(Boolean).join(", ")));
}
