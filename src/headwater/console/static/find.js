/* Find in the loaded events: a text in the previews of the rows that the page has, which are not all of the log. */

import { count, gap, h, icon, plural, put } from "./core.js";

/** Whether an event has the text, in small letters, in what is loaded of it. */
const has = ({ event }, text) =>
  [event.data ?? "", event.type, ...(event.tags ?? [])].some((each) => each.toLowerCase().includes(text));

/** The bar in which one finds: over the list of the page, which it marks. */
export class Finder {
  constructor(page) {
    this.page = page;
    this.hits = [];
    this.input = h("input", {
      "aria-label": "Find in the loaded events",
      placeholder: "Find in the loaded events",
      spellcheck: "false",
      oninput: () => this.look(),
      onkeydown: (event) => {
        if (event.key === "Enter") {
          event.preventDefault();
          this.walk(event.shiftKey ? -1 : 1);
        } else if (event.key === "Escape") {
          event.stopPropagation();
          this.close();
        }
      },
    });
    this.told = h("span", { class: "dim", role: "status" });
    const button = (name, label, act) =>
      h("button", { class: "plain small", "aria-label": label, onclick: act }, icon(name));
    this.node = h(
      "div",
      { class: "find", role: "search" },
      icon("search"),
      this.input,
      this.told,
      gap(),
      button("left", "Hit before", () => this.walk(-1)),
      button("right", "Next hit", () => this.walk(1)),
      button("close", "Close", () => this.close()),
    );
  }

  get text() {
    return this.input.value.toLowerCase();
  }

  /** Search anew: something was typed, or other rows are loaded. */
  look() {
    this.refresh();
    this.page.list?.redraw();
  }

  refresh() {
    const loaded = this.page.list?.rows.loaded() ?? [];
    this.hits = this.text ? loaded.filter((each) => has(each, this.text)).map((each) => String(each.number)) : [];
    this.marked = new Set(this.hits);
    const at = this.hits.indexOf(this.page.state.at);
    const where = `in ${count(loaded.length)} loaded, not in the log`,
      found = at < 0 ? plural(this.hits.length, "event has it", "events have it") : `${at + 1} of ${this.hits.length}`;
    put(this.told, this.text ? `${found}, ${where}` : where);
  }

  walk(by) {
    if (!this.hits.length) return;
    const at = this.hits.indexOf(this.page.state.at),
      next = at < 0 ? (by > 0 ? 0 : this.hits.length - 1) : (at + by + this.hits.length) % this.hits.length;
    this.page.select(BigInt(this.hits[next]));
    this.refresh();
  }

  /** Mark the text where it is seen. What is marked is no part of the document: only its place is. */
  mark(node) {
    if (!globalThis.CSS?.highlights) return;
    const ranges = [];
    if (this.text) {
      const walker = document.createTreeWalker(node, NodeFilter.SHOW_TEXT);
      while (walker.nextNode()) {
        const { data } = /** @type {Text} */ (walker.currentNode),
          found = data.toLowerCase();
        for (let at = found.indexOf(this.text); at >= 0; at = found.indexOf(this.text, at + this.text.length)) {
          const range = new Range();
          const most = data.length; // small letters may be longer than what they are of
          range.setStart(walker.currentNode, Math.min(most, at));
          range.setEnd(walker.currentNode, Math.min(most, at + this.text.length));
          ranges.push(range);
        }
      }
    }
    CSS.highlights.set("found", new Highlight(...ranges));
  }

  close() {
    this.node.remove();
    globalThis.CSS?.highlights?.delete("found");
    this.page.finder = null;
    this.page.list?.redraw();
    this.page.list?.view.focus();
  }
}
