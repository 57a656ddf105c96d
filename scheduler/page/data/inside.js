/* One run of a loop's body, drawn inside the loop's bar: when the device waits, what it
 * computes, what is in flight. Loops in it are drawn in the same lanes. */

const COMPUTE = "Compute";
const INSIDE_WAIT_PX = 8, INSIDE_COMPUTE_PX = 12, INSIDE_STREAM_PX = 9, INSIDE_PAD_PX = 3;
const MOST_INSIDE_STREAMS = 3, DEEPEST = 4;
/* Bars narrower than this show nothing inside. */
const NARROWEST_PX = 12;

/* The schedule of what a span runs, if it takes time; else null. */
function bodyOf(schedule, span) {
  const calls = schedule.calls(span);
  if (!calls || schedule.kind(span) === "wait") return null;
  const body = scheduleOf(schedule.side, calls.names[0]);
  return body && body.rows.length && body.end > 0 ? body : null;
}

/* Spans of a schedule that run a body, by start. */
function bodySpans(schedule) {
  schedule.bodySpans ??= Object.keys(schedule.callees).map((name) => schedule.find(name))
    .filter((span) => span >= 0 && bodyOf(schedule, span))
    .sort((a, b) => schedule.starts[a] - schedule.starts[b]);
  return schedule.bodySpans;
}

/* Streams of all that runs inside. */
function streamsInside(schedule, depth = 0) {
  if (depth > DEEPEST) return 0;
  const own = depth ? schedule.lanes.filter((lane) => lane.role === "work" && lane.label !== COMPUTE).length : 0;
  return bodySpans(schedule).reduce((most, span) => Math.max(most, streamsInside(bodyOf(schedule, span), depth + 1)), own);
}

/* How much higher the compute lane is for what its loops run. */
function insideHeight(schedule) {
  if (!bodySpans(schedule).length) return 0;
  schedule.streamsInside ??= Math.min(MOST_INSIDE_STREAMS, streamsInside(schedule));
  return INSIDE_WAIT_PX + INSIDE_COMPUTE_PX + INSIDE_STREAM_PX * schedule.streamsInside + 2 * INSIDE_PAD_PX;
}

/* A frame maps a body's time to x: x0 + t * scale, between left and right. */
function frameOf(outer, schedule, span, body) {
  const from = outer.x0 + schedule.starts[span] * outer.scale;
  const to = outer.x0 + schedule.ends[span] * outer.scale;
  return {
    x0: from, scale: (to - from) / body.end,
    left: Math.max(outer.left, from), right: Math.min(outer.right, to),
  };
}

function wholeFrame(view) {
  return { x0: view.x(0), scale: view.scale, left: view.gutter - 2, right: view.width + 2 };
}

function drawInsides(view, band) {
  const { pen, schedule } = view;
  const whole = wholeFrame(view), y = band.y + band.high - 3;
  for (const span of bodySpans(schedule)) {
    const body = bodyOf(schedule, span);
    const frame = frameOf(whole, schedule, span, body);
    if (frame.right - frame.left < NARROWEST_PX) continue;
    pen.globalAlpha = 0.22;
    pen.fillStyle = COLOURS.loop;
    pen.fillRect(frame.left, y, frame.right - frame.left - 1, band.inside);
    pen.globalAlpha = 1;
    pen.strokeStyle = COLOURS.loop;
    pen.strokeRect(frame.left + 0.5, y + 0.5, frame.right - frame.left - 2, band.inside - 1);
    drawBody(pen, body, frame, y + INSIDE_PAD_PX, 0);
  }
}

