/* The stories of a log: found by a tag, and those of the newest events. A story itself is shown with its event. */

import {
  View,
  at,
  complain,
  count,
  dim,
  empty,
  go,
  h,
  headwater,
  logPath,
  plural,
  put,
  readEvents,
  skeleton,
  stats,
  table,
  td,
  time,
  trouble,
  utc,
  zone,
} from "./core.js";
import { colours } from "./charts.js";
import { completing, keyed, terms } from "./completion.js";
import { logHead, visited } from "./logs.js";
import { momentOf } from "./event.js";
import { asJson, options } from "./query.js";

const READ = 200,
  KEYS = 8;

class HwStories extends View {
  show() {
    this.log = this.params.log;
    visited(this.log, "Stories");
    const top = h("div");
    this.finding = h("section", { class: "card", "aria-label": "Find a story" });
    this.listed = h("section", { class: "card scroll", tabindex: "0", "aria-label": "Stories of the newest events" });
    put(this, top, h("div", { class: "stack" }, this.finding, this.listed));
    put(this.listed, skeleton(6));
    this.watch(() => put(top, logHead(this.log, "/stories")));
    this.watch(() => {
      void utc.value;
      if (this.tags) this.draw();
    });
    this.watch(() => this.waiting(stats.value?.logs?.[this.log]?.head));
    this.moved();
  }

  /** The address has changed: by this page, or by back and forward. */
  moved() {
    this.wanted = new URLSearchParams(location.search).get("key");
    this.load();
  }
  again() {
    this.load();
  }

  async load() {
    const turn = (this.turn = (this.turn ?? 0) + 1);
    try {
      const [types, keys] = await Promise.all([terms(this, "type", "", 100), terms(this, "tag_key", "", 100)]);
      if (turn !== this.turn) return;
      const often = (found) => found.sort((a, b) => Number(b.events) - Number(a.events));
      this.palette = colours(often(types).map((each) => each.term));
      this.keys = often(keys).slice(0, KEYS);
      this.tags = new Map();
      this.next = null;
      this.find();
      await this.more(turn);
    } catch (problem) {
      if (problem.name !== "AbortError" && turn === this.turn)
        put(
          this.listed,
          trouble(problem, () => this.load()),
        );
    }
  }

  /** Read a page of events further down, and show the tags that they bring. */
  async more(turn = this.turn) {
    const body = {
      query: asJson(this.items),
      backwards: true,
      limit: READ,
      data_bytes_max: 0,
      ...(this.next ? { from: this.next } : {}),
    };
    const events = await readEvents(this.log, body, this.leaving.signal);
    if (turn !== this.turn) return;
    this.head = events.head;
    this.next = events.length < READ ? null : BigInt(events.at(-1).sequence_number) - 1n;
    for (const found of events)
      for (const tag of found.event.tags ?? [])
        if ((this.wanted === null || tag === this.wanted || tag.startsWith(`${this.wanted}:`)) && !this.tags.has(tag))
          this.tags.set(tag, { newest: found, events: h("span", {}, "\u2026") });
    this.draw();
    this.count(turn);
  }

  /** Ask how many events each tag has, a few at a time. */
  async count(turn) {
    const left = [...this.tags].filter(([, each]) => !each.isAsked);
    for (const [, each] of left) each.isAsked = true;
    const work = async () => {
      for (let next = left.shift(); next && turn === this.turn; next = left.shift()) {
        const [found] = await terms(this, "tag", next[0], 1);
        put(next[1].events, found?.term === next[0] ? count(found.events) : "?");
      }
    };
    try {
      await Promise.all([work(), work(), work()]);
    } catch (problem) {
      complain(problem);
    }
  }

  address(number, tag) {
    return at(logPath(this.log, `/${number}`), new URLSearchParams({ story: tag }));
  }

