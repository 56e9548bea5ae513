/* One event: its forms, the story of one of its tags, whether an append would be refused, and who is past it. */

import {
  View,
  at,
  bytes,
  card,
  clock,
  copy,
  count,
  day,
  dim,
  empty,
  gap,
  h,
  headwater,
  icon,
  kept,
  keep,
  link,
  logPath,
  minute,
  pill,
  plural,
  put,
  get,
  readEvents,
  skeleton,
  stamp,
  stats,
  svg,
  td,
  time,
  titled,
  trouble,
  utc,
  world,
  zone,
  go,
} from "./core.js";
import { colours, ticks } from "./charts.js";
import { formTabs, forms, members, one, sizeOf } from "./forms.js";
import { visited } from "./logs.js";
import { columnsOf, previewOf, valueOf } from "./columns.js";
import { PREVIEW, row } from "./rows.js";
import { asJson, read, worded } from "./query.js";

const AROUND = 12,
  MORE = 100,
  LANES = 8,
  STORY_MAX = 5000;
const WORDS = new Intl.DateTimeFormat("en-US", { dateStyle: "full", timeZone: "UTC" });

/** When an event happened: by its own time, else when it was recorded. */
export function momentOf(found) {
  const own = Date.parse(found.event.attributes?.time ?? "");
  return Number.isNaN(own) ? Number(found.recorded_at) : own;
}
const dayInWords = (ms) => WORDS.format(new Date(`${day(ms)}T00:00:00Z`));

class HwEvent extends View {
  show() {
    this.log = this.params.log;
    this.number = /^[1-9]\d{0,18}$/.test(this.params.number) ? BigInt(this.params.number) : null;
    visited(this.log, this.number === null ? this.params.number : count(this.number));
    this.parts = Object.fromEntries(
      ["head", "story", "forms", "probe", "past", "list"].map((name) => [name, h("div")]),
    );
    const { head, story, forms: shown, probe, past, list } = this.parts;
    put(
      this,
      head,
      h(
        "div",
        { class: "stack" },
        story,
        h("div", { class: "cards event" }, h("div", { class: "stack" }, shown, probe, past), list),
      ),
    );
    put(story, h("div", { class: "card" }, skeleton(3)));
    this.load();
    this.watch(() => {
      void world.value;
      this.who();
    });
    this.watch(() => {
      const now = this.neighbours();
      if (this.found && String(now) !== String(this.beside)) this.heading();
    });
    this.watch(() => {
      void utc.value;
      if (this.rows) this.told();
    });
  }

  again() {
    this.load();
  }
  moved() {
    this.tell();
  }

  async load() {
    try {
      this.found = this.number === null ? null : await one(this.log, this.number, this.leaving.signal);
      const terms = await get(logPath(this.log, "/terms?kind=type&limit=100"), this.leaving.signal);
      this.palette = colours(terms.terms.sort((a, b) => Number(b.events) - Number(a.events)).map((each) => each.term));
    } catch (problem) {
      if (problem.name !== "AbortError")
        put(
          this,
          trouble(problem, () => location.reload()),
          this.firstLink(problem),
        );
      return;
    }
    if (!this.found) {
      put(
        this,
        titled(this.params.number),
        h(
          "div",
          { class: "card" },
          empty(
            "There is no event with this number.",
            h("p", {}, "The number was never assigned, or the event was trimmed."),
            link(logPath(this.log), { class: "link" }, `The events of ${this.log}`),
          ),
        ),
      );
      return;
    }
    const { event } = this.found;
    this.heading();
    put(
      this.parts.forms,
      h(
        "section",
        { class: "card" },
        formTabs(
          await forms(this.log, this.found, this.leaving.signal, { numbered: true }),
          kept("headwater.form", "CloudEvent"),
          (name) => keep("headwater.form", name),
          (problem) => trouble(problem),
          h("small", { title: "of data" }, bytes(sizeOf(event))),
        ),
      ),
    );
    await this.tell();
    this.probing();
  }

