/* Charts, as inline SVG. What is not known is a gap; zero is in the axis of rates; a chart has its numbers as a
   table, too. */

import { View, clock, count, day, h, minute, put, rate, signal, svg, table, td, zone } from "./core.js";

/** A path through points; where a value is null, there is a gap. Answers [line, area down to `floor`]. */
function paths(points, floor) {
  let line = "",
    area = "",
    begun = null,
    last = null;
  const end = () => {
    if (begun !== null && begun === last) line += "h1.5"; // one point between gaps is seen, too
    if (begun !== null) area += `L${last} ${floor}L${begun} ${floor}Z`;
    begun = null;
  };
  for (const [x, y] of points) {
    if (y === null) {
      end();
      continue;
    }
    const place = `${x.toFixed(1)} ${y.toFixed(1)}`;
    line += (begun === null ? "M" : "L") + place;
    area += (begun === null ? "M" : "L") + place;
    begun ??= x.toFixed(1);
    last = x.toFixed(1);
  }
  end();
  return [line, area];
}

/** At most so many values, each the mean of those that it stands for. */
export function thinned(values, most) {
  if (values.length <= most) return values;
  return Array.from({ length: most }, (_, at) => {
    const part = values
      .slice(Math.floor((at * values.length) / most), Math.floor(((at + 1) * values.length) / most))
      .filter((each) => each !== null);
    return part.length ? part.reduce((a, b) => a + b, 0) / part.length : null;
  });
}

/** A small line, from its own least to its own greatest value, which it says on hover. */
export function spark(values, { kind = "", unit = "/s" } = {}) {
  const width = 96,
    height = 24,
    begun = (values ?? []).findIndex((each) => each !== null),
    shown = thinned(begun < 0 ? [] : values.slice(begun), 64),
    known = shown.filter((each) => each !== null);
  const node = svg("svg", {
    class: `spark ${kind}`,
    viewBox: `0 0 ${width} ${height}`,
    preserveAspectRatio: "none",
    role: "img",
  });
  if (!known.length) {
    node.setAttribute("aria-label", "nothing measured yet");
    return node;
  }
  const low = Math.min(...known),
    high = Math.max(...known),
    flat = high - low < high * 1e-6 || high === 0;
  const y = (value) =>
    value === null ? null : flat ? height - 3 : height - 2 - ((value - low) / (high - low)) * (height - 5);
  const [line, area] = paths(
    shown.map((value, at) => [(at * width) / Math.max(1, shown.length - 1), y(value)]),
    height,
  );
  const told = `${rate(low)} to ${rate(high)} ${unit}`;
  node.setAttribute("aria-label", told);
  node.append(svg("title", {}, told), svg("path", { class: "area", d: area }), svg("path", { class: "line", d: line }));
  return node;
}

/** Up to 4 round numbers from 0 on that reach `high`. */
export function steps(high) {
  if (!(high > 0)) return [0, 1];
  const size = 10 ** Math.floor(Math.log10(high));
  const step =
    [0.1, 0.2, 0.25, 0.5, 1, 2, 2.5, 5].map((each) => each * size).find((each) => Math.ceil(high / each) <= 3) ??
    size * 5;
  return Array.from({ length: Math.ceil(high / step - 1e-9) + 1 }, (_, at) => at * step);
}

const label = (number) =>
  number >= 100000
    ? `${count(number / 1000)} k`
    : number < 10 && number % 1
      ? String(Math.round(number * 100) / 100)
      : count(number);

/** Places of an axis of time: [ms, text], at most so many. */
export function ticks(from, to, most) {
  const span = to - from,
    MINUTE = 60000,
    DAY = 86400000;
  if (!(span > 0)) return [[from, clock(from)]];
  const sizes = [1, 2, 5, 10, 30]
    .map((each) => each * 1000)
    .concat(
      [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720].map((each) => each * MINUTE),
      [1, 2, 7].map((each) => each * DAY),
    );
  const size = sizes.find((each) => span / each <= most);
  if (size === undefined) return months(from, to, most);
  const found = [];
  for (let at = Math.ceil(from / size) * size; at <= to; at += size)
    found.push([at, size >= DAY ? short(at) : size < MINUTE ? clock(at) : minute(at)]);
  return found.length ? found : [[from, span < MINUTE ? clock(from, span < 2000) : minute(from)]];
}

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const short = (ms) => {
  const text = day(ms);
  return `${MONTHS[Number(text.slice(5, 7)) - 1]} ${Number(text.slice(8))}`;
};
export { short as monthDay };

