/* One event of a log beside the list: its forms, the stories that it is part of, its envelope. */

import { count, empty, get, h, icon, link, logPath, plural, put, time, trouble, when } from "./core.js";
import { formTabs, forms, one } from "./forms.js";
import { asks } from "./query.js";

/** Show the event that the address names, or that none is chosen. */
export async function inspect(page) {
  const number = page.state.at,
    turn = (page.looked = (page.looked ?? 0) + 1);
  page.list?.mark();
  if (!/^\d+$/.test(number ?? "")) {
    page.side.hidden = innerWidth <= 1100;
    put(
      page.side,
      h(
        "div",
        { class: "card" },
        empty(
          "No event selected",
          h("p", {}, "A click, or ", h("kbd", {}, "J"), " ", h("kbd", {}, "K"), ", shows one here."),
        ),
      ),
    );
    return;
  }
  page.side.hidden = false;
  try {
    const found = await one(page.log, number, page.leaving.signal);
    if (turn !== page.looked) return;
    if (!found) {
      put(
        page.side,
        h(
          "div",
          { class: "card" },
          empty(`There is no event ${count(BigInt(number))}.`),
        ),
      );
      return;
    }
    const shown = await forms(page.log, found, page.leaving.signal);
    if (turn !== page.looked) return;
    const { event } = found,
      stories = h("ul", { class: "stories" });
    const facts = [
      ["id", event.id],
      ["source", event.source],
      ["time", event.attributes?.time],
      ["recorded", time(found.recorded_at, `${when(found.recorded_at)}`)],
      ["partition", found.partition ?? 0],
      ["group key", event.group_key],
      ...Object.entries(event.attributes ?? {}).filter(([key]) => key !== "time"),
    ].filter(([, value]) => value !== undefined && value !== null && value !== "");
    put(
      page.side,
      h(
        "div",
        { class: "card" },
        h(
          "header",
          {},
          h(
            "strong",
            { class: "mono" },
            link(logPath(page.log, `/${number}`), { title: "Open the event (Enter)" }, count(BigInt(number))),
          ),
          h(
            "span",
            { class: "row clip", title: event.type },
            h("i", { class: `square ${page.colour(event.type)}` }),
            h("span", { class: "clip" }, event.type),
          ),
          h(
            "span",
            { class: "right" },
            h("kbd", {}, "J"),
            h("kbd", {}, "K"),
            h(
              "button",
              { class: "plain small", "aria-label": "Close", onclick: () => page.set({ at: null }, true) },
              icon("close"),
            ),
          ),
        ),
        formTabs(
          shown,
          page.form ?? "Data",
          (name) => {
            page.form = name;
          },
          (problem) => trouble(problem),
        ),
        (event.tags ?? []).length ? h("section", {}, h("h3", {}, "Its stories"), stories) : null,
        h(
          "section",
          {},
          h("h3", {}, "Envelope"),
          h(
            "dl",
            { class: "facts small" },
            facts.map(([key, value]) => [
              h("dt", {}, key),
              h("dd", { class: typeof value === "string" ? "mono" : "" }, value),
            ]),
          ),
        ),
      ),
    );
    put(
      stories,
      (event.tags ?? []).map((tag) => {
        const events = h("span", { class: "n" });
        tagCount(page, tag).then(
          (found) => put(events, found === null ? "" : plural(found, "event")),
          () => {},
        );
        return h(
          "li",
          {},
          h(
            "button",
            {
              class: `tag ${asks(page.state.items, tag) ? "asked" : ""}`,
              title: "Add it to the query",
              onclick: () => page.add(tag),
            },
            tag,
          ),
          link(
            `/logs/${encodeURIComponent(page.log)}/${number}?${new URLSearchParams({ story: tag })}`,
            { title: `The story of ${tag}` },
            events,
            icon("right"),
          ),
        );
      }),
    );
  } catch (problem) {
    if (problem.name !== "AbortError" && turn === page.looked)
      put(
        page.side,
        h(
          "div",
          { class: "card" },
          trouble(problem, () => page.inspect()),
        ),
      );
  }
}

async function tagCount(page, tag) {
  const found = (
    await get(
      logPath(page.log, `/terms?${new URLSearchParams({ kind: "tag", prefix: tag, limit: "1" })}`),
      page.leaving.signal,
    )
  ).terms[0];
  return found?.term === tag ? found.events : null;
}