  /** Whether the log has an event before this one, and one after it. */
  neighbours() {
    const log = world.value?.logs.find((each) => each.name === this.log),
      head = stats.value?.logs?.[this.log]?.head ?? log?.head ?? 0;
    return this.number === null
      ? [false, false]
      : [this.number > BigInt(log?.firstRetained ?? 1), this.number < BigInt(head)];
  }

  heading() {
    const [hasBefore, hasAfter] = (this.beside = this.neighbours());
    const { event } = this.found,
      ms = momentOf(this.found),
      neighbour = (by, name) =>
        h(
          "a",
          { class: "button", href: this.address(this.number + by), title: `${name} in the log` },
          by < 0 ? icon("left") : null,
          count(this.number + by),
          by > 0 ? icon("right") : null,
        );
    put(
      this.parts.head,
      titled(
        count(this.number),
        h(
          "span",
          { class: "row" },
          h("i", { class: `square ${this.colour(event.type)}` }),
          h("strong", {}, event.type),
        ),
        event.attributes?.time ? h("span", {}, `${stamp(ms)} ${zone()}`) : null,
        dim(
          "recorded ",
          time(
            this.found.recorded_at,
            day(this.found.recorded_at) === day(Date.now())
              ? `today ${clock(this.found.recorded_at, true)}`
              : stamp(this.found.recorded_at),
          ),
        ),
        gap(),
        hasBefore ? neighbour(-1n, "Before") : null,
        hasAfter ? neighbour(1n, "After") : null,
        h("button", { onclick: (click) => copy(location.href, click.currentTarget) }, "Copy link"),
      ),
    );
  }

  firstLink(problem) {
    return problem.code === "position_trimmed"
      ? h(
          "p",
          {},
          h(
            "a",
            { class: "link", href: this.address(problem.body.first_retained) },
            `The first retained event: ${count(problem.body.first_retained)}`,
          ),
        )
      : null;
  }
  colour(type) {
    return this.palette.get(type) ?? "c6";
  }
  address(number, story = this.tag) {
    return at(logPath(this.log, `/${number}`), story ? new URLSearchParams({ story }) : undefined);
  }
  go(number) {
    go(this.address(number));
  }

  // ---- The story ---------------------------------------------------------------------------------------------------

  async tell() {
    const tags = this.found?.event.tags ?? [];
    if (!tags.length) {
      put(this.parts.story);
      put(
        this.parts.list,
        h(
          "section",
          { class: "card" },
          empty("It has no tags", h("p", {}, "so it is not part of a story: a story is all events with a tag.")),
        ),
      );
      return;
    }
    try {
      const counts = await Promise.all(
        tags.map(async (tag) => {
          const found = (
            await get(
              logPath(this.log, `/terms?${new URLSearchParams({ kind: "tag", prefix: tag, limit: "1" })}`),
              this.leaving.signal,
            )
          ).terms[0];
          return found?.term === tag ? Number(found.events) : 0;
        }),
      );
      this.counts = new Map(tags.map((tag, index) => [tag, counts[index]]));
      const asked = new URLSearchParams(location.search).get("story");
      // A story worth telling: not of one event alone, and not of half of the log.
      this.tag = tags.includes(asked)
        ? asked
        : [...tags].sort(
            (a, b) =>
              Number(this.counts.get(a) < 2) - Number(this.counts.get(b) < 2) ||
              Math.abs(Math.log(this.counts.get(a) / 60)) - Math.abs(Math.log(this.counts.get(b) / 60)),
          )[0];
      const [before, after] = await Promise.all([
        this.page(this.number, true, AROUND + 1),
        this.page(this.number + 1n, false, AROUND),
      ]);
      this.rows = [...before.reverse(), ...after];
      this.isFirst = before.length <= AROUND;
      this.isLast = after.length < AROUND;
      this.told();
    } catch (problem) {
      if (problem.name !== "AbortError")
        put(
          this.parts.story,
          trouble(problem, () => this.tell()),
        );
    }
  }