/* The lanes of a body from y on, and of the loops in it in the same lanes. */
function drawBody(pen, body, frame, y, depth) {
  for (const { lane, top, high } of lanesInside(body, y)) {
    for (const row of lane.rows) drawRowInside(pen, row, frame, top, high, lane.role);
  }
  if (depth >= DEEPEST) return;
  const column = COLUMN_PX / frame.scale;
  for (const span of bodySpans(body)) {
    if (body.ends[span] - body.starts[span] < column) continue;
    const inner = bodyOf(body, span), at = frameOf(frame, body, span, inner);
    if (at.right - at.left < NARROWEST_PX) continue;
    pen.fillStyle = COLOURS.panel;
    pen.fillRect(at.left, y + INSIDE_WAIT_PX, at.right - at.left, INSIDE_COMPUTE_PX - 1);
    drawBody(pen, inner, at, y, depth + 1);
  }
}

/* Where the lanes of a body are: {lane, top, high}; streams past the last share its place. */
function lanesInside(body, y) {
  let stream = -1;
  return body.lanes.map((lane) => {
    if (lane.role === "wait") return { lane, top: y, high: INSIDE_WAIT_PX - 2 };
    if (lane.label === COMPUTE) return { lane, top: y + INSIDE_WAIT_PX, high: INSIDE_COMPUTE_PX - 1 };
    stream = Math.min(stream + 1, MOST_INSIDE_STREAMS - 1);
    return { lane, top: y + INSIDE_WAIT_PX + INSIDE_COMPUTE_PX + stream * INSIDE_STREAM_PX, high: INSIDE_STREAM_PX - 2 };
  });
}

function drawRowInside(pen, row, frame, y, high, role) {
  const { x0, scale } = frame;
  const column = COLUMN_PX / scale, from = (frame.left - x0) / scale, to = (frame.right - x0) / scale;
  let i = row.visibleFrom(from);
  while (i < row.count && row.starts[i] < to) {
    let j = i + 1, until = row.ends[i], at = row.starts[i], kind = row.kinds[i], busy = 0;
    if (row.length(i) < column) {
      until = from + (Math.floor((row.starts[i] - from) / column) + 1) * column;
      j = Math.max(j, lowerBound(row.starts, until, i, row.count));
      if (j - 1 > i && row.length(j - 1) >= column) j--;
      [kind, busy] = row.busiest(i, j);
      at = until - column;
    }
    if (until > at && (j > i + 1 || row.length(i) > 0)) {
      const left = Math.max(frame.left, x0 + at * scale), right = Math.min(frame.right, x0 + until * scale);
      const tall = busy > 0 ? high * Math.max(LOWEST, Math.min(1, busy / column)) : high;
      pen.fillStyle = role === "wait" ? HATCH : COLOURS[KINDS[kind]];
      pen.fillRect(left, y + high - tall, Math.max(0.5, right - left - (right - left > 6 ? 1 : 0)), tall);
    }
    i = j;
  }
}

/* What is drawn inside a loop at a point of the canvas: {loop, body, span}, or null. */
function insideAt(view, x, y) {
  const band = view.bands?.find((b) => b.inside && y > b.y + b.high && y < b.y + b.height);
  if (!band) return null;
  let schedule = view.schedule, frame = wholeFrame(view), found = null;
  for (let depth = 0; depth <= DEEPEST; depth++) {
    const t = (x - frame.x0) / frame.scale;
    const loop = bodySpans(schedule).find((span) => schedule.starts[span] <= t && t < schedule.ends[span]);
    if (loop === undefined) break;
    const body = bodyOf(schedule, loop);
    frame = frameOf(frame, schedule, loop, body);
    const inside = (x - frame.x0) / frame.scale;
    const place = lanesInside(body, band.y + band.high - 3 + INSIDE_PAD_PX)
      .find(({ top, high }) => y >= top - 1 && y <= top + high + 1);
    const span = (place?.lane.rows ?? []).map((row) => row.at(inside, 2 / frame.scale)).find((s) => s >= 0) ?? -1;
    found = { loop: schedule.names[loop], trips: schedule.calls(loop).trips, body, span };
    schedule = body;
  }
  return found && found.span >= 0 ? found : null;
}
