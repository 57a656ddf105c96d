/* Drawn data in forms that answer questions about a range of time without walking over
 * all of it: spans by binary search and running sums, memory by maxima. */

/* The first index in [from, to) of an ascending array whose value is >= (or, strictly,
 * >) the wanted one. */
function lowerBound(values, wanted, from = 0, to = values.length) {
  while (from < to) {
    const middle = (from + to) >>> 1;
    if (values[middle] < wanted) from = middle + 1;
    else to = middle;
  }
  return from;
}

function upperBound(values, wanted, from = 0, to = values.length) {
  while (from < to) {
    const middle = (from + to) >>> 1;
    if (values[middle] <= wanted) from = middle + 1;
    else to = middle;
  }
  return from;
}

/* One row: spans that do not overlap, by start. `first` is the number of its first span. */
class SpanRow {
  constructor(starts, ends, kinds, first) {
    this.starts = starts;
    this.ends = ends;
    this.kinds = kinds;
    this.first = first;
    this.count = starts.length;
    this.sums = KINDS.map((_, kind) => {
      const sum = new Float64Array(this.count + 1);
      for (let i = 0; i < this.count; i++) {
        sum[i + 1] = sum[i] + (kinds[i] === kind ? ends[i] - starts[i] : 0);
      }
      return sum;
    });
  }

  /* Index of the first span that ends after t. */
  visibleFrom(t) {
    return upperBound(this.ends, t);
  }

  /* Time of each kind among the spans [i, j): [most expensive kind, time of all kinds]. */
  busiest(i, j) {
    let kind = 0, most = -1, all = 0;
    for (let k = 0; k < this.sums.length; k++) {
      const time = this.sums[k][j] - this.sums[k][i];
      all += time;
      if (time > most) { most = time; kind = k; }
    }
    return [kind, all];
  }

  /* Number of the span at t, or of the nearest within the slack, or -1. */
  at(t, slack) {
    let found = -1, best = slack;
    const from = Math.max(0, lowerBound(this.ends, t - slack));
    for (let i = from; i < this.count && this.starts[i] <= t + slack; i++) {
      const off = Math.max(this.starts[i] - t, t - this.ends[i], 0);
      // Of several in reach take the longest: nobody aims at a span that takes no time.
      if (off < best || (off === best && found >= 0 && this.length(i) > this.length(found))) {
        best = off;
        found = i;
      }
      if (off === 0 && this.ends[i] > t) break;
      if (i - from > 4000) break;
    }
    return found < 0 ? -1 : this.first + found;
  }

  length(i) {
    return this.ends[i] - this.starts[i];
  }
}

/* The largest value of any range of an array, in logarithmic time. */
class RangeMax {
  constructor(values) {
    this.levels = [values];
    while (this.levels.at(-1).length > 1) {
      const below = this.levels.at(-1);
      const above = new Float64Array((below.length + 1) >> 1);
      for (let i = 0; i < above.length; i++) {
        above[i] = Math.max(below[2 * i], below[Math.min(2 * i + 1, below.length - 1)]);
      }
      this.levels.push(above);
    }
  }

  of(from, to) {
    let most = -Infinity;
    for (let level = 0; from < to; level++) {
      const values = this.levels[level];
      if (from & 1) most = Math.max(most, values[from++]);
      if (to & 1) most = Math.max(most, values[--to]);
      from >>= 1;
      to >>= 1;
    }
    return most;
  }
}