function months(from, to, most) {
  const found = [],
    every = [1, 2, 3, 6, 12, 24, 60, 120].find((each) => (to - from) / (each * 30.4 * 86400000) <= most) ?? 240;
  const date = new Date(from);
  date.setUTCDate(1);
  date.setUTCHours(0, 0, 0, 0);
  for (; date <= to; date.setUTCMonth(date.getUTCMonth() + 1)) {
    const month = date.getUTCFullYear() * 12 + date.getUTCMonth();
    if (month % every || date < from) continue;
    found.push([
      Number(date),
      found.length && date.getUTCMonth()
        ? MONTHS[date.getUTCMonth()]
        : `${MONTHS[date.getUTCMonth()]} ${date.getUTCFullYear()}`,
    ]);
  }
  return found;
}

/** Where the pointer is in time, in any chart of the page: one crosshair for all; null outside. */
export const cross = signal(null);

/** What all charts have: they are drawn anew when their width changes. */
class Chart extends View {
  show() {
    this.classList.add("chart");
    const watching = new ResizeObserver(() => this.redraw());
    watching.observe(this);
    this.ends.push(() => watching.disconnect());
    this.redraw();
  }

  /** Show this. */
  set data(data) {
    this.given = data;
    if (this.isConnected) this.redraw();
  }

  /** The nodes of it, at that width. @param {number} width @param {any} given @returns {any[]} */
  draw(width, given) {
    return [];
  }

  redraw() {
    const width = Math.round(this.clientWidth);
    if (!this.given || width < 40) return;
    const isOpen = this.querySelector("details")?.open;
    put(this, this.draw(width, this.given));
    if (isOpen) this.querySelector("details").open = true;
  }

  frame(width, height, high, { left = 46, bottom = 18, from, to }) {
    const node = svg("svg", {
      viewBox: `0 0 ${width} ${height}`,
      height,
      role: "img",
      "aria-label": this.getAttribute("label") ?? "",
    });
    const lines = steps(high),
      top = lines.at(-1),
      inner = { left, top: 6, right: width - 6, bottom: height - bottom };
    const y = (value) => inner.bottom - (value / top) * (inner.bottom - inner.top);
    const x = (ms) => inner.left + ((ms - from) / Math.max(1, to - from)) * (inner.right - inner.left);
    for (const line of lines) {
      node.append(
        svg("line", { class: "grid", x1: inner.left, x2: inner.right, y1: y(line), y2: y(line) }),
        svg("text", { x: inner.left - 8, y: y(line) + 4, "text-anchor": "end" }, label(line)),
      );
    }
    for (const [ms, text] of ticks(from, to, Math.max(2, Math.floor(width / 110)))) {
      const at = x(ms);
      node.append(
        svg(
          "text",
          {
            x: at,
            y: height - 3,
            "text-anchor": at < inner.left + 20 ? "start" : at > inner.right - 24 ? "end" : "middle",
          },
          text,
        ),
      );
    }
    return { node, x, y, inner };
  }
}

