/* The query of a log as chips: any of the types, all of the tags, and the same by other programs. */

import { choice, copy, dim, h, icon, keep, kept, put } from "./core.js";
import { completing, keyed, terms } from "./completion.js";
import { timeChip } from "./histogram.js";
import { pinned, pinning } from "./pins.js";
import { elsewhere } from "./query.js";
import { PAGE } from "./rows.js";

/** Draw the query of the page anew; `broken` is why the address has none that can be read. */
export function queryCard(page, broken) {
  const { items, order, range } = page.state,
    alternatives = items.length ? items : [{ types: [], tags: [], exact: [] }];
  const change = (kind, value, isOff, index = alternatives.length - 1) => {
    const next = alternatives.map((item) => ({
        types: [...item.types],
        tags: [...item.tags],
        exact: [...item.exact],
      })),
      list = next[index][kind];
    if (isOff) list.splice(list.indexOf(value), 1);
    else if (!list.includes(value)) list.push(value);
    page.set({ items: next.filter((item) => item.types.length + item.tags.length + item.exact.length), at: null });
  };
  page.change = change;
  page.add = (tag) => change(tag.includes(":") ? "tags" : "exact", tag);
  const chip = (kind, name, value, index) =>
    h(
      "span",
      { class: `chip ${kind === "types" ? "type" : ""}` },
      h("span", {}, name),
      h(
        "b",
        {},
        kind === "types" ? h("i", { class: `square ${page.colour(value)}` }) : null,
        kind === "types"
          ? value
          : name === "tag"
            ? value
            : value.slice(name.length + 1) || (kind === "tags" ? "any" : value),
      ),
      h("button", { "aria-label": `Without ${value}`, onclick: () => change(kind, value, true, index) }, icon("close")),
    );
  const key = (tag) => (tag.includes(":") ? tag.slice(0, tag.indexOf(":")) : tag);
  const parts = alternatives.map((item, index) => [
    index ? dim("or") : null,
    item.types.map((type, place) => [
      place ? dim("or") : null,
      chip("types", "type", type, index),
    ]),
    item.types.length && item.tags.length + item.exact.length ? dim("and") : null,
    item.tags.map((tag) => chip("tags", key(tag), tag, index)),
    item.exact.map((tag) => chip("exact", tag.includes(":") ? key(tag) : "tag", tag, index)),
    index === alternatives.length - 1 ? field(page) : null,
  ]);
  page.same ??= kept("headwater.same", "headwater");
  const known = { range: page.bounds, total: page.total },
    shown = elsewhere(page.log, items, { backwards: order === "newest", limit: PAGE, ...known }),
    chosen = shown[page.same] ?? shown.headwater;
  const [first, ...rest] = chosen[0].split(" ");
  const same = h(
    "div",
    { class: "same" },
    choice(
      "The same by",
      Object.keys(shown)
        .filter((name) => shown[name])
        .map((name) => [name, name]),
      page.same,
      (name) => {
        page.same = name;
        keep("headwater.same", name);
        page.query();
      },
    ),
    h("code", { title: chosen[0] }, dim(first), " ", rest.join(" ")),
    h(
      "button",
      { class: "plain", data: { copy: chosen[1] }, onclick: (event) => copy(chosen[1], event.currentTarget) },
      icon("copy"),
      "Copy",
    ),
  );
  page.followButton = h("button", { "aria-pressed": String(Boolean(page.tail)), onclick: () => page.follow() });
  page.followed();
  page.asked ??= h("div", { class: "query" }); // one for all redraws: what is typed into its field stays
  put(
    page.asked,
    dim("where"),
    parts,
    items.length ? h("button", { class: "plain", onclick: () => other(page) }, "Or\u2026") : null,
    pinning(page),
    range ? timeChip("recorded", range, () => page.set({ range: null })) : null,
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
        (next) => page.set({ order: next }),
      ),
      page.followButton,
    ),
  );
  put(
    page.asking,
    page.asked,
    range && !page.bounds ? null : same, // until it is known which numbers the range has
    pinned(page),
  );
}

/** One more alternative, to be filled. */
function other(page) {
  page.state.items.push({ types: [], tags: [], exact: [] });
  page.query();
  page.input?.focus();
}

/** The field that adds to the last alternative: it completes types, keys of tags, and tags. */
function field(page) {
  page.adding ??= completing({
    id: "completions",
    label: "Type or tag",
    placeholder: "+ Type or tag",
    look: async (text) => {
      const [types, keys, tags] = await Promise.all([
        text.includes(":") ? [] : terms(page, "type", text, 12),
        text.includes(":") ? [] : terms(page, "tag_key", text, 12),
        text ? terms(page, "tag", text, 20) : [],
      ]);
      return [
        ...types.map((each) => ({ kind: "types", text: each.term, about: "type, ", events: each.events })),
        ...keyed(keys),
        ...tags.map((each) => ({
          kind: each.term.includes(":") ? "tags" : "exact",
          text: each.term,
          about: "",
          events: each.events,
        })),
      ];
    },
    take: (each) => {
      page.input.value = "";
      page.change(each.kind, each.text);
    },
    typed: (text, found, took) =>
      took(
        found.find((each) => each.text === text && !each.goesOn) ??
          (text.endsWith(":")
            ? { kind: "tags", text: text.slice(0, -1) }
            : { kind: text.includes(":") ? "tags" : "types", text }),
      ),
    erase: () => {
      const item = page.state.items.at(-1);
      const last = item && (item.exact.at(-1) ?? item.tags.at(-1) ?? item.types.at(-1));
      if (last) page.change(item.exact.length ? "exact" : item.tags.length ? "tags" : "types", last, true);
    },
  });
  page.input = page.adding.input;
  return page.adding.node;
}
