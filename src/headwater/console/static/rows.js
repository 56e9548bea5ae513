/* Rows of a list of events, read page by page: of a whole log, or of what matches a query. */

import { complain } from "./core.js";

/** So many events are one page. */
export const PAGE = 100;
/** So many bytes of the data of each come with it. */
export const PREVIEW = 256;

/** An event as it came, with its number as a BigInt. */
export const row = (envelope) => ({ number: BigInt(envelope.sequence_number), ...envelope });

/** Rows that are all events of a log, so that a place in the list is a number: any is there at once. They begin with
    the page of rows that came first. */
export class Everything {
  constructor(page, newest, first, head, come) {
    this.page = page;
    this.newest = newest;
    this.first = (!newest && come[0]?.number) || first;
    this.head = newest && come[0]?.number > head ? come[0].number : head;
    const isFirst = come[0]?.number === (newest ? this.head : this.first);
    this.chunks = new Map(isFirst && come.length >= Math.min(PAGE, this.length) ? [[0, come]] : []);
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
  /** All that is here at present, in order. */
  loaded() {
    return [...this.chunks].sort(([a], [b]) => a - b).flatMap(([, rows]) => rows);
  }
  need(from, to, drawn) {
    for (let chunk = Math.floor(from / PAGE); chunk <= Math.floor(Math.max(from, to) / PAGE); chunk += 1) {
      if (this.chunks.has(chunk) || this.asked.has(chunk) || chunk * PAGE >= this.length) continue;
      this.asked.add(chunk);
      this.page
        .page(this.number(chunk * PAGE), this.newest)
        .then((rows) => {
          this.chunks.set(chunk, rows);
          if (this.chunks.size > 60) this.chunks.delete(this.chunks.keys().next().value);
          drawn();
        }, complain)
        .finally(() => this.asked.delete(chunk));
    }
  }
}

/** Rows that match a query, as far as they were read, beginning with those that came first. */
export class Matches {
  constructor(page, newest, bounds, total, come) {
    this.page = page;
    this.newest = newest;
    this.bounds = bounds;
    this.total = total;
    this.rows = [];
    this.isWhole = false;
    if (come.length >= Math.min(PAGE, total)) this.take(come); // else some of what was counted came behind them
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
  /** All that is here at present, in order. */
  loaded() {
    return this.rows;
  }
  need(from, to, drawn) {
    if (this.isWhole || this.asking || to < this.rows.length - 20) return;
    const last = this.rows.at(-1)?.number,
      begin = this.bounds?.[this.newest ? 1 : 0] ?? null,
      start = last === undefined ? begin : this.newest ? last - 1n : last + 1n;
    if (start !== null && start < 1n) {
      this.isWhole = true;
      return;
    }
    this.asking = true;
    this.page
      .page(start, this.newest)
      .then((rows) => {
        this.take(rows);
        drawn();
      }, complain)
      .finally(() => {
        this.asking = false;
      });
  }
  take(rows) {
    const inside = rows.filter(
      (each) => !this.bounds || (each.number >= this.bounds[0] && each.number <= this.bounds[1]),
    );
    this.rows.push(...inside);
    this.isWhole = rows.length < PAGE || inside.length < rows.length;
  }
}