  /** The field, and which keys there are. */
  find() {
    const field = completing({
      id: "stories",
      label: "Tag of a story",
      placeholder: "Tag of a story",
      look: async (text) => {
        const [keys, tags] = await Promise.all([
          text.includes(":") ? [] : terms(this, "tag_key", text, 12),
          text ? terms(this, "tag", text, 20) : [],
        ]);
        return [...keyed(keys), ...tags.map((each) => ({ text: each.term, about: "", events: each.events }))];
      },
      take: (each) => this.open(each.text),
      typed: (text) => this.open(text),
    });
    this.input = field.input;
    this.told = h("p", { class: "in dim", role: "status" });
    const key = (name, text, title) =>
      h("button", { "aria-pressed": String(name === this.wanted), title, onclick: () => this.set(name) }, text);
    put(
      this.finding,
      h(
        "div",
        { class: "query" },
        dim("the story of"),
        field.node,
        h(
          "span",
          { class: "right" },
          h("span", {}, "newest of"),
          h(
            "div",
            { class: "choice", role: "group", "aria-label": "Tag keys" },
            key(null, "all keys", "Tags of any key"),
            this.keys.map((each) => key(each.term, each.term, plural(each.events, "event"))),
          ),
        ),
      ),
      h(
        "div",
        { class: "in" },
        headwater("read", this.log, ...options(this.items), "--backwards", "--limit", String(READ)),
      ),
      this.told,
    );
  }

  /** What the newest events are asked for. */
  get items() {
    return this.wanted === null ? [] : [{ types: [], tags: [this.wanted], exact: [] }];
  }

  set(wanted) {
    const given = new URLSearchParams(wanted === null ? {} : { key: wanted });
    go(at(logPath(this.log, `/stories`), given));
  }

  /** Show the story of a tag, from its newest event. */
  async open(tag) {
    try {
      const body = { query: { items: [{ exact_tags: [tag] }] }, backwards: true, limit: 1, data_bytes_max: 0 },
        [newest] = await readEvents(this.log, body, this.leaving.signal);
      if (newest) go(this.address(newest.sequence_number, tag));
      else put(this.told, "No event has the tag ", h("span", { class: "tag" }, tag), ".");
    } catch (problem) {
      if (problem.name !== "AbortError")
        put(
          this.told,
          trouble(problem, () => this.open(tag)),
        );
    }
  }

  draw() {
    if (!this.tags.size) {
      put(
        this.listed,
        empty(
          this.wanted === null ? "No event here has a tag." : `No event has a tag of the key ${this.wanted}.`,
          h("p", {}, "A story is all events with a tag. This command starts one:"),
          headwater("append", this.log, "--type", "OrderPlaced", "--tag", "order:1"),
        ),
      );
      return;
    }
    const rows = [...this.tags].map(([tag, { newest, events }]) => {
      const ms = momentOf(newest);
      return h(
        "tr",
        {},
        h("td", {}, h("a", { class: "tag", href: this.address(newest.sequence_number, tag) }, tag)),
        td("n", events),
        h(
          "td",
          {},
          h("i", { class: `square ${this.palette.get(newest.event.type) ?? "c6"}` }),
          " ",
          h("span", { class: "clip", title: newest.event.type }, newest.event.type),
        ),
        td("dim mono hide", time(ms)),
        td("n mono hide", count(newest.sequence_number)),
      );
    });
    put(
      this.listed,
      table([["Tag"], ["Events", "n"], ["Newest event"], [`Time, ${zone()}`, "hide"], ["Number", "n hide"]], rows),
      this.next
        ? h("p", { class: "in top" }, h("button", { class: "small", onclick: () => this.further() }, "Earlier ones"))
        : null,
    );
  }

  async further() {
    try {
      await this.more();
    } catch (problem) {
      complain(problem);
    }
  }

  /** Say that the log has grown: the list stays as it is until it is asked for anew. */
  waiting(head) {
    if (!this.tags || head === undefined || BigInt(head) <= BigInt(this.head ?? head)) return;
    const more = BigInt(head) - BigInt(this.head);
    put(
      this.told,
      h("button", { class: "small", onclick: () => this.load() }, `${plural(more, "new event")}: show their tags`),
    );
  }

  key(event) {
    const rows = [...this.listed.querySelectorAll("td a")],
      place = rows.indexOf(document.activeElement),
      by = { j: 1, k: -1 }[event.key.toLowerCase()];
    if (event.key === "/") {
      event.preventDefault();
      this.input?.focus();
    } else if (by) /** @type {any} */ (rows[Math.max(0, place + by)])?.focus();
  }
}
customElements.define("hw-stories", HwStories);