/** Series over time: `{series: [{name, values, colour}], newest_at, step_s, height, stacked, mark: [ms, text]}`. */
class HwSeries extends Chart {
  draw(width, { series, newest_at, step_s, height = 160, stacked = true, unit = "/s", mark }) {
    const most = Math.max(2, Math.floor(width / 5)),
      length = series[0]?.values.length ?? 0;
    const to = newest_at + step_s * 1000,
      from = to - length * step_s * 1000;
    const thin = series.map((each) => thinned(each.values, most)),
      points = thin[0]?.length ?? 0;
    const sums = Array.from({ length: points }, () => 0);
    const tops = thin.map((values) =>
      values.map((value, at) => {
        if (value === null) return null;
        if (!stacked) return value;
        sums[at] += value;
        return sums[at];
      }),
    );
    const high = Math.max(0, ...tops.flat().filter((each) => each !== null));
    const { node, x, y, inner } = this.frame(width, height, high, { from, to });
    const ms = (at) => from + ((at + 0.5) * (to - from)) / Math.max(1, points);
    for (let at = tops.length - 1; at >= 0; at -= 1) {
      const [line, area] = paths(
        tops[at].map((value, place) => [x(ms(place)), value === null ? null : y(value)]),
        inner.bottom,
      );
      const below = svg("g", { class: series[at].colour });
      if (stacked && at > 0) {
        // what lies under it is covered, so that areas do not add up
        const covered = paths(
          tops[at].map((value, place) => [x(ms(place)), value === null ? null : y(value)]),
          inner.bottom,
        )[1];
        below.append(svg("path", { d: covered, fill: "var(--card)" }));
      } else if (stacked) below.append(svg("path", { d: area, fill: "var(--card)" }));
      below.append(svg("path", { class: "area", d: area }), svg("path", { class: "line", d: line }));
      node.append(below);
    }
    if (mark)
      node.append(
        svg("line", { class: "mark", x1: x(mark[0]), x2: x(mark[0]), y1: inner.top, y2: inner.bottom }),
        svg("text", { x: x(mark[0]) - 5, y: inner.top + 8, "text-anchor": "end" }, mark[1]),
      );
    const line = svg("line", { class: "cross", y1: inner.top, y2: inner.bottom, visibility: "hidden" }),
      tip = h("div", { class: "tip", hidden: true });
    node.append(line);
    node.addEventListener("pointermove", (event) => {
      const box = node.getBoundingClientRect(),
        share = (event.clientX - box.left - inner.left) / (inner.right - inner.left);
      cross.value = share < 0 || share > 1 ? null : from + share * (to - from);
    });
    node.addEventListener("pointerleave", () => {
      cross.value = null;
    });
    this.cross = () => {
      const at = cross.value;
      const inside = at !== null && at >= from && at <= to;
      line.setAttribute("visibility", inside ? "visible" : "hidden");
      tip.hidden = !inside || !this.matches(":hover");
      if (!inside) return;
      line.setAttribute("x1", x(at));
      line.setAttribute("x2", x(at));
      const place = Math.min(points - 1, Math.floor(((at - from) / (to - from)) * points));
      put(
        tip,
        h("div", { class: "dim" }, `${clock(ms(place))} ${zone()}`),
        series.map((each, index) =>
          h(
            "div",
            {},
            `${each.name} `,
            h("b", {}, thin[index][place] === null ? "not measured" : `${rate(thin[index][place])} ${unit}`),
          ),
        ),
      );
      tip.style.left = `${Math.min(x(at) + 12, width - 170)}px`;
    };
    if (!this.crossing) {
      this.crossing = true;
      this.watch(() => {
        void cross.value;
        this.cross?.();
      });
    }
    return [node, tip, this.asNumbers(series, thin, ms)];
  }

  asNumbers(series, thin, ms) {
    const rows = () =>
      thin[0].map((_, at) =>
        h(
          "tr",
          {},
          h("td", {}, clock(ms(at))),
          series.map((each, index) =>
            td("n", thin[index][at] === null ? "not measured" : rate(thin[index][at])),
          ),
        ),
      );
    const details = h("details", { class: "numbers-of" }, h("summary", {}, "as numbers"));
    details.addEventListener("toggle", () => {
      if (details.open && details.children.length === 1)
        details.append(
          h("div", { class: "scroll" }, table([["Time"], ...series.map((each) => [each.name, "n"])], rows())),
        );
    });
    return details;
  }
}

/** How many events there were over time, by type: `{from, to, buckets: [{at, events, types}], types: [[name,
   colour]], height, pick}`.
   A range that is dragged, or a line of the table that is pressed, is given to `pick`; `same` makes a command. */
