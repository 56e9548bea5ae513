/* What every page stands on: signals, nodes, texts of numbers and times, and the calls to the server.
   Nothing here knows a page. Names of others are texts, never markup: only nodes and textContent are made. */

// ---- Signals: a value that those who read it are told of -------------------------------------------------------

/** @typedef {{read: Set<Set<any>>, run: () => void}} Running */
/** @type {Running | null} */
let running = null;

/**
 * @template T
 * @typedef {{value: T, peek: () => T}} Signal
 */
/** @template T @param {T} value @returns {Signal<T>} */
export function signal(value) {
  const readers = new Set();
  return {
    get value() {
      if (running) {
        readers.add(running);
        running.read.add(readers);
      }
      return value;
    },
    set value(next) {
      if (Object.is(next, value)) return;
      value = next;
      for (const each of [...readers]) each.run();
    },
    peek: () => value,
  };
}

/** Run now, and again whenever a signal that was read has changed. What is returned ends it.
    @param {() => void} run
    @returns {() => void} */
export function effect(run) {
  const own = {
    read: new Set(),
    run() {
      for (const readers of own.read) readers.delete(own);
      own.read.clear();
      const before = running;
      running = own;
      try {
        run();
      } finally {
        running = before;
      }
    },
  };
  own.run();
  return () => {
    for (const readers of own.read) readers.delete(own);
    own.read.clear();
  };
}

// ---- Nodes -------------------------------------------------------------------------------------------------------

const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

/** A text of others as it may be shown: what cannot be seen, or turns the direction of text, becomes a symbol. */
export function clean(text) {
  return String(text).replace(HIDDEN, (char) => {
    const code = char.codePointAt(0);
    return code < 32
      ? String.fromCodePoint(0x2400 + code)
      : code === 127
        ? "\u2421"
        : `\u27e8${code.toString(16)}\u27e9`;
  });
}

const nodesOf = (children) =>
  children
    .flat(Infinity)
    .filter((each) => each !== null && each !== undefined && each !== false)
    .map((each) => (each instanceof Node ? each : document.createTextNode(clean(each))));

function fill(node, children) {
  for (const each of nodesOf(children)) node.append(each);
  return node;
}

/** An element. `properties`: `class`, `on...` (listeners), `data`, anything else an attribute (true: without value).
    @template {string} K
    @param {K} name
    @param {Record<string, any>} [properties]
    @param {...any} children
    @returns {K extends keyof HTMLElementTagNameMap ? HTMLElementTagNameMap[K] : any} */
export function h(name, properties = {}, ...children) {
  const node = document.createElement(name);
  set(node, properties);
  return fill(node, children);
}

/** @param {string} name @param {Record<string, any>} [properties] @param {...any} children @returns {any} */
export function svg(name, properties = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  set(node, properties);
  return fill(node, children);
}

function set(node, properties) {
  for (const [key, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "data") Object.assign(node.dataset, value);
    else if (key === "value" || key === "checked" || key === "disabled") node[key] = value;
    else if (key !== "style") node.setAttribute(key, value === true ? "" : clean(value));
  }
}

/** @type {Node | null} */
let pressed = null;
/** What is to be shown as soon as no button is held down on it: a click must end on what it began on. */
const deferred = new Map();
addEventListener(
  "pointerdown",
  (event) => {
    pressed = /** @type {Node} */ (event.target);
  },
  true,
);
addEventListener(
  "click",
  () => {
    pressed = null;
  },
  true,
); // what the click itself changes is shown at once
for (const type of ["pointerup", "pointercancel"]) {
  addEventListener(
    type,
    () =>
      setTimeout(() => {
        pressed = null;
        for (const [node, children] of [...deferred]) if (deferred.delete(node)) put(node, ...children);
      }),
    true,
  );
}

/** Show these children instead of those that are there; a node that is among both is not touched, so that what is typed
    into it goes on. What else was focused is so again, if there is the same in its place. */
export function put(node, ...children) {
  if (pressed && node.contains(pressed)) {
    deferred.set(node, children);
    return node;
  }
  deferred.delete(node);
  const active = /** @type {any} */ (document.activeElement),
    path = [];
  if (active !== node && active?.matches("a, button, [tabindex]") && node.contains(active))
    for (/** @type {any} */ let at = active; at !== node; at = at.parentNode)
      path.unshift([...at.parentNode.childNodes].indexOf(at));
  const next = nodesOf(children),
    staying = new Set(next);
  for (const each of [...node.childNodes]) if (!staying.has(each)) each.remove();
  next.forEach((each, index) => {
    const there = node.childNodes[index] ?? null;
    if (there !== each) node.insertBefore(each, there);
  });
  if (node.contains(active)) return node;
  const again = path.reduce((at, index) => at?.childNodes[index], node);
  if (path.length && again?.tagName === active.tagName && again.className === active.className)
    again.focus({ preventScroll: true });
  return node;
}

export function icon(name, label) {
  const use = svg("use");
  use.setAttribute("href", `#i-${name}`);
  return svg(
    "svg",
    {
      class: "icon",
      viewBox: "0 0 16 16",
      ...(label ? { role: "img", "aria-label": label } : { "aria-hidden": "true" }),
    },
    use,
  );
}

/** A page or a part of one: an element that ends its calls, its clocks and its effects when it is taken away. */
export class View extends HTMLElement {
  /** What the address says beside the page: `{log, number, kind}`, as far as it has them. @type {any} */
  params = {};