  async page(from, backwards, limit) {
    const body = {
      query: { items: [{ exact_tags: [this.tag] }] },
      from,
      limit,
      data_bytes_max: previewOf(columnsOf(this.log), PREVIEW),
      ...(backwards ? { backwards: true } : {}),
    };
    return (await readEvents(this.log, body, this.leaving.signal)).map(row);
  }

  async more(backwards) {
    const found = backwards
      ? await this.page(this.rows[0].number - 1n, true, MORE)
      : await this.page(this.rows.at(-1).number + 1n, false, MORE);
    this.rows = backwards ? [...found.reverse(), ...this.rows] : [...this.rows, ...found];
    if (found.length < MORE) this[backwards ? "isFirst" : "isLast"] = true;
    if (this.rows.length > STORY_MAX) this.rows = this.rows.slice(-STORY_MAX);
    this.told();
  }

  told() {
    const others = [...this.counts.keys()].filter((tag) => tag !== this.tag),
      total = this.counts.get(this.tag);
    const drawing = h("div", { class: "lanes" });
    put(
      this.parts.story,
      h(
        "section",
        { class: "card" },
        h(
          "header",
          {},
          h("h2", {}, "The story of"),
          link(
            logPath(this.log, `?`) + new URLSearchParams({ q: worded([{ types: [], tags: [], exact: [this.tag] }]) }),
            { class: "tag asked", title: "Its events in the log" },
            this.tag,
          ),
          dim(`${plural(total, "event")} in all, ${count(this.rows.length)} in this window`),
          others.length
            ? h(
                "span",
                { class: "right" },
                "or of",
                others.map((tag) =>
                  h(
                    "a",
                    {
                      class: "tag",
                      href: this.address(this.number, tag),
                      title: plural(this.counts.get(tag), "event"),
                    },
                    tag,
                  ),
                ),
              )
            : null,
        ),
        drawing,
      ),
    );
    const ties = this.tied();
    put(drawing, this.lanes(Math.max(280, drawing.clientWidth - 28), ties));
    this.list(ties);
  }

  /** Of each event in the window, the rarest other tag that others there have, too: what ties them to each other. */
  tied() {
    const often = new Map(), // how many events have a tag, and how many tags a key has
      values = new Map(),
      more = (counts, key) => counts.set(key, (counts.get(key) ?? 0) + 1),
      key = (tag) => tag.split(":")[0],
      tagged = this.rows.map((each) => each.event.tags ?? []);
    for (const tag of tagged.flat()) if (more(often, tag).get(tag) === 1) more(values, key(tag));
    return tagged.map(
      (tags) =>
        tags
          .filter((tag) => tag !== this.tag)
          .map((tag) => [tag, often.get(tag), values.get(key(tag))])
          .filter(([, times]) => times < this.rows.length || this.rows.length < 3)
          .sort((a, b) => Number(a[1] < 2) - Number(b[1] < 2) || a[1] - b[1] || b[2] - a[2])[0]?.[0],
    );
  }

