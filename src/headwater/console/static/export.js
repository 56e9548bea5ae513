/* What matches, as a file: through this page, or by the command. */

import { fetched, h, headwater, logPath, parse, put } from "./core.js";
import { asJson, options } from "./query.js";

/** Ask for the form, and save it. */
export function exporting(page) {
  const { items } = page.state,
    kind = h(
      "select",
      { "aria-label": "Form" },
      [
        ["ndjson", "NDJSON"],
        ["cloudevents", "CloudEvents"],
        ["csv", "CSV"],
      ].map(([value, text]) => h("option", { value }, text)),
    ),
    same = h("div"),
    error = h("p", { class: "error", role: "alert" });
  const draw = () =>
    put(
      same,
      headwater(
        "export",
        page.log,
        `${page.log}.${kind.value === "cloudevents" ? "json" : kind.value}`,
        "--format",
        kind.value,
        ...options(items),
      ),
    );
  const button = h(
    "button",
    {
      class: "primary",
      onclick: async () => {
        button.disabled = true;
        try {
          const answer = await fetched("POST", logPath(page.log, "/read"), {
            accept: kind.value === "cloudevents" ? "application/cloudevents-batch+json" : "application/x-ndjson",
            body: { query: asJson(items), limit: 100000 },
            signal: page.leaving.signal,
          });
          const blob = kind.value === "csv" ? new Blob([csv(await answer.text())]) : await answer.blob(),
            url = URL.createObjectURL(blob);
          h("a", {
            href: url,
            download: `${page.log}.${kind.value === "cloudevents" ? "json" : kind.value}`,
          }).click();
          setTimeout(() => URL.revokeObjectURL(url), 10000);
          dialog.close();
        } catch (problem) {
          put(error, problem.message);
        } finally {
          button.disabled = false;
        }
      },
    },
    "Save a file",
  );
  const dialog = h(
    "dialog",
    { "aria-label": "Export", onclose: () => dialog.remove() },
    h("h2", {}, "Export what matches"),
    h(
      "p",
      { class: "dim" },
      "From here at most 100,000 events, oldest first, and through this page's memory. The command has no such " +
        "limit.",
    ),
    h("label", {}, "Form", kind),
    same,
    error,
    h(
      "footer",
      {},
      h("kbd", {}, "Esc"),
      h("span", { class: "space" }),
      h("button", { onclick: () => dialog.close() }, "Cancel"),
      button,
    ),
  );
  kind.addEventListener("change", draw);
  draw();
  document.body.append(dialog);
  dialog.showModal();
}

const quote = (text) =>
  /[",\r\n]|^[=+\-@\t]/.test(text) ? `"${(/^[=+\-@\t]/.test(text) ? `'${text}` : text).replaceAll('"', '""')}"` : text;
function csv(text) {
  const lines = ["sequence_number,recorded_at,type,tags,id,source,data"];
  for (const each of text.split("\n").filter(Boolean)) {
    const { event, ...rest } = parse(each);
    lines.push(
      [
        String(rest.sequence_number),
        new Date(rest.recorded_at).toISOString(),
        event.type,
        (event.tags ?? []).join(" "),
        event.id ?? "",
        event.source ?? "",
        event.data ?? event.data_base64 ?? "",
      ]
        .map(quote)
        .join(","),
    );
  }
  return `${lines.join("\r\n")}\r\n`;
}
