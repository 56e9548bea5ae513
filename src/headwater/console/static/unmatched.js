/* Why a list is empty: which term of the query matches nothing, or that nothing was ever appended. */

import { count, effect, empty, get, h, headwater, logPath, plural, put, stats } from "./core.js";

/** Show it in place of the list, and what there is that is like it. */
export async function none(page, found) {
  const parts = [];
  for (const item of page.state.items) {
    for (const [kind, values] of [
      ["type", item.types],
      ["tag", item.tags],
      ["tag", item.exact],
    ]) {
      for (const value of values) {
        const terms = await get(
            logPath(page.log, `/terms?${new URLSearchParams({ kind, prefix: value, limit: "1" })}`),
            page.leaving.signal,
          ).catch(() => null),
          events =
            terms?.terms[0]?.term === value ? terms.terms[0].events : value.includes(":") || kind === "type" ? 0 : null;
        const near =
          events === 0
            ? (
                await get(
                  logPath(
                    page.log,
                    "/terms?" +
                      new URLSearchParams({
                        kind,
                        prefix: value.slice(0, Math.max(1, value.length - 1)),
                        limit: "1",
                      }),
                  ),
                  page.leaving.signal,
                ).catch(() => null)
              )?.terms[0]
            : null;
        parts.push(
          h(
            "li",
            {},
            h("span", { class: "tag" }, value),
            events === null
              ? " is a key"
              : events
                ? ` has ${plural(events, "event")} by itself`
                : h("strong", { class: "warn" }, " matches nothing by itself"),
            near ? [", the nearest is ", h("span", { class: "tag" }, near.term), ` with ${count(near.events)}`] : null,
          ),
        );
      }
    }
  }
  const isNew = !found.head;
  put(
    page.listed,
    empty(
      isNew
          ? "Nothing was ever appended to page log."
          : page.state.items.length
            ? "No event matches."
            : "No event is retained here.",
      parts.length ? h("ul", { class: "stack" }, parts) : null,
      isNew || !page.state.items.length
        ? [
            h("p", {}, "This command appends one; it is shown here at once:"),
            headwater("append", page.log, "--type", "OrderPlaced", "--tag", "order:1", "--data", '{"total": 30}'),
          ]
        : null,
    ),
  );
  if (isNew && !page.tail) {
    const turn = page.turn;
    page.waiting?.();
    const end = effect(() => {
      if (Number(stats.value?.logs?.[page.log]?.head ?? 0) > 0 && turn === page.turn) {
        queueMicrotask(() => {
          end?.();
          page.load();
        });
      }
    });
    page.waiting = end;
    page.ends.push(end);
  }
}
