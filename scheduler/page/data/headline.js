/* The first screen: how long the step takes, how much is exposed, how far the bound is. */

const CLASS_NAMES = { hidden: "hidden", partial: "partly hidden", exposed: "exposed" };

function card(name, value, note, { was = null, key = false, bad = false } = {}) {
  return make("div", { class: bad ? "card over" : key ? "card key" : "card" },
    make("div", { class: "name" }, name),
    make("div", { class: "value" }, value),
    was && make("div", { class: "was" }, ...was),
    make("div", { class: "note" }, note));
}

/* 'was X, change' of a figure that is better when it is lower. */
function change(before, after, shown) {
  const text = shownChange(before, after, shown);
  const tone = text === "same" ? "" : after < before ? "good" : "bad";
  return [`was ${shown(before)}, `, make("span", { class: tone }, text)];
}

function showHeadline() {
  const last = SIDES.at(-1).facts;
  const first = SIDES.length > 1 ? SIDES[0].facts : null;
  const was = (key, shown) => (first ? change(first[key], last[key], shown) : null);
  const step = last.step_time_us, gap = step - last.lower_bound_us;
  fill(byId("cards"),
    card("Step time", shownTime(step), first ? SIDES.at(-1).label : "simulated, one device", { was: was("step_time_us", shownTime) }),
    card("Exposed communication", shownTime(last.exposed_us), `${shownShare(last.exposed_us, step)} of the step`, { was: was("exposed_us", shownTime), key: true }),
    card("Gap to the bound", DATA.is_final ? shownTime(gap) : "not known", DATA.is_final ? `${DATA.bound_premise}no order is faster than ${shownTime(last.lower_bound_us)} (gap ${shownShare(gap, step)}); no restructuring with the same bytes and flops than ${shownTime(SIDES.at(-1).anyStructure.us)}` : "a GPU runs another order", {
      was: first && DATA.is_final ? change(first.step_time_us - first.lower_bound_us, gap, shownTime) : null }),
    card("Compute", shownTime(last.compute_us), `${shownShare(last.compute_us, step)} of the step`, { was: was("compute_us", shownTime) }),
    card("Communication", shownTime(last.communication_us), "sum over collectives", { was: was("communication_us", shownTime) }),
    memoryCard());
  fill(byId("verdict"), DATA.verdict);
  fill(byId("budget"), budgetOf());
}

/* What a reader should know about the numbers. */
function showNotes() {
  fill(byId("notes"), ...DATA.page_notes.map((note) => make("p", {}, note)));
}

/* One bar per side: where the step's time goes. */
function budgetOf() {
  const longest = Math.max(...SIDES.map((s) => s.facts.step_time_us));
  const box = make("div", { class: "budget" });
  if (!(longest > 0)) return box;
  for (const side of SIDES) {
    const { step_time_us: step, exposed_us: exposed } = side.facts;
    const waits = Math.min(exposed, step);
    const work = step - waits;
    const part = (us, colour, text) => make("span", {
      style: `width: ${100 * us / longest}%; background: var(--${colour}); color: var(--${colour}-text)`,
      title: `${text}: ${shownTime(us)}`,
    }, us / longest > 0.07 ? `${text} ${shownTime(us)}` : "");
    box.append(
      make("span", {}, SIDES.length > 1 ? side.label : "Step"),
      make("div", { class: "bar", role: "img", "aria-label": `working ${shownTime(work)}, exposed communication ${shownTime(waits)}` },
        work > 0 ? part(work, "compute", "working") : "",
        waits > 0 ? part(waits, "exposed", "exposed") : ""));
  }
  return box;
}

function showLegend() {
  const entry = (colour, text) => make("span", {}, make("i", { class: "swatch", style: `background: var(--${colour})` }), text);
  const kinds = new Set(DATA.kinds_used);
  fill(byId("legend"),
    kinds.has("compute") ? entry("compute", "compute") : null,
    kinds.has("loop") ? entry("loop", "loop, call, branch") : null,
    kinds.has("copy") ? entry("copy", "copy, host transfer") : null,
    kinds.has("hidden") ? entry("hidden", "collective, hidden (\u2265 90 % covered)") : null,
    kinds.has("partial") ? entry("partial", "partly hidden") : null,
    kinds.has("exposed") ? entry("exposed", "exposed (\u2264 10 % covered)") : null,
    SIDES.some((side) => side.facts.exposed_us > 0) ? make("span", {}, make("i", { class: "swatch hatched" }), "device waits for communication") : null);
}