  connectedCallback() {
    this.leaving = new AbortController();
    this.ends = [];
    this.show();
  }

  disconnectedCallback() {
    this.leaving.abort();
    for (const end of this.ends) end();
    this.ends = [];
  }

  /** Build what is shown; called when this is put into the page. */
  show() {}

  /** Do it now, and whenever a signal that it reads has changed, while this is shown. */
  watch(run) {
    this.ends.push(effect(run));
  }

  on(target, type, listener) {
    target.addEventListener(type, listener, { signal: this.leaving.signal });
  }

  /** Do it now and every so many ms, while this is shown and somebody can see it. Failures are given to `failed`.
      @param {number} ms
      @param {(ending: AbortSignal) => any} work
      @param {(problem: any) => void} [failed] */
  every(ms, work, failed) {
    let timer = 0,
      ended = false;
    const once = async () => {
      clearTimeout(timer);
      if (document.visibilityState === "visible") {
        try {
          await work(this.leaving.signal);
        } catch (error) {
          if (!ended && error.name !== "AbortError") failed?.(error);
        }
      }
      if (!ended) timer = setTimeout(once, ms);
    };
    this.ends.push(() => {
      ended = true;
      clearTimeout(timer);
    });
    this.on(document, "visibilitychange", () => {
      if (document.visibilityState === "visible") once();
    });
    once();
    return once;
  }
}

// ---- Numbers and times as they are shown ---------------------------------------------------------------------

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
export const NOTHING = "\u2013";

/** A whole number (also a BigInt), grouped; what is not known is "?". */
export function count(number) {
  if (number === null || number === undefined) return "?";
  return grouped.format(typeof number === "bigint" ? number : Math.round(number));
}

