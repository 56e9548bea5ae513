/* An event in its forms: JSON by its tokens (a number is shown to the digit, never read as a double), CloudEvent,
   bytes. */

import { bytes, command, entityTypes, fetched, h, logPath, put, readEvents, shell, whole } from "./core.js";

export const SHOWN_BYTES = 256 * 1024;
const STRING = /"(?:[^"\\\u0000-\u001f]|\\.)*"/.source;
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/.source;
const TOKEN = new RegExp(`\\s*(?:(${STRING})|(${NUMBER})|(true|false|null)|([{}[\\],:]))`, "y");

/** The tokens of a JSON text: [text, kind]; null where it is none. Kinds: s (string), n, w (true, false, null), p. */
export function tokens(text) {
  const found = [];
  TOKEN.lastIndex = 0;
  while (TOKEN.lastIndex < text.length) {
    const match = TOKEN.exec(text);
    if (!match) break;
    found.push(
      match[1] !== undefined
        ? [match[1], "s"]
        : match[2] !== undefined
          ? [match[2], "n"]
          : match[3] !== undefined
            ? [match[3], "w"]
            : [match[4], "p"],
    );
    if (TOKEN.lastIndex === text.length) break;
  }
  const end = TOKEN.lastIndex;
  return found.length && (end === text.length || (end > 0 && !text.slice(end).trim())) ? found : null;
}