  lanes(width, ties) {
    const types = [...new Set(this.rows.map((each) => each.event.type))].slice(0, LANES),
      label = Math.min(150, 16 + Math.max(...types.map((type) => type.length)) * 7),
      height = types.length * 26 + 30;
    const from = momentOf(this.rows[0]),
      to = Math.max(from + 1, ...this.rows.map(momentOf)),
      y = (type) => 14 + Math.max(0, types.indexOf(type)) * 26,
      x = (ms) => label + 12 + ((ms - from) / (to - from)) * (width - label - 30);
    const node = svg("svg", {
      viewBox: `0 0 ${width} ${height}`,
      width,
      height,
      role: "group",
      "aria-label": `${this.rows.length} events over time; the list below has the details`,
    });
    for (const type of types)
      node.append(
        svg("line", { x1: label, x2: width, y1: y(type), y2: y(type) }),
        svg("text", { class: "lane", x: 0, y: y(type) + 4 }, type.length > 20 ? `${type.slice(0, 19)}\u2026` : type),
      );
    for (const [ms, text] of ticks(from, to, Math.floor(width / 120)))
      node.append(
        svg("line", { x1: x(ms), x2: x(ms), y1: 2, y2: height - 22 }),
        svg("text", { x: x(ms), y: height - 6, "text-anchor": x(ms) > width - 44 ? "end" : "start" }, text),
      );
    const last = new Map();
    this.rows.forEach((each, index) => {
      const tie = ties[index],
        before = tie === undefined ? undefined : last.get(tie);
      if (before !== undefined && index - before <= 3 && this.rows[before].event.type !== each.event.type) {
        // the two ends of one thing
        node.append(
          svg("path", {
            d:
              `M${x(momentOf(this.rows[before]))} ${y(this.rows[before].event.type)}L${x(momentOf(each))} ` +
              `${y(each.event.type)}`,
          }),
        );
        last.delete(tie);
      } else if (tie !== undefined) last.set(tie, index);
    });
    const here = x(momentOf(this.found));
    node.append(svg("line", { class: "now", x1: here, x2: here, y1: 0, y2: height - 22 }));
    for (const each of this.rows)
      node.append(
        svg(
          "a",
          { href: this.address(each.number), "aria-label": `${each.event.type} ${count(each.number)}` },
          svg(
            "circle",
            { class: this.colour(each.event.type), cx: x(momentOf(each)), cy: y(each.event.type), r: 4 },
            svg("title", {}, `${count(each.number)} ${each.event.type}, ${stamp(momentOf(each))}`),
          ),
        ),
      );
    node.append(svg("circle", { class: "ring", cx: here, cy: y(this.found.event.type), r: 8 }));
    return node;
  }

  list(ties) {
    const lines = [],
      columns = columnsOf(this.log);
    let before = null;
    for (const [index, each] of [...this.rows.entries()].reverse()) {
      const ms = momentOf(each),
        words = dayInWords(ms),
        tie = ties[index],
        rest = columns.length
          ? columns.map((one) => [one.name, valueOf(each.event, one)]).filter(([, value]) => value !== null)
          : members(each.event.data ?? "", 6)
              .filter(([, value]) => value.length <= 14)
              .slice(0, 2);
      if (words !== before) {
        lines.push(h("li", { class: "day" }, words));
        before = words;
      }
      lines.push(
        h(
          "li",
          { "aria-current": each.number === this.number ? "true" : null },
          h("span", { class: "mono dim", title: `${stamp(ms)} ${zone()}` }, minute(ms)),
          h("i", { class: `dot ${this.colour(each.event.type)}` }),
          h("strong", { title: each.event.type }, each.event.type),
          h(
            "span",
            { class: "tags" },
            tie
              ? h("a", { class: "tag", href: this.address(each.number, tie), title: `The story of ${tie}` }, tie)
              : null,
            h("span", { class: "dim small clip" }, rest.map(([key, value]) => `${key} ${value}`).join(", ")),
          ),
          h("a", { class: "mono dim", href: this.address(each.number) }, count(each.number)),
        ),
      );
    }
    put(
      this.parts.list,
      card(
        "Event by event",
        "newest first",
        this.isLast
          ? null
          : h("p", { class: "in" }, h("button", { class: "small", onclick: () => this.more(false) }, "Later events")),
        h("ul", { class: "story" }, lines),
        this.isFirst
          ? null
          : h(
              "p",
              { class: "in top" },
              h("button", { class: "small", onclick: () => this.more(true) }, "Earlier events"),
            ),
      ),
    );
  }

  // ---- Would an append be refused? --------------------------------------------------------------