export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${Number(number) === 1 ? one : many}`;
}

/** A rate: whole from 10 on. */
export function rate(number) {
  if (number === null || number === undefined || Number.isNaN(number)) return "?";
  if (number === 0) return "0";
  if (number < 0.05) return "under 0.1";
  return number < 9.95 ? String(Math.round(number * 10) / 10) : count(number);
}

/** A large number in short: 36.4 M. */
export function short(number) {
  if (number >= 1e9) return `${Math.round(number / 1e8) / 10} G`;
  if (number >= 1e6) return `${Math.round(number / 1e5) / 10} M`;
  return count(number);
}

const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];

/** A size: [number, unit], decimal. */
export function sized(bytes) {
  if (bytes === null || bytes === undefined) return ["?", ""];
  let value = Number(bytes),
    unit = 0;
  while (value >= 999.5 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return [
    value < 9.95 && unit > 0
      ? String(Math.round(value * 10) / 10)
      : value < 99.95 && unit > 2
        ? String(Math.round(value * 10) / 10)
        : String(Math.round(value)),
    UNITS[unit],
  ];
}
export const bytes = (value) => sized(value).join(" ").trim();

/** How long: two units at most. */
export function lasting(ms) {
  if (ms === null || ms === undefined) return "?";
  const s = ms / 1000;
  if (s < 1) return ms <= 0 ? "0 s" : "under 1 s";
  if (s < 9.95) return `${Math.round(s * 10) / 10} s`;
  if (s < 59.5) return `${Math.round(s)} s`;
  const minutes = s / 60;
  if (minutes < 9.95) return `${Math.round(minutes * 10) / 10} min`;
  if (minutes < 59.5) return `${Math.round(minutes)} min`;
  const whole = Math.round(minutes),
    hours = Math.floor(whole / 60);
  if (hours < 24) return `${hours} h${whole % 60 ? ` ${whole % 60} min` : ""}`;
  const days = Math.floor(hours / 24);
  return days < 10 && hours % 24 ? `${days} d ${hours % 24} h` : `${days} d`;
}

const kept = (key, otherwise) => {
  try {
    return localStorage.getItem(key) ?? otherwise;
  } catch {
    return otherwise;
  }
};
const keep = (key, value) => {
  try {
    localStorage.setItem(key, value);
  } catch {
    /* a browser that keeps nothing: the choice lasts as long as the page */
  }
};
export { kept, keep };

/** Whether times are shown in UTC, or as this browser's own. */
export const utc = signal(kept("headwater.utc", "1") === "1");

function parts(ms) {
  const date = new Date(ms);
  const shifted = utc.value ? date : new Date(ms - date.getTimezoneOffset() * 60000);
  return Number.isNaN(shifted.getTime()) ? null : shifted.toISOString();
}
export const zone = () => (utc.value ? "UTC" : "local");
export function clock(ms, withMs = false) {
  const text = parts(ms);
  return text === null ? "?" : text.slice(11, withMs ? 23 : 19);
}
export function minute(ms) {
  const text = parts(ms);
  return text === null ? "?" : text.slice(11, 16);
}
export function day(ms) {
  const text = parts(ms);
  return text === null ? "?" : text.slice(0, 10);
}
export function stamp(ms) {
  const text = parts(ms);
  return text === null ? "?" : `${text.slice(0, 10)} ${text.slice(11, 19)}`;
}
/** The ms of a time that was typed: in the zone in which times are shown, unless it names one. NaN for what is none. */
export function typedTime(text) {
  const found = /^(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d[\d:.]*))?\s*(Z|UTC|local|[+-]\d\d:\d\d)?$/i.exec(text.trim());
  if (!found) return NaN;
  const [, date, hour = "00:00", named = zone()] = found;
  return Date.parse(`${date}T${hour}${named.replace(/utc/i, "Z").replace(/local/i, "")}`);
}
/** What a field says that takes a number or a time. */
export const numberOrTime = () => `number, or 2026-01-31 12:00 ${zone()}`;
/** A time as a table has it: the day where it is not today's. */
export function when(ms) {
  if (ms === null || ms === undefined) return NOTHING;
  return day(ms) === day(Date.now()) ? clock(ms) : `${day(ms).slice(5)} ${minute(ms)}`;
}
/** A time in the words of a sentence, with all of it on hover. */
export const time = (ms, text = when(ms)) => h("time", { title: ms ? `${stamp(ms)} ${zone()}` : null }, text);

// ---- The server -------------------------------------------------------------------------------------------------

/** A problem document, or what kept the server from sending one. */
export class Problem extends Error {
  constructor(status, body) {
    super(body.detail ?? body.title ?? `the server answered ${status}`);
    this.status = status;
    this.body = body;
    this.title = body.title ?? (status ? `The server answered ${status}` : "The server does not answer");
    this.code = String(body.type ?? "")
      .split(":")
      .pop();
  }
}

/** Since when the server does not answer; null while it does. @type {Signal<number | null>} */
export const away = signal(null);
/** What it said, where it answers that it cannot: that it stops, or has no place. @type {Signal<string>} */
export const awayWhy = signal("");
/** Who asks, as `GET /console/session` says; null while that is not known. @type {Signal<any>} */
export const who = signal(null);
/** Whether somebody must log in before anything is shown. */
export const loggedOut = signal(false);

const WIDE = /\d{16,}/;

/** A number as JSON has it, to the digit. */
const rawJson = (text) => /** @type {any} */ (JSON).rawJSON(text);

/** The JSON of a value, BigInt as a number to the digit. */
export const inJson = (value) =>
  JSON.stringify(value, (key, each) => (typeof each === "bigint" ? rawJson(String(each)) : each));

/** JSON whose whole numbers are BigInt where a double would not be exact. */
export function parse(text) {
  if (!WIDE.test(text)) return JSON.parse(text);
  return /** @type {any} */ (JSON).parse(text, (key, value, context) =>
    typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? "")
      ? BigInt(context.source)
      : value,
  );
}

let secret = "1";
/** Keep the second secret of a session, for all windows if the browser keeps anything; without one, forget it. */
export function keepSecret(next = "1") {
  secret = next;
  keep("headwater.session", next);
}

/** The answer to a request, whose status is 2xx. Raises Problem.
    @param {string} method
    @param {string} path
    @param {{body?: any, accept?: string, signal?: AbortSignal}} [how]
    @returns {Promise<Response>} */
export async function fetched(method, path, { body, accept, signal: ending } = {}) {
  const headers = { "Headwater-Console": kept("headwater.session", secret) };
  if (accept) headers.Accept = accept;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = method === "GET" ? await begun(path) : null;
    answer ??= await fetch(path, {
      method,
      headers,
      signal: ending,
      credentials: "same-origin",
      cache: "no-store",
      body: body === undefined ? undefined : inJson(body),
    });
  } catch (error) {
    if (ending?.aborted || error.name === "AbortError") throw error;
    away.value ??= Date.now();
    throw new Problem(0, {
      title: "The server does not answer",
      detail: "The server or the network is down. This page retries by itself.",
    });
  }
  if (answer.ok) return answer;
  if (answer.status === 401) {
    if (headers["Headwater-Console"] === kept("headwater.session", secret)) keepSecret();
    loggedOut.value = true;
  }
  let found;
  try {
    found = parse(await answer.text());
  } catch {
    found = {};
  }
  throw new Problem(answer.status, found);
}

/** The JSON of an answer. */
export async function ask(method, path, body, ending) {
  const answer = await fetched(method, path, { body, signal: ending, accept: "application/json" });
  return answer.status === 204 ? null : whole(await answer.text());
}
export const get = (path, ending) => ask("GET", path, undefined, ending);

/** The events that a read of a log answers, as the server has them, with the `head` that bounded it.
    @param {string} log
    @param {Record<string, any>} body as `POST /logs/{log}/read` takes it
    @param {AbortSignal} [ending]
    @returns {Promise<any[] & {head: string | null}>} */
export async function readEvents(log, body, ending) {
  const answer = await fetched("POST", logPath(log, "/read"), { body, signal: ending, accept: LINES }),
    lines = (await answer.text()).split("\n").filter(Boolean);
  if (!isEnd(lines.pop())) throw brokenOff();
  return Object.assign(lines.map(parse), { head: answer.headers.get("Headwater-Head") });
}

/** Events as lines, with one more at their end: a proxy may end an answer that broke off as if it were whole. */
export const LINES = "application/x-ndjson;end=line";
/** @param {string | undefined} line the last one of such an answer */
export const isEnd = (line) => /^\{"end":\d+\}$/.test(line ?? "");
export const brokenOff = () =>
  new Problem(0, {
    title: "The answer was cut off",
    detail: "Only a part arrived. The server or the network is down: try again.",
  });

/** The value of a text that is JSON, whole. Raises Problem. */
export function whole(text) {
  try {
    return parse(text);
  } catch {
    throw brokenOff();
  }
}

/** What was asked for while this page was loaded (`early.js`): each is taken once. */
const early = /** @type {any} */ (window).headwaterBegun;

/** @returns {Promise<Response | null> | null} */
function begun(path) {
  const found = early.answers[path] ?? null;
  delete early.answers[path];
  return found;
}

export const segment = encodeURIComponent;
export const logPath = (log, rest = "") => `/logs/${segment(log)}${rest}`;

/** Entities as objects; `total` is how many there are, also of those that were not asked for.
    @returns {any[] & {total?: number}} */
const objects = (/** @type {any} */ found) =>
  Object.assign(
    found.results.map((row) => Object.fromEntries(found.attributeNames.map((name, at) => [name, row[at]]))),
    { total: found.total },
  );
/** How many entities are not in a list that has the first thousand of them. */
const beyond = (list) => Math.max(0, Number(list?.total ?? 0) - list?.length || 0);
/** How many of them there are; where the list has only the first ones, it says so. */
export const howMany = (list, one, many = `${one}s`) =>
  beyond(list)
    ? `first ${count(list.length)} of ${plural(list.length + beyond(list), one, many)}; filters cover only those`
    : plural(list.length, one, many);
/** The same, only where the list has the first ones alone. */
export const firstOf = (list, one) => (beyond(list) ? h("span", {}, howMany(list, one)) : null);

/** Entities of the management catalogue, as objects.
    @param {string} type
    @param {{filter?: string, attributes?: string[], count?: number, signal?: AbortSignal}} [how]
    @returns {Promise<any[] & {total?: number}>} */
export async function entities(type, { filter, attributes, count: most = 1000, signal: ending } = {}) {
  const query = new URLSearchParams({ count: String(most) });
  if (filter) query.set("filter", filter);
  if (attributes) query.set("attributes", attributes.join(","));
  return objects(await get(`/management/${type}?${query}`, ending));
}

/** Those of several types, by the last word of each type; a type is not there that this server has not.
    @param {string[]} types
    @returns {Promise<Record<string, any[]>>} */
async function entitiesOf(types, ending) {
  const found = await get(`/management?types=${types.join(",")}&count=1000`, ending);
  return Object.fromEntries(
    Object.entries(found.entities).map(([type, each]) => [type.split(".").pop(), objects(each)]),
  );
}

let types = null;
/** The types of entities that this server has, by their last word. Asked once. */
export async function entityTypes(ending) {
  types ??= new Set(Object.keys((await get("/management", ending)).types).map((name) => name.split(".").pop()));
  return types;
}

/** Whether the user has a right: on a log, or on the server ("*"). The server decides; this hides what it would
   refuse. */
export function may(right, log = "*") {
  const user = who.value;
  if (!user) return false;
  if (log === "*") return user.server.includes(right);
  if (log.startsWith("$")) return right !== "append" && user.server.includes("manage");
  return user.grants.some((grant) => grant.rights.includes(right) && matches(grant.logs, log));
}
/** Whether the page may show an act that takes that right. */
export const mayAct = (right, log) => !who.value?.console?.read_only && may(right, log);

function matches(pattern, name) {
  let expression = "";
  for (let at = 0; at < pattern.length; at += 1) {
    const char = pattern[at];
    const end = char === "[" ? pattern.indexOf("]", at + 2) : -1;
    if (char === "*") expression += ".*";
    else if (char === "?") expression += ".";
    else if (end > 0) {
      expression += `[${pattern
        .slice(at + 1, end)
        .replace(/^!/, "^")
        .replace(/\\/g, "\\\\")}]`;
      at = end;
    } else expression += char.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&");
  }
  return new RegExp(`^${expression}$`, "s").test(name);
}

// ---- What goes on: one stream for the whole page -------------------------------------------------------------

/** The newest numbers, with those of the second before; null until the first have come. @type {Signal<any>} */
export const stats = signal(null);
/** What happened since this page was opened, newest first. @type {Signal<any[]>} */
export const happenings = signal([]);
export const HAPPENINGS_KEPT = 500;
/** Called with each message of events of the logs that are followed. */
export const tails = new Set();
let followed = "",
  streaming = null,
  stopped = true,
  retryMs = 1000;

/** So long a window may be hidden before it ends its streams: a browser has few connections to a server. */
const HIDDEN_MS = 30_000;

/** Call `leave` whenever the window has been hidden for that long.
    @param {() => void} leave
    @param {AbortSignal} [ending] */
export function whenHidden(leave, ending) {
  let timer = 0;
  const changed = () => {
    clearTimeout(timer);
    if (document.visibilityState === "hidden") timer = setTimeout(leave, HIDDEN_MS);
  };
  document.addEventListener("visibilitychange", changed, { signal: ending });
  ending?.addEventListener("abort", () => clearTimeout(timer));
  changed();
}

/** When the window is to be seen, at once if it is; also when `ending` comes.
    @param {AbortSignal} ending
    @returns {Promise<void>} */
export const shown = (ending) =>
  new Promise((resolve) => {
    const look = () => {
      if (document.visibilityState !== "visible" && !ending.aborted) return;
      document.removeEventListener("visibilitychange", look);
      resolve();
    };
    document.addEventListener("visibilitychange", look);
    ending.addEventListener("abort", look, { once: true });
    look();
  });

/** Follow these logs as well (replaces those before). */
export function follow(...logs) {
  const wanted = logs.join(",");
  if (wanted === followed) return;
  followed = wanted;
  streaming?.abort("anew");
}

export function startStream() {
  if (!stopped) return;
  stopped = false;
  whenHidden(() => streaming?.abort("hidden"));
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "hidden") return;
    if (!streaming) run();
    else retryNow?.();
  });
  run();
}
export function restartStream() {
  retryMs = 1000;
  streaming?.abort("anew");
  retryNow?.();
}
let retryNow = null;

async function run() {
  while (document.visibilityState === "visible" && !loggedOut.peek()) {
    const path = `/console/stream${followed ? `?log=${segment(followed)}` : ""}`;
    const isBegun = path in early.answers;
    if (!isBegun) early.ending.abort(); // this page follows logs: it is another stream
    streaming = isBegun ? early.ending : new AbortController();
    try {
      const answer = await fetched("GET", path, { signal: streaming.signal });
      away.value = null;
      awayWhy.value = "";
      retryMs = 1000;
      await read(answer.body.getReader());
      away.value ??= Date.now();
    } catch (error) {
      if (streaming.signal.reason === "anew") continue;
      if (streaming.signal.reason === "hidden") break;
      if (error instanceof Problem && error.status === 404 && followed) {
        followed = "";
        continue;
      }
      away.value ??= Date.now();
      if (error instanceof Problem) awayWhy.value = error.status ? error.message : "";
      if (error instanceof Problem && error.status === 401) break;
    }
    await new Promise((resolve) => {
      retryNow = resolve;
      setTimeout(resolve, retryMs);
    });
    retryNow = null;
    retryMs = Math.min(15000, retryMs * 2);
  }
  streaming = null;
}

/** Parse Server-Sent Events (HTML standard, 9.2.6), as far as this server sends them. */
async function read(reader) {
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += decoder.decode(value, { stream: true });
    const blocks = rest.split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) take(block);
  }
}

function take(block) {
  let kind = "message",
    data = "";
  for (const line of block.split("\n")) {
    if (line.startsWith("event: ")) kind = line.slice(7);
    else if (line.startsWith("data: ")) data += line.slice(6);
  }
  if (!data) return;
  const found = parse(data);
  if (kind === "stats") {
    const before = stats.peek();
    found.before = before && found.at > before.at ? { at: before.at, logs: before.logs, server: before.server } : null;
    stats.value = found;
  } else if (kind === "happening") {
    happenings.value = [found, ...happenings.peek()].slice(0, HAPPENINGS_KEPT);
  } else if (kind === "tail") {
    for (const listener of tails) listener(found);
  }
}

/** What a trim of a whole log would do now, without doing it: it says who holds back what. */
export const heldBack = (log, head, ending) =>
  ask("POST", logPath(log, "/trim"), { below: BigInt(head) + 1n, dry_run: true }, ending);

/** What a counter grew by in a second, of the newest two measurements; null where that is not known. */
export function grown(now, log, name) {
  if (!now?.before) return null;
  const [a, b] = log === null ? [now.before.server, now.server] : [now.before.logs[log], now.logs[log]];
  return a && b ? Math.max(0, Number(b[name]) - Number(a[name])) / ((now.at - now.before.at) / 1000) : null;
}

/** Series of the last while, by name: {step_s, newest_at, series}. */
export async function history(names, hours, ending) {
  const step = hours > 1 ? 60 : 5,
    found = { step_s: step, newest_at: 0, series: {} };
  for (let at = 0; at < names.length; at += 32) {
    const query = new URLSearchParams({ series: names.slice(at, at + 32).join(","), step: String(step) });
    const part = await get(`/console/history?${query}`, ending);
    found.newest_at = part.newest_at;
    const steps = Math.round((hours * 3600) / step);
    for (const [name, values] of Object.entries(part.series)) found.series[name] = values.slice(-steps);
  }
  return found;
}

/** The name of the series of how far behind a consumer is, in s. */
export function lagSeries({ kind, name, log }) {
  const before = kind === "registered" ? "" : kind === "webhook" ? `webhook:${log}/` : `${kind}:`;
  return `${before}${name.replaceAll(",", "%2C")}/lag_seconds`;
}

/** How far behind consumers were in the last hour, by their keys, as far as the server measured it. */
export async function lagsLately(consumers, ending) {
  const keys = new Map(consumers.map((each) => [lagSeries(each), each.key]));
  const known = (await get("/console/history", ending)).series.filter((name) => keys.has(name));
  const found = await history(known, 1, ending);
  return { ...found, of: new Map(known.map((name) => [keys.get(name), found.series[name]])) };
}

// ---- What there is: logs, and everybody who has a position -------------------------------------------------------

/** What a survey asks for; what the user may not see is left out by the server. `early.js` begins the first one. */
const SERVERS = "homeServer",
  SURVEYED = /** @type {string[]} */ (early.surveyed);
/** The newest survey; null until there is one: {at, logs, consumers, webhooks, server, troubles, clients}.
    @type {Signal<any>} */
export const world = signal(null);
/** Why the last one failed; null if it did not. @type {Signal<Problem | null>} */
export const unsurveyed = signal(null);
/** Of each consumer what was seen since this page was opened: [ms, ms behind, position]. */
export const trends = new Map();
const TREND_KEPT = 720;

/** Have all of it asked for anew, now. */
export const surveyNow = () => dispatchEvent(new Event("headwater:survey"));
/** Ask for all of it once. What the user has no right to is empty. */
export async function survey(ending) {
  const types = world.peek() && !world.peek().servers.length ? SURVEYED.filter((each) => each !== SERVERS) : SURVEYED;
  const [of, ready] = await Promise.all([entitiesOf(types, ending), readiness(ending)]);
  const found = {
    logs: of.log ?? [],
    registered: of.consumer ?? [],
    groups: of.consumerGroup ?? [],
    durable: of.durableLink ?? [],
    streams: of.stream ?? [],
    webhooks: of.subscription ?? [],
    server: (may("manage") && of.server?.[0]) || null,
    clients: may("manage") ? (of.client ?? []) : [],
    servers: may("manage") ? (of[SERVERS] ?? []) : [],
  };
  const consumers = [
    ...found.registered.map((each) => ({
      ...each,
      kind: "registered",
      kindName: each.owner === "spark" ? "Spark" : "registered",
      title: `${each.owner} / ${each.component}`,
      position: each.acknowledged,
    })),
    ...found.groups.map(ofGroup),
    ...found.durable.map((each) => ({
      ...each,
      kind: "durable",
      kindName: "AMQP link",
      title: each.linkName,
      detail: each.container,
      seenAt: each.isAttached ? Date.now() : null,
    })),
    ...found.webhooks
      .filter((each) => each.endpoint && each.position !== undefined && each.position !== null)
      .map((each) => ({
        ...each,
        kind: "webhook",
        kindName: "webhook",
        title: each.endpoint.replace(/^https?:\/\//, ""),
        lagMs: null,
        seenAt: each.answeredAt,
      })),
    ...found.streams.map((each) => ({
      ...each,
      kind: "stream",
      kindName: "Spark stream",
      title: `${each.owner} / ${each.stream}`,
    })),
  ];
  const at = Date.now(),
    lines = who.peek()?.console ?? { lag_events: 0, lag_ms: 0 };
  for (const each of consumers) {
    each.key = `${each.kind}:${each.name}`;
    each.lags =
      (lines.lag_events > 0 && Number(each.lag) > lines.lag_events) ||
      (lines.lag_ms > 0 && Number(each.lagMs) > lines.lag_ms);
    const trend = trends.get(each.key) ?? [];
    trend.push([at, Number(each.lagMs), Number(each.position)]);
    if (trend.length > TREND_KEPT) trend.shift();
    trends.set(each.key, trend);
    const earlier = trend.findLast((one) => at - one[0] >= 4000);
    each.takes = earlier ? Math.max(0, (Number(each.position) - earlier[2]) / ((at - earlier[0]) / 1000)) : null;
  }
  consumers.sort(
    (a, b) => Number(b.lagMs) - Number(a.lagMs) || Number(b.lag) - Number(a.lag) || (a.key < b.key ? -1 : 1),
  );
  const more = [found.registered, found.groups, found.durable, found.streams, found.webhooks].map(beyond);
  Object.assign(consumers, { total: more.reduce((sum, each) => sum + each, consumers.length) });
  world.value = { at, ...found, ready, consumers, troubles: ready?.troubles ?? [] };
}

/** How ready the server says it is; null where it does not say. */
async function readiness(ending) {
  try {
    const answer =
      (await begun("/health/ready")) ?? (await fetch("/health/ready", { signal: ending, cache: "no-store" }));
    return await answer.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    return null;
  }
}

function ofGroup(group) {
  const partitions = Object.keys(group.positions ?? {})
    .sort((a, b) => Number(a) - Number(b))
    .map((number) => ({
      number,
      position: group.positions[number],
      lag: Number(group.lags[number] ?? 0),
      lagMs: Number(group.lagsMs[number] ?? 0),
      owner: group.owners[number],
      epoch: group.epochs[number],
    }));
  const worst = Math.max(0, ...partitions.map((each) => each.lagMs));
  const position = partitions.reduce(
    (least, each) => (least === null || each.position < least ? each.position : least),
    null,
  );
  return {
    ...group,
    kind: "group",
    kindName: "AMQP group",
    title: group.group,
    partitions,
    lag: Math.max(0, ...partitions.map((each) => each.lag)),
    lagMs: worst,
    position: position ?? 0,
    seenAt: group.members ? Date.now() : null,
  };
}

/** How a webhook stands, in a word and a colour. */
export function standing(webhook) {
  if (!webhook.endpoint) return ["pulls", "plain"];
  if (webhook.standing === "delivering" || webhook.standing === "none")
    return [webhook.standing === "none" ? "nothing to deliver" : "delivers", "good"];
  if (webhook.standing === "suspended") return ["suspended", "bad"];
  return [
    Number(webhook.failures) ? `retried, ${plural(webhook.failures, "try failed", "tries failed")}` : webhook.standing,
    Number(webhook.failures) ? "warn" : "plain",
  ];
}

// ---- Words that many pages share -----------------------------------------------------------------------------------

/** What the top of the page shows: [text, path or null] from the outside in. */
/** @type {Signal<[string, string | null][]>} */
export const crumbs = signal([]);

/** Where in the console: an address below /console, without leaving what cannot be said in one. */
export const at = (path, query) => `/console${path}${query && [...query].length ? `?${query}` : ""}`;
/** Have this address shown, as a link to it would. */
export const go = (address, replace = false) =>
  dispatchEvent(new CustomEvent("headwater:go", { detail: { address, replace } }));
export const link = (path, properties, ...children) => h("a", { href: at(path), ...properties }, ...children);

/** Whether what is shown follows the server at present. */
export const following = () =>
  away.value ? [h("span", { class: "dot bad" }), " away"] : [h("span", { class: "dot good live" }), " following"];

/** A problem, in its place: what, why, and what can be done. */
export function trouble(problem, retry) {
  const more = [];
  if (problem.code === "log_not_found") more.push(link("/logs", { class: "button" }, "All logs"));
  const here = /^\/console(\/logs\/[^/]+)/.exec(location.pathname)?.[1];
  if (problem.code === "position_trimmed" && here && problem.body.first_retained !== undefined)
    more.push(link(`${here}/${problem.body.first_retained}`, { class: "button" }, "The first retained event"));
  if (problem.status === 403 && problem.body?.right)
    more.push(
      h(
        "span",
        { class: "dim" },
        `It requires ${problem.body.right} on ${problem.body.log === "*" ? "the server" : problem.body.log}.`,
      ),
    );
  return h(
    "div",
    { class: "trouble", role: "alert" },
    h(
      "p",
      {},
      icon("warn"),
      h("strong", {}, problem.title ?? "Something failed"),
      problem.code ? h("code", {}, problem.code) : null,
    ),
    h("p", { class: "dim" }, problem.message),
    h("p", { class: "row" }, retry && problem.status !== 403 ? h("button", { onclick: retry }, "Retry") : null, more),
  );
}

export const skeleton = (rows = 4) =>
  h(
    "div",
    { class: "skeleton", "aria-hidden": "true" },
    Array.from({ length: rows }, () => h("i")),
  );
/** Where no log is shown: there is none, or none that this user may read. */
export function noLog() {
  if (who.value?.has_users && !who.value.grants.some((grant) => grant.rights.includes("read") && grant.logs === "*"))
    return empty(
      "There is no log that you can read.",
      h("p", {}, "Reading requires the right read on a log; an administrator can grant it."),
    );
  return empty(
    "There is no log.",
    h("p", {}, "These two commands create one and append to it:"),
    headwater("logs", "create", "orders"),
    headwater("append", "orders", "--type", "OrderPlaced", "--tag", "order:1", "--data", '{"total": 30}'),
  );
}
/** What is known of something: [what, how it is]. */
export const factList = (facts) =>
  h(
    "dl",
    { class: "facts" },
    facts.map(([key, value]) => [h("dt", {}, key), h("dd", {}, value)]),
  );
export const empty = (title, ...more) => h("div", { class: "empty" }, h("strong", {}, title), more);
/** The top of a page: its title, and what stands beside that. */
export const titled = (title, ...more) => h("div", { class: "head" }, h("h1", {}, title), more);
/** Room between what stands left and right. */
export const gap = () => h("span", { class: "space" });
export const dim = (...text) => h("span", { class: "dim" }, ...text);
/** A sentence in small letters. */
export const remark = (...text) => h("p", { class: "dim small" }, ...text);
/** A part of a page: its title, what stands to the right of that, and what it shows. */
export const card = (title, right, ...children) =>
  h(
    "section",
    { class: "card" },
    h("header", {}, h("h2", {}, title), right ? h("span", { class: "right" }, right) : null),
    children,
  );

/** The rows of a table with these titles; a title is [text, class]. */
export function table(titles, rows, properties = {}) {
  return h(
    "table",
    properties,
    h(
      "thead",
      {},
      h(
        "tr",
        {},
        titles.map(([text, kind]) => h("th", { class: kind, scope: "col" }, text)),
      ),
    ),
    h("tbody", {}, rows),
  );
}
/** A cell of a row, of that class. */
export const td = (kind, ...children) => h("td", { class: kind }, ...children);
/** What a row is called, as what opens it: also by the keyboard. */
export const opener = (text, open) =>
  h(
    "button",
    {
      class: "plain opener clip",
      title: text,
      onclick: (event) => {
        event.stopPropagation();
        open();
      },
    },
    h("strong", {}, text),
  );
export const pill = (kind, ...children) =>
  h("span", { class: `pill ${kind}` }, h("i", { "aria-hidden": "true" }), ...children);

/** Whether there is room for an inspector beside its list; else it lies over the page. */
export const beside = matchMedia("(min-width: 1101px)");
/** The button of an inspector that closes it, where it lies over the page. */
export const closer = (close) =>
  beside.matches ? null : h("button", { class: "plain small", "aria-label": "Close", onclick: close }, icon("close"));

/** A row of choices, of which one is taken. */
export function choice(label, options, chosen, pick) {
  return h(
    "div",
    { class: "choice", role: "group", "aria-label": label },
    options.map(([value, text]) =>
      h("button", { "aria-pressed": String(value === chosen), onclick: () => pick(value) }, text),
    ),
  );
}

// ---- What is shown can be done elsewhere as well: commands, quoted -----------------------------------------------

const PLAIN = /^[A-Za-z0-9_@%+=:,./-]+$/;
/** One word of a POSIX shell, whatever is in it. */
export const quoted = (text) => (PLAIN.test(text) ? text : `'${String(text).replaceAll("'", `'\\''`)}'`);
/** A command, of words that are quoted here. */
export const shell = (...words) => words.flat().map(String).map(quoted).join(" ");

