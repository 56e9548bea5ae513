/* The live tail of a log. */

import {
  away,
  clock,
  count,
  dim,
  fetched,
  get,
  h,
  logPath,
  parse,
  plural,
  put,
  rate,
  say,
  shown,
  stats,
  whenHidden,
} from "./core.js";
import { colours } from "./charts.js";
import { asJson } from "./query.js";
import { row } from "./rows.js";

const KEPT = 5000;
const PAUSE_MS = 100; // between two times that what came is drawn: nobody reads faster, and each costs 30 ms of a core

/** The newest events as they come: all are counted, the newest are and what is not shown is said. */
export class Tail {
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
    this.stream = null;
    whenHidden(() => this.stream?.abort(), this.ending.signal);
  }
  get length() {
    return this.rows.length;
  }
  place(number) {
    return this.rows.findIndex((each) => each.number === number);
  }
  get(index) {
    const found = this.rows[index];
    return found?.text === undefined ? found : (this.rows[index] = this.made(found.text));
  }
  loaded() {
    return this.rows.map((_, index) => this.get(index));
  }
  /** A row of what came, and a colour for its type: made when it is looked at, since most pass unseen. */
  made(text) {
    const { page } = this,
      found = row(parse(text)),
      { type } = found.event;
    if (!page.palette.has(type)) page.palette = colours([...page.palette.keys(), type]);
    return found;
  }
  need() {}
  stop() {
    this.ending.abort();
    clearTimeout(this.soon);
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
      await shown(this.ending.signal);
      this.stream = new AbortController();
      try {
        const now = await get(logPath(log, "/head"), this.ending.signal);
        if (this.incarnation && now.incarnation !== this.incarnation) {
          this.note = `The log was recreated at ${clock(Date.now())}. Its events start again.`;
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
                data_bytes_max: String(this.page.preview),
              }),
          ),
          { signal: AbortSignal.any([this.ending.signal, this.stream.signal]) },
        );
        wait = 500;
        await this.read(answer.body.getReader());
      } catch (problem) {
        if (problem.name === "AbortError") continue; // it ended, or the window is hidden
        if (problem.code === "position_trimmed") {
          this.note = `Events up to ${count(problem.body.first_retained)} were trimmed before they arrived here.`;
          this.after = BigInt(problem.body.first_retained) - 1n;
          continue;
        }
        if (problem.status === 404 || problem.status === 403) {
          this.page.lose(problem);
          return;
        }
        this.note = `Away since ${clock(away.peek() ?? Date.now())}; continues after ${count(this.after ?? 0n)}.`;
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
          this.held.push({ number: this.after, text: data[1] });
        }
      }
      if (!came) continue;
      this.counted += came;
      this.perSecond.push([performance.now(), came]);
      if (this.held.length > KEPT) this.held.splice(0, this.held.length - KEPT);
      if (this.isPaused) this.waiting += came;
      this.drawSoon();
    }
  }

  /** In the next frame, or when the pause since the last time is over. */
  drawSoon() {
    if (this.soon) return;
    const left = Math.max(0, (this.drawn ?? 0) + PAUSE_MS - performance.now());
    this.soon = setTimeout(() => {
      this.frame = requestAnimationFrame(() => {
        this.soon = undefined;
        this.draw();
      });
    }, left);
  }

  draw() {
    this.drawn = performance.now();
    if (!this.isPaused && this.held.length) {
      const come = this.held.reverse();
      this.held = [];
      this.rows = come.length >= KEPT ? come.slice(0, KEPT) : [...come, ...this.rows].slice(0, KEPT);
    }
    this.page.list?.redraw(); // first: it asks for its height, before there is anything else to lay out for that
    const head = stats.peek()?.logs?.[this.page.log]?.head,
      behind = head === undefined || this.after === null ? 0 : Math.max(0, Number(BigInt(head) - this.after));
    put(
      this.page.counted,
      h(
        "header",
        {},
        h("h2", {}, "Following"),
        dim(
          h("b", { data: { counted: String(this.counted) } }, count(this.counted)),
          ` came, ${rate(this.rate)} /s, ${behind ? `${plural(behind, "event")} behind` : "up to date"}`,
          this.counted > KEPT
            ? `; the newest ${count(KEPT)} are kept here, ${count(this.counted - KEPT)} more are in the log`
            : null,
        ),
        this.note ? h("span", { class: "warn" }, this.note) : null,
      ),
    );
  }
}
