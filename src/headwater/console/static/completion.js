/* The field that adds to a query: it completes types, keys of tags, and tags, with their counts. */

import { count, get, h, logPath, put } from "./core.js";

/** The field; `change(index, kind, value, isOff)` is told what was chosen for that alternative. */
export function field(page, change, index) {
  const list = h("ul", { class: "complete", role: "listbox", hidden: true, id: "completions" }),
    input = (page.input = h("input", {
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
            page.log,
            `/terms?${new URLSearchParams({ kind, limit: String(limit), ...(prefix ? { prefix } : {}) })}`,
          ),
          page.leaving.signal,
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
    page.input.focus();
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
      const item = page.state.items.at(-1);
      const last = item && (item.exact.at(-1) ?? item.tags.at(-1) ?? item.types.at(-1));
      if (last) change(index, item.exact.length ? "exact" : item.tags.length ? "tags" : "types", last, true);
    }
  });
  return h("span", { class: "adding" }, input, list);
}