/** The first members of a JSON object that are no objects: [key, value as it is written]. Also of one that is cut. */
export function members(text, most = 4) {
  const found = [];
  let depth = 0,
    key = null;
  TOKEN.lastIndex = 0;
  while (found.length < most) {
    const match = TOKEN.exec(text);
    if (!match) break;
    const part = match[4];
    if (part === "{" || part === "[") {
      depth += 1;
      key = null;
      if (depth === 1 && part === "[") return [];
    } else if (part === "}" || part === "]") {
      depth -= 1;
      key = null;
    } else if (part === ",") key = depth === 1 ? null : key;
    else if (depth === 1 && key === null && match[1] !== undefined) key = unquote(match[1]);
    else if (depth === 1 && key !== null && part === undefined)
      found.push([key, match[1] !== undefined ? unquote(match[1]) : match[0].trim()]);
    else if (depth === 0) return [];
  }
  return found;
}
function unquote(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** A text as it is, over its own lines. */
export const plain = (text) =>
  h(
    "pre",
    { class: "data", tabindex: "0" },
    text.split("\n").map((each) => h("span", {}, each.replace(/\r$/, "").replace(/\t/g, "  ") || "\u00a0")),
  );

/** Levels of JSON that are indented, each by two characters: below them lines begin where that level does. */
const INDENTED = 24;
/** JSON that is nested deeper than that is no document that somebody reads over lines: it is shown as it is. */
const NESTED = 100;

const isNestedTooDeep = (found) => {
  let depth = 0;
  return found.some(([part, kind]) => {
    if (kind === "p") depth += part === "{" || part === "[" ? 1 : part === "}" || part === "]" ? -1 : 0;
    return depth > NESTED;
  });
};

/** A JSON text over lines, as nodes: one for each line. What is short stays on one line. */
export function pretty(text) {
  const found = tokens(text);
  if (!found || isNestedTooDeep(found)) return [...plain(text).childNodes];
  const lines = [];
  let now = [],
    depth = 0;
  const next = () => {
    lines.push(line(now));
    now = [["  ".repeat(Math.max(0, Math.min(depth, INDENTED))), ""]];
  };
  found.forEach(([part, kind], at) => {
    const after = found[at + 1]?.[0],
      before = found[at - 1]?.[0];
    if (part === "}" || part === "]") {
      depth -= 1;
      if (before !== "{" && before !== "[") next();
      now.push([part, ""]);
    } else if (part === "{" || part === "[") {
      now.push([part, ""]);
      depth += 1;
      if (after !== "}" && after !== "]") next();
    } else if (part === ",") {
      now.push([part, ""]);
      next();
    } else if (part === ":") now.push([": ", ""]);
    else now.push([part, kind === "s" ? (after === ":" ? "k" : "s") : "v"]);
  });
  lines.push(line(now));
  return lines;
}
const line = (parts) =>
  h(
    "span",
    {},
    parts.map(([text, kind]) => (kind ? h("span", { class: kind }, text) : text)),
    parts.some(([text]) => text) ? null : "\u00a0",
  );

/** Bytes as a dump: offset, hexadecimal, characters. */
export function hex(array) {
  const lines = [];
  for (let at = 0; at < Math.min(array.length, 16 * 1024); at += 16) {
    const row = [...array.slice(at, at + 16)];
    lines.push(
      `${at.toString(16).padStart(6, "0")}  ${row
        .map((byte) => byte.toString(16).padStart(2, "0"))
        .join(" ")
        .padEnd(48)} ${row.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : ".")).join("")}`,
    );
  }
  return h(
    "pre",
    { class: "data hex" },
    lines.map((each) => h("span", {}, each)),
    array.length > 16 * 1024 ? `\u2026 ${bytes(array.length - 16 * 1024)} more` : null,
  );
}

export function bytesOf(event) {
  if (event.data_base64 !== undefined) return Uint8Array.from(atob(event.data_base64), (char) => char.charCodeAt(0));
  return new TextEncoder().encode(event.data ?? "");
}

/** How large the data are, also where only their beginning is here. */
export const sizeOf = (event) => Number(event.data_bytes ?? bytesOf(event).length);

/** An event as the server has it: {event, sequence_number, recorded_at}; null where there is none of that number. */
export async function one(log, number, ending, most = SHOWN_BYTES) {
  const body = { query: { all: true }, from: BigInt(number), limit: 1, ...(most ? { data_bytes_max: most } : {}) },
    [found] = await readEvents(log, body, ending);
  return found && BigInt(found.sequence_number) === BigInt(number) ? found : null;
}

/** The CloudEvent of an event, as its text. */
async function cloudEvent(log, number, ending) {
  const answer = await fetched("POST", logPath(log, "/read"), {
    accept: "application/cloudevents+json",
    body: { query: { all: true }, from: BigInt(number), limit: 1 },
    signal: ending,
  });
  const text = (await answer.text()).trim();
  whole(text);
  return text.replace(/^\[/, "").replace(/\]$/, "");
}

/** The command that reads one form of an event, however large it is. */
function asked(log, number, form) {
  const path = logPath(log, `/events/${number}?form=${form}`);
  return command(shell("curl", "-s", path), shell("curl", "-s", `${location.origin}${path}`));
}

const cut = (found, whole) =>
  h(
    "p",
    { class: "empty small" },
    `${bytes(SHOWN_BYTES)} of ${bytes(sizeOf(found.event))} are shown.`,
    h("button", { class: "small", onclick: whole }, "Show all of it, as text"),
  );

/** The forms that an event has, by name: each fills a node. Those of other protocols are there where the server
   gives them. */
export async function forms(log, found, ending, { numbered = false } = {}) {
  const { event } = found,
    number = found.sequence_number,
    isCut = event.data_bytes !== undefined && Number(event.data_bytes) > bytesOf(event).length;
  const code = (nodes) => h("pre", { class: `data ${numbered ? "numbered" : ""}`, tabindex: "0" }, nodes);
  const tooLarge = (form) =>
    sizeOf(event) > SHOWN_BYTES
      ? h(
          "div",
          { class: "empty" },
          h("p", {}, `It has ${bytes(sizeOf(event))} of data: this command reads it.`),
          asked(log, number, form),
        )
      : null;
  const shown = {
    Data: async (node) => {
      const whole = async () => {
        const all = await one(log, number, ending, 0);
        put(node, plain(all.event.data ?? all.event.data_base64));
      };
      if (!sizeOf(event)) put(node, h("p", { class: "empty" }, "It has no data."));
      else if (event.data === undefined)
        put(node, h("p", { class: "empty small" }, `${bytes(sizeOf(event))} that are not UTF-8:`), hex(bytesOf(event)));
      else put(node, isCut ? [cut(found, whole), plain(event.data)] : code(pretty(event.data)));
    },
    CloudEvent: async (node) =>
      put(node, tooLarge("cloudevent") ?? code(pretty(await cloudEvent(log, number, ending)))),
  };
  if ((await entityTypes(ending)).has("reader")) {
    for (const [name, form] of [
      ["AMQP", "amqp"],
      ["FutoIn", "futoin"],
    ]) {
      shown[name] = async (node) => {
        const path = logPath(log, `/events/${number}?form=${form}`),
          instead = tooLarge(form);
        put(node, instead ?? code(pretty(await (await fetched("GET", path, { signal: ending })).text())));
      };
    }
  }
  shown.Hex = async (node) =>
    put(node, hex(bytesOf(event)), isCut ? h("p", { class: "empty small" }, "Only the beginning is shown.") : null);
  return shown;
}

/** Tabs over the forms of an event, and what stands beside them; `chosen` is kept by `pick`. A form that comes after
   another was chosen is not shown. */
export function formTabs(all, chosen, pick, failed, beside = null) {
  const body = h("div", { role: "tabpanel" }),
    bar = h("div", { role: "tablist", "aria-label": "Forms" });
  let last;
  const open = async (name) => {
    const form = (last = h("div"));
    for (const each of bar.children)
      each.setAttribute("aria-selected", String(each.getAttribute("data-name") === name));
    try {
      await all[name](form);
    } catch (problem) {
      if (problem.name === "AbortError") return;
      put(form, failed(problem));
    }
    if (form === last) put(body, form);
  };
  put(
    bar,
    Object.keys(all).map((name) =>
      h(
        "button",
        {
          role: "tab",
          data: { name },
          onclick: () => {
            pick(name);
            open(name);
          },
        },
        name,
      ),
    ),
  );
  open(all[chosen] ? chosen : "Data");
  return [h("div", { class: "tabs" }, bar, beside), body];
}