  probing() {
    const { event } = this.found,
      tags = event.tags ?? [];
    const query = h("input", { class: "mono", "aria-label": "Fail if an event matches", spellcheck: "false" }),
      after = h("input", { class: "mono", "aria-label": "After", inputmode: "numeric", spellcheck: "false" }),
      answer = h("div", { "aria-live": "polite" });
    const rarest = [...tags].sort((a, b) => (this.counts?.get(a) ?? 0) - (this.counts?.get(b) ?? 0))[0];
    query.value = worded([
      {
        types: [event.type],
        tags: rarest?.includes(":") ? [rarest] : [],
        exact: rarest && !rarest.includes(":") ? [rarest] : [],
      },
    ]);
    after.value = String(this.number);
    let turn = 0;
    const look = async () => {
      const asked = ++turn;
      let items;
      try {
        items = read(query.value);
      } catch (error) {
        put(answer, h("p", { class: "bad" }, error.message));
        return;
      }
      if (!/^\d{1,19}$/.test(after.value)) {
        put(answer, h("p", { class: "bad" }, "Expected the number after which events count."));
        return;
      }
      try {
        const body = { query: asJson(items), after: BigInt(after.value), limit: 1, data_bytes_max: 0 },
          answered = await readEvents(this.log, body, this.leaving.signal),
          [found] = answered;
        if (asked !== turn) return;
        put(
          answer,
          h(
            "p",
            { class: "row", data: { verdict: found ? "refused" : "taken" } },
            found ? pill("warn", "Refused, 409") : pill("good", "Taken"),
            found
              ? [
                  h(
                    "a",
                    { class: "link", href: this.address(found.sequence_number) },
                    `${count(found.sequence_number)} ${found.event.type}`,
                  ),
                  " matches",
                ]
              : "nothing matches",
            `; head ${count(BigInt(answered.head))}`,
          ),
          headwater(
            ...["append", this.log, "--fail-if-match", worded(items) || "all"],
            ...["--after", after.value, "--type", event.type],
          ),
        );
      } catch (problem) {
        if (problem.name !== "AbortError") put(answer, trouble(problem, look));
      }
    };
    put(
      this.parts.probe,
      h(
        "section",
        { class: "card", oninput: look },
        h(
          "header",
          {},
          h("h2", {}, "Would an append be refused?"),
          h("span", { class: "right" }, "reads only, appends nothing"),
        ),
        h(
          "div",
          { class: "in stack probe" },
          h(
            "div",
            { class: "row" },
            dim("fail if"),
            query,
            dim("after"),
            after,
          ),
          answer,
        ),
      ),
    );
    look();
  }

  // ---- Who is past it ---------------------------------------------------------------------------

  who() {
    const rows = (world.value?.consumers ?? []).filter((each) => each.log === this.log);
    put(
      this.parts.past,
      card(
        "Readers past it",
        `consumers of ${this.log}`,
        rows.length && this.number !== null
          ? h(
              "div",
              { class: "scroll", tabindex: "0", role: "region", "aria-label": "Readers past it" },
              h(
                "table",
                {},
                h(
                  "tbody",
                  {},
                  rows.map((each) => {
                    const left = this.number - BigInt(each.position);
                    return h(
                      "tr",
                      {},
                      h("td", {}, h("strong", {}, each.title)),
                      td("dim", each.kindName),
                      td("n mono", count(each.position)),
                      td(
                        "n",
                        left <= 0n ? pill("good plain", "past it") : pill("plain", `${count(left)} before it`),
                      ),
                    );
                  }),
                ),
              ),
            )
          : h("p", { class: "empty" }, "There are no positions in this log."),
      ),
    );
  }

  key(event) {
    if (!this.found) return;
    const place = this.rows?.findIndex((each) => each.number === this.number) ?? -1;
    if (event.key === "[" && this.rows?.[place - 1]) this.go(this.rows[place - 1].number);
    else if (event.key === "]" && this.rows?.[place + 1]) this.go(this.rows[place + 1].number);
    else if (event.key === "," && this.neighbours()[0]) this.go(this.number - 1n);
    else if (event.key === "." && this.neighbours()[1]) this.go(this.number + 1n);
    else if (event.key === "Escape") go(at(logPath(this.log), new URLSearchParams({ at: String(this.number) })));
  }
}
customElements.define("hw-event", HwEvent);
