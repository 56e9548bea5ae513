/* The list of events of a log: a window on its rows, and what a row shows. */

import { NOTHING, at, bytes, clock, count, day, h, icon, minute, put, stamp, zone, go, logPath } from "./core.js";
import { columnsOf, isField, isShown, valueOf } from "./columns.js";
import { members, sizeOf } from "./forms.js";
import { asks } from "./query.js";

const ROW = 28,
  GROUND_MAX = 15e6;

/** How wide the columns are, with so many that somebody chose. */
function widths(chosen) {
  if (innerWidth <= 400) return "68px 44px minmax(0, 1fr)";
  if (innerWidth <= 720) return "92px 92px minmax(0, 1fr) 56px";
  const more = chosen ? `repeat(${chosen}, minmax(64px, 1fr)) ` : "";
  return `72px 92px minmax(110px, 150px) ${more}minmax(${chosen ? 90 : 160}px, 2.2fr) minmax(90px, 1fr) 56px`;
}

/** A list of which only what is seen is in the document. */
export class List {
  constructor(page, rows, { tall = false } = {}) {
    this.page = page;
    this.rows = rows;
    this.chosen = columnsOf(page.log);
    this.columns = widths(this.chosen.length);
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
          ...this.chosen.map(({ name }) => [name, "hide chosen"]),
          ["Tags", "hide"],
          ["Data", "hide"],
          ["Size", "n tiny"],
        ].map(([text, kind], at) =>
          h(
            "span",
            {
              class: kind,
              title: kind.endsWith("chosen") ? text : null,
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

  get isScaled() {
    return this.rows.length * ROW > GROUND_MAX;
  }
  get whole() {
    return Math.min(GROUND_MAX, this.rows.length * ROW);
  }
  get height() {
    return this.view.clientHeight || 400;
  }
  get fits() {
    return Math.ceil(this.height / ROW);
  }
  /** The first row in view where the last one is. */
  get lowest() {
    return Math.max(0, this.rows.length - this.fits + 1);
  }
  /** In a log with more rows than there are pixels: how far is scrolled, for each row above the first one in view. */
  get step() {
    return (this.whole - this.height) / Math.max(1, this.lowest);
  }
  /** The first row in view: by the scrollbar, or as `show` had it; pixels alone do not tell all rows apart. */
  get first() {
    const { scrollTop } = this.view;
    if (!this.isScaled) return Math.floor(scrollTop / ROW);
    return this.shown?.top === scrollTop ? this.shown.first : Math.min(this.lowest, Math.round(scrollTop / this.step));
  }

  /** Scroll to a row, if it is not in view. */
  show(place) {
    const { view } = this,
      below = this.isScaled ? (place - this.first) * ROW : place * ROW - view.scrollTop;
    if (below >= 0 && below + ROW <= view.clientHeight - ROW) return;
    const before = view.scrollTop,
      first = Math.max(0, Math.min(place - Math.floor(this.fits / 2), this.lowest));
    view.scrollTop = first * (this.isScaled ? this.step : ROW);
    this.shown = { top: view.scrollTop, first };
    if (view.scrollTop === before) this.redraw(); // else it is told that it was scrolled
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
    const { rows, view, fits, isScaled } = this;
    this.ground.style.height = `${this.whole}px`;
    const { first } = this,
      above = isScaled ? view.scrollTop - first * ROW : 0,
      beyond = rows.isPaused === false ? 2 : 10, // who scrolls a tail pauses it
      from = Math.max(0, first - beyond),
      to = Math.min(rows.length - 1, first + fits + beyond);
    rows.need(Math.max(0, from - 20), to + 20, () => this.redraw());
    this.page.finder?.refresh();
    const lines = [],
      hits = this.page.finder?.marked;
    for (let index = from; index <= to; index += 1) {
      const found = rows.get(index),
        line = h(
          "div",
          {
            class: `line ${found ? "" : "missing"} ${hits?.has(String(found?.number)) ? "hit" : ""}`,
            role: "row",
            "aria-rowindex": String(index + 1),
            "aria-selected": String(found !== undefined && String(found.number) === this.page.state.at),
            data: found ? { number: String(found.number) } : {},
            onclick: found ? () => this.page.select(found.number) : undefined,
            ondblclick: found ? () => go(at(logPath(this.page.log, `/${found.number}`))) : undefined,
          },
          found ? cells(this.page, found, this.chosen) : h("span", { role: "gridcell" }, "\u2026"),
        );
      line.style.gridTemplateColumns = this.columns;
      line.style.top = `${index * ROW + above}px`;
      lines.push(line);
    }
    put(this.ground, lines);
    this.page.finder?.mark(this.ground);
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
    if (place >= 0 && place < this.rows.length) this.show(place);
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

/** What the row of an event shows, cell by cell. */
export function cells(page, found, chosen) {
  const { event, recorded_at } = found,
    { items } = page.state,
    occurred = Date.parse(event.attributes?.time ?? ""),
    ms = Number.isNaN(occurred) ? recorded_at : occurred;
  const tags = (event.tags ?? []).filter((tag) => !asks(items, tag) && !isShown(chosen, tag)),
    parts = event.data === undefined ? [] : members(event.data, 6),
    long = (each) => Number(each[1].length > 14),
    shown = parts.filter(([name]) => !isField(chosen, name)).sort((a, b) => long(a) - long(b));
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
      h("i", { class: `square ${page.colour(event.type)}` }),
      h("span", { title: event.type }, event.type),
    ),
    chosen.map((each) => {
      const value = valueOf(event, each);
      return h(
        "span",
        { role: "gridcell", class: "mono hide", title: value },
        value?.slice(0, 120) ?? h("i", { class: "faint" }, NOTHING),
      );
    }),
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
              if (clicked.altKey) story(page, found.number, tag);
              else page.add(tag);
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
        : parts.length
          ? shown.map(([key, value]) => [`${key} `, h("b", {}, value.slice(0, 60)), "  "])
          : (event.data ?? "").slice(0, 120),
    ),
    h("span", { role: "gridcell", class: "n dim tiny" }, bytes(sizeOf(event))),
  ];
}

function story(page, number, tag) {
  go(at(logPath(page.log, `/${number}`), new URLSearchParams({ story: tag })));
}
