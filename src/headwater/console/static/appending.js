/* Appending an event from the page of its log: it is durable, and the page says so before. */

import { ask, count, h, headwater, icon, logPath, put, say, sending } from "./core.js";
import { asJson, read } from "./query.js";

/** Ask for the event, and for a condition. */
export function appending(page) {
  const type = h("input", { required: true, autofocus: true, spellcheck: "false" }),
    tags = h("input", { placeholder: "order:17 customer:ann", spellcheck: "false" }),
    data = h("textarea", { rows: "5", class: "mono", spellcheck: "false" }),
    condition = h("input", { placeholder: "type=OrderPlaced tag=order:17", spellcheck: "false" }),
    error = h("p", { class: "error", role: "alert" }),
    same = h("div"),
    id = eventId(); // sent again with the same id, it is appended once
  const draw = () =>
    put(
      same,
      headwater(
        "append",
        page.log,
        "--type",
        type.value || "TYPE",
        ...tags.value
          .split(/\s+/)
          .filter(Boolean)
          .flatMap((tag) => ["--tag", tag]),
        ...(data.value ? ["--data", data.value] : []),
        ...(condition.value ? ["--fail-if-match", condition.value] : []),
      ),
    );
  const dialog = h(
    "dialog",
    { "aria-label": `Append to ${page.log}`, oninput: draw, onclose: () => dialog.remove() },
    h("h2", {}, `Append to ${page.log}`),
    h(
      "form",
      {
        onsubmit: sending(
          error,
          async () => {
            const done = await ask("POST", logPath(page.log, "/append"), {
              events: [
                {
                  id,
                  type: type.value,
                  tags: tags.value.split(/\s+/).filter(Boolean),
                  ...(data.value ? { data: data.value } : {}),
                },
              ],
              ...(condition.value ? { condition: { failIfEventsMatch: asJson(read(condition.value)) } } : {}),
            });
            dialog.close();
            say(`Event ${count(done.last ?? done.last_sequence_number ?? 0)} is durable`);
            page.again();
          },
          (problem) => (problem.status === 409 ? `Refused: ${problem.message}` : problem.message),
        ),
      },
      h("p", { class: "warn small" }, icon("warn"), " An event stays: nothing takes it back."),
      h("label", {}, "Type", type),
      h("label", {}, "Tags", tags),
      h("label", {}, "Data", data),
      h("label", {}, "Fail if an event matches (a query, or nothing)", condition),
      same,
      error,
      h(
        "footer",
        {},
        h("kbd", {}, "Esc"),
        h("span", { class: "space" }),
        h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"),
        h("button", { class: "primary" }, "Append"),
      ),
    ),
  );
  draw();
  document.body.append(dialog);
  dialog.showModal();
}

/** An id that no other event has; `crypto.randomUUID` is there for pages of HTTPS and loopback alone. */
const eventId = () =>
  [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
