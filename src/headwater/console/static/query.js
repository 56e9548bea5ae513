/* A query: alternatives, each a choice of types and a list of tags; as a text, as JSON, and as what other programs
   take.
   An alternative is {types, tags, exact}: any of the types, and all of the tags. No alternative is every event. */

import { inJson, quoted, shell, who } from "./core.js";

/** The text of `headwater read --query`: what stands in the address of a page. Empty for every event. */
export const worded = (items) =>
  items
    .map((item) =>
      [
        ...item.types.map((type) => `type=${type}`),
        ...item.tags.map((tag) => `tag=${tag}`),
        ...item.exact.map((tag) => `exact_tag=${tag}`),
      ]
        .map(quoted)
        .join(" "),
    )
    .filter(Boolean)
    .join(" or ");

/** The words of a text as a POSIX shell splits them. Raises SyntaxError for a quote that is not closed. */
export function words(text) {
  const found = [];
  let word = null,
    at = 0;
  while (at < text.length) {
    const char = text[at];
    if (/\s/.test(char)) {
      if (word !== null) found.push(word);
      word = null;
      at += 1;
    } else if (char === "'" || char === '"') {
      let end = at + 1,
        inside = "";
      while (end < text.length && text[end] !== char) {
        if (char === '"' && text[end] === "\\" && /["\\]/.test(text[end + 1] ?? "")) end += 1;
        inside += text[end];
        end += 1;
      }
      if (end >= text.length) throw new SyntaxError(`a ${char} is not closed`);
      word = (word ?? "") + inside;
      at = end + 1;
    } else if (char === "\\") {
      word = (word ?? "") + (text[at + 1] ?? "");
      at += 2;
    } else {
      word = (word ?? "") + char;
      at += 1;
    }
  }
  if (word !== null) found.push(word);
  return found;
}

/** The alternatives that a text says. Raises SyntaxError. */
export function read(text) {
  const items = [{ types: [], tags: [], exact: [] }];
  for (const word of words(text)) {
    const [, kind, value] = /^(type|tag|exact_tag)=([^]*)$/i.exec(word) ?? [null, word.toLowerCase(), null];
    if (value !== null)
      items.at(-1)[{ type: "types", tag: "tags", exact_tag: "exact" }[kind.toLowerCase()]].push(value);
    else if (kind === "or") items.push({ types: [], tags: [], exact: [] });
    else if (kind !== "and" && kind !== "all")
      throw new SyntaxError(`expected type=TYPE, tag=TAG or exact_tag=TAG, got ${word}`);
  }
  return items.filter((item) => item.types.length + item.tags.length + item.exact.length);
}

/** As the HTTP interface takes it. */
export const asJson = (items) =>
  items.length
    ? {
        items: items.map((item) => ({
          ...(item.types.length ? { types: item.types } : {}),
          ...(item.tags.length ? { tags: item.tags } : {}),
          ...(item.exact.length ? { exact_tags: item.exact } : {}),
        })),
      }
    : { all: true };

/** Whether the query asks for this very tag, or for all of its key. */
export const asks = (items, tag) => items.some((item) => item.tags.includes(tag) || item.exact.includes(tag));

/** Options of a `headwater` command; a value that begins with a dash cannot be taken for an option. */
export function options(items) {
  if (!items.length) return [];
  if (items.length > 1) return ["--query", worded(items)];
  const option = (name, value) => (value.startsWith("-") ? [`${name}=${value}`] : [name, value]);
  return [
    ...items[0].types.flatMap((each) => option("--type", each)),
    ...items[0].tags.flatMap((each) => option("--tag", each)),
    ...items[0].exact.flatMap((each) => option("--exact-tag", each)),
  ];
}

const python = (value) => JSON.stringify(value);
const tuple = (values) => `(${values.map(python).join(", ")}${values.length === 1 ? "," : ""})`;
const sql = (value) => `'${value.replaceAll("'", "''")}'`;

/** The query as a Python expression. */
function inPython(items) {
  if (!items.length) return "Query.all()";
  return `Query.of(${items
    .map(
      (item) =>
        `QueryItem(${[
          ["types", item.types],
          ["tags", item.tags],
          ["exact_tags", item.exact],
        ]
          .filter(([, values]) => values.length)
          .map(([name, values]) => `${name}=${tuple(values)}`)
          .join(", ")})`,
    )
    .join(", ")})`;
}

/** The query as a condition of SQL on the columns of a log. */
function inSql(items) {
  return items
    .map((item) =>
      [
        ...(item.types.length ? [`type in (${item.types.map(sql).join(", ")})`] : []),
        ...item.tags.map((tag) =>
          tag.includes(":")
            ? `list_contains(tags, ${sql(tag)})`
            : `len(list_filter(tags, t -> t = ${sql(tag)} or starts_with(t, ${sql(`${tag}:`)}))) > 0`,
        ),
        ...item.exact.map((tag) => `list_contains(tags, ${sql(tag)})`),
      ].join(" and "),
    )
    .map((part) => (items.length > 1 ? `(${part})` : part))
    .join(" or ");
}

/** The options of a `headwater` command for the numbers from the first to the last of a range; none for all. */
export const ranged = (range) => (range ? ["--from", String(range[0]), "--upto", String(range[1])] : []);

/** The same read by other programs, by name: [what is shown, what is copied: whole, with the address, without
   secrets]. `range` is the first number and the last one; `total`, how many match. */
export function elsewhere(log, items, { backwards, limit = 100, range = null, total = limit }) {
  const [from, upto] = range && backwards ? [range[1], range[0]] : (range ?? []);
  const body = inJson({ query: asJson(items), from, upto, backwards: backwards || undefined, limit });
  const cli = [
    "headwater",
    "read",
    log,
    ...options(items),
    ...ranged(range && [from, upto]),
    ...(backwards ? ["--backwards"] : []),
    "--limit",
    String(limit),
  ];
  const { origin, hostname: host } = location,
    secure = origin.startsWith("https:"),
    ports = who.peek()?.console.ports ?? {};
  const query = inPython(items),
    bounds = range ? `from_=${from}, upto=${upto}, ` : "",
    reading =
      `server.log(${python(log)}).read(${query}, ${bounds}` + `${backwards ? "backwards=True, " : ""}limit=${limit})`;
  const filter = JSON.stringify(asJson(items)),
    where = inSql(items);
  const select = `select type, count(*) from events${where ? ` where ${where}` : ""} group by type`;
  const numbers = range ? `, after=${range[0] - 1n}, upto=${range[1]}` : "",
    ticket = `Ticket(${python(log)}${numbers}${items.length ? `, query=${python(worded(items))}` : ""})`,
    begin = range?.[0] > 1n ? String(range[0] - 1n).padStart(20, "0") : "@earliest";
  return {
    headwater: [shell(cli), shell(cli, "--url", origin)],
    curl: [
      `curl -s ${shell(`/logs/${log}/read`)} -d ${quoted(body)}`,
      shell("curl", "-s", `${origin}/logs/${log}/read`, "-H", "Content-Type: application/json", "-d", body),
    ],
    Python: [
      reading,
      `from headwater.client import connect\n` +
        `from headwater.core import Query, QueryItem\n\n` +
        `with connect(${python(origin)}) as server:\n` +
        `    for event in ${reading}:\n` +
        `        print(event.sequence_number, event.type, event.tags)\n`,
    ],
    AMQP: [
      `filter: headwater:query-filter ${filter}`,
      `from headwater.amqp.client import Client\n` +
        `from headwater.amqp.protocol.types import Described, Symbol\n\n` +
        `BEGIN = Described(Symbol("amqp:event-streams-delivery-annotations-filter"), ` +
        `{Symbol("event-streams-offset"): Symbol("${begin}")})\n` +
        `QUERY = Described(Symbol("headwater:query-filter"), ${python(filter)})\n\n` +
        `with Client(${python(`${secure ? "amqps" : "amqp"}://${host}:${ports.amqp}`)}) as client:\n` +
        `    for delivery in client.receiver(${python(log)}, filter={"begin": BEGIN, "query": QUERY})` +
        `.take(${Math.min(limit, total)}):\n` +
        `        print(delivery.message.delivery_annotations["event-streams-offset"])\n` +
        `        delivery.settle()\n`,
    ],
    SQL: ports.flight && [
      select,
      `import duckdb\n` +
        `import pyarrow as pa\n` +
        `from headwater.flight.client import BulkClient\n` +
        `from headwater.flight.wire import Ticket\n\n` +
        `bulk = BulkClient(${python(`grpc${secure ? "+tls" : ""}://${host}:${ports.flight}`)})\n` +
        `ticket = ${ticket}\n` +
        `events = pa.RecordBatchReader.from_batches(bulk.schema(ticket), bulk.read(ticket))\n` +
        `print(duckdb.sql(${python(select)}))\n`,
    ],
  };
}
