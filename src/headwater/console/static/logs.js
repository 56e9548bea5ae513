/* All logs; and what every page of one log has on top. */

import {
  NOTHING,
  View,
  ask,
  bytes,
  confirm,
  count,
  crumbs,
  dim,
  dropping,
  factList,
  fetched,
  formDialog,
  gap,
  get,
  grown,
  h,
  headwater,
  howMany,
  icon,
  link,
  logPath,
  mayAct,
  noLog,
  plural,
  put,
  rate,
  remark,
  say,
  sending,
  skeleton,
  stats,
  table,
  td,
  titled,
  trouble,
  world,
  go,
} from "./core.js";
import { keptFor } from "./overview.js";

const TABS = [
  ["", "Events"],
  ["/stories", "Stories"],
  ["/consumers", "Consumers"],
  ["/storage", "Storage"],
  ["/settings", "Settings"],
];

/** The title, the facts and the tabs of a log; `acts` are its buttons. */
export function logHead(name, tab, acts = []) {
  const log = world.value?.logs.find((each) => each.name === name),
    consumers = world.value?.consumers.filter((each) => each.log === name).length;
  const head = stats.value?.logs?.[name]?.head,
    events = log && !log.problem ? Math.max(0, Number(head ?? log.head) - Number(log.firstRetained) + 1) : null;
  return [
    titled(
      name,
      log && !log.problem
        ? [
            h("span", {}, plural(events, "event")),
            h("span", {}, `${bytes(log.bytes)} in ${plural(log.segments, "segment")}`),
            h("span", {}, plural(log.partitions, "partition")),
            h("span", {}, `kept ${keptFor(log)}`),
            h("span", {}, `${rate(grown(stats.value, name, "events_appended") ?? 0)} /s`),
          ]
        : null,
      gap(),
      acts,
    ),
    h(
      "nav",
      { class: "tabs", "aria-label": "Of this log" },
      TABS.map(([path, title]) =>
        link(
          logPath(name, path),
          { "aria-current": tab === path ? "page" : null },
          title,
          path === "/consumers" && consumers ? h("small", {}, ` ${consumers}`) : null,
        ),
      ),
    ),
  ];
}

/** Say at the top that this is a page of a log, and remember for the rail that the log was looked at. */
export function visited(name, title) {
  crumbs.value = [
    ["Logs", "/logs"],
    [name, logPath(name)],
    [title, null],
  ];
  try {
    localStorage.setItem(
      "headwater.recent",
      [name, ...(localStorage.getItem("headwater.recent") ?? "").split(",").filter((each) => each && each !== name)]
        .slice(0, 5)
        .join(","),
    );
  } catch {
    /* nothing is kept in this browser: the rail has the first logs */
  }
}

class HwLogs extends View {
  show() {
    crumbs.value = [["Logs", null]];
    this.watch(() => this.draw());
  }

  draw() {
    const now = world.value,
      numbers = stats.value;
    if (!now) {
      put(this, h("div", { class: "card" }, skeleton(6)));
      return;
    }
    const rows = now.logs.map((log) =>
      h(
        "tr",
        {},
        h("td", {}, link(logPath(log.name), {}, h("strong", {}, log.name))),
        log.problem
          ? h("td", { colspan: "8", class: "bad" }, log.problem)
          : [
              td(
                "n",
                count(
                  numbers?.logs?.[log.name]
                    ? Math.max(0, Number(numbers.logs[log.name].head) - Number(log.firstRetained) + 1)
                    : log.events,
                ),
              ),
              td("n", rate(grown(numbers, log.name, "events_appended") ?? 0)),
              td("n", bytes(log.bytes)),
              td("n hide", count(log.segments)),
              td("n hide", count(log.partitions)),
              td("n hide", count(now.consumers.filter((each) => each.log === log.name).length)),
              td("dim", keptFor(log)),
              td("n hide dim", Number(log.queuedBytes) ? `${bytes(log.queuedBytes)} wait` : NOTHING),
            ],
      ),
    );
    put(
      this,
      titled(
        "Logs",
        h("span", {}, howMany(now.logs, "log")),
        gap(),
        mayAct("manage") ? h("button", { onclick: () => this.make() }, icon("plus"), "New log") : null,
      ),
      h(
        "section",
        { class: "card scroll" },
        rows.length
          ? table(
              [
                ["Name"],
                ["Events", "n"],
                ["/s", "n"],
                ["Size", "n"],
                ["Segments", "n hide"],
                ["Partitions", "n hide"],
                ["Consumers", "n hide"],
                ["Kept"],
                ["Queue", "n hide"],
              ],
              rows,
            )
          : noLog(),
      ),
    );
  }

