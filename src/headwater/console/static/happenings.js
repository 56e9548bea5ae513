/* What happens in the server, live, and as it was kept; and what runs elsewhere: the archive and pipelines. */

import {
  NOTHING,
  View,
  at,
  card,
  clock,
  complain,
  count,
  crumbs,
  day,
  empty,
  following,
  h,
  happenings,
  headwater,
  howMany,
  lasting,
  link,
  may,
  put,
  rate,
  skeleton,
  table,
  td,
  time,
  titled,
  trends,
  world,
  zone,
  go,
  logPath,
} from "./core.js";
import { spark } from "./charts.js";
import { before, keptTypes, kindOf, worded } from "./telling.js";

const PAGE = 300;

/** The page that a notification is about. */
function subject(each) {
  if (each.component && each.log) {
    const parts = [each.log, each.owner, each.component];
    const name = parts.map((part) => String(part).replaceAll("%", "%25").replaceAll("/", "%2F")).join("/");
    return at("/consumers", new URLSearchParams({ c: `registered:${name}` }));
  }
  if (/connection|link/.test(each.eventType)) return may("manage") ? at("/connections") : null;
  if (/webhook/.test(each.eventType)) return at("/webhooks");
  if (/user|authentication/.test(each.eventType)) return may("manage") ? at("/users") : null;
  if (/disk/.test(each.eventType)) return may("manage") ? at("/storage") : null;
  return each.log ? at(logPath(each.log)) : null;
}

class HwHappenings extends View {
  /** Those of what is kept, null if nothing is. @type {string[] | null | undefined} */
  types = undefined;

  show() {
    crumbs.value = [["What happens", null]];
    this.kind = new URLSearchParams(location.search).get("type") ?? "";
    this.kept = [];
    this.top = h("div");
    this.filters = h("div", { class: "query" });
    this.listed = h("div", { class: "scroll" });
    put(this, this.top, h("section", { class: "card" }, this.filters, this.listed));
    this.watch(() => {
      void happenings.value;
      this.draw();
    });
    this.history();
  }

  moved() {
    this.kind = new URLSearchParams(location.search).get("type") ?? "";
    this.kept = [];
    this.next = null;
    this.draw();
    this.history();
  }

  /** What was kept before this page was opened, of the chosen types: the newest, or what is older than that. */
  async history() {
    const turn = (this.turn = (this.turn ?? 0) + 1),
      ending = this.leaving.signal;
    try {
      this.types ??= await keptTypes(ending);
      const types = (this.types ?? []).filter((each) => each.includes(this.kind)),
        found = await before(PAGE, types, ending, this.next ?? undefined);
      if (turn !== this.turn) return;
      this.kept.push(...found);
      this.next = found.length < PAGE ? null : found.at(-1).number - 1n;
    } catch (problem) {
      complain(problem);
    }
    this.draw();
  }

  draw() {
    const live = happenings.peek(),
      oldest = live.at(-1)?.time ?? Infinity,
      all = [...live, ...this.kept.filter((each) => Number(each.time) < Number(oldest))];
    const types = [...(this.types ?? []), ...live.map((each) => each.eventType)],
      groups = [...new Set(types.map((each) => each.replace("io.headwater.", "").split(".")[0]))].sort(),
      shown = all.filter((each) => !this.kind || each.eventType.includes(this.kind));
    put(
      this.top,
      titled(
        "What happens",
        h("span", {}, following()),
        h("span", {}, this.types ? "history from $system" : "since this page was opened"),
      ),
    );
    const pick = (kind) => go(at("/happenings", kind ? new URLSearchParams({ type: kind }) : undefined), true);
    put(
      this.filters,
      h(
        "div",
        { class: "choice", role: "group", "aria-label": "Type" },
        ["", ...groups].map((kind) =>
          h("button", { "aria-pressed": String(kind === this.kind), onclick: () => pick(kind) }, kind || "All"),
        ),
      ),
    );
    put(
      this.listed,
      shown.length
        ? table(
            [[`Time, ${zone()}`], ["Type"], ["About"], [""]],
            shown.map((each) => {
              const to = subject(each);
              return h(
                "tr",
                {},
                td(
                  "mono",
                  h("span", { class: "hide" }, `${day(Number(each.time))} `),
                  time(Number(each.time), clock(Number(each.time))),
                ),
                h(
                  "td",
                  {},
                  h("span", { class: `dot ${kindOf(each)}` }),
                  " ",
                  h("strong", {}, each.eventType.replace("io.headwater.", "")),
                ),
                h("td", { class: "wide dim", title: worded(each) }, worded(each)),
                td("n", to ? h("a", { class: "link", href: to }, "open") : null),
              );
            }),
          )
        : empty(
            this.types ? "Nothing of this kind." : "Nothing since this page was opened.",
            this.types
              ? null
              : [
                  h("p", {}, "Earlier notifications are in the log $system, if the server stores them:"),
                  headwater("serve", "--management-keep"),
                ],
            h("p", {}, "The same on the command line:"),
            headwater("events"),
          ),
      this.next
        ? h("p", { class: "in top" }, h("button", { class: "small", onclick: () => this.history() }, "More"))
        : null,
    );
  }
}
customElements.define("hw-happenings", HwHappenings);

