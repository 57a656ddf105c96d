/* Numbers for readers: a value with a suitable unit, never more than four digits. */

const TIME_UNITS = [[1e6, "s"], [1e3, "ms"], [1, "\u00b5s"], [1e-3, "ns"]];
const BYTE_UNITS = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]];

function digits(value, unit) {
  const size = Math.abs(value);
  const places = size >= 100 || unit === "B" ? 0 : size >= 10 ? 1 : 2;
  return `${value.toFixed(places)}\u00a0${unit}`;
}

function inUnits(value, units) {
  const size = Math.abs(value);
  for (const [scale, unit] of units) {
    if (size >= scale) return digits(value / scale, unit);
  }
  const [scale, unit] = units[units.length - 1];
  return digits(value / scale, unit);
}

const shownTime = (us) => (us === 0 ? "0\u00a0\u00b5s" : inUnits(us, TIME_UNITS));
/* To the nanosecond, for a panel in which one compares values. */
function exactTime(us) {
  const [scale, unit] = TIME_UNITS.find(([s]) => Math.abs(us) >= s) ?? TIME_UNITS[2];
  const places = { s: 6, ms: 4, "\u00b5s": 3, ns: 0 }[unit];
  return `${(us / scale).toLocaleString("en-US", { maximumFractionDigits: places })}\u00a0${unit}`;
}
const shownBytes = (bytes) => (bytes === null ? "unknown" : inUnits(bytes, BYTE_UNITS));
const shownCount = (n) => n.toLocaleString("en-US");
const shownShare = (part, whole) => (whole > 0 ? `${(100 * part / whole).toFixed(1)}\u00a0%` : "0\u00a0%");

/* A change, signed, or 'same' if the reader could not see a difference. */
function shownChange(before, after, shown) {
  if (shown(before) === shown(after)) return "same";
  return (after > before ? "+" : "\u2212") + shown(Math.abs(after - before));
}

/* Ticks of an axis from t0 to t1: round steps, all in one unit. */
function axisTicks(t0, t1, most) {
  const raw = (t1 - t0) / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((m) => power * m >= raw * 0.999);
  const [scale, unit] = TIME_UNITS.find(([s]) => t1 >= s) ?? TIME_UNITS[3];
  const places = Math.max(0, Math.ceil(-Math.log10(step / scale) - 1e-9));
  const ticks = [];
  for (let k = Math.ceil(t0 / step); k * step <= t1; k++) {
    ticks.push({ at: k * step, text: `${(k * step / scale).toFixed(places)} ${unit}` });
  }
  return ticks;
}
