/* Tables: collectives by exposure, moves. Long tables grow on demand. */

const FIRST_ROWS = 60;

/* columns: [{title, value(item) for sorting, cell(item), number}]. */
class SortedTable {
  constructor(columns, items, { by, onRow, caption }) {
    Object.assign(this, { columns, items, by, onRow, caption, down: true, shown: FIRST_ROWS, filter: null, chosen: null });
    this.body = make("tbody", {});
    this.headings = columns.map((column, k) => make("th", { scope: "col", class: column.number ? "number" : "" },
      make("button", { type: "button", onclick: () => this.sortBy(k) }, column.title)));
    this.more = make("button", { type: "button", class: "button more", onclick: () => { this.shown = Infinity; this.render(); } });
    this.element = make("div", {},
      make("div", { class: "scrollx", tabindex: "0", role: "region", "aria-label": caption },
        make("table", {}, make("caption", { class: "unseen" }, caption), make("thead", {}, make("tr", {}, ...this.headings)), this.body)),
      this.more);
    this.render();
  }

  sortBy(k) {
    this.down = this.by === k ? !this.down : Boolean(this.columns[k].number);
    this.by = k;
    this.render();
  }

  sorted() {
    const { value } = this.columns[this.by];
    const kept = this.filter ? this.items.filter(this.filter) : [...this.items];
    const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
    return kept.sort((a, b) => (this.down ? order(value(b), value(a)) : order(value(a), value(b))));
  }

  render() {
    const all = this.sorted();
    this.headings.forEach((th, k) => {
      if (k === this.by) th.setAttribute("aria-sort", this.down ? "descending" : "ascending");
      else th.removeAttribute("aria-sort");
    });
    fill(this.body, ...all.slice(0, this.shown).map((item) => this.row(item)));
    if (!all.length) fill(this.body, make("tr", {}, make("td", { colspan: this.columns.length, class: "empty" }, "nothing matches")));
    this.more.hidden = all.length <= this.shown;
    this.more.textContent = `Show all ${shownCount(all.length)}`;
  }

  row(item) {
    const cells = this.columns.map((column) => make("td", { class: [column.number ? "number" : "", column.class ?? ""].join(" ").trim() }, column.cell(item)));
    return make("tr", { class: item === this.chosen ? "chosen" : "" }, ...cells);
  }

  choose(item) {
    if (this.chosen === item) return;
    this.chosen = item;
    this.render();
  }
}

/* Every collective of a side, most expensive first; in a loop it counts for all its runs. */
function collectivesOf(side) {
  return SIDES[side].schedules.flatMap(({ raw }) => raw.collectives.map((c) => ({
    ...c, computation: raw.name, side,
  }))).sort((a, b) => b.total_us - a.total_us || b.latency_us - a.latency_us);
}

/* A link to the span; an instruction that takes no time has none. */
function collectiveName(app, c) {
  if (c.span < 0) return make("span", { class: "mono", title: `${c.name} takes no time` }, c.name);
  return make("button", { type: "button", class: "link", title: c.name, onclick: () => app.jumpToCollective(c) }, c.name);
}

function collectiveTable(app, side) {
  const items = app.collectives[side];
  const loops = items.some((c) => c.executions > 1);
  const columns = [
    { title: "Collective", value: (c) => c.name, class: "name", cell: (c) => collectiveName(app, c) },
    ...(items.some((c) => c.label) ? [{ title: "From", value: (c) => c.label, class: "name", cell: (c) => make("span", { class: "mono", title: [c.label, c.source].filter(Boolean).join("\n") }, c.label) }] : []),
    { title: "Kind", value: (c) => c.opcode, cell: (c) => c.opcode, class: "brief" },
    { title: loops ? "Exposed, all runs" : "Exposed", number: true, value: (c) => c.total_us, cell: (c) => shownTime(c.total_us) },
    { title: "Latency", number: true, value: (c) => c.latency_us, cell: (c) => shownTime(c.latency_us) },
    { title: "State", value: (c) => c.class, cell: (c) => make("span", { class: `badge ${c.class}` }, CLASS_NAMES[c.class]) },
    { title: "Message", number: true, value: (c) => c.bytes ?? -1, cell: (c) => shownBytes(c.bytes) },
    { title: "Lane", value: (c) => c.stream, cell: (c) => c.stream, class: "brief" },
    ...(loops ? [{ title: "Runs", number: true, value: (c) => c.executions, cell: (c) => shownCount(c.executions) }] : []),
    { title: "Why", value: (c) => c.cause, cell: (c) => c.cause, class: "cause" },
  ];
  const by = columns.findIndex((column) => column.title.startsWith("Exposed"));
  return new SortedTable(columns, items, { by, caption: `Collectives ${SIDES[side].label}` });
}

function showCollectives(app) {
  const box = byId("collectives");
  const parts = SIDES.map((side) => {
    const items = app.collectives[side.number];
    const heading = make("h2", {}, SIDES.length > 1 ? `Collectives, ${side.label}` : "Collectives");
    if (!items.length) return make("div", {}, heading, make("p", { class: "empty" }, "This module has no collectives: nothing can be exposed."));
    const table = collectiveTable(app, side.number);
    app.tables[side.number] = table;
    const count = make("span", { class: "muted" }, `${shownCount(items.length)}, most exposed first`);
    const filter = make("input", { type: "search", placeholder: "filter by name, kind, reason", "aria-label": "Filter collectives", oninput: (event) => {
      const wanted = event.target.value.toLowerCase();
      table.filter = wanted ? (c) => `${c.name} ${c.label} ${c.opcode} ${c.cause}`.toLowerCase().includes(wanted) : null;
      table.render();
    } });
    return make("div", {}, make("div", { class: "tablehead" }, heading, count, filter), table.element);
  });
  fill(box, ...parts.reverse());
}

function showMoves(app) {
  if (SIDES.length < 2) return;
  const box = byId("moves");
  box.hidden = false;
  const heading = make("h2", { id: "moves-title" }, "What moved");
  if (!DATA.moves.length) {
    fill(box, heading, make("p", { class: "empty" }, "Nothing that takes time moved, and no exposure changed."));
    return;
  }
  const signed = (us) => (us === 0 ? "same" : `${shownTime(Math.abs(us))} ${us > 0 ? "earlier" : "later"}`);
  const columns = [
    { title: "Instruction", value: (m) => m.name, class: "name", cell: (m) => make("button", { type: "button", class: "link", title: m.name, onclick: () => app.jumpToName(m.computation, m.name) }, m.name) },
    { title: "Position", number: true, value: (m) => m.positions_earlier, cell: (m) => `${shownCount(m.position_before)} \u2192 ${shownCount(m.position_after)}` },
    { title: "Done", number: true, value: (m) => m.done_before ?? -1, cell: (m) => (m.done_before === null ? "" : `${shownCount(m.done_before)} \u2192 ${shownCount(m.done_after)}`) },
    { title: "Starts", number: true, value: (m) => m.starts_earlier_us, cell: (m) => signed(m.starts_earlier_us) },
    { title: "Exposed", number: true, value: (m) => m.exposed_saved_us, cell: (m) => (m.exposed_before_us === null ? "" : `${shownTime(m.exposed_before_us)} \u2192 ${shownTime(m.exposed_after_us)}`) },
    { title: "What it saved", value: (m) => Math.abs(m.exposed_saved_us), cell: (m) => m.bought, class: "cause" },
  ];
  const table = new SortedTable(columns, DATA.moves, { by: 5, caption: "Instructions that moved" });
  fill(box, make("div", { class: "tablehead" }, heading, make("span", { class: "muted" }, DATA.moves_note)), table.element);
}
