/* The events of one log: a query of chips, how many there are and when, the list, the live tail, the inspector. */

import {
  Problem,
  View,
  ask,
  at,
  away,
  bytes,
  clock,
  copy,
  count,
  crumbs,
  day,
  effect,
  fetched,
  get,
  h,
  icon,
  keep,
  kept,
  link,
  logPath,
  mayAct,
  minute,
  parse,
  plural,
  put,
  rate,
  say,
  skeleton,
  stamp,
  stats,
  time,
  trouble,
  utc,
  when,
  world,
  zone,
  choice,
  headwater,
} from "./core.js";
import { chart, colours } from "./charts.js";
import { formTabs, forms, members, one, sizeOf } from "./forms.js";
import { logHead, visited } from "./logs.js";
import { asJson, asks, elsewhere, options, read, worded } from "./query.js";

const ROW = 28,
  PAGE = 100,
  KEPT = 5000,
  GROUND_MAX = 15e6,
  PREVIEW = 256;

class HwLog extends View {
  show() {
    this.log = this.params.log;
    crumbs.value = [
      ["Logs", "/logs"],
      [this.log, `/logs/${encodeURIComponent(this.log)}`],
      ["Events", null],
    ];
    visited(this.log);
    this.top = h("div");
    this.asking = h("section", { class: "card", "aria-label": "Query" });
    this.counted = h("section", { class: "card", "aria-label": "How many, and when" });
    this.listed = h("section", { class: "card" });
    this.side = h("aside", { class: "inspector" });
    put(
      this,
      this.top,
      h("div", { class: "stack" }, this.asking, this.counted, h("div", { class: "split" }, this.listed, this.side)),
    );
    this.palette = new Map();
    this.watch(() =>
      put(
        this.top,
        logHead(this.log, "", [
          mayAct("append", this.log) ? h("button", { onclick: () => this.appending() }, "Append") : null,
          h("button", { onclick: () => this.export(), title: "E" }, "Export"),
        ]),
      ),
    );
    this.watch(() => {
      void utc.value;
      this.list?.redraw();
    });
    this.ends.push(() => this.quiet());
    this.moved();
  }

  /** The address has changed: by this page, or by back and forward. */
  moved() {
    const given = new URLSearchParams(location.search),
      before = this.state;
    let items = [],
      broken = null;
    try {
      items = read(given.get("q") ?? "");
    } catch (error) {
      broken = error;
    }
    this.state = {
      items,
      order: given.get("order") === "oldest" ? "oldest" : "newest",
      at: given.get("at"),
      range: given.has("from") ? [Number(given.get("from")), Number(given.get("before"))] : null,
    };
    const anew =
      !before ||
      worded(before.items) !== worded(items) ||
      before.order !== this.state.order ||
      String(before.range) !== String(this.state.range);
    if (anew) {
      this.quiet();
      this.query(broken);
      this.load();
    }
    this.inspect();
  }

  again() {
    if (this.isLost) location.reload();
    else if (!this.tail) this.load();
  }

  /** The log is gone, or may not be read: nothing can be done with it here. */
  lose(problem) {
    this.isLost = true;
    this.turn += 1;
    this.waiting?.();
    this.quiet();
    put(
      this,
      h("div", { class: "head" }, h("h1", {}, this.log)),
      trouble(problem, () => location.reload()),
    );
  }

  /** Change what the address says. */
  set(changes, replace = false) {
    const next = { ...this.state, ...changes },
      given = new URLSearchParams();
    if (next.items.length) given.set("q", worded(next.items));
    if (next.order === "oldest") given.set("order", "oldest");
    if (next.range) {
      given.set("from", next.range[0]);
      given.set("before", next.range[1]);
    }
    if (next.at) given.set("at", next.at);
    dispatchEvent(
      new CustomEvent("headwater:go", {
        detail: { address: at(`/logs/${encodeURIComponent(this.log)}`, given), replace },
      }),
    );
  }

  // ---- The query ---------------------------------------------------------------------------------------------------

