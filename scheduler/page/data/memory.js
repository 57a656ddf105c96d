/* The memory curve below the lanes: for each pixel the most that was live in it. */

const HEADROOM = 1.06;

function memoryScale(view) {
  const top = view.schedule.memory.peak * HEADROOM || 1;
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
}
