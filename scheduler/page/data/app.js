/* The page put together: sides, selection, search, theme. */

class App {
  constructor() {
    this.viewport = new Viewport();
    this.views = SIDES.map((side) => new TimelineView(side.number, this.viewport, this));
    this.selection = { view: null, span: -1 };
    this.search = { spans: [], at: -1 };
    this.collectives = SIDES.map((side) => collectivesOf(side.number));
    this.tables = [];
    this.exposedAt = -1;
  }

  start() {
    document.title = DATA.title;
    fill(byId("title"), DATA.title);
    fill(byId("subtitle"), DATA.subtitle);
    this.startTheme();
    showHeadline();
    showTune();
    showLegend();
    showNotes();
    fill(byId("views"), ...this.views.map((view) => view.element));
    this.views.forEach(followPointer);
    this.startToolbar();
    followKeys(this);
    showMoves(this);
    showCauses(this);
    showAdvice();
    showCollectives(this);
    showBuffers();
    this.open(DATA.entry);
    this.startFromAddress();
  }

  startTheme() {
    const dark = matchMedia("(prefers-color-scheme: dark)");
    let chosen = null;
    const apply = () => {
      const now = chosen ?? (dark.matches ? "dark" : "light");
      document.documentElement.dataset.theme = now;
      fill(byId("theme"), now === "dark" ? "Light theme" : "Dark theme");
      readColours();
      for (const view of this.views) { view.overviewStale = true; view.queue(); }
    };
    byId("theme").addEventListener("click", () => {
      chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
      apply();
    });
    dark.addEventListener("change", apply);
    apply();
  }