  query(broken) {
    const { items, order, range } = this.state,
      alternatives = items.length ? items : [{ types: [], tags: [], exact: [] }];
    const change = (index, kind, value, isOff) => {
      const next = alternatives.map((item) => ({
          types: [...item.types],
          tags: [...item.tags],
          exact: [...item.exact],
        })),
        list = next[index][kind];
      if (isOff) list.splice(list.indexOf(value), 1);
      else if (!list.includes(value)) list.push(value);
      this.set({ items: next.filter((item) => item.types.length + item.tags.length + item.exact.length), at: null });
    };
    this.add = (tag, index = alternatives.length - 1) => change(index, tag.includes(":") ? "tags" : "exact", tag);
    const chip = (kind, name, value, index) =>
      h(
        "span",
        { class: `chip ${kind === "types" ? "type" : ""}` },
        h("span", {}, name),
        h(
          "b",
          {},
          kind === "types" ? h("i", { class: `square ${this.colour(value)}` }) : null,
          kind === "types"
            ? value
            : name === "tag"
              ? value
              : value.slice(name.length + 1) || (kind === "tags" ? "any" : value),
        ),
        h(
          "button",
          { "aria-label": `Without ${value}`, onclick: () => change(index, kind, value, true) },
          icon("close"),
        ),
      );
    const key = (tag) => (tag.includes(":") ? tag.slice(0, tag.indexOf(":")) : tag);
    const parts = alternatives.map((item, index) => [
      index ? h("span", { class: "dim" }, "or") : null,
      item.types.map((type, place) => [
        place ? h("span", { class: "dim" }, "or") : null,
        chip("types", "type", type, index),
      ]),
      item.types.length && item.tags.length + item.exact.length ? h("span", { class: "dim" }, "and") : null,
      item.tags.map((tag) => chip("tags", key(tag), tag, index)),
      item.exact.map((tag) => chip("exact", tag.includes(":") ? key(tag) : "tag", tag, index)),
      index === alternatives.length - 1 ? this.field(change, index) : null,
    ]);
    this.same ??= kept("headwater.same", "headwater");
    const shown = elsewhere(this.log, items, { backwards: order === "newest", limit: PAGE }),
      chosen = shown[this.same] ?? shown.headwater;
    const [first, ...rest] = chosen[0].split(" ");
    const same = h(
      "div",
      { class: "same" },
      choice(
        "The same by",
        Object.keys(shown).map((name) => [name, name]),
        this.same,
        (name) => {
          this.same = name;
          keep("headwater.same", name);
          this.query();
        },
      ),
      h("code", { title: chosen[0] }, h("span", { class: "dim" }, first), " ", rest.join(" ")),
      h(
        "button",
        { class: "plain", data: { copy: chosen[1] }, onclick: (event) => copy(chosen[1], event.currentTarget) },
        icon("copy"),
        "Copy",
      ),
    );
    this.followButton = h("button", { "aria-pressed": String(Boolean(this.tail)), onclick: () => this.follow() });
    this.followed();
    put(
      this.asking,
      h(
        "div",
        { class: "query" },
        h("span", { class: "dim" }, "where"),
        parts,
        items.length ? h("button", { class: "plain", onclick: () => this.other() }, "Or\u2026") : null,
        range
          ? h(
              "span",
              { class: "chip" },
              h("span", {}, "recorded"),
              h(
                "b",
                {},
                `${day(range[0]) === day(range[1]) ? "" : `${day(range[0])} `}${clock(range[0])} to ${clock(range[1])}`,
              ),
              h("button", { "aria-label": "Any time", onclick: () => this.set({ range: null }) }, icon("close")),
            )
          : null,
        broken ? h("span", { class: "bad" }, `This query cannot be read: ${broken.message}`) : null,
        h(
          "span",
          { class: "right" },
          choice(
            "Order",
            [
              ["newest", "Newest first"],
              ["oldest", "Oldest first"],
            ],
            order,
            (next) => this.set({ order: next }),
          ),
          this.followButton,
        ),
      ),
      same,
    );
  }

  other() {
    this.state.items.push({ types: [], tags: [], exact: [] });
    this.query();
    this.input?.focus();
  }

  /** The field that completes types, keys of tags, and tags, with their counts. */
  field(change, index) {
    const list = h("ul", { class: "complete", role: "listbox", hidden: true, id: "completions" }),
      input = (this.input = h("input", {
        placeholder: "+ Type or tag",
        "aria-label": "Type or tag",
        role: "combobox",
        "aria-expanded": "false",
        "aria-controls": "completions",
        autocomplete: "off",
        spellcheck: "false",
      }));
    let found = [],
      chosen = 0,
      turn = 0;
    const draw = () => {
      list.hidden = !found.length;
      input.setAttribute("aria-expanded", String(found.length > 0));
      put(
        list,
        found.map((each, place) =>
          h(
            "li",
            {
              role: "option",
              "aria-selected": String(place === chosen),
              onpointerdown: (event) => {
                event.preventDefault();
                take(each);
              },
            },
            h("span", { class: each.kind === "types" ? "" : "mono" }, each.text),
            h("b", {}, `${each.about}${count(each.events)}`),
          ),
        ),
      );
      list.querySelector('[aria-selected="true"]')?.scrollIntoView?.({ block: "nearest" });
    };
    const look = async () => {
      const text = input.value,
        asked = ++turn,
        terms = (kind, prefix, limit) =>
          get(
            logPath(
              this.log,
              `/terms?${new URLSearchParams({ kind, limit: String(limit), ...(prefix ? { prefix } : {}) })}`,
            ),
            this.leaving.signal,
          ).then((answer) => answer.terms);
      try {
        const [types, keys, tags] = await Promise.all([
          text.includes(":") ? [] : terms("type", text, 12),
          text.includes(":") ? [] : terms("tag_key", text, 12),
          text ? terms("tag", text, 20) : [],
        ]);
        if (asked !== turn) return;
        found = [
          ...types.map((each) => ({ kind: "types", text: each.term, about: "type, ", events: each.events })),
          ...keys.map((each) => ({ kind: "key", text: `${each.term}:`, about: "key, ", events: each.events })),
          ...tags.map((each) => ({
            kind: each.term.includes(":") ? "tags" : "exact",
            text: each.term,
            about: "",
            events: each.events,
          })),
        ];
        chosen = 0;
        draw();
      } catch (problem) {
        if (problem.name !== "AbortError") {
          found = [];
          draw();
        }
      }
    };
    const take = (each) => {
      if (each.kind === "key") {
        input.value = each.text;
        look();
        return;
      }
      found = [];
      draw();
      change(index, each.kind, each.text);
      this.input.focus();
    };
    const typed = () => {
      const text = input.value.trim();
      if (text)
        take(
          found.find((each) => each.text === text && each.kind !== "key") ??
            (text.endsWith(":")
              ? { kind: "tags", text: text.slice(0, -1) }
              : { kind: text.includes(":") ? "tags" : "types", text }),
        );
    };
    input.addEventListener("input", look);
    input.addEventListener("focus", look);
    input.addEventListener("blur", () => {
      turn += 1;
      found = [];
      draw();
    });
    input.addEventListener("keydown", (event) => {
      if ((event.key === "ArrowDown" || event.key === "ArrowUp") && found.length) {
        chosen = (chosen + (event.key === "ArrowDown" ? 1 : found.length - 1)) % found.length;
        draw();
        event.preventDefault();
      } else if (event.key === "Tab" && found.length && input.value) {
        event.preventDefault();
        take(found[chosen]);
      } else if (event.key === "Enter") {
        event.preventDefault();
        if (found.length && (chosen || found[0].text.startsWith(input.value)) && input.value) take(found[chosen]);
        else typed();
      } else if (event.key === "Escape") {
        if (found.length) {
          found = [];
          draw();
        } else input.blur();
        event.stopPropagation();
      } else if (event.key === "Backspace" && !input.value) {
        const item = this.state.items.at(-1);
        const last = item && (item.exact.at(-1) ?? item.tags.at(-1) ?? item.types.at(-1));
        if (last) change(index, item.exact.length ? "exact" : item.tags.length ? "tags" : "types", last, true);
      }
    });
    return h("span", { class: "adding" }, input, list);
  }