class HwPipelines extends View {
  show() {
    crumbs.value = [["Archive and pipelines", null]];
    this.body = h("div", { class: "stack" });
    put(
      this,
      titled(
        "Archive and pipelines",
        h("span", {}, "these run on Spark; this page shows their progress"),
      ),
      this.body,
    );
    this.watch(() => {
      void happenings.value;
      this.draw();
    });
  }

  draw() {
    const now = world.value;
    if (!now) {
      put(this.body, h("div", { class: "card" }, skeleton(4)));
      return;
    }
    const those = now.consumers.filter(
        (each) =>
          each.kind === "stream" ||
          (each.kind === "registered" && (each.owner === "spark" || /archiv/i.test(each.component))),
      ),
      progress = happenings.peek().filter((each) => each.eventType.endsWith("archive.progressed"));
    put(
      this.body,
      h(
        "section",
        { class: "card scroll" },
        those.length
          ? table(
              [
                ["Pipeline"],
                ["Kind", "hide"],
                ["Log"],
                ["Behind, events", "n"],
                ["Behind, time", "n"],
                ["Since opened", "hide"],
                ["Takes /s", "n hide"],
                ["Heard of", "n"],
                ["Last progress", "hide"],
              ],
              those.map((each) => {
                const last = progress.find((one) => one.log === each.log);
                return h(
                  "tr",
                  {},
                  h("td", {}, link(`/consumers?c=${encodeURIComponent(each.key)}`, {}, h("strong", {}, each.title))),
                  td("dim hide", each.kindName),
                  h("td", {}, each.log),
                  td("n", count(each.lag)),
                  td(
                    `n ${each.lags ? "bad" : ""}`,
                    Number(each.lag) ? lasting(Number(each.lagMs)) : NOTHING,
                  ),
                  td(
                    "hide",
                    spark(
                      (trends.get(each.key) ?? []).map((one) => one[1] / 1000),
                      { unit: "s behind" },
                    ),
                  ),
                  td("n hide", rate(each.takes)),
                  td("n dim", each.seenAt ? lasting(Date.now() - Number(each.seenAt)) : NOTHING),
                  td("dim hide", last ? [clock(last.time), ` ${worded(last)}`] : NOTHING),
                );
              }),
            )
          : empty(
              "There are none.",
              h(
                "p",
                {},
                "An archiver registers itself, so that only copied events are trimmed. A stream is shown " +
                  "if it reports its position (streamName).",
              ),
            ),
      ),
      card(
        "To start one",
        howMany(now.logs, "log"),
        h(
          "div",
          { class: "in stack small-gap" },
          h("p", { class: "dim" }, "Each lists its options with --help."),
          [
            ["archive", "copies a log to a Delta table, so that the server can trim"],
            ["project", "folds a log into a table of states"],
            ["report", "shows a log on one page"],
          ].map(([name, about]) => [h("p", { class: "small dim" }, about), headwater("pipeline", name, "--help")]),
        ),
      ),
    );
  }
}
customElements.define("hw-pipelines", HwPipelines);
