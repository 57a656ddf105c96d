/* One timeline: overview, axis, one lane per stream, the memory curve, on one x axis. A
 * loop is a bar on the compute lane with one run of its body drawn in it (inside.js). */

const ROW_PX = 20, LANE_GAP_PX = 9, AXIS_PX = 22, WAIT_PX = 14, MEMORY_PX = 84, OVERVIEW_PX = 34, STRIP_PX = 4;
/* Lanes with more rows than this have low rows, without names. */
const MOST_FULL_ROWS = 6, CROWDED_ROW_PX = 9;
const NARROW_PX = 560, NARROW_GUTTER_PX = 74, WIDE_GUTTER_PX = 132;
/* Spans narrower than this are drawn together, one column at a time. */
const COLUMN_PX = 2;
const LOWEST = 0.3;

class TimelineView {
  constructor(side, viewport, actions) {
    this.side = side;
    this.viewport = viewport;
    this.actions = actions;
    this.schedule = null;
    this.selected = -1;
    this.matches = null;
    this.queued = false;
    this.overviewStale = true;
    this.title = make("h3", {});
    this.overview = make("canvas", { class: "overview", "aria-hidden": "true" });
    this.canvas = make("canvas", {
      class: "lanes", tabindex: "0", role: "application", "aria-roledescription": "timeline",
    });
    this.scroller = make("div", { class: "scroller" }, this.canvas);
    this.element = make("div", { class: "view" }, this.title, this.overview, this.scroller);
    viewport.listeners.push(() => this.queue());
    new ResizeObserver(() => { this.overviewStale = true; this.queue(); }).observe(this.element);
  }

  show(schedule) {
    this.schedule = schedule;
    this.selected = -1;
    this.matches = null;
    this.layOut();
    this.overviewStale = true;
    this.queue();
  }

  /* The place of each lane: {label, role, y, height, rows}. */
  layOut() {
    let y = AXIS_PX + 4;
    this.bands = (this.schedule?.lanes ?? []).map((lane) => {
      const crowded = lane.rows.length > MOST_FULL_ROWS;
      const high = lane.role === "wait" ? WAIT_PX : crowded ? CROWDED_ROW_PX : ROW_PX;
      const inside = lane.label === COMPUTE && lane.rows.length === 1 ? insideHeight(this.schedule) : 0;
      const band = { ...lane, y, high, inside, height: Math.max(1, lane.rows.length) * high + inside };
      y += band.height + LANE_GAP_PX;
      return band;
    });
    this.memoryY = y;
    this.height = y + (this.schedule?.memory ? MEMORY_PX + 6 : 0);
  }

  /* Once per frame: asking an element for its size is expensive. */
  measure() {
    const width = this.canvas.clientWidth;
    this.gutter = width < NARROW_PX ? NARROW_GUTTER_PX : WIDE_GUTTER_PX;
    this.scale = Math.max(1, width - this.gutter) / this.viewport.length;
  }

  x(t) {
    return this.gutter + (t - this.viewport.from) * this.scale;
  }

  t(x) {
    return this.viewport.from + (x - this.gutter) / this.scale;
  }

  queue() {
    if (this.queued) return;
    this.queued = true;
    requestAnimationFrame(() => { this.queued = false; this.draw(); });
  }

  draw() {
    if (!this.schedule) return;
    const { pen, width } = prepare(this.canvas, this.height);
    this.pen = pen;
    this.width = width;
    this.measure();
    this.drawAxis();
    this.drawBand();
    pen.save();
    pen.beginPath();
    pen.rect(this.gutter, AXIS_PX, width - this.gutter, this.height);
    pen.clip();
    for (const band of this.bands) {
      band.rows.forEach((row, k) => this.drawRow(row, band, band.y + k * band.high));
      if (band.role === "wait") this.drawLoops(band);
      if (band.inside) drawInsides(this, band);
    }
    if (this.schedule.memory) drawMemory(this);
    this.drawMatches();
    this.drawSelected();
    pen.restore();
    this.drawLabels();
    this.drawPointer();
    drawOverview(this);
    document.documentElement.dataset.drawn ||= "1";
  }

  drawAxis() {
    const { pen } = this;
    for (const tick of axisTicks(this.viewport.from, this.viewport.to, (this.width - this.gutter) / 92)) {
      const x = Math.round(this.x(tick.at)) + 0.5;
      pen.fillStyle = COLOURS.line;
      pen.fillRect(x, AXIS_PX - 5, 1, this.height);
      pen.fillStyle = COLOURS.muted;
      if (x + pen.measureText(tick.text).width + 4 < this.width) pen.fillText(tick.text, x + 4, AXIS_PX / 2);
    }
  }