  colour(type) {
    return this.palette.get(type) ?? "c6";
  }

  // ---- How many, and when -----------------------------------------------------------------------

  async load() {
    const turn = (this.turn = (this.turn ?? 0) + 1),
      ending = this.leaving.signal,
      { items, range } = this.state;
    if (!this.counted.firstChild) put(this.counted, skeleton(3));
    try {
      const query = asJson(items),
        began = performance.now();
      const types = await get(logPath(this.log, "/terms?kind=type&limit=100"), ending);
      if (turn !== this.turn) return;
      this.palette = colours(types.terms.sort((a, b) => Number(b.events) - Number(a.events)).map((each) => each.term));
      const [from, before] = range
        ? await Promise.all(
            range.map((ms) =>
              get(logPath(this.log, `/position?at=${ms}`), ending).then((found) => BigInt(found.sequence_number)),
            ),
          )
        : [null, null];
      const bounds = range ? { from, upto: before - 1n } : {};
      const asked = performance.now();
      const [found, bars] = await Promise.all([
        ask("POST", logPath(this.log, "/count"), { query, by_type: true, ...bounds }, ending),
        ask(
          "POST",
          logPath(this.log, "/histogram"),
          {
            query,
            by_type: true,
            buckets: 200,
            types_max: 5,
            ...(range ? { recorded_from: range[0], recorded_before: range[1] } : {}),
          },
          ending,
        ),
      ]);
      const ms = performance.now() - asked;
      if (turn !== this.turn) return;
      this.query();
      this.total(found, bars, ms);
      this.incarnation = found.incarnation;
      this.bounds = range ? [from, before - 1n] : null;
      this.begin(found, began);
      if (!found.events) this.none(found);
    } catch (problem) {
      if (problem.name === "AbortError" || turn !== this.turn) return;
      if (problem.status === 0 && this.list) return;
      if (problem.status === 404 || problem.status === 403) {
        this.lose(problem);
        return;
      }
      put(
        this.counted,
        trouble(problem, () => this.load()),
      );
      put(this.listed);
      if (problem.status === 0 || problem.status === 503)
        setTimeout(() => {
          if (turn === this.turn && this.isConnected) this.load();
        }, 2000);
    }
  }

