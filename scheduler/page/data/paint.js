/* Colors from the style sheet, and the primitives that all canvases share. */

let COLOURS = {};
let HATCH = null;

function readColours() {
  const style = getComputedStyle(document.documentElement);
  COLOURS = {};
  for (const name of ["panel", "line", "line-strong", "text", "muted", "accent", "row", "memory", "match", "band", "compute", "loop", "copy", "hidden", "partial", "exposed"]) {
    COLOURS[name] = style.getPropertyValue(`--${name}`).trim();
    COLOURS[`${name}-text`] = style.getPropertyValue(`--${name}-text`).trim();
  }
  COLOURS.wait = COLOURS.exposed;
  HATCH = hatchOf(COLOURS.exposed);
}

/* Exposed time is hatched as well as colored, so that it is visible without color. */
function hatchOf(colour) {
  const tile = make("canvas", { width: 8, height: 8 });
  const pen = tile.getContext("2d");
  pen.strokeStyle = colour;
  pen.lineWidth = 2.4;
  for (const shift of [-8, 0, 8]) {
    pen.beginPath();
    pen.moveTo(shift - 1, 9);
    pen.lineTo(shift + 9, -1);
    pen.stroke();
  }
  return pen.createPattern(tile, "repeat");
}

const SANS = '11px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", Arial, sans-serif';

/* Fit a canvas to its box on this screen; drawing then uses CSS pixels. */
function prepare(canvas, height) {
  const ratio = window.devicePixelRatio || 1;
  const width = Math.max(1, Math.floor(canvas.clientWidth));
  const wide = Math.round(width * ratio), high = Math.round(height * ratio);
  if (canvas.width !== wide || canvas.height !== high) {
    canvas.width = wide;
    canvas.height = high;
    canvas.style.height = `${height}px`;
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = SANS;
  pen.textBaseline = "middle";
  return { pen, width };
}

/* As much of a text as fits, with an ellipsis if it was cut; '' if nothing fits. */
function fitted(pen, text, room) {
  if (room < 18) return "";
  if (text.length * 7 < room || pen.measureText(text).width <= room) return text;
  let length = Math.floor(room / 6.2);
  while (length > 1 && pen.measureText(`${text.slice(0, length)}\u2026`).width > room) length--;
  return length > 1 ? `${text.slice(0, length)}\u2026` : "";
}
