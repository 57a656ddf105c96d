/* The range of time that is shown; every picture of the page follows the same one. */

const SHORTEST_US = 0.02;
const GLIDE_MS = 180;

class Viewport {
  constructor() {
    this.end = 1;
    this.from = 0;
    this.to = 1;
    this.listeners = [];
    this.glide = 0;
  }

  get length() {
    return this.to - this.from;
  }

  set(from, to) {
    const length = Math.min(this.end, Math.max(SHORTEST_US, to - from));
    this.from = Math.max(0, Math.min(from, this.end - length));
    this.to = this.from + length;
    for (const listener of this.listeners) listener();
  }

  reset(end) {
    cancelAnimationFrame(this.glide);
    this.end = Math.max(end, SHORTEST_US);
    this.set(0, this.end);
  }

  move(us) {
    this.set(this.from + us, this.to + us);
  }

  zoom(factor, at = (this.from + this.to) / 2) {
    const length = Math.min(this.end, Math.max(SHORTEST_US, this.length * factor));
    const from = at - (at - this.from) * (length / this.length);
    this.set(from, from + length);
  }

  /* Move there so that the eye can follow, or at once if motion is unwanted. */
  glideTo(from, to) {
    cancelAnimationFrame(this.glide);
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) return this.set(from, to);
    const begun = performance.now(), from0 = this.from, to0 = this.to;
    const frame = (now) => {
      const part = Math.min(1, (now - begun) / GLIDE_MS);
      const eased = 1 - (1 - part) ** 3;
      this.set(from0 + (from - from0) * eased, to0 + (to - to0) * eased);
      if (part < 1) this.glide = requestAnimationFrame(frame);
    };
    this.glide = requestAnimationFrame(frame);
    return undefined;
  }

  /* Bring a span into view: wide enough to read, with its neighbors. */
  reveal(start, end) {
    const span = Math.max(end - start, SHORTEST_US);
    const wide = span > this.length * 0.9, narrow = span < this.length * 0.04;
    const length = wide || narrow ? Math.min(this.end, span * 5) : this.length;
    const inside = start >= this.from && end <= this.to && length === this.length;
    if (inside) return;
    const middle = (start + end) / 2;
    this.glideTo(middle - length / 2, middle + length / 2);
  }
}