export async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = h("textarea", { class: "away", "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  if (button) {
    button.dataset.done = "1";
    setTimeout(() => delete button.dataset.done, 1200);
  }
  say("Copied");
}

/** A command, with a button that copies it whole: with the address of this server, without secrets. */
export function command(text, whole = text) {
  const [first, ...rest] = text.split(" ");
  return h(
    "div",
    { class: "command" },
    h("code", { title: text }, h("span", { class: "dim" }, first), " ", rest.join(" ")),
    h(
      "button",
      {
        class: "plain",
        "aria-label": "Copy the command",
        data: { copy: whole },
        onclick: (event) => copy(whole, event.currentTarget),
      },
      icon("copy"),
    ),
  );
}
/** A `headwater` command, with where this server is when it is copied. */
export const headwater = (...words) =>
  command(
    shell("headwater", ...words),
    shell("headwater", ...words, ...(LOCAL.has(words[0]) ? [] : ["--url", location.origin])),
  );
/** Commands that talk to no server over HTTP. */
const LOCAL = new Set(["serve", "user", "events", "pipeline"]);

/** Say something to everybody, once: also to who does not see. */
/** @type {Signal<{text: string, undo?: () => void, at: number} | null>} */
export const said = signal(null);
export function say(text, undo) {
  said.value = { text, undo, at: Date.now() };
}
/** Say what went wrong; not where the page was left meanwhile. */
export const complain = (problem) => {
  if (problem.name !== "AbortError") say(problem.message);
};