  total(found, bars, ms) {
    const log = world.peek()?.logs.find((each) => each.name === this.log),
      all = Number(log?.events ?? found.head),
      share = (found.events / all) * 100;
    const types = Object.entries(found.types ?? {}).sort((a, b) => Number(b[1]) - Number(a[1])),
      shown = types.slice(0, 5);
    const data = {
      from: bars.recorded_from,
      to: bars.recorded_before,
      buckets: bars.buckets.map((each) => ({ at: each.recorded_from, events: each.events, types: each.types ?? {} })),
      types: shown.map(([name]) => [name, this.colour(name)]),
      height: 96,
      pick: (from, before) => this.set({ range: [from, before], at: null }),
    };
    put(
      this.counted,
      h(
        "header",
        {},
        h(
          "h2",
          {},
          this.state.items.length || this.state.range
            ? `${plural(found.events, "event matches", "events match")}`
            : plural(found.events, "event"),
        ),
        h(
          "span",
          { class: "dim" },
          this.state.items.length && all
            ? `${share < 0.05 && share > 0 ? "under 0.1" : Math.round(share * 10) / 10} % of the log, `
            : "",
          `answered by the index in ${Math.max(1, Math.round(ms))} ms`,
          found.is_complete ? "" : ", at least",
        ),
        h(
          "span",
          { class: "right legend" },
          shown.map(([name, events]) =>
            h("span", {}, h("i", { class: `square ${this.colour(name)}` }), name, " ", h("b", {}, count(events))),
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

  /** No event matches: which term does not, by itself, and what there is that is like it. */
  async none(found) {
    const parts = [];
    for (const item of this.state.items) {
      for (const [kind, values] of [
        ["type", item.types],
        ["tag", item.tags],
        ["tag", item.exact],
      ]) {
        for (const value of values) {
          const terms = await get(
              logPath(this.log, `/terms?${new URLSearchParams({ kind, prefix: value, limit: "1" })}`),
              this.leaving.signal,
            ).catch(() => null),
            events =
              terms?.terms[0]?.term === value
                ? terms.terms[0].events
                : value.includes(":") || kind === "type"
                  ? 0
                  : null;
          const near =
            events === 0
              ? (
                  await get(
                    logPath(
                      this.log,
                      "/terms?" +
                        new URLSearchParams({
                          kind,
                          prefix: value.slice(0, Math.max(1, value.length - 1)),
                          limit: "1",
                        }),
                    ),
                    this.leaving.signal,
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
              near
                ? [", the nearest is ", h("span", { class: "tag" }, near.term), ` with ${count(near.events)}`]
                : null,
            ),
          );
        }
      }
    }
    const isNew = !found.head;
    put(
      this.listed,
      h(
        "div",
        { class: "empty" },
        h(
          "strong",
          {},
          isNew
            ? "Nothing was ever appended to this log."
            : this.state.items.length
              ? "No event matches."
              : "No event is retained here.",
        ),
        parts.length ? h("ul", { class: "stack" }, parts) : null,
        isNew || !this.state.items.length
          ? [
              h("p", {}, "This command appends one; it is shown here at once:"),
              headwater("append", this.log, "--type", "OrderPlaced", "--tag", "order:1", "--data", '{"total": 30}'),
            ]
          : null,
      ),
    );
    if (isNew && !this.tail) {
      const turn = this.turn;
      this.waiting?.();
      const end = effect(() => {
        if (Number(stats.value?.logs?.[this.log]?.head ?? 0) > 0 && turn === this.turn) {
          queueMicrotask(() => {
            end?.();
            this.load();
          });
        }
      });
      this.waiting = end;
      this.ends.push(end);
    }
  }

  // ---- The list ---------------------------------------------------------------------------------

  begin(found) {
    const { items, order } = this.state,
      newest = order === "newest",
      log = world.peek()?.logs.find((each) => each.name === this.log);
    const head = BigInt(found.head),
      first = BigInt(log?.firstRetained ?? 1);
    const rows =
      items.length || this.bounds
        ? new Matches(this, newest, this.bounds, Number(found.events))
        : new Everything(this, newest, first, head);
    put(this.listed);
    if (!found.events) return;
    this.list = new List(this, rows);
    put(this.listed, this.list.node);
    this.list.redraw();
    this.inspect();
  }

  /** A page of events: previews. */
  async page(start, backwards, limit = PAGE, query = asJson(this.state.items)) {
    const answer = await fetched("POST", logPath(this.log, "/read"), {
      body: {
        query,
        ...(start === null ? {} : { from: start }),
        ...(backwards ? { backwards: true } : {}),
        limit,
        data_bytes_max: PREVIEW,
      },
      signal: this.leaving.signal,
    });
    const text = await answer.text();
    return text
      .split("\n")
      .filter(Boolean)
      .map((line) => row(parse(line)));
  }

  cells(found) {
    const { event, recorded_at } = found,
      { items } = this.state,
      occurred = Date.parse(event.attributes?.time ?? ""),
      ms = Number.isNaN(occurred) ? recorded_at : occurred;
    const tags = (event.tags ?? []).filter((tag) => !asks(items, tag)),
      shown =
        event.data === undefined ? [] : members(event.data, 6).sort((a, b) => (a[1].length > 14) - (b[1].length > 14));
    return [
      h("span", { role: "gridcell", class: "n mono" }, count(found.number)),
      h(
        "span",
        {
          role: "gridcell",
          class: "mono",
          title: `${stamp(ms)} ${zone()}${Number.isNaN(occurred) ? ", recorded" : `; recorded ${stamp(recorded_at)}`}`,
        },
        innerWidth <= 400
          ? day(ms) === day(Date.now())
            ? minute(ms)
            : day(ms).slice(5)
          : day(ms) === day(Date.now())
            ? clock(ms)
            : `${day(ms).slice(5)} ${minute(ms)}`,
      ),
      h(
        "span",
        { role: "gridcell", class: "type" },
        h("i", { class: `square ${this.colour(event.type)}` }),
        h("span", { title: event.type }, event.type),
      ),
      h(
        "span",
        { role: "gridcell", class: "tags hide" },
        tags.map((tag) =>
          h(
            "button",
            {
              class: "tag",
              tabindex: "-1",
              title: `${tag}: add it to the query; Alt: its story`,
              onclick: (clicked) => {
                clicked.stopPropagation();
                if (clicked.altKey) this.story(found.number, tag);
                else this.add(tag);
              },
            },
            tag,
          ),
        ),
      ),
      h(
        "span",
        { role: "gridcell", class: "data hide" },
        event.data_base64 !== undefined
          ? "bytes"
          : shown.length
            ? shown.map(([key, value]) => [`${key} `, h("b", {}, value.slice(0, 60)), "  "])
            : (event.data ?? "").slice(0, 120),
      ),
      h("span", { role: "gridcell", class: "n dim tiny" }, bytes(sizeOf(event))),
    ];
  }

  story(number, tag) {
    dispatchEvent(
      new CustomEvent("headwater:go", {
        detail: { address: at(`/logs/${encodeURIComponent(this.log)}/${number}`, new URLSearchParams({ story: tag })) },
      }),
    );
  }
  select(number) {
    if (this.tail) this.tail.pause();
    this.set({ at: String(number) }, true);
  }

  // ---- The inspector ----------------------------------------------------------------------------

  async inspect() {
    const number = this.state.at,
      turn = (this.looked = (this.looked ?? 0) + 1);
    this.list?.mark();
    if (!/^\d+$/.test(number ?? "")) {
      this.side.hidden = innerWidth <= 1100;
      put(
        this.side,
        h(
          "div",
          { class: "card" },
          h(
            "div",
            { class: "empty" },
            h("strong", {}, "No event is chosen"),
            h("p", {}, "A click, or ", h("kbd", {}, "J"), " ", h("kbd", {}, "K"), ", shows one here."),
          ),
        ),
      );
      return;
    }
    this.side.hidden = false;
    try {
      const found = await one(this.log, number, this.leaving.signal);
      if (turn !== this.looked) return;
      if (!found) {
        put(
          this.side,
          h(
            "div",
            { class: "card" },
            h("div", { class: "empty" }, h("strong", {}, `There is no event ${count(BigInt(number))}.`)),
          ),
        );
        return;
      }
      const shown = await forms(this.log, found, this.leaving.signal);
      if (turn !== this.looked) return;
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
        this.side,
        h(
          "div",
          { class: "card" },
          h(
            "header",
            {},
            h(
              "strong",
              { class: "mono" },
              link(
                `/logs/${encodeURIComponent(this.log)}/${number}`,
                { title: "Open the event (Enter)" },
                count(BigInt(number)),
              ),
            ),
            h(
              "span",
              { class: "row clip", title: event.type },
              h("i", { class: `square ${this.colour(event.type)}` }),
              h("span", { class: "clip" }, event.type),
            ),
            h(
              "span",
              { class: "right" },
              h("kbd", {}, "J"),
              h("kbd", {}, "K"),
              h(
                "button",
                { class: "plain small", "aria-label": "Close", onclick: () => this.set({ at: null }, true) },
                icon("close"),
              ),
            ),
          ),
          formTabs(
            shown,
            this.form ?? "Data",
            (name) => {
              this.form = name;
            },
            (problem) => trouble(problem),
          ),
          (event.tags ?? []).length ? h("section", {}, h("h3", {}, "Stories it is part of"), stories) : null,
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
          this.tagCount(tag).then(
            (found) => put(events, found === null ? "" : plural(found, "event")),
            () => {},
          );
          return h(
            "li",
            {},
            h(
              "button",
              {
                class: `tag ${asks(this.state.items, tag) ? "asked" : ""}`,
                title: "Add it to the query",
                onclick: () => this.add(tag),
              },
              tag,
            ),
            link(
              `/logs/${encodeURIComponent(this.log)}/${number}?${new URLSearchParams({ story: tag })}`,
              { title: `The story of ${tag}` },
              events,
              icon("right"),
            ),
          );
        }),
      );
    } catch (problem) {
      if (problem.name !== "AbortError" && turn === this.looked)
        put(
          this.side,
          h(
            "div",
            { class: "card" },
            trouble(problem, () => this.inspect()),
          ),
        );
    }
  }

  async tagCount(tag) {
    const found = (
      await get(
        logPath(this.log, `/terms?${new URLSearchParams({ kind: "tag", prefix: tag, limit: "1" })}`),
        this.leaving.signal,
      )
    ).terms[0];
    return found?.term === tag ? found.events : null;
  }

  // ---- Follow -----------------------------------------------------------------------------------

  follow() {
    if (this.tail) {
      this.quiet();
      this.load();
      return;
    }
    if (this.state.order !== "newest" || this.state.range) this.set({ order: "newest", range: null, at: null });
    this.turn += 1;
    this.waiting?.();
    this.tail = new Tail(this);
    this.list = new List(this, this.tail, { tall: true });
    put(this.listed, this.list.node);
    this.list.redraw();
    this.tail.run();
    this.followed();
  }

  quiet() {
    this.tail?.stop();
    this.tail = null;
    this.followed();
  }
  followed() {
    if (this.followButton) {
      this.followButton.setAttribute("aria-pressed", String(Boolean(this.tail)));
      put(this.followButton, icon(this.tail ? "pause" : "play"), this.tail ? "Following" : "Follow", h("kbd", {}, "F"));
    }
  }

  // ---- Keys, export, append ---------------------------------------------------------------------

  key(event) {
    const key = event.key.toLowerCase();
    if (this.isLost) return;
    if (key === "/") {
      event.preventDefault();
      this.input?.focus();
    } else if (key === "f") this.follow();
    else if (key === "e") this.export();
    else if (key === "j" || key === "k") {
      const next = this.list?.neighbour(this.state.at, key === "j" ? 1 : -1);
      if (next !== undefined && next !== null) this.select(next);
    } else if (event.key === "Enter" && this.state.at && !event.target.closest?.("button, a"))
      dispatchEvent(
        new CustomEvent("headwater:go", {
          detail: { address: at(`/logs/${encodeURIComponent(this.log)}/${this.state.at}`) },
        }),
      );
    else if (event.key === "End" && this.tail) this.tail.resume();
    else if (event.key === "Escape" && this.state.at) this.set({ at: null }, true);
  }

  export() {
    const { items } = this.state,
      kind = h(
        "select",
        { "aria-label": "Form" },
        [
          ["ndjson", "NDJSON"],
          ["cloudevents", "CloudEvents"],
          ["csv", "CSV"],
        ].map(([value, text]) => h("option", { value }, text)),
      ),
      same = h("div"),
      error = h("p", { class: "error", role: "alert" });
    const draw = () =>
      put(
        same,
        headwater(
          "export",
          this.log,
          `${this.log}.${kind.value === "cloudevents" ? "json" : kind.value}`,
          "--format",
          kind.value,
          ...options(items),
        ),
      );
    const button = h(
      "button",
      {
        class: "primary",
        onclick: async () => {
          button.disabled = true;
          try {
            const answer = await fetched("POST", logPath(this.log, "/read"), {
              accept: kind.value === "cloudevents" ? "application/cloudevents-batch+json" : "application/x-ndjson",
              body: { query: asJson(items), limit: 100000 },
              signal: this.leaving.signal,
            });
            const blob = kind.value === "csv" ? new Blob([csv(await answer.text())]) : await answer.blob(),
              url = URL.createObjectURL(blob);
            h("a", {
              href: url,
              download: `${this.log}.${kind.value === "cloudevents" ? "json" : kind.value}`,
            }).click();
            setTimeout(() => URL.revokeObjectURL(url), 10000);
            dialog.close();
          } catch (problem) {
            put(error, problem.message);
          } finally {
            button.disabled = false;
          }
        },
      },
      "Save a file",
    );
    const dialog = h(
      "dialog",
      { "aria-label": "Export", onclose: () => dialog.remove() },
      h("h2", {}, "Export what matches"),
      h(
        "p",
        { class: "dim" },
        "From here at most 100,000 events, oldest first, and through this page's memory. The command has no such " +
          "limit.",
      ),
      h("label", {}, "Form", kind),
      same,
      error,
      h(
        "footer",
        {},
        h("kbd", {}, "Esc"),
        h("span", { class: "space" }),
        h("button", { onclick: () => dialog.close() }, "Cancel"),
        button,
      ),
    );
    kind.addEventListener("change", draw);
    draw();
    document.body.append(dialog);
    dialog.showModal();
  }

  appending() {
    const type = h("input", { required: true, autofocus: true, spellcheck: "false" }),
      tags = h("input", { placeholder: "order:17 customer:ann", spellcheck: "false" }),
      data = h("textarea", { rows: "5", class: "mono", spellcheck: "false" }),
      condition = h("input", { placeholder: "type=OrderPlaced tag=order:17", spellcheck: "false" }),
      error = h("p", { class: "error", role: "alert" }),
      same = h("div");
    const draw = () =>
      put(
        same,
        headwater(
          "append",
          this.log,
          "--type",
          type.value || "TYPE",
          ...tags.value
            .split(/\s+/)
            .filter(Boolean)
            .flatMap((tag) => ["--tag", tag]),
          ...(data.value ? ["--data", data.value] : []),
          ...(condition.value ? ["--fail-if-match", condition.value] : []),
        ),
      );
    const dialog = h(
      "dialog",
      { "aria-label": `Append to ${this.log}`, oninput: draw, onclose: () => dialog.remove() },
      h("h2", {}, `Append to ${this.log}`),
      h(
        "form",
        {
          onsubmit: async (event) => {
            event.preventDefault();
            try {
              const done = await ask("POST", logPath(this.log, "/append"), {
                events: [
                  {
                    type: type.value,
                    tags: tags.value.split(/\s+/).filter(Boolean),
                    ...(data.value ? { data: data.value } : {}),
                  },
                ],
                ...(condition.value ? { condition: { failIfEventsMatch: asJson(read(condition.value)) } } : {}),
              });
              dialog.close();
              say(`Event ${count(done.last ?? done.last_sequence_number ?? 0)} is durable`);
              this.again();
            } catch (problem) {
              put(
                error,
                problem instanceof Problem && problem.status === 409 ? `Refused: ${problem.message}` : problem.message,
              );
            }
          },
        },
        h("p", { class: "warn small" }, icon("warn"), " An event stays: nothing takes it back."),
        h("label", {}, "Type", type),
        h("label", {}, "Tags", tags),
        h("label", {}, "Data", data),
        h("label", {}, "Fail if an event matches (a query, or nothing)", condition),
        same,
        error,
        h(
          "footer",
          {},
          h("kbd", {}, "Esc"),
          h("span", { class: "space" }),
          h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"),
          h("button", { class: "primary" }, "Append"),
        ),
      ),
    );
    draw();
    document.body.append(dialog);
    dialog.showModal();
  }
}

const row = (envelope) => ({ number: BigInt(envelope.sequence_number), ...envelope });
const quote = (text) =>
  /[",\r\n]|^[=+\-@\t]/.test(text) ? `"${(/^[=+\-@\t]/.test(text) ? `'${text}` : text).replaceAll('"', '""')}"` : text;
function csv(text) {
  const lines = ["sequence_number,recorded_at,type,tags,id,source,data"];
  for (const each of text.split("\n").filter(Boolean)) {
    const { event, ...rest } = parse(each);
    lines.push(
      [
        String(rest.sequence_number),
        new Date(rest.recorded_at).toISOString(),
        event.type,
        (event.tags ?? []).join(" "),
        event.id ?? "",
        event.source ?? "",
        event.data ?? event.data_base64 ?? "",
      ]
        .map(quote)
        .join(","),
    );
  }
  return `${lines.join("\r\n")}\r\n`;
}

/** Rows that are all events of a log, so that a place in the list is a number: any is there at once. */
class Everything {
  constructor(page, newest, first, head) {
    Object.assign(this, { page, newest, first, head });
    this.chunks = new Map();
    this.asked = new Set();
  }
  get length() {
    return Number(this.head - this.first) + 1;
  }
  number(index) {
    return this.newest ? this.head - BigInt(index) : this.first + BigInt(index);
  }
  place(number) {
    return Number(this.newest ? this.head - number : number - this.first);
  }
  get(index) {
    return this.chunks.get(Math.floor(index / PAGE))?.[index % PAGE];
  }
  need(from, to, drawn) {
    for (let chunk = Math.floor(from / PAGE); chunk <= Math.floor(Math.max(from, to) / PAGE); chunk += 1) {
      if (this.chunks.has(chunk) || this.asked.has(chunk) || chunk * PAGE >= this.length) continue;
      this.asked.add(chunk);
      this.page
        .page(this.number(chunk * PAGE), this.newest)
        .then(
          (rows) => {
            this.chunks.set(chunk, rows);
            if (this.chunks.size > 60) this.chunks.delete(this.chunks.keys().next().value);
            drawn();
          },
          (problem) => {
            if (problem.name !== "AbortError") say(problem.message);
          },
        )
        .finally(() => this.asked.delete(chunk));
    }
  }
}

/** Rows that match a query, as far as they were read: more come when the end is near. */
class Matches {
  constructor(page, newest, bounds, total) {
    Object.assign(this, { page, newest, bounds, total });
    this.rows = [];
    this.isWhole = false;
  }
  get length() {
    return this.isWhole
      ? this.rows.length
      : Math.max(this.rows.length + 1, Math.min(this.total, this.rows.length + PAGE));
  }
  place(number) {
    return this.rows.findIndex((each) => each.number === number);
  }
  get(index) {
    return this.rows[index];
  }
  need(from, to, drawn) {
    if (this.isWhole || this.asking || to < this.rows.length - 20) return;
    this.asking = true;
    const last = this.rows.at(-1)?.number,
      start =
        last === undefined
          ? this.bounds
            ? this.bounds[this.newest ? 1 : 0]
            : null
          : this.newest
            ? last - 1n
            : last + 1n;
    if (start !== null && start < 1n) {
      this.isWhole = true;
      this.asking = false;
      return;
    }
    this.page
      .page(start, this.newest)
      .then(
        (rows) => {
          const inside = rows.filter(
            (each) => !this.bounds || (each.number >= this.bounds[0] && each.number <= this.bounds[1]),
          );
          this.rows.push(...inside);
          this.isWhole = rows.length < PAGE || inside.length < rows.length;
          drawn();
        },
        (problem) => {
          if (problem.name !== "AbortError") say(problem.message);
        },
      )
      .finally(() => {
        this.asking = false;
      });
  }
}

/** The newest events as they come: all are counted, the newest are kept, and what is not shown is said. */
class Tail {
  constructor(page) {
    this.page = page;
    this.rows = [];
    this.held = [];
    this.counted = 0;
    this.isPaused = false;
    this.waiting = 0;
    this.after = null;
    this.perSecond = [];
    this.ending = new AbortController();
  }
  get length() {
    return this.rows.length;
  }
  place(number) {
    return this.rows.findIndex((each) => each.number === number);
  }
  get(index) {
    return this.rows[index];
  }
  need() {}
  stop() {
    this.ending.abort();
    cancelAnimationFrame(this.frame);
  }
  pause() {
    if (!this.isPaused && this.rows.length) {
      this.isPaused = true;
      this.draw();
    }
  }
  resume() {
    this.isPaused = false;
    this.waiting = 0;
    this.page.list.node.querySelector(".list").scrollTop = 0;
    this.draw();
  }
  get rate() {
    const now = performance.now();
    this.perSecond = this.perSecond.filter(([ms]) => now - ms < 5000);
    return this.perSecond.reduce((sum, [, n]) => sum + n, 0) / 5;
  }

  async run() {
    const { log, state } = this.page,
      query = asJson(state.items);
    try {
      const found = await get(logPath(log, "/head"), this.ending.signal);
      this.incarnation = found.incarnation;
      this.rows = await this.page.page(null, true, 50);
      this.after = this.rows.length
        ? [BigInt(found.head), this.rows[0].number].reduce((a, b) => (a > b ? a : b))
        : BigInt(found.head);
      this.draw();
    } catch (problem) {
      if (problem.name !== "AbortError") say(problem.message);
    }
    for (let wait = 1000; !this.ending.signal.aborted; wait = Math.min(15000, wait * 2)) {
      try {
        const now = await get(logPath(log, "/head"), this.ending.signal);
        if (this.incarnation && now.incarnation !== this.incarnation) {
          this.note = `The log is another one since ${clock(Date.now())}: it was made anew. Its events begin again.`;
          this.incarnation = now.incarnation;
          this.after = 0n;
        }
        this.after ??= BigInt(now.head);
        const answer = await fetched(
          "GET",
          logPath(
            log,
            "/subscribe?" +
              new URLSearchParams({
                query: JSON.stringify(query),
                after: String(this.after),
                data_bytes_max: String(PREVIEW),
              }),
          ),
          { signal: this.ending.signal },
        );
        wait = 500;
        await this.read(answer.body.getReader());
      } catch (problem) {
        if (problem.name === "AbortError") return;
        if (problem.code === "position_trimmed") {
          this.note = `Events up to ${count(problem.body.first_retained)} were trimmed before they came here.`;
          this.after = BigInt(problem.body.first_retained) - 1n;
          continue;
        }
        if (problem.status === 404 || problem.status === 403) {
          this.page.lose(problem);
          return;
        }
        this.note = `Away since ${clock(away.peek() ?? Date.now())}; goes on after ${count(this.after ?? 0n)}.`;
        this.draw();
      }
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }

  async read(reader) {
    const decoder = new TextDecoder();
    let rest = "";
    this.note = null;
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      rest += decoder.decode(value, { stream: true });
      const blocks = rest.split("\n\n");
      rest = blocks.pop();
      let came = 0;
      for (const block of blocks) {
        const id = /^id: (\d+)$/m.exec(block),
          data = /^data: (.*)$/m.exec(block);
        if (id) this.after = BigInt(id[1]);
        if (data) {
          came += 1;
          this.held.push(data[1]);
        }
      }
      if (!came) continue;
      this.counted += came;
      this.perSecond.push([performance.now(), came]);
      if (this.held.length > KEPT) this.held.splice(0, this.held.length - KEPT);
      if (this.isPaused) this.waiting += came;
      this.frame ??= requestAnimationFrame(() => {
        this.frame = undefined;
        this.draw();
      });
    }
  }

  draw() {
    if (!this.isPaused && this.held.length) {
      const come = this.held.map((text) => row(parse(text))).reverse();
      this.held = [];
      this.rows = come.length >= KEPT ? come.slice(0, KEPT) : [...come, ...this.rows].slice(0, KEPT);
      for (const each of come)
        if (!this.page.palette.has(each.event.type))
          this.page.palette = colours([...this.page.palette.keys(), each.event.type]);
    }
    const head = stats.peek()?.logs?.[this.page.log]?.head,
      behind = head === undefined || this.after === null ? 0 : Math.max(0, Number(BigInt(head) - this.after));
    put(
      this.page.counted,
      h(
        "header",
        {},
        h("h2", {}, "Following"),
        h(
          "span",
          { class: "dim" },
          h("b", { data: { counted: String(this.counted) } }, count(this.counted)),
          ` came, ${rate(this.rate)} /s, ${behind ? `${plural(behind, "event")} behind` : "up to date"}`,
          this.counted > KEPT
            ? `; the newest ${count(KEPT)} are kept here, ${count(this.counted - KEPT)} more are in the log`
            : null,
        ),
        this.note ? h("span", { class: "warn" }, this.note) : null,
      ),
    );
    this.page.list?.redraw();
  }
}

/** A list of which only what is seen is in the document. */
class List {
  constructor(page, rows, { tall = false } = {}) {
    Object.assign(this, { page, rows });
    this.columns =
      innerWidth <= 400
        ? "68px 44px minmax(0, 1fr)"
        : innerWidth <= 720
          ? "92px 92px minmax(0, 1fr) 56px"
          : "72px 92px minmax(110px, 150px) minmax(160px, 2.2fr) minmax(90px, 1fr) 56px";
    this.ground = h("div", { class: "ground" });
    this.view = h(
      "div",
      {
        class: `list ${tall ? "tall" : ""}`,
        tabindex: "0",
        role: "grid",
        "aria-label": "Events",
        onscroll: () => this.scrolled(),
      },
      this.title(),
      this.ground,
    );
    this.pill = h("button", { class: "new", hidden: true, onclick: () => rows.resume?.() });
    this.node = h("div", { class: "listing" }, this.view, this.pill);
  }

  title() {
    const { order } = this.page.state,
      node = h(
        "div",
        { class: "line title", role: "row" },
        [
          ["Number", "n"],
          [innerWidth <= 400 ? "Time" : `Time, ${zone()}`, ""],
          ["Type", ""],
          ["Tags", "hide"],
          ["Data", "hide"],
          ["Size", "n tiny"],
        ].map(([text, kind], at) =>
          h(
            "span",
            {
              class: kind,
              role: "columnheader",
              "aria-sort": at ? null : order === "newest" ? "descending" : "ascending",
            },
            text,
            at ? null : icon("down"),
          ),
        ),
      );
    node.style.gridTemplateColumns = this.columns;
    return node;
  }

  get scale() {
    const whole = this.rows.length * ROW;
    return whole > GROUND_MAX ? whole / GROUND_MAX : 1;
  }

  scrolled() {
    if (this.rows.pause && this.view.scrollTop > ROW / 2) this.rows.pause();
    if (this.rows.isPaused && this.view.scrollTop === 0 && !this.page.state.at) this.rows.resume();
    this.soon ??= requestAnimationFrame(() => {
      this.soon = undefined;
      this.redraw();
    });
  }

  redraw() {
    const { rows, view } = this,
      height = view.clientHeight || 400,
      whole = Math.min(GROUND_MAX, rows.length * ROW),
      fits = Math.ceil(height / ROW);
    this.ground.style.height = `${whole}px`;
    const scale = this.scale,
      first =
        scale === 1
          ? Math.floor(view.scrollTop / ROW)
          : Math.round((view.scrollTop / Math.max(1, whole - height)) * Math.max(0, rows.length - fits + 1));
    const from = Math.max(0, first - 10),
      to = Math.min(rows.length - 1, first + fits + 10);
    rows.need(Math.max(0, from - 20), to + 20, () => this.redraw());
    const lines = [];
    for (let index = from; index <= to; index += 1) {
      const found = rows.get(index),
        line = h(
          "div",
          {
            class: `line ${found ? "" : "missing"}`,
            role: "row",
            "aria-rowindex": String(index + 1),
            "aria-selected": String(found !== undefined && String(found.number) === this.page.state.at),
            data: found ? { number: String(found.number) } : {},
            onclick: found ? () => this.page.select(found.number) : undefined,
            ondblclick: found
              ? () =>
                  dispatchEvent(
                    new CustomEvent("headwater:go", {
                      detail: { address: at(`/logs/${encodeURIComponent(this.page.log)}/${found.number}`) },
                    }),
                  )
              : undefined,
          },
          found ? this.page.cells(found) : h("span", { role: "gridcell" }, "\u2026"),
        );
      line.style.gridTemplateColumns = this.columns;
      line.style.top = `${(scale === 1 ? index : index - first) * ROW + (scale === 1 ? 0 : view.scrollTop)}px`;
      lines.push(line);
    }
    put(this.ground, lines);
    this.pill.hidden = !rows.waiting;
    if (rows.waiting) put(this.pill, `${count(rows.waiting)} new`);
  }

  mark() {
    const number = this.page.state.at,
      row = this.ground.querySelector(`[data-number="${CSS.escape(number ?? "none")}"]`);
    for (const each of this.ground.querySelectorAll('[aria-selected="true"]'))
      each.setAttribute("aria-selected", "false");
    row?.setAttribute("aria-selected", "true");
    if (!/^\d+$/.test(number ?? "")) return;
    const place = this.rows.place(BigInt(number));
    if (place >= 0 && place < this.rows.length && this.scale === 1) {
      const top = place * ROW;
      if (top < this.view.scrollTop || top + ROW > this.view.scrollTop + this.view.clientHeight - ROW)
        this.view.scrollTop = Math.max(0, top - this.view.clientHeight / 2);
    }
  }

  /** The number of the row so many further; the first where none is chosen. */
  neighbour(number, by) {
    const place = /^\d+$/.test(number ?? "") ? this.rows.place(BigInt(number)) + by : 0;
    return (
      this.rows.get(place)?.number ??
      (this.rows.number && place >= 0 && place < this.rows.length ? this.rows.number(place) : null)
    );
  }
}
customElements.define("hw-log", HwLog);