  make() {
    const name = h("input", {
        required: true,
        pattern: "[A-Za-z0-9][A-Za-z0-9._\\-]{0,63}",
        autofocus: true,
        spellcheck: "false",
      }),
      partitions = h("input", { type: "number", min: "1", max: "1024", value: "1" }),
      by = h("input", { placeholder: "source, subject or tag:KEY" });
    formDialog(
      "New log",
      "Create",
      [
        h("label", {}, "Name", name),
        h("label", {}, "Partitions, which can be read in parallel. Fixed at creation.", partitions),
        h("label", {}, "The partition of events without a group key. Fixed at creation.", by),
      ],
      () =>
        headwater(
          "logs",
          "create",
          name.value || "NAME",
          ...(partitions.value !== "1" ? ["--partitions", partitions.value] : []),
          ...(by.value ? ["--partition-by", by.value] : []),
        ),
      async (dialog) => {
        await ask("PUT", logPath(name.value), {
          partitions: Number(partitions.value),
          ...(by.value ? { partition_by: by.value } : {}),
        });
        dialog.close();
        say(`The log ${name.value} already exists`);
        go(`/console/logs/${encodeURIComponent(name.value)}`);
      },
    );
  }
}
customElements.define("hw-logs", HwLogs);

const FIELDS = [
  ["retention_ms", "Older events may be trimmed (ms)", "retention-ms"],
  ["retention_bytes", "Above this size, the oldest may be trimmed", "retention-bytes"],
  ["retention_until_acknowledged", "Events acknowledged by all consumers may be trimmed", "until-acknowledged"],
  ["event_bytes_max", "Maximum size of an event, in bytes", "event-bytes-max"],
  ["id_horizon", "Ids are unique among this many newest events; empty: among all", "id-horizon"],
  ["keeps_history", "Append conditions still consider trimmed events", "history"],
  ["consumer_age_ms_max", "Unregister consumers that are silent for this long (ms)", "consumer-age-ms-max"],
  ["default_start", "Where AMQP receivers without a position start", "default-start"],
];

/** The settings of a log: what is for ever, and what may change, as a merge patch whose difference is shown. */
class HwSettings extends View {
  show() {
    const name = this.params.log;
    visited(name, "Settings");
    const top = h("div"),
      body = h("div", { class: "card" }, skeleton(8));
    put(this, top, body);
    this.watch(() => put(top, logHead(name, "/settings")));
    const load = async () => {
      try {
        put(body, this.form(name, await get(logPath(name), this.leaving.signal)));
      } catch (problem) {
        if (problem.name !== "AbortError") put(body, trouble(problem, load));
      }
    };
    this.again = load;
    load();
  }