  startToolbar() {
    const names = [...new Set(SIDES.flatMap((side) => side.schedules.map((s) => s.raw.name)))];
    const chooser = byId("computation");
    fill(chooser, ...names.map((name) => {
      const { facts } = SIDES.flatMap((s) => s.schedules).find((s) => s.raw.name === name).raw;
      const runs = facts.is_entry ? "entry" : facts.executions > 1 ? `\u00d7${shownCount(facts.executions)}` : "once";
      return make("option", { value: name }, `${name} (${runs}, ${shownTime(facts.step_time_us)})`);
    }));
    chooser.disabled = names.length < 2;
    chooser.addEventListener("change", () => this.open(chooser.value));
    byId("zoom-in").addEventListener("click", () => this.viewport.zoom(ZOOM));
    byId("zoom-out").addEventListener("click", () => this.viewport.zoom(1 / ZOOM));
    byId("fit").addEventListener("click", () => this.viewport.glideTo(0, this.viewport.end));
    byId("worst").addEventListener("click", () => this.stepExposed(1));
    byId("worst").disabled = !this.collectives.at(-1).some((c) => c.exposed_us > 0);
    byId("next").addEventListener("click", () => this.stepMatch(1));
    byId("previous").addEventListener("click", () => this.stepMatch(-1));
    const input = byId("search");
    input.addEventListener("input", () => this.find(input.value));
    input.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.stepMatch(event.shiftKey ? -1 : 1);
    });
  }

  /* page.html#NAME opens with that instruction selected. */
  startFromAddress() {
    const name = decodeURIComponent(location.hash.slice(1));
    if (name) this.jumpToName(null, name);
  }

  /* Show a computation on every side that has it. */
  open(name) {
    const schedules = this.views.map((_, side) => scheduleOf(side, name) ?? scheduleOf(side, DATA.entry_of[side]));
    this.computation = name;
    byId("computation").value = name;
    this.views.forEach((view, side) => {
      const schedule = schedules[side];
      view.show(schedule);
      const { facts } = schedule;
      fill(view.title,
        SIDES.length > 1 ? SIDES[side].label : schedule.name,
        make("span", {}, `${SIDES.length > 1 ? `${SIDES[side].source} \u00b7 ` : ""}${shownTime(facts.step_time_us)}, ${shownTime(facts.exposed_us)} exposed`));
      view.canvas.setAttribute("aria-label", describe(schedule));
    });
    fill(byId("scope"), scopeOf(schedules.at(-1)));
    this.select(null, -1);
    this.viewport.reset(Math.max(...schedules.map((s) => s.end)));
    this.find(byId("search").value, false);
  }

  viewOf(schedule) {
    return this.views[schedule.side];
  }

  select(view, span) {
    this.selection = { view, span };
    for (const each of this.views) {
      each.selected = each === view ? span : span < 0 ? -1 : each.schedule.find(view.schedule.names[span]);
      each.queue();
    }
    showDetails(this);
    if (span < 0) return;
    const found = view.schedule.collectiveOf.get(span);
    announce(found ? `${found.name}, ${CLASS_NAMES[found.class]}. ${found.cause}` : `${view.schedule.names[span]}, ${shownTime(view.schedule.ends[span] - view.schedule.starts[span])}`);
    for (const table of this.tables) {
      table?.choose(table.items.find((c) => c.name === found?.name && c.computation === view.schedule.name) ?? null);
    }
  }

  zoomTo(view, span) {
    const { starts, ends } = view.schedule;
    const span_us = Math.max(ends[span] - starts[span], SHORTEST_US);
    this.viewport.glideTo(starts[span] - span_us * 0.6, ends[span] + span_us * 0.6);
  }

  /* Select and bring into view. */
  jump(schedule, span) {
    const view = this.viewOf(schedule);
    this.select(view, span);
    this.viewport.reveal(schedule.starts[span], schedule.ends[span]);
  }

  jumpToCollective(collective) {
    if (this.computation !== collective.computation) this.open(collective.computation);
    this.jump(this.views[collective.side].schedule, collective.span);
    byId("timeline-title").scrollIntoView({ block: "nearest" });
  }

  jumpToName(computation, name) {
    for (const side of [...SIDES].reverse()) {
      for (const { raw } of side.schedules) {
        if (computation !== null && raw.name !== computation) continue;
        const schedule = scheduleOf(side.number, raw.name);
        const span = schedule.find(name);
        if (span < 0) continue;
        if (this.computation !== raw.name) this.open(raw.name);
        this.jump(schedule, span);
        byId("timeline-title").scrollIntoView({ block: "nearest" });
        return;
      }
    }
  }

  find(text, move = true) {
    const view = this.views.at(-1);
    this.search = { spans: text ? view.schedule.search(text) : [], at: -1 };
    for (const each of this.views) each.setMatches(text ? (each === view ? this.search.spans : each.schedule.search(text)) : null);
    byId("matches").textContent = text ? (this.search.spans.length ? `${shownCount(this.search.spans.length)} found` : "none found") : "";
    byId("next").disabled = byId("previous").disabled = !this.search.spans.length;
    if (text && move && this.search.spans.length) this.stepMatch(1);
  }

  stepMatch(by) {
    const { spans } = this.search;
    if (!spans.length) return;
    const first = this.search.at < 0 && by < 0 ? 0 : this.search.at;
    this.search.at = (first + by + spans.length) % spans.length;
    byId("matches").textContent = `${shownCount(this.search.at + 1)} of ${shownCount(spans.length)}`;
    this.jump(this.views.at(-1).schedule, spans[this.search.at]);
  }

  stepExposed(by) {
    const exposed = this.collectives.at(-1).filter((c) => c.exposed_us > 0);
    if (!exposed.length) return;
    this.exposedAt = (Math.max(this.exposedAt, by > 0 ? -1 : 0) + by + exposed.length) % exposed.length;
    this.jumpToCollective(exposed[this.exposedAt]);
  }

  /* The span before or after the selection in its lane that takes time. */
  stepSpan(by) {
    const view = this.selection.view ?? this.views.at(-1);
    const { schedule } = view;
    const row = this.selection.span < 0 ? schedule.rows.find((r) => r.count) : schedule.rows[schedule.rowOf[this.selection.span]];
    if (!row) return;
    let i = this.selection.span < 0 ? -1 : this.selection.span - row.first;
    do i += by; while (i >= 0 && i < row.count && row.length(i) === 0);
    if (i >= 0 && i < row.count) this.jump(schedule, row.first + i);
  }

  enterSelection() {
    const { view, span } = this.selection;
    if (span < 0) return;
    const calls = view.schedule.calls(span);
    if (calls) this.open(calls.names[0]);
    else this.zoomTo(view, span);
  }
}

/* What part of the step is shown, in words. */
function scopeOf(schedule) {
  const { facts } = schedule;
  const said = [];
  if (!facts.is_entry) said.push(facts.executions > 1 ? `One run of ${shownCount(facts.executions)} in a step.` : "Runs once in a step.");
  if (facts.instruction_count !== null) said.push(`${shownCount(facts.instruction_count)} instructions, ${shownCount(schedule.names.length)} spans that take time.`);
  if (!(schedule.end > 0)) said.push("Nothing here takes time.");
  return said.join(" ");
}

function describe(schedule) {
  const { facts } = schedule;
  return `Timeline of ${schedule.name}: ${schedule.lanes.map((lane) => lane.label).join(", ")}. ${shownTime(facts.step_time_us)}, of which ${shownTime(facts.exposed_us)} exposed. The table of collectives below holds the same in words.`;
}

new App().start();
