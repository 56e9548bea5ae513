/* What matches, as a file: through this page, or by the command. */

import { brokenOff, complain, count, fetched, formDialog, h, headwater, isEnd, LINES, logPath, parse } from "./core.js";
import { asJson, options, ranged } from "./query.js";

/** Ask for the form, and save all that matches in the range of the page. */
export async function exporting(page) {
  const { items, range: times } = page.state;
  let range = null;
  try {
    range = times && (page.bounds ?? (await page.bounded(times)));
  } catch (problem) {
    complain(problem);
    return;
  }
  const kind = h(
      "select",
      { "aria-label": "Form" },
      ["NDJSON", "CloudEvents", "CSV"].map((text) => h("option", { value: text.toLowerCase() }, text)),
    ),
    name = () => `${page.log}.${kind.value === "cloudevents" ? "json" : kind.value}`;
  formDialog(
    "Export matching events",
    "Save a file",
    [
      h(
        "p",
        { class: "dim" },
        `Oldest first${range ? `, numbers ${count(range[0])} to ${count(range[1])}` : ""}. `,
        "The browser builds the file in memory; the command streams it.",
      ),
      h("label", {}, "Form", kind),
    ],
    () => headwater("export", page.log, name(), "--format", kind.value, ...options(items), ...ranged(range)),
    async (dialog) => {
      const ending = new AbortController();
      dialog.addEventListener("close", () => ending.abort());
      const answer = await fetched("POST", logPath(page.log, "/read"), {
          accept: kind.value === "cloudevents" ? "application/cloudevents-batch+json" : LINES,
          body: { query: asJson(items), from: range?.[0], upto: range?.[1] },
          signal: AbortSignal.any([ending.signal, page.leaving.signal]),
        }),
        blob = await (kind.value === "cloudevents" ? bracketed(answer) : lined(answer, kind.value === "csv")),
        url = URL.createObjectURL(blob);
      h("a", { href: url, download: name() }).click();
      setTimeout(() => URL.revokeObjectURL(url), 10000);
      dialog.close();
    },
  );
}

const quote = (text) =>
  /[",\r\n]|^[=+\-@\t]/.test(text) ? `"${(/^[=+\-@\t]/.test(text) ? `'${text}` : text).replaceAll('"', '""')}"` : text;
const line = (cells) => `${cells.map(quote).join(",")}\r\n`;

/** The file of an array that is whole. Raises Problem. */
async function bracketed(answer) {
  const blob = await answer.blob();
  if ((await blob.slice(-1).text()) !== "]") throw brokenOff();
  return blob;
}

/** The file of lines of events as they come, or of a table of them, without their end. Raises Problem. */
async function lined(answer, inTable) {
  const decoder = new TextDecoder(),
    encoder = new TextEncoder();
  let rest = "",
    last = "";
  const lines = new TransformStream({
    start: (out) => inTable && out.enqueue(encoder.encode(line(["sequence_number", "recorded_at", ...COLUMNS]))),
    transform(piece, out) {
      const [end, ...found] = decoder.decode(piece, { stream: true }).split("\n");
      rest += end; // of a line that may be long: it is looked at once
      if (!found.length) return;
      found.unshift(rest);
      rest = found.pop();
      if (isEnd(found.at(-1))) last = found.pop();
      const written = inTable ? found.map((each) => line(cells(parse(each)))) : found.map((each) => `${each}\n`);
      out.enqueue(encoder.encode(written.join("")));
    },
  });
  const blob = await new Response(answer.body.pipeThrough(lines)).blob();
  if (!last || rest) throw brokenOff();
  return blob;
}

const COLUMNS = ["type", "tags", "id", "source", "data"];
const cells = ({ event, sequence_number, recorded_at }) => [
  String(sequence_number),
  new Date(recorded_at).toISOString(),
  event.type,
  (event.tags ?? []).join(" "),
  event.id ?? "",
  event.source ?? "",
  event.data ?? event.data_base64 ?? "",
];
