/* Queries of a log that somebody pinned, in this browser: each a link, which can be taken away. */

import { at, h, icon, keep, logPath } from "./core.js";
import { keptList } from "./columns.js";
import { read, worded } from "./query.js";

const MOST = 20,
  TEXT_MOST = 4000;
const key = (log) => `headwater.pins:${log}`;

function isQuery(text) {
  try {
    return typeof text === "string" && text.length <= TEXT_MOST && worded(read(text)) === text && text !== "";
  } catch {
    return false;
  }
}

const pinsOf = (log) => keptList(key(log), isQuery, MOST);
function change(page, pins) {
  keep(key(page.log), JSON.stringify(pins.slice(0, MOST)));
  page.query();
}

/** The button that pins the query of the page; nothing where it is pinned, or there is none. */
export function pinning(page) {
  const now = worded(page.state.items),
    pins = pinsOf(page.log);
  if (!isQuery(now) || pins.includes(now)) return null;
  return h(
    "button",
    { class: "plain", title: "Save this query in this browser", onclick: () => change(page, [now, ...pins]) },
    "Pin",
  );
}

/** The pinned queries of a log; nothing where there are none. */
export function pinned(page) {
  const pins = pinsOf(page.log),
    now = worded(page.state.items);
  if (!pins.length) return null;
  return h(
    "div",
    { class: "pins" },
    h("span", { class: "dim small" }, "pinned"),
    pins.map((text) =>
      h(
        "span",
        { class: "chip pin" },
        h(
          "a",
          {
            href: at(logPath(page.log), new URLSearchParams({ q: text })),
            "aria-current": text === now ? "true" : null,
            title: text,
          },
          text,
        ),
        h(
          "button",
          {
            "aria-label": `Unpin ${text}`,
            onclick: () =>
              change(
                page,
                pins.filter((each) => each !== text),
              ),
          },
          icon("close"),
        ),
      ),
    ),
  );
}
