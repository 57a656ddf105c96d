/* What to change, each change alone, as it was simulated again; and what nothing changes. */

function showAdvice() {
  const box = byId("advice");
  const { advice } = SIDES.at(-1);
  const changes = advice.filter((a) => a.saved_us > 0);
  const others = advice.filter((a) => a.is_change && !(a.saved_us > 0));
  box.hidden = !(changes.length || others.length);
  if (box.hidden) return;
  const step = SIDES.at(-1).facts.step_time_us;
  const rows = [...changes, ...others].map((a) => make("tr", {},
    make("td", { class: "number" }, a.saved_us > 0 ? `\u2212${shownTime(a.saved_us)}` : a.most_us > 0 ? `at most \u2212${shownTime(a.most_us)}` : ""),
    make("td", { class: "number" }, a.saved_us > 0 ? `${shownTime(a.step_time_us)} (\u2212${shownShare(a.saved_us, step)})` : ""),
    make("td", {}, a.change, make("div", { class: "muted" }, a.told)),
    make("td", { class: "mono" }, a.how)));
  fill(box,
    make("h3", {}, "Changes, each alone, simulated again"),
    make("div", { class: "scrollx" }, make("table", {},
      make("thead", {}, make("tr", {}, ...["Saves", "Step", "Change", "What sets it"].map((t, k) => make("th", { scope: "col", class: k < 2 ? "number" : "" }, t)))),
      make("tbody", {}, ...rows))));
}

/* Of one collective, most saving first, for the panel of the selection. */
function adviceLines(found) {
  return found.advice.map((text) => make("p", { class: "why" }, make("strong", {}, "Advice: "), text));
}
