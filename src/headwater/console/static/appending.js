/* Appending an event from the page of its log: it is durable, and the page says so before. */

import { ask, count, formDialog, h, headwater, icon, logPath, say } from "./core.js";
import { asJson, read, words } from "./query.js";

/** Ask for the event, and for a condition. */
export function appending(page) {
  const type = h("input", { required: true, autofocus: true, spellcheck: "false" }),
    tags = h("input", { placeholder: "order:17 'customer:Ann Lee'", spellcheck: "false" }),
    data = h("textarea", { rows: "5", class: "mono", spellcheck: "false" }),
    condition = h("input", { placeholder: "type=OrderPlaced tag=order:17", spellcheck: "false" }),
    id = eventId(); // sent again with the same id, it is appended once
  const names = () => words(tags.value),
    shown = () => {
      try {
        return names();
      } catch {
        return ["TAG"]; // a quote that is not closed yet
      }
    };
  formDialog(
    `Append to ${page.log}`,
    "Append",
    [
      h("p", { class: "warn small" }, icon("warn"), " Events cannot be removed."),
      h("label", {}, "Type", type),
      h("label", {}, "Tags; quote those with spaces", tags),
      h("label", {}, "Data", data),
      h("label", {}, "Fail if an event matches (query, optional)", condition),
    ],
    () =>
      headwater(
        "append",
        page.log,
        "--type",
        type.value || "TYPE",
        ...shown().flatMap((tag) => ["--tag", tag]),
        ...(data.value ? ["--data", data.value] : []),
        ...(condition.value ? ["--fail-if-match", condition.value] : []),
      ),
    async (dialog) => {
      const done = await ask("POST", logPath(page.log, "/append"), {
        events: [{ id, type: type.value, tags: names(), ...(data.value ? { data: data.value } : {}) }],
        ...(condition.value ? { condition: { failIfEventsMatch: asJson(read(condition.value)) } } : {}),
      });
      dialog.close();
      say(`Event ${count(done.last ?? done.last_sequence_number ?? 0)} is durable`);
      page.again();
    },
    (problem) => (problem.status === 409 ? `Refused: ${problem.message}` : problem.message),
  );
}

/** An id that no other event has; `crypto.randomUUID` is there for pages of HTTPS and loopback alone. */
const eventId = () =>
  [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
