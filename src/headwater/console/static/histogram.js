/* How many events of a log match, by type, and when they were. */

import { count, h, plural, put, world } from "./core.js";
import { chart } from "./charts.js";

/** Show what was counted, and how long that took. */
export function total(page, found, bars, ms) {
  const log = world.peek()?.logs.find((each) => each.name === page.log),
    all = Number(log?.events ?? found.head),
    share = (found.events / all) * 100;
  const types = Object.entries(found.types ?? {}).sort((a, b) => Number(b[1]) - Number(a[1])),
    shown = types.slice(0, 5);
  const data = {
    from: bars.recorded_from,
    to: bars.recorded_before,
    buckets: bars.buckets.map((each) => ({ at: each.recorded_from, events: each.events, types: each.types ?? {} })),
    types: shown.map(([name]) => [name, page.colour(name)]),
    height: 96,
    pick: (from, before) => page.set({ range: [from, before], at: null }),
  };
  put(
    page.counted,
    h(
      "header",
      {},
      h(
        "h2",
        {},
        page.state.items.length || page.state.range
          ? `${plural(found.events, "event matches", "events match")}`
          : plural(found.events, "event"),
      ),
      h(
        "span",
        { class: "dim" },
        page.state.items.length && all
          ? `${share < 0.05 && share > 0 ? "under 0.1" : Math.round(share * 10) / 10} % of the log, `
          : "",
        `answered by the index in ${Math.max(1, Math.round(ms))} ms`,
        found.is_complete ? "" : ", at least",
      ),
      h(
        "span",
        { class: "right legend" },
        shown.map(([name, events]) =>
          h("span", {}, h("i", { class: `square ${page.colour(name)}` }), name, " ", h("b", {}, count(events))),
        ),
        types.length > 5 ? h("span", {}, `${types.length - 5} others`) : null,
        h("span", {}, "by time of recording"),
      ),
    ),
    found.events
      ? h(
          "div",
          { class: "in" },
          chart("hw-bars", data, { label: "Events over the time of recording; drag to select a range" }),
        )
      : null,
  );
}
