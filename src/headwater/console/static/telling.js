/* What happens in the server, in words: of each notification, what it is about. */

import { bytes, count, get, lasting, logPath, parse, plural, readEvents } from "./core.js";

const BAD = new RegExp(
  [
    "consumer\\.lagging",
    "thread\\.failed",
    "storage\\.(failed|corrupted)",
    "log\\.damaged",
    "webhook\\.suspended",
    "disk\\.full",
    "clock\\.jumped",
  ].join("|"),
);
const WARN = /failed|failing|rejected|refused|jumped|loopHeld|lost|dropped|expired|fenced|suspended|forced/;

/** How bad it is, as the class of a dot. */
export const kindOf = (happening) =>
  BAD.test(happening.eventType) ? "bad" : WARN.test(happening.eventType) ? "warn" : "";

const LEFT_OUT = new Set(["eventType", "time", "number", "lost"]);
/** @type {[RegExp, (value: any) => string][]} */
const UNITS = [
  [/Bytes$/, bytes],
  [/Ms$/, (ms) => lasting(Number(ms))],
];

/** A sentence of its attributes: names of what it is about first, then the rest with their words. */
export function worded(happening) {
  const { log, owner, component, group, user, peer, endpoint, containerId } = happening,
    first = [],
    told = new Set(["log", "owner", "component", "group", "user", "peer", "endpoint", "containerId"]);
  if (log) first.push(log);
  if (owner || component) first.push([owner, component].filter(Boolean).join(" / "));
  if (group) first.push(`group ${group}`);
  if (endpoint) first.push(endpoint);
  if (containerId) first.push(containerId);
  if (user) first.push(`user ${user}`);
  if (peer) first.push(`from ${peer}`);
  const rest = Object.entries(happening)
    .filter(([name]) => !LEFT_OUT.has(name) && !told.has(name))
    .map(([name, value]) => {
      const words = name.replace(/(Bytes|Ms)$/, "").replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`),
        unit = UNITS.find(([pattern]) => pattern.test(name));
      if (unit) return `${words} ${unit[1](value)}`;
      if (typeof value === "number" || typeof value === "bigint") return `${words} ${count(value)}`;
      return `${words} ${typeof value === "object" ? JSON.stringify(value) : value}`;
    });
  if (happening.lost) rest.push(`${plural(happening.lost, "notification")} lost before it`);
  return [first.join(", "), rest.join(", ")].filter(Boolean).join(": ");
}

const MEASURED_S = 300,
  YEAR_S = 365 * 86400;

/** In how many s the disk is at its reserve, if it goes on as it was measured: null where that is not known, as when it
    was not measured for long; Infinity where it does not fill, or takes more than a year. */
export function reserveIn(past, free, reserve) {
  const line = past?.series.disk_free_bytes ?? [],
    first = line.findIndex((each) => each !== null),
    last = line.findLastIndex((each) => each !== null),
    measured = (last - first) * (past?.step_s ?? 0);
  if (first < 0 || measured < MEASURED_S || !reserve || !(free > reserve)) return null;
  const lost = (line[first] - line[last]) / measured,
    left = (free - reserve) / lost;
  return lost > 0 && left < YEAR_S ? left : Infinity;
}

const KEPT_LOG = "$system";

/** The types of what the server has kept; null if it keeps nothing. */
export async function keptTypes(ending) {
  if (!(await get("/logs", ending)).logs.includes(KEPT_LOG)) return null;
  return (await get(logPath(KEPT_LOG, "/terms?kind=type&limit=1000"), ending)).terms.map((each) => each.term);
}

/** The newest of what the server has kept of these types, newest first: with its number, from one on downwards. */
export async function before(most, types, ending, from = undefined) {
  const body = { query: { items: [{ types }] }, backwards: true, limit: most, from };
  const found = types.length ? await readEvents(KEPT_LOG, body, ending) : [];
  return found.map(({ event, recorded_at, sequence_number }) => ({
    ...parse(event.data ?? "{}"),
    eventType: event.type,
    time: Number(recorded_at),
    number: BigInt(sequence_number),
  }));
}