  /* The time of the selection, through all lanes: what runs at the same time. */
  drawBand() {
    if (this.selected < 0) return;
    const from = this.x(this.schedule.starts[this.selected]);
    const to = this.x(this.schedule.ends[this.selected]);
    const left = Math.max(this.gutter, from);
    this.pen.fillStyle = COLOURS.band;
    this.pen.fillRect(left, AXIS_PX, Math.max(1, to - left), this.height);
  }

  drawRow(row, band, y) {
    const { pen, viewport } = this;
    const high = band.high - 3, scale = this.scale, column = COLUMN_PX / scale;
    let i = row.visibleFrom(viewport.from);
    while (i < row.count && row.starts[i] < viewport.to) {
      if (row.length(i) >= column) {
        this.drawSpan(row, i, band, y, high);
        i++;
        continue;
      }
      // One column for all that begin in it; a long one at its end is drawn by itself.
      const until = viewport.from + (Math.floor((row.starts[i] - viewport.from) / column) + 1) * column;
      let j = Math.max(i + 1, lowerBound(row.starts, until, i, row.count));
      if (j - 1 > i && row.length(j - 1) >= column) j--;
      const [kind, busy] = row.busiest(i, j);
      if (busy > 0) {
        // The height shows how full the column is, so that colors keep their meaning.
        const tall = high * Math.max(LOWEST, Math.min(1, busy / column));
        pen.fillStyle = COLOURS[KINDS[kind]];
        pen.fillRect(this.x(until - column), y + high - tall, COLUMN_PX, tall);
      }
      i = j;
    }
  }

  drawSpan(row, i, band, y, high) {
    const { pen } = this;
    const from = Math.max(this.gutter - 2, this.x(row.starts[i]));
    const to = Math.min(this.width + 2, this.x(row.ends[i]));
    const wide = Math.max(COLUMN_PX - 0.5, to - from - (to - from > 6 ? 1 : 0));
    const kind = KINDS[row.kinds[i]];
    if (band.role === "wait") {
      pen.fillStyle = HATCH;
      pen.fillRect(from, y, wide, high);
      pen.strokeStyle = COLOURS.exposed;
      pen.strokeRect(from + 0.5, y + 0.5, Math.max(0, wide - 1), high - 1);
      return;
    }
    pen.fillStyle = COLOURS[kind];
    pen.fillRect(from, y, wide, high);
    const strip = this.drawExposedPart(row.first + i, y, high);
    const text = band.high < ROW_PX ? "" : this.fittedLabel(row.first + i, wide - 8);
    if (text) {
      pen.fillStyle = COLOURS[`${kind}-text`];
      pen.fillText(text, from + 4, y + (high - strip) / 2 + 0.5);
    }
  }

  /* A strip under a collective while the device waits for it; returns its height. */
  drawExposedPart(span, y, high) {
    const found = this.schedule.collectiveOf.get(span);
    if (!found?.waits_us.length || high < 2 * STRIP_PX) return 0;
    for (const [start, end] of found.waits_us) {
      const from = this.x(start), to = this.x(end);
      if (to < this.gutter || from > this.width) continue;
      this.pen.fillStyle = COLOURS.panel;
      this.pen.fillRect(from, y + high - STRIP_PX, to - from, STRIP_PX);
      this.pen.fillStyle = HATCH;
      this.pen.fillRect(from, y + high - STRIP_PX + 1, to - from, STRIP_PX - 1);
    }
    return STRIP_PX;
  }

  label(span) {
    const name = this.schedule.names[span], calls = this.schedule.calls(span);
    if (!calls) return name;
    const share = this.schedule.exposedShare(span);
    const trips = calls.is_counted ? shownCount(calls.trips) : "1 (count not known)";
    return `${name}  \u00d7${trips}${share > 0 ? `, ${(100 * share).toFixed(0)} % exposed` : ""}`;
  }

  /* The label, or as much of it as fits; of a loop the factor goes last. */
  fittedLabel(span, room) {
    const { pen } = this, calls = this.schedule.calls(span), whole = this.label(span);
    if (!calls || pen.measureText(whole).width <= room) return fitted(pen, whole, room);
    const factor = `\u00d7${calls.is_counted ? shownCount(calls.trips) : "1?"}`;
    const shorter = [`${this.schedule.names[span]}  ${factor}`, factor];
    return shorter.find((text) => pen.measureText(text).width <= room) ?? "";
  }

  /* Over a loop, the exposed lane is as full as its body is exposed. */
  drawLoops(band) {
    const { pen, schedule } = this;
    const high = band.high - 3;
    for (const span of schedule.loops) {
      const from = Math.max(this.gutter - 2, this.x(schedule.starts[span]));
      const to = Math.min(this.width + 2, this.x(schedule.ends[span]));
      if (to <= from) continue;
      const tall = high * Math.max(LOWEST, schedule.exposedShare(span));
      pen.fillStyle = HATCH;
      pen.fillRect(from, band.y + high - tall, Math.max(1, to - from - 1), tall);
      pen.fillStyle = COLOURS.exposed;
      pen.fillRect(from, band.y + high - tall, Math.max(1, to - from - 1), 1);
    }
  }

