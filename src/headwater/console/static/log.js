/* The events of one log: a query of chips, how many there are and when, the list, the live tail, the inspector. */

import {
  View,
  ask,
  at,
  get,
  h,
  icon,
  logPath,
  mayAct,
  put,
  readEvents,
  skeleton,
  titled,
  trouble,
  utc,
  world,
  go,
} from "./core.js";
import { colours } from "./charts.js";
import { logHead, visited } from "./logs.js";
import { asJson, read, worded } from "./query.js";
import { queryCard } from "./chips.js";
import { timed } from "./histogram.js";
import { none } from "./unmatched.js";
import { inspect } from "./inspector.js";
import { exporting } from "./export.js";
import { appending } from "./appending.js";
import { Everything, Matches, PAGE, PREVIEW, row } from "./rows.js";
import { Tail } from "./tail.js";
import { List } from "./list.js";
import { choosing, columnsOf, previewOf } from "./columns.js";
import { Finder } from "./find.js";

/** A range of times in an address; null where there is none that can be read. */
function spanned(given, from, before) {
  const found = [from, before].map((name) => Number(given.get(name) || NaN));
  return found.every(Number.isSafeInteger) && found[0] < found[1] ? found : null;
}

/** No rows, where what is the matter is told when the list asks for them; else the problem. */
function unlessLater(problem) {
  if (problem.name === "AbortError" || [0, 401, 403, 404, 503].includes(problem.status)) throw problem;
  return [];
}

class HwLog extends View {
  /** What other files put here: the field of the query, its button to follow, what is looked for in loaded rows, and
      what is called again by a change. @type {any} */
  input = null;
  /** @type {any} */
  followButton = null;
  /** @type {any} */
  finder = null;
  /** @type {(() => void) | null} */
  retime = null;
  /** @type {(() => void) | null} */
  waiting = null;

