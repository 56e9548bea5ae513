/* Fields that complete what is typed: a list below, by mouse and by keyboard. What there is comes from who asks. */

import { count, get, h, logPath, put } from "./core.js";

/** The first terms of a log of that kind (`type`, `tag_key`, `tag`) that begin so: [{term, events}]. */
export async function terms(page, kind, prefix, limit) {
  const query = new URLSearchParams({ kind, limit: String(limit), ...(prefix ? { prefix } : {}) });
  return (await get(logPath(page.log, `/terms?${query}`), page.leaving.signal)).terms;
}

/** Keys of tags that begin so, as entries: to take one is to go on with its values. */
export const keyed = (keys) =>
  keys.map((each) => ({ kind: "key", text: `${each.term}:`, about: "key, ", events: each.events, goesOn: true }));

/** A field: {node, input}. `look(text)` promises entries: {text, about, events, kind, goesOn}; `take(entry)` is told of
    the one that is chosen, `typed(text, entries)` of a text that is none, `erase()` of Backspace without one.
    @param {{id: string, label: string, placeholder: string, look: (text: string) => Promise<any[]>,
    take: (entry: any, took: any) => any, typed: (text: string, entries: any[], took: any) => any,
    erase?: () => void}} how
    @returns {any} */
export function completing({ id, label, placeholder, look, take, typed, erase }) {
  const list = h("ul", { class: "complete", role: "listbox", hidden: true, id, "aria-label": label }),
    input = h("input", {
      placeholder,
      "aria-label": label,
      role: "combobox",
      "aria-expanded": "false",
      "aria-controls": id,
      autocomplete: "off",
      spellcheck: "false",
    });
  let found = [],
    chosen = 0,
    turn = 0,
    looked = Promise.resolve();
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
              took(each);
            },
          },
          h("span", { class: each.kind === "types" ? "" : "mono" }, each.text),
          h("b", {}, `${each.about}${count(each.events)}`),
        ),
      ),
    );
    list.querySelector('[aria-selected="true"]')?.scrollIntoView?.({ block: "nearest" });
  };
  const looking = () => (looked = lookUp());
  const lookUp = async () => {
    const asked = ++turn;
    try {
      const entries = await look(input.value);
      if (asked !== turn) return;
      found = entries;
      chosen = 0;
      draw();
    } catch (problem) {
      if (problem.name !== "AbortError") {
        found = [];
        draw();
      }
    }
  };
  const took = (each) => {
    if (each.goesOn) {
      input.value = each.text;
      looking();
      return;
    }
    found = [];
    draw();
    take(each);
  };
  /** Do it with what is found for the text that is there, which may still be on its way: who types fast means that. */
  const soon = (act) => {
    const asked = turn;
    looked.then(() => asked === turn && act());
  };
  const enter = () => {
    if (found.length && (chosen || found[0].text.startsWith(input.value)) && input.value) took(found[chosen]);
    else if (input.value.trim()) typed(input.value.trim(), found, took);
  };
  input.addEventListener("input", looking);
  input.addEventListener("focus", looking);
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
      soon(() => found.length && took(found[chosen]));
    } else if (event.key === "Enter") {
      event.preventDefault();
      soon(enter);
    } else if (event.key === "Escape") {
      if (found.length) {
        found = [];
        draw();
      } else input.blur();
      event.stopPropagation();
    } else if (event.key === "Backspace" && !input.value) {
      erase?.();
    }
  });
  return { node: h("span", { class: "adding" }, input, list), input };
}