  form(name, log) {
    const inputs = {},
      difference = h("div"),
      error = h("p", { class: "error", role: "alert" }),
      acts = mayAct("manage", name);
    const change = () => {
      const patch = {};
      for (const [key, input] of Object.entries(inputs)) {
        const old = log.settings[key],
          now =
            input.type === "checkbox"
              ? input.checked
              : input.value === ""
                ? null
                : key === "default_start"
                  ? input.value
                  : Number(input.value);
        if (now !== old) patch[key] = now;
      }
      return patch;
    };
    const told = () => {
      const patch = change(),
        keys = Object.keys(patch),
        words = keys.flatMap((key) => {
          const option = FIELDS.find(([each]) => each === key)[2];
          return typeof patch[key] === "boolean"
            ? [patch[key] ? `--${option}` : key === "keeps_history" ? "--no-history" : `--not-${option}`]
            : patch[key] === null
              ? []
              : [`--${option}`, String(patch[key])];
        });
      put(
        difference,
        keys.length
          ? [
              h(
                "ul",
                { class: "small" },
                keys.map((key) =>
                  h(
                    "li",
                    {},
                    h("code", {}, key),
                    ` ${log.settings[key] ?? "not set"} becomes `,
                    h("strong", {}, patch[key] ?? "not set"),
                  ),
                ),
              ),
              keys.some((key) => patch[key] === null) ? null : headwater("logs", "set", name, ...words),
            ]
          : remark("No changes."),
      );
      save.disabled = !keys.length;
    };
    const save = h(
      "button",
      {
        class: "primary",
        disabled: true,
        onclick: sending(error, async () => {
          const patch = change(),
            before = Object.fromEntries(Object.keys(patch).map((key) => [key, log.settings[key]]));
          const undo = async () => {
            try {
              await ask("PATCH", logPath(name), before);
              say("Nothing was changed");
              this.again();
            } catch (problem) {
              say(problem.message);
            }
          };
          const found = await dropping(`Change the settings of ${name}?`, (query) =>
            ask("PATCH", logPath(name, query), patch),
          );
          if (!found) return;
          say("The settings are changed", found.dropped ? undefined : undo);
          this.again();
        }),
      },
      "Save",
    );
    const rows = FIELDS.map(([key, about]) => {
      const value = log.settings[key],
        isTruth = typeof value === "boolean";
      const input = (inputs[key] =
        key === "default_start"
          ? h(
              "select",
              { id: `setting-${key}`, title: about, disabled: !acts },
              ["latest", "earliest"].map((each) => h("option", { selected: each === value }, each)),
            )
          : h("input", {
              id: `setting-${key}`,
              title: about,
              type: isTruth ? "checkbox" : "number",
              min: "1",
              checked: isTruth && value,
              value: isTruth ? "on" : (value ?? ""),
              disabled: !acts,
              placeholder: "not set",
            }));
      return h(
        "tr",
        {},
        h("td", {}, h("label", { for: `setting-${key}` }, h("code", {}, key))),
        h("td", {}, input),
        td("dim wide hide", about),
      );
    });
    const facts = factList([
      ["partitions", count(log.settings.partitions)],
      ["partition by", log.settings.partition_by || "group key, else the tags and type"],
      ["incarnation", h("code", {}, log.incarnation)],
      ["events", `${count(log.first_retained)} to ${count(log.head)}`],
    ]);
    const body = [
      h("header", {}, h("h2", {}, "For ever")),
      h("div", { class: "in" }, facts),
      h(
        "section",
        { oninput: told, onchange: told },
        h("h3", {}, "May change"),
        h("div", { class: "scroll" }, h("table", { class: "settings" }, h("tbody", {}, rows))),
        acts
          ? [difference, error, h("p", { class: "row" }, save)]
          : remark(`Changing them requires manage on ${name}.`),
      ),
      acts && !name.startsWith("$")
        ? h(
            "section",
            {},
            h("h3", {}, "Delete"),
            h(
              "p",
              { class: "row" },
              dim(
                "With all of its events, consumers and positions. Only a backup can restore it.",
              ),
              h("button", { class: "ends", onclick: () => this.drop(name) }, "Delete this log"),
            ),
          )
        : null,
    ];
    told();
    return body;
  }

  async drop(name) {
    const now = await get(logPath(name)),
      consumers = (world.peek()?.consumers ?? []).filter((each) => each.log === name);
    const done = await confirm(
      `Delete the log ${name}?`,
      [
        `${plural(now.events, "event")}, ${bytes(now.bytes)}, are dropped`,
        `${plural(consumers.length, "position")} of consumers are deleted`,
        "Its readers and producers are disconnected",
      ],
      { act: "Delete it", name, command: headwater("logs", "delete", name) },
    );
    if (!done) return;
    try {
      await fetched("DELETE", logPath(name));
      say(`${name} is deleted`);
      go("/console/logs");
    } catch (problem) {
      say(problem.message);
    }
  }
}
customElements.define("hw-log-settings", HwSettings);