  show() {
    this.log = this.params.log;
    visited(this.log, "Events");
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
          mayAct("append", this.log) ? h("button", { onclick: () => appending(this) }, "Append") : null,
          h("button", { onclick: () => this.choosing() }, "Columns"),
          h("button", { onclick: () => exporting(this), title: "E" }, "Export"),
        ]),
      ),
    );
    this.watch(() => {
      void utc.value;
      this.list?.redraw();
    });
    this.on(document, "keydown", (event) => this.find(event));
    this.ends.push(() => {
      this.quiet();
      this.finder?.close();
    });
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
      range: spanned(given, "from", "before"),
      times: given.get("times") === "event" && !spanned(given, "from", "before") ? "event" : "recorded",
      seen: spanned(given, "since", "until"),
    };
    const anew =
      !before ||
      worded(before.items) !== worded(items) ||
      before.order !== this.state.order ||
      String(before.range) !== String(this.state.range);
    if (anew) {
      this.quiet();
      this.bounds = null;
      this.query(broken);
      this.load();
    } else if (before.times !== this.state.times || String(before.seen) !== String(this.state.seen)) this.retime?.();
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
      titled(this.log),
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
    if (next.times === "event") given.set("times", "event");
    if (next.seen) {
      given.set("since", next.seen[0]);
      given.set("until", next.seen[1]);
    }
    if (next.at) given.set("at", next.at);
    go(at(logPath(this.log), given), replace);
  }

  query(broken) {
    queryCard(this, broken);
  }

  /** So much of the data of each event is asked for. */
  get preview() {
    return previewOf(columnsOf(this.log), PREVIEW);
  }

  /** Which columns the list has; what they show may not be there yet. */
  choosing() {
    choosing(this, this.list?.rows.loaded() ?? [], () => {
      if (this.tail) this.rowed(this.tail, { tall: true });
      else this.load();
    });
  }

  /** Ctrl F: find in what is loaded; pressed in the field of it, the browser's own search. */
  find(event) {
    if (!(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey || event.key.toLowerCase() !== "f") return;
    if (!this.list || this.isLost || document.querySelector("dialog[open]") || event.target === this.finder?.input)
      return;
    event.preventDefault();
    this.finder ??= new Finder(this);
    if (!this.finder.node.isConnected) this.listed.prepend(this.finder.node);
    this.finder.input.focus();
    this.finder.input.select();
    this.finder.look();
  }

  /** Show these rows as the list. */
  rowed(rows, how) {
    this.list = new List(this, rows, how);
    put(this.listed, this.finder?.node, this.list.node);
    this.list.redraw();
  }

  colour(type) {
    return this.palette.get(type) ?? "c6";
  }

  // ---- How many, and when -----------------------------------------------------------------------

  async load() {
    const turn = (this.turn = (this.turn ?? 0) + 1),
      ending = this.leaving.signal,
      { items, range, order } = this.state;
    if (!this.counted.firstChild) put(this.counted, skeleton(3));
    try {
      const query = asJson(items),
        [from, upto] = range ? await this.bounded(range) : [null, null],
        bounds = range ? { from, upto } : {},
        newest = order === "newest",
        asked = performance.now();
      const [[found, ms], types, rows] = await Promise.all([
        ask("POST", logPath(this.log, "/count"), { query, by_type: true, ...bounds }, ending).then((answer) => [
          answer,
          performance.now() - asked,
        ]),
        get(logPath(this.log, "/terms?kind=type&limit=100"), ending),
        range && upto < from ? [] : this.page(newest ? upto : from, newest).catch(unlessLater),
      ]);
      if (turn !== this.turn) return;
      this.palette = colours(types.terms.sort((a, b) => Number(b.events) - Number(a.events)).map((each) => each.term));
      this.bounds = range ? [from, upto] : null;
      this.total = Number(found.events);
      this.query();
      this.incarnation = found.incarnation;
      this.begin(found, rows);
      timed(this, found, ms); // asks for the histogram, which nobody waits for who looks for an event
      if (!found.events) none(this, found);
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

  /** The first number of a range of times, and its last. */
  async bounded(range) {
    const [from, before] = await Promise.all(
      range.map((ms) => get(logPath(this.log, `/position?at=${ms}`), this.leaving.signal)),
    );
    return [BigInt(from.sequence_number), BigInt(before.sequence_number) - 1n];
  }

  // ---- The list ---------------------------------------------------------------------------------

  /** Show what was counted, beginning with the rows that came with it. */
  begin(found, come) {
    const { items, order } = this.state,
      newest = order === "newest",
      log = world.peek()?.logs.find((each) => each.name === this.log);
    const rows =
      items.length || this.bounds
        ? new Matches(this, newest, this.bounds, Number(found.events), come)
        : new Everything(this, newest, BigInt(log?.firstRetained ?? 1), BigInt(found.head), come);
    put(this.listed);
    if (!found.events) return;
    this.rowed(rows);
    this.inspect();
  }

  /** A page of events: previews. */
  async page(start, backwards, limit = PAGE, query = asJson(this.state.items)) {
    const body = {
      query,
      ...(start === null ? {} : { from: start }),
      ...(backwards ? { backwards: true } : {}),
      limit,
      data_bytes_max: this.preview,
    };
    return (await readEvents(this.log, body, this.leaving.signal)).map(row);
  }

  select(number) {
    if (this.tail) this.tail.pause();
    this.set({ at: String(number) }, true);
  }

  // ---- The inspector ----------------------------------------------------------------------------

  inspect() {
    return inspect(this);
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
    this.rowed(this.tail, { tall: true });
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
    else if (key === "e") exporting(this);
    else if (key === "j" || key === "k") {
      const next = this.list?.neighbour(this.state.at, key === "j" ? 1 : -1);
      if (next !== undefined && next !== null) this.select(next);
    } else if (event.key === "Enter" && this.state.at && !event.target.closest?.("button, a"))
      go(at(logPath(this.log, `/${this.state.at}`)));
    else if (event.key === "End" && this.tail) this.tail.resume();
    else if (event.key === "Escape" && this.state.at) this.set({ at: null }, true);
  }
}
customElements.define("hw-log", HwLog);
