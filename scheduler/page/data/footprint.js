/* Whether the step fits, and the buffers that take most where it is largest. */

/* The card of the peak: red where the device, or what XLA takes of it, has less. */
function memoryCard() {
  const { memory } = SIDES.at(-1);
  const first = SIDES.length > 1 ? SIDES[0].memory : null;
  const parameters = `${shownBytes(memory.parameters_bytes)} of it parameters`;
  return card("Peak memory", shownBytes(memory.peak_bytes), `${parameters}; ${roomOf(memory)}`, {
    was: first && change(first.peak_bytes, memory.peak_bytes, shownBytes),
    bad: memory.fits === false,
  });
}

function roomOf(memory) {
  if (memory.device_bytes === null) return "nobody says how much the device has";
  const has = shownBytes(memory.device_bytes), takes = shownBytes(memory.available_bytes);
  const needed = memory.packed_bytes ?? memory.peak_bytes;
  const isOfTpu = memory.available_bytes === null, fits = needed <= memory.device_bytes;
  if (isOfTpu && fits) return `needs ${shownBytes(needed)} of the device's ${has} (tiles are not counted)`;
  if (memory.fits) return `XLA's pool is ${takes} of ${has}`;
  if (needed > memory.device_bytes) return `does not fit, needs ${shownBytes(needed)}: the device has ${has}`;
  return `needs ${shownBytes(needed)}, does not fit into XLA's pool, ${takes} of ${has}`;
}

function showBuffers() {
  const { memory } = SIDES.at(-1);
  const box = byId("buffers");
  if (!memory.largest.length) return;
  const cell = (text, kind = "") => make("td", { class: kind, title: text }, text);
  const rows = memory.largest.map((b) => make("tr", {},
    cell(shownBytes(b.bytes), "number"),
    cell(b.name, "mono name"),
    cell(b.kind),
    cell(b.shape, "mono name"),
    cell(b.op_name, "mono"),
    cell(b.source ? `${b.source.file}:${b.source.line}` : "", "mono")));
  fill(box,
    make("h2", {}, memory.at ? `Largest buffers at the peak, while ${memory.at} runs` : "Largest buffers"),
    make("div", { class: "scrollx" }, make("table", {},
      make("thead", {}, make("tr", {}, ...["Size", "Made by", "Kind", "Shape", "From", "Line"].map((t, k) => make("th", { scope: "col", class: k ? "" : "number" }, t)))),
      make("tbody", {}, ...rows))));
}