class HwBars extends Chart {
  draw(width, { from, to, buckets, types, height = 96, pick, same }) {
    const high = Math.max(0, ...buckets.map((each) => each.events));
    const { node, x, y, inner } = this.frame(width, height, high, { left: 40, bottom: 18, from, to });
    const wide = (inner.right - inner.left) / Math.max(1, buckets.length);
    buckets.forEach((bucket, at) => {
      const left = inner.left + at * wide,
        told = `${day(bucket.at)} ${clock(bucket.at)}: ${count(bucket.events)}`;
      const group = svg("g", {}, svg("title", {}, told));
      let below = 0;
      for (const [name, colour] of [...types, [null, "c6"]]) {
        const events = name === null ? bucket.events - below : (bucket.types[name] ?? 0);
        if (events <= 0) continue;
        const top = y(below + events),
          size = y(below) - top;
        group.append(
          svg("rect", {
            class: `bar ${colour}`,
            x: (left + Math.min(1, wide * 0.15) / 2).toFixed(2),
            width: Math.max(0.6, wide - Math.min(1, wide * 0.3)).toFixed(2),
            y: top.toFixed(2),
            height: Math.max(below ? 0 : 0.8, size).toFixed(2),
          }),
        );
        below += events;
      }
      node.append(group);
    });
    if (pick) this.dragging(node, inner, (share) => from + share * (to - from), pick);
    const details = h("details", { class: "numbers-of" }, h("summary", {}, "as numbers"));
    details.addEventListener("toggle", () => {
      if (details.open && details.children.length === 1)
        details.append(
          same?.() ?? "",
          h(
            "div",
            { class: "scroll" },
            table(
              [["From"], ["Events", "n"]],
              buckets.map((each, at) =>
                h(
                  "tr",
                  {},
                  h(
                    "td",
                    {},
                    h(
                      "button",
                      {
                        class: "plain small",
                        title: "Only this time",
                        onclick: () => pick?.(each.at, buckets[at + 1]?.at ?? to),
                      },
                      `${day(each.at)} ${clock(each.at)}`,
                    ),
                  ),
                  td("n", count(each.events)),
                ),
              ),
            ),
          ),
        );
    });
    return [node, details];
  }

  dragging(node, inner, time, pick) {
    let began = null;
    const range = svg("rect", { class: "range", y: inner.top, height: inner.bottom - inner.top, width: 0 });
    node.append(range);
    const place = (event) =>
      Math.min(inner.right, Math.max(inner.left, event.clientX - node.getBoundingClientRect().left));
    node.addEventListener("pointerdown", (event) => {
      began = place(event);
      node.setPointerCapture(event.pointerId);
    });
    node.addEventListener("pointermove", (event) => {
      if (began === null) return;
      const now = place(event);
      range.setAttribute("x", Math.min(began, now));
      range.setAttribute("width", Math.abs(now - began));
    });
    node.addEventListener("pointerup", (event) => {
      const ended = place(event),
        from = Math.min(began, ended),
        to = Math.max(began, ended);
      began = null;
      range.setAttribute("width", 0);
      const share = (each) => (each - inner.left) / (inner.right - inner.left);
      if (to - from > 4) pick(Math.floor(time(share(from))), Math.ceil(time(share(to))));
    });
  }
}

customElements.define("hw-series", HwSeries);
customElements.define("hw-bars", HwBars);

/** A chart with its data. */
export function chart(name, data, properties = {}) {
  const node = h(name, properties);
  node.data = data;
  return node;
}

/** Which colour each of these names has: by a hash of the name; collisions take the next free one. */
export function colours(names) {
  const found = new Map(),
    taken = new Set();
  for (const name of names) {
    let at = 0;
    for (const char of name) at = (at * 31 + char.codePointAt(0)) % 6;
    let tries = 0;
    while (taken.has(at) && tries < 6) {
      at = (at + 1) % 6;
      tries += 1;
    }
    found.set(name, tries < 6 ? `c${at}` : "c6");
    taken.add(at);
  }
  return found;
}