  drawMatches() {
    if (!this.matches) return;
    const { pen, schedule, matches } = this;
    pen.fillStyle = COLOURS.match;
    let next = lowerBound(matches.starts, this.viewport.from);
    while (next < matches.starts.length && matches.starts[next] <= this.viewport.to) {
      const span = matches.spans[next];
      const x = this.x(matches.starts[next]);
      const place = this.placeOf(span);
      pen.fillRect(x - 1, place.y - 3, Math.max(3, Math.min(9, (schedule.ends[span] - schedule.starts[span]) * this.scale)), 3);
      pen.fillRect(x - 1, AXIS_PX - 4, 2, 6);
      // The next one that is not on the same pixel.
      next = lowerBound(matches.starts, this.t(x + 1), next + 1);
    }
  }

  placeOf(span) {
    const row = this.schedule.rows[this.schedule.rowOf[span]];
    for (const band of this.bands) {
      const k = band.rows.indexOf(row);
      if (k >= 0) return { y: band.y + k * band.high, high: band.high - 3 + (band.inside && bodyOf(this.schedule, span) ? band.inside : 0), band };
    }
    return { y: AXIS_PX, high: ROW_PX, band: null };
  }

  drawSelected() {
    if (this.selected < 0) return;
    const { pen } = this;
    const place = this.placeOf(this.selected);
    const from = this.x(this.schedule.starts[this.selected]);
    const to = this.x(this.schedule.ends[this.selected]);
    pen.strokeStyle = COLOURS.text;
    pen.lineWidth = 2;
    pen.strokeRect(from - 1, place.y - 1, Math.max(3, to - from + 1), place.high + 2);
    pen.lineWidth = 1;
    pen.setLineDash([3, 3]);
    for (const x of [from, to]) {
      pen.beginPath();
      pen.moveTo(Math.round(x) + 0.5, AXIS_PX);
      pen.lineTo(Math.round(x) + 0.5, this.height);
      pen.stroke();
    }
    pen.setLineDash([]);
  }

  /* Where the selection is when it is out of sight: usually that of the other side. */
  drawPointer() {
    if (this.selected < 0) return;
    const start = this.schedule.starts[this.selected], end = this.schedule.ends[this.selected];
    const { from, to } = this.viewport;
    if (end >= from && start <= to) return;
    const { pen } = this, place = this.placeOf(this.selected);
    const left = end < from;
    const far = shownTime(left ? from - end : start - to);
    const text = left ? `\u25c0 ${far} earlier` : `${far} later \u25b6`;
    const wide = pen.measureText(text).width + 12;
    const x = left ? this.gutter + 4 : this.width - wide - 4;
    pen.fillStyle = COLOURS.text;
    pen.fillRect(x, place.y, wide, place.high);
    pen.fillStyle = COLOURS.panel;
    pen.fillText(text, x + 6, place.y + place.high / 2 + 0.5);
  }

  drawLabels() {
    const { pen, gutter } = this;
    pen.fillStyle = COLOURS.panel;
    pen.fillRect(0, 0, gutter, this.height);
    pen.fillStyle = COLOURS.line;
    pen.fillRect(gutter - 1, 0, 1, this.height);
    for (const band of this.bands) {
      pen.fillStyle = COLOURS.text;
      const label = gutter < WIDE_GUTTER_PX ? band.label.replace("Communication", "Comm.") : band.label;
      pen.fillText(fitted(pen, label, gutter - 14), 8, band.y + Math.min(band.height, ROW_PX) / 2 - 1);
      if (band.inside) {
        pen.fillStyle = COLOURS.muted;
        pen.fillText(fitted(pen, "one run of each loop", gutter - 14), 8, band.y + ROW_PX + band.inside / 2 - 2);
      }
      pen.fillStyle = COLOURS.line;
      pen.fillRect(0, band.y + band.height + LANE_GAP_PX / 2 - 2, gutter, 1);
    }
    if (this.schedule.memory) drawMemoryLabels(this);
  }

  /* Number of the span at a point of the canvas, or -1. */
  spanAt(x, y) {
    const band = this.bands?.find((b) => y >= b.y - 2 && y < b.y + b.height + 2);
    if (!band || x < this.gutter) return -1;
    const k = Math.max(0, Math.min(band.rows.length - 1, Math.floor((y - band.y) / band.high)));
    const span = band.rows.length ? band.rows[k].at(this.t(x), 3 / this.scale) : -1;
    const below = band.inside && y > band.y + band.high;
    return below && span >= 0 && !bodyOf(this.schedule, span) ? -1 : span;
  }

  setMatches(spans) {
    this.matches = spans && { spans, starts: Float64Array.from(spans, (s) => this.schedule.starts[s]) };
    this.overviewStale = true;
    this.queue();
  }
}
