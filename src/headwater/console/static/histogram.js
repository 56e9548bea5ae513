/* How many events of a log match, by type, and when they were: by recording, or by the events' own times. */

import {
  ask,
  choice,
  clock,
  command,
  count,
  day,
  dim,
  h,
  icon,
  logPath,
  plural,
  put,
  quoted,
  shell,
  skeleton,
  trouble,
  world,
} from "./core.js";
import { chart } from "./charts.js";
import { asJson } from "./query.js";

const TYPES = 5;
const LABELS = {
  recorded: "Events by recording time; drag to select a range",
  event: "Events by event time; drag to zoom. The list does not change: a log is in recording order",
};

/** A range of times as a chip, with what takes it away. */
export function timeChip(name, [from, before], clear) {
  const isDay = day(from) === day(before),
    text = (ms) => `${isDay ? "" : `${day(ms)} `}${clock(ms)}`;
  return h(
    "span",
    { class: "chip" },
    h("span", {}, name),
    h("b", {}, `${text(from)} to ${text(before)}`),
    h("button", { "aria-label": "Any time", onclick: clear }, icon("close")),
  );
}

/** What is asked for a histogram of what the page shows: [the last word of its path, the body]. */
function question({ items, range, times, seen }) {
  const body = { query: asJson(items), by_type: true, buckets: 200, types_max: TYPES };
  if (times === "event")
    return ["event-histogram", { ...body, ...(seen ? { event_from: seen[0], event_before: seen[1] } : {}) }];
  return ["histogram", { ...body, ...(range ? { recorded_from: range[0], recorded_before: range[1] } : {}) }];
}

const asked = (page) => {
  const [word, body] = question(page.state);
  return ask("POST", logPath(page.log, `/${word}`), body, page.leaving.signal);
};

/** Show what was counted in so many ms, and when it was. */
export async function timed(page, found, ms) {
  const turn = page.turn,
    mine = (page.timing = (page.timing ?? 0) + 1),
    isOver = () => turn !== page.turn || mine !== page.timing || !page.isConnected;
  page.retime = () => timed(page, found, ms);
  const drawn = h("div", { class: "in bars" }, skeleton(3)),
    about = h("span");
  put(page.counted, heading(page, found, ms, about), found.events ? drawn : null);
  if (!found.events) return;
  try {
    for (let before = null, now = null; ; before = now) {
      now = await asked(page);
      if (isOver()) return;
      const shown = /** @type {any} */ (drawn.querySelector("hw-bars"));
      if (shown) shown.data = charted(page, found, now);
      else put(drawn, chart("hw-bars", charted(page, found, now), { label: LABELS[page.state.times] }));
      const isDone = now.is_complete || (before && now.first === before.first && now.upto === before.upto);
      put(about, page.state.times === "event" ? progress(found, now, isDone) : "");
      if (isDone || page.state.times !== "event") return;
    }
  } catch (problem) {
    if (problem.name !== "AbortError" && !isOver()) put(drawn, trouble(problem, page.retime));
  }
}

function progress(found, now, isDone) {
  if (now.is_complete) return "";
  if (isDone) return `; times of the newest ${count(now.events)}`;
  return `; times of ${count(now.events)} of them are read`;
}

function heading(page, found, ms, about) {
  const { items, range, times, seen } = page.state,
    log = world.peek()?.logs.find((each) => each.name === page.log),
    all = Number(log?.events ?? found.head),
    share = (found.events / all) * 100,
    types = ranked(found);
  return h(
    "header",
    {},
    h(
      "h2",
      {},
      items.length || range
        ? `${plural(found.events, "event matches", "events match")}`
        : plural(found.events, "event"),
    ),
    dim(
      items.length && all
        ? `${share < 0.05 && share > 0 ? "under 0.1" : Math.round(share * 10) / 10} % of the log, `
        : "",
      `answered by the index in ${Math.max(1, Math.round(ms))} ms`,
      found.is_complete ? "" : ", at least",
      about,
    ),
    seen && times === "event" ? timeChip("event time", seen, () => page.set({ seen: null }, true)) : null,
    h(
      "span",
      { class: "right legend" },
      types
        .slice(0, TYPES)
        .map(([name, events]) =>
          h("span", {}, h("i", { class: `square ${page.colour(name)}` }), name, " ", h("b", {}, count(events))),
        ),
      types.length > TYPES ? h("span", {}, `${types.length - TYPES} others`) : null,
      choice(
        "Which time",
        [
          ["event", "Event time"],
          ["recorded", "Recorded"],
        ],
        times,
        (next) => page.set({ times: next, ...(next === "event" ? { range: null } : { seen: null }) }),
      ),
    ),
  );
}

const ranked = (found) => Object.entries(found.types ?? {}).sort((a, b) => Number(b[1]) - Number(a[1]));

function charted(page, found, bars) {
  const isEvent = page.state.times === "event",
    begin = isEvent ? "event_from" : "recorded_from",
    [word, body] = question(page.state),
    json = JSON.stringify(body),
    words = (address) => ["curl", "-s", `${address}/logs/${page.log}/${word}`];
  return {
    from: bars[begin],
    to: bars[isEvent ? "event_before" : "recorded_before"],
    buckets: bars.buckets.map((each) => ({ at: each[begin], events: each.events, types: each.types ?? {} })),
    types: ranked(found)
      .slice(0, TYPES)
      .map(([name]) => [name, page.colour(name)]),
    height: 96,
    pick: (from, before) => page.set(isEvent ? { seen: [from, before] } : { range: [from, before], at: null }),
    same: () =>
      command(
        `${shell(words(""))} -d ${quoted(json)}`,
        shell(words(location.origin), "-H", "Content-Type: application/json", "-d", json),
      ),
  };
}