/** Show a dialog over the page; it is gone when it is closed. */
export function over(dialog) {
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

/** Ask before something that cannot be taken back. `lines` say what it will do; `name` must be typed if it is given.
    @param {string} title
    @param {any[]} lines
    @param {{act: string, command?: Node, name?: string, keep?: string}} how
    @returns {Promise<boolean>} */
export function confirm(title, lines, { act, command: shown, name, keep: keeping = "Keep it" }) {
  return new Promise((resolve) => {
    const close = (answer) => {
      dialog.close();
      resolve(answer);
    };
    const typed =
      name === undefined
        ? null
        : h("input", {
            "aria-label": `Type ${name} to confirm`,
            autocomplete: "off",
            spellcheck: "false",
            oninput: () => {
              doing.disabled = typed.value !== name;
            },
          });
    const doing = h("button", { class: "danger", disabled: name !== undefined, onclick: () => close(true) }, act);
    const keeper = h("button", { autofocus: true, onclick: () => close(false) }, keeping);
    const dialog = h(
      "dialog",
      {
        class: "ask",
        "aria-label": title,
        oncancel: (event) => {
          event.preventDefault();
          close(false);
        },
      },
      h("h2", {}, title),
      h(
        "ul",
        {},
        lines.map((line) => h("li", {}, line)),
      ),
      shown ?? null,
      typed ? h("label", {}, "Type ", h("code", {}, name), " to confirm", typed) : null,
      h("footer", {}, h("kbd", {}, "Esc"), gap(), keeper, doing),
    );
    over(dialog);
    keeper.focus();
  });
}

/** What a form does when it is sent, or a button when it is clicked: once at a time, and the button is off until the
    answer is here. What went wrong stands in `error`, as `worded`.
    @param {Node} error
    @param {() => Promise<void>} act
    @param {(problem: any) => string} [worded] */
export const sending = (error, act, worded) => async (event) => {
  event.preventDefault();
  const form = event.currentTarget,
    button = form.querySelector("button.primary") ?? form;
  if (button.disabled) return;
  button.disabled = true;
  form.setAttribute("aria-busy", "true");
  put(error);
  try {
    await act();
  } catch (problem) {
    if (problem.name !== "AbortError") put(error, worded ? worded(problem) : problem.message);
  } finally {
    button.disabled = false;
    form.removeAttribute("aria-busy");
  }
};

/** A dialog with a form: its fields, the command that does the same, which is drawn again as they change, and a button
    that sends it. `send` gets the dialog, and closes it.
    @param {string} title
    @param {string} act
    @param {any[]} fields
    @param {() => Node} same
    @param {(dialog: any) => Promise<void>} send
    @param {(problem: any) => string} [worded] */
export function formDialog(title, act, fields, same, send, worded) {
  const error = h("p", { class: "error", role: "alert" }),
    command = h("div"),
    draw = () => put(command, same()),
    dialog = h(
      "dialog",
      { "aria-label": title, oninput: draw },
      h("h2", {}, title),
      h(
        "form",
        { onsubmit: sending(error, () => send(dialog), worded) },
        fields,
        command,
        error,
        h(
          "footer",
          {},
          h("kbd", {}, "Esc"),
          gap(),
          h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"),
          h("button", { class: "primary" }, act),
        ),
      ),
    );
  draw();
  over(dialog);
}

/** Do what may drop events of a log. Where it would, this says which, and wants the log's name before they go.
    @template T
    @param {string} title
    @param {(query: string) => Promise<T>} act gets the query of its request, which says how many may go
    @returns {Promise<{done: T, dropped: boolean} | null>} null where it is not to be done. Raises what `act` raises */
export async function dropping(title, act) {
  for (let query = ""; ; ) {
    try {
      return { done: await act(query), dropped: query !== "" };
    } catch (problem) {
      if (problem.code !== "would_drop") throw problem;
      const { log, drops, first, last, first_recorded_at: from, last_recorded_at: upto, history } = problem.body,
        events = plural(drops, "event");
      const lines = [
        `${events} of ${log}, ${count(first)} to ${count(last)}, are deleted permanently`,
        from ? ["They were recorded from ", time(Number(from)), " to ", time(Number(upto))] : null,
        Number(history) ? `${count(history)} of them are already trimmed: their history is deleted` : null,
        "Only a backup can restore them",
      ];
      const agreed = await confirm(
        title,
        lines.filter((line) => line !== null),
        { act: `Drop ${events}`, name: log },
      );
      if (!agreed) return null;
      query = `?drops_at_most=${drops}`; // where the clock makes it more meanwhile, this asks again
    }
  }
}
