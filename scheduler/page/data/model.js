/* The data of the page, decoded: times from whole nanoseconds; each start is stored as
 * the distance from the end of the span before it in its row. */

const DATA = JSON.parse(byId("data").textContent);
const KINDS = DATA.kinds;

class Schedule {
  constructor(raw, side) {
    this.side = side;
    this.name = raw.name;
    this.facts = raw.facts;
    this.callees = raw.callees;
    this.names = raw.names;
    this.opcodes = raw.opcodes;
    this.kinds = Uint8Array.from(raw.kinds);
    this.starts = new Float64Array(raw.names.length);
    this.ends = new Float64Array(raw.names.length);
    this.rowOf = new Uint16Array(raw.names.length);
    this.rows = [];
    this.lanes = raw.lanes.map((lane) => this.readLane(lane, raw));
    this.end = this.ends.reduce((most, t) => Math.max(most, t), raw.facts.step_time_us);
    this.collectives = raw.collectives;
    this.collectiveOf = new Map(raw.collectives.filter((c) => c.span >= 0).map((c) => [c.span, c]));
    this.memory = readMemory(raw.memory);
    this.lowered = null;
    this.byName = null;
    this.loops = Object.keys(raw.callees).map((name) => this.find(name))
      .filter((span) => span >= 0 && this.exposedShare(span) > 0);
  }

  readLane(lane, raw) {
    const rows = lane.rows.map((count) => {
      const first = this.rows.length ? this.rows.at(-1).first + this.rows.at(-1).count : 0;
      let at = 0;
      for (let i = first; i < first + count; i++) {
        at += raw.gaps_ns[i];
        this.starts[i] = at / 1000;
        at += raw.durations_ns[i];
        this.ends[i] = at / 1000;
        this.rowOf[i] = this.rows.length;
      }
      const to = first + count;
      const row = new SpanRow(
        this.starts.subarray(first, to), this.ends.subarray(first, to),
        this.kinds.subarray(first, to), first);
      this.rows.push(row);
      return row;
    });
    return { label: lane.label, role: lane.role, rows };
  }

  opcode(span) {
    return DATA.opcodes[this.opcodes[span]];
  }

  kind(span) {
    return KINDS[this.kinds[span]];
  }

  /* What a span runs: computations to open, trips, exposure of one trip; or undefined. */
  calls(span) {
    return this.callees[this.names[span]];
  }

  exposedShare(span) {
    const calls = this.calls(span);
    return calls && calls.run_us > 0 ? calls.exposed_us / calls.run_us : 0;
  }

  /* Spans whose name, done, parameter or opcode holds the text, in order of time. */
  search(text) {
    this.lowered ??= this.names.map((name, i) => (
      `${name} ${this.collectiveOf.get(i)?.done ?? ""} ${this.collectiveOf.get(i)?.label ?? ""} ${this.opcode(i)}`.toLowerCase()));
    const wanted = text.toLowerCase().replace(/^%/, "");
    const found = [];
    for (let i = 0; i < this.lowered.length; i++) {
      if (this.lowered[i].includes(wanted) && this.kind(i) !== "wait") found.push(i);
    }
    return found.sort((a, b) => this.starts[a] - this.starts[b] || a - b);
  }

  find(name) {
    if (this.byName === null) {
      this.byName = new Map();
      this.names.forEach((each, i) => { if (this.kind(i) !== "wait") this.byName.set(each, i); });
      for (const c of this.collectives) {
        this.byName.set(c.name, c.span);
        if (c.done) this.byName.set(c.done, c.span);
      }
    }
    return this.byName.get(name) ?? -1;
  }
}

function readMemory(raw) {
  if (raw === null) return null;
  let at = 0, bytes = 0;
  const times = new Float64Array(raw.steps_ns.length);
  const values = new Float64Array(raw.steps_ns.length);
  raw.steps_ns.forEach((step, i) => {
    at += step;
    bytes += raw.steps_bytes[i];
    times[i] = at / 1000;
    values[i] = bytes;
  });
  return {
    times, maxima: new RangeMax(values), values, peak: raw.peak_bytes, base: raw.base_bytes,
    lines: [[raw.limit_bytes, "XLA takes"], [raw.device_bytes, "device"]].filter(([bytes]) => bytes > 0),
  };
}

const SIDES = DATA.sides.map((side, number) => ({
  label: side.label,
  source: side.source,
  schedules: side.computations.map((raw) => ({ raw, made: null })),
  facts: side.facts,
  memory: side.memory,
  anyStructure: side.any_structure,
  causes: side.causes,
  advice: side.advice,
  number,
}));

/* The schedule of a computation on a side, decoded when first looked at. */
function scheduleOf(side, name) {
  const slot = SIDES[side].schedules.find((s) => s.raw.name === name);
  if (!slot) return null;
  slot.made ??= new Schedule(slot.raw, side);
  return slot.made;
}
