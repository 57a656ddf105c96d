/* The strip above a timeline: the whole computation, and which part of it is shown. */

function drawOverview(view) {
  if (view.overviewStale) {
    view.overviewPicture = paintOverview(view);
    view.overviewStale = false;
  }
  const { pen, width } = prepare(view.overview, OVERVIEW_PX);
  pen.drawImage(view.overviewPicture, 0, 0, width, OVERVIEW_PX);
  const { viewport, gutter } = view;
  const scale = (width - gutter) / viewport.end;
  const from = gutter + viewport.from * scale, to = gutter + viewport.to * scale;
  if (viewport.length >= viewport.end * 0.999) return;
  pen.fillStyle = COLOURS.panel;
  pen.globalAlpha = 0.66;
  pen.fillRect(gutter, 0, from - gutter, OVERVIEW_PX);
  pen.fillRect(to, 0, width - to, OVERVIEW_PX);
  pen.globalAlpha = 1;
  pen.strokeStyle = COLOURS.accent;
  pen.lineWidth = 2;
  pen.strokeRect(from, 1, Math.max(3, to - from), OVERVIEW_PX - 2);
}

/* Painted once for a computation, a width and a theme. */
function paintOverview(view) {
  const ratio = window.devicePixelRatio || 1;
  const width = Math.max(1, Math.floor(view.overview.clientWidth));
  const picture = make("canvas", { width: Math.round(width * ratio), height: Math.round(OVERVIEW_PX * ratio) });
  const pen = picture.getContext("2d");
  pen.scale(ratio, ratio);
  pen.font = SANS;
  pen.textBaseline = "middle";
  const { gutter, viewport } = view;
  const step = viewport.end / Math.max(1, width - gutter);
  pen.fillStyle = COLOURS.muted;
  pen.fillText(fitted(pen, "Overview", gutter - 14), 8, OVERVIEW_PX / 2);
  const tracks = view.bands.map((band) => [band, band.role === "wait" ? 7 : 5]);
  const room = OVERVIEW_PX - 6, all = tracks.reduce((sum, [, high]) => sum + high, 0);
  let y = 3;
  for (const [band, share] of tracks) {
    const high = Math.min(9, room * share / all);
    for (let x = 0; x < width - gutter; x++) {
      paintOverviewPixel(pen, band, x * step, step, gutter + x, y, Math.max(1, high - 1));
    }
    y += high;
  }
  const waits = view.bands.find((band) => band.role === "wait");
  for (const span of waits ? view.schedule.loops : []) {
    const { starts, ends } = view.schedule;
    pen.fillStyle = COLOURS.exposed;
    const tall = 7 * Math.max(LOWEST, view.schedule.exposedShare(span));
    pen.fillRect(gutter + starts[span] / step, 10 - tall, (ends[span] - starts[span]) / step, tall);
  }
  if (view.matches) {
    pen.fillStyle = COLOURS.match;
    let last = -9;
    for (const start of view.matches.starts) {
      const x = Math.round(gutter + start / step);
      if (x > last) { pen.fillRect(x, 0, 2, 4); last = x + 1; }
    }
  }
  return picture;
}

function paintOverviewPixel(pen, band, from, step, x, y, high) {
  let kind = -1, most = 0;
  for (const row of band.rows) {
    const i = row.visibleFrom(from);
    if (i >= row.count || row.starts[i] >= from + step) continue;
    const [each, busy] = row.busiest(i, Math.max(i + 1, lowerBound(row.starts, from + step, i)));
    if (busy > most) { most = busy; kind = each; }
  }
  if (kind < 0) return;
  const tall = high * Math.max(LOWEST, Math.min(1, most / step));
  pen.fillStyle = COLOURS[KINDS[kind]];
  pen.fillRect(x, y + high - tall, 1, tall);
}
