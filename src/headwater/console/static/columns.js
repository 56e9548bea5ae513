/* Columns that somebody chose for a log, in this browser: a key of tags, or a member of the data. */

import { gap, h, icon, keep, kept, over, put } from "./core.js";
import { completing, terms } from "./completion.js";
import { members } from "./forms.js";

const MOST = 6,
  NAME_MOST = 200,
  MEMBERS = 100;
/** Bytes of the data of each event that a list asks for: a member may stand further behind than a preview reaches. */
const WIDE = 2048;

const key = (log) => `headwater.columns:${log}`;
const isColumn = (each) =>
  ["tag", "field"].includes(each?.kind) && typeof each.name === "string" && each.name.length <= NAME_MOST;

/** A list that is kept in this browser, as far as it is one: what else stands there is nobody's. */
export function keptList(name, isOne, most) {
  try {
    const found = JSON.parse(kept(name, "[]"));
    return Array.isArray(found) ? found.filter(isOne).slice(0, most) : [];
  } catch {
    return [];
  }
}

/** The columns of a log: [{kind, name}]; `kind` is `tag` (a key of tags) or `field` (a member of the data). */
export const columnsOf = (log) => keptList(key(log), isColumn, MOST);
/** How much of the data those columns need, where a preview has so many bytes. */
export const previewOf = (columns, preview) => (columns.some((each) => each.kind === "field") ? WIDE : preview);
/** Whether one of the columns shows this tag. */
export const isShown = (columns, tag) =>
  columns.some((each) => each.kind === "tag" && (tag === each.name || tag.startsWith(`${each.name}:`)));

/** Whether one of them shows this member of the data. */
export const isField = (columns, name) => columns.some((each) => each.kind === "field" && each.name === name);

/** What an event has in a column, as a text; null where it has nothing. */
export function valueOf(event, { kind, name }) {
  if (kind === "field") return members(event.data ?? "", MEMBERS).find(([each]) => each === name)?.[1] ?? null;
  const found = (event.tags ?? []).filter((tag) => tag === name || tag.startsWith(`${name}:`));
  return found.length ? found.map((tag) => tag.slice(name.length + 1) || tag).join(", ") : null;
}

/** Ask which columns there are to be. `rows` are events whose members are offered; `done` is called after a change. */
export function choosing(page, rows, done) {
  let chosen = columnsOf(page.log);
  const list = h("ul", { class: "chosen" });
  const change = (next) => {
    chosen = next;
    keep(key(page.log), JSON.stringify(next));
    draw();
    done();
  };
  const add = (kind, name) => {
    if (name && !chosen.some((each) => each.kind === kind && each.name === name))
      change([...chosen, { kind, name: name.slice(0, NAME_MOST) }].slice(-MOST));
    field.input.value = "";
  };
  const fields = () => {
    const counts = new Map();
    for (const { event } of rows)
      for (const [name] of members(event.data ?? "", MEMBERS)) counts.set(name, (counts.get(name) ?? 0) + 1);
    return [...counts];
  };
  const field = completing({
    id: "columns",
    label: "Tag key, or member of the data",
    placeholder: "Tag key, or member of the data",
    look: async (text) => [
      ...(await terms(page, "tag_key", text, 12)).map((each) => ({
        kind: "tag",
        text: each.term,
        about: "tag key, ",
        events: each.events,
      })),
      ...fields()
        .filter(([name]) => name.startsWith(text))
        .slice(0, 20)
        .map(([name, events]) => ({
          kind: "field",
          text: name,
          about: "member of the data, in loaded events ",
          events,
        })),
    ],
    take: (each) => add(each.kind, each.text),
    typed: (text, found) => add(found.find((each) => each.text === text)?.kind ?? "field", text),
  });
  const draw = () =>
    put(
      list,
      chosen.length
        ? chosen.map((each) =>
            h(
              "li",
              {},
              h("span", { class: "tag" }, each.name),
              h("span", { class: "dim small" }, each.kind === "tag" ? "tag key" : "member of the data"),
              h(
                "button",
                {
                  class: "plain small",
                  "aria-label": `Without ${each.name}`,
                  onclick: () => change(chosen.filter((other) => other !== each)),
                },
                icon("close"),
              ),
            ),
          )
        : h("li", { class: "dim" }, "None selected: tags and data are shown in full."),
    );
  const dialog = h(
    "dialog",
    { class: "columns", "aria-label": `Columns of ${page.log}` },
    h("h2", {}, `Columns of ${page.log}`),
    h("p", { class: "dim" }, `At most ${MOST}, stored in this browser, also for the stories of this log.`),
    list,
    field.node,
    h(
      "footer",
      {},
      h("kbd", {}, "Esc"),
      gap(),
      h("button", { onclick: () => dialog.close() }, "Done"),
    ),
  );
  draw();
  over(dialog);
  field.input.focus();
}
