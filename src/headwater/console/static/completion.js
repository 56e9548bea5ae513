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
    isMoved = false, // by an arrow, since the text is as it is
    waitsFor = null, // the text whose entries Enter or Tab waits for
    turn = 0,
    looked = Promise.resolve(found); // what completes the text that is there; null where the page was left
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
  const looking = () => {
    isMoved = false;
    looked = lookUp();
  };
  const lookUp = async () => {
    const asked = ++turn;
    let entries = [];
    try {
      entries = await look(input.value);
    } catch (problem) {
      if (problem.name === "AbortError") return null;
    }
    if (asked === turn) {
      const highlighted = isMoved ? found[chosen]?.text : undefined;
      found = entries;
      chosen = Math.max(
        0,
        found.findIndex((each) => each.text === highlighted),
      );
      draw();
    }
    return entries;
  };
  const forget = () => {
    turn += 1;
    found = [];
    draw();
  };
  const took = (each) => {
    if (each.goesOn) {
      input.value = each.text;
      looking();
      return;
    }
    forget();
    looked = Promise.resolve(found);
    take(each);
  };
  /** Do it once, with what is highlighted, or what is found for the text that is there; that may be on its way. */
  const soon = async (act) => {
    const text = input.value;
    if (waitsFor === text) return;
    waitsFor = text;
    const entries = isMoved ? found : await looked;
    if (waitsFor !== text) return; // Enter came again, for another text
    waitsFor = null;
    if (entries && input.value === text) act(entries, entries[chosen] ?? entries[0]);
  };
  const enter = (entries, first) => {
    const text = input.value;
    if (first && text && (chosen || first.text.startsWith(text))) took(first);
    else if (text.trim()) typed(text.trim(), entries, took);
  };
  input.addEventListener("input", looking);
  input.addEventListener("focus", looking);
  input.addEventListener("blur", forget);
  input.addEventListener("keydown", (event) => {
    if ((event.key === "ArrowDown" || event.key === "ArrowUp") && found.length) {
      chosen = (chosen + (event.key === "ArrowDown" ? 1 : found.length - 1)) % found.length;
      isMoved = true;
      draw();
      event.preventDefault();
    } else if (event.key === "Tab" && found.length && input.value) {
      event.preventDefault();
      soon((entries, first) => first && took(first));
    } else if (event.key === "Enter") {
      event.preventDefault();
      soon(enter);
    } else if (event.key === "Escape") {
      if (found.length) {
        forget();
        looked = Promise.resolve(found);
      } else input.blur();
      event.stopPropagation();
    } else if (event.key === "Backspace" && !input.value) {
      erase?.();
    }
  });
  return { node: h("span", { class: "adding" }, input, list), input };
}
