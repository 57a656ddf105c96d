/* The memory curve below the lanes: for each pixel the most that was live in it, above the
 * parameters; and the lines of what XLA takes of the device and of what the device has. */

const HEADROOM = 1.06;

/* A line further up would flatten the curve: its figure is in the headline. */
const FURTHEST_LINE = 2;

function shownLines({ lines, peak }) {
  return lines.filter(([bytes]) => bytes < peak * FURTHEST_LINE);
}

function memoryScale(view) {
  const { memory } = view.schedule;
  const top = Math.max(memory.peak, ...shownLines(memory).map(([bytes]) => bytes)) * HEADROOM || 1;
  return (bytes) => view.memoryY + MEMORY_PX - (bytes / top) * (MEMORY_PX - 8);
}

/* The most bytes live between two moments. */
function memoryBetween(memory, from, to) {
  const i = Math.max(0, upperBound(memory.times, from) - 1);
  return memory.maxima.of(i, Math.max(i + 1, upperBound(memory.times, to)));
}

function drawMemory(view) {
  const { pen, schedule, viewport } = view;
  const { memory } = schedule;
  const y = memoryScale(view);
  const floor = view.memoryY + MEMORY_PX;
  if (memory.base > 0) {
    pen.globalAlpha = 0.25;
    pen.fillStyle = COLOURS.memory;
    pen.fillRect(view.gutter, y(memory.base), view.width - view.gutter, floor - y(memory.base));
    pen.globalAlpha = 1;
  }
  if (memory.times.length) {
    pen.beginPath();
    pen.moveTo(view.gutter, floor);
    const last = Math.min(view.width, view.x(Math.min(viewport.to, schedule.end)));
    let level = floor;
    for (let x = view.gutter; x < last; x++) {
      const next = y(memoryBetween(memory, view.t(x), view.t(x + 1)));
      if (next === level) continue;
      pen.lineTo(x, level);
      pen.lineTo(x, next);
      level = next;
    }
    pen.lineTo(last, level);
    pen.lineTo(last, floor);
    pen.closePath();
    pen.globalAlpha = 0.3;
    pen.fillStyle = COLOURS.memory;
    pen.fill();
    pen.globalAlpha = 1;
    pen.strokeStyle = COLOURS.memory;
    pen.lineWidth = 1.2;
    pen.stroke();
  }
}

function drawMemoryLabels(view) {
  const { pen, gutter } = view;
  const { peak } = view.schedule.memory;
  const y = memoryScale(view);
  pen.fillStyle = COLOURS.text;
  pen.fillText(fitted(pen, "Memory", gutter - 14), 8, view.memoryY + 20);
  pen.fillStyle = COLOURS.muted;
  pen.fillText(fitted(pen, `peak ${shownBytes(peak)}`, gutter - 14), 8, view.memoryY + 36);
  pen.fillText("0", gutter - 12, view.memoryY + MEMORY_PX - 4);
  pen.fillStyle = COLOURS["line-strong"];
  pen.fillRect(gutter, y(peak), view.width - gutter, 0.5);
  for (const [bytes, name] of shownLines(view.schedule.memory)) {
    pen.fillStyle = bytes < peak ? COLOURS.exposed : COLOURS.muted;
    pen.fillRect(gutter, y(bytes) - 0.75, view.width - gutter, 1.5);
    pen.fillText(`${name} ${shownBytes(bytes)}`, gutter + 6, y(bytes) + 12);
  }
}
