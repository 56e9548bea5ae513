/* The disk, the segments of each log, how long events are kept; and a trim, with what it drops before it is done. */

import {
  NOTHING,
  View,
  ask,
  bytes,
  card,
  clock,
  complain,
  confirm,
  count,
  crumbs,
  day,
  dim,
  empty,
  gap,
  get,
  h,
  headwater,
  history,
  howMany,
  lasting,
  link,
  logPath,
  mayAct,
  may,
  minute,
  numberOrTime,
  pill,
  plural,
  put,
  remark,
  say,
  skeleton,
  surveyNow,
  stats,
  svg,
  table,
  td,
  time,
  titled,
  trouble,
  typedTime,
  world,
} from "./core.js";
import { logHead, visited } from "./logs.js";
import { reserveIn } from "./telling.js";

/** How long events are kept, in a sentence. */
export function retention(log, consumers) {
  const found = [];
  if (log.retentionMs !== null) found.push(`events older than ${lasting(Number(log.retentionMs))} are dropped`);
  if (log.retentionBytes !== null) found.push(`above ${bytes(log.retentionBytes)} the oldest are dropped`);
  if (log.retentionUntilAcknowledged)
    found.push(`events acknowledged by all are dropped${consumers.length ? "" : ", but no consumer is registered"}`);
  const least = consumers
    .filter((each) => each.kind === "registered")
    .sort((a, b) => Number(a.position) - Number(b.position))[0];
  if (!found.length) return "Nothing is dropped automatically.";
  const sentence = `${found.join("; ")}${least ? `; nothing that ${least.title} has not done` : ""}.`;
  return sentence.replace(/^./, (letter) => letter.toUpperCase());
}

/** What the scrub does, and what it found, in sentences; null where there is none. */
export function scrubbed(numbers) {
  if (numbers?.scrub_running === undefined) return null;
  const { scrub_running: runs, scrub_ended_at: ended, scrub_bytes: read, scrub_damaged: damaged } = numbers,
    mended = numbers.scrub_mended,
    pass = runs
      ? `The scrub is verifying all files on the disk: ${bytes(read)} so far`
      : ended
        ? `The scrub verified all files on the disk, until ${day(ended)} ${minute(ended)}: ${bytes(read)}`
        : "The scrub has not verified the files yet",
    found = damaged ? `${plural(damaged, "damaged place")}; headwater scrub lists them` : "no damage is known";
  return `${pass}; ${found}.${mended ? ` ${count(mended)} mended from the home since the start.` : ""}`;
}

class HwStorage extends View {
  show() {
    this.log = this.params.log ?? null;
    if (this.log) visited(this.log, "Storage");
    else crumbs.value = [["Storage", null]];
    this.top = h("div");
    this.disk = h("div");
    this.listed = h("div");
    this.trimming = h("div");
    put(this, this.top, h("div", { class: "stack" }, this.disk, this.listed, this.trimming));
    this.watch(() => {
      if (world.value) this.draw();
      else put(this.listed, h("div", { class: "card" }, skeleton(5)));
    });
    if (this.log)
      this.every(
        5000,
        (ending) => this.load(ending),
        (problem) => put(this.listed, trouble(problem)),
      );
    else
      this.every(30000, async (ending) => {
        if (!may("manage")) return;
        this.past = await history(["disk_free_bytes"], 1, ending);
        if (world.peek()) this.draw();
      });
  }

  again() {
    if (this.log) this.load(this.leaving.signal).catch(() => {});
  }

  draw() {
    const now = world.peek(),
      numbers = stats.value?.server;
    put(
      this.top,
      this.log
        ? logHead(this.log, "/storage")
        : titled(
            "Storage",
            h(
              "span",
              {},
              `${howMany(now.logs, "log")}: ` +
                `${bytes(now.logs.reduce((sum, log) => sum + Number(log.bytes ?? 0), 0))} of events, ` +
                `${bytes(now.logs.reduce((sum, log) => sum + Number(log.allocatedBytes ?? 0), 0))} of files`,
            ),
          ),
    );
    if (this.log) return;
    const free = numbers?.disk_free_bytes,
      size = numbers?.disk_bytes,
      reserve = numbers?.disk_reserve_bytes;
    put(
      this.disk,
      !may("manage")
        ? h("p", { class: "nothing" }, "The disk is shown to users with manage on the server.")
        : card(
            "Disk",
            free === undefined
              ? "logs are in memory"
              : `${bytes(free)} free of ${bytes(size)}; below ${bytes(reserve)} appends are refused, reads and ` +
                  "trims still work",
            free === undefined
              ? null
              : h(
                  "div",
                  { class: "in strip" },
                  this.diskBar(free, size, reserve, now),
                  this.forecast(free, reserve),
                  h("p", { class: numbers.scrub_damaged ? "bad" : "dim" }, scrubbed(numbers)),
                ),
          ),
    );
    put(
      this.listed,
      h(
        "section",
        { class: "card scroll" },
        table(
          [
            ["Log"],
            ["Events", "n"],
            ["Size", "n"],
            ["Files", "n"],
            ["Segments", "n hide"],
            ["First retained", "n hide"],
            ["Kept"],
          ],
          now.logs.map((log) =>
            h(
              "tr",
              {},
              h("td", {}, link(logPath(log.name, `/storage`), {}, h("strong", {}, log.name))),
              log.problem
                ? h("td", { class: "bad", colspan: "6" }, log.problem)
                : [
                    td("n", count(log.events)),
                    td("n", bytes(log.bytes)),
                    td("n dim", bytes(log.allocatedBytes)),
                    td("n hide", count(log.segments)),
                    td("n mono hide", count(log.firstRetained)),
                    td(
                      "dim",
                      retention(
                        log,
                        now.consumers.filter((each) => each.log === log.name),
                      ),
                    ),
                  ],
            ),
          ),
        ),
      ),
    );
  }

  /** When the reserve is reached; nothing where it is not, or not known. */
  forecast(free, reserve) {
    const left = reserveIn(this.past, free, reserve);
    if (left === null || left === Infinity) return null;
    return h(
      "p",
      { class: "dim" },
      `At the rate of the last hour, the reserve is reached in about ${lasting(left * 1000)}.`,
    );
  }

  diskBar(free, size, reserve, now) {
    const width = Math.max(280, this.clientWidth - 30),
      node = svg("svg", {
        viewBox: `0 0 ${width} 48`,
        height: 48,
        role: "img",
        "aria-label": `${bytes(free)} of ${bytes(size)} are free`,
      }),
      own = now.logs.reduce((sum, log) => sum + Number(log.allocatedBytes ?? 0), 0),
      x = (part) => (part / size) * width;
    node.append(
      svg("rect", { class: "trimmed", x: 0.5, y: 4, width: width - 1, height: 16 }),
      svg("rect", { x: 0, y: 4, width: x(size - free), height: 16, fill: "var(--other)", opacity: 0.5 }),
      svg("rect", { x: 0, y: 4, width: Math.max(1, x(own)), height: 16, fill: "var(--s0)" }),
      svg("line", { class: "at bad", x1: x(size - reserve), x2: x(size - reserve), y1: 0, y2: 24 }),
      svg("text", { x: 0, y: 40 }, `logs ${bytes(own)}, others ${bytes(Math.max(0, size - free - own))}`),
      svg("text", { x: width, y: 40, "text-anchor": "end", class: "bad" }, `reserve ${bytes(reserve)}`),
    );
    return node;
  }

  async load(ending) {
    const [found, log] = await Promise.all([
      get(logPath(this.log, "/segments?limit=1000"), ending),
      get(logPath(this.log), ending),
    ]);
    const now = world.peek(),
      entity = now?.logs.find((each) => each.name === this.log),
      those = (now?.consumers ?? []).filter((each) => each.log === this.log);
    this.found = found;
    put(
      this.listed,
      h(
        "section",
        { class: "card" },
        h(
          "header",
          {},
          h("h2", {}, "Segments"),
          dim(entity ? retention(entity, those) : null),
          h("span", { class: "right" }, link(logPath(this.log, `/settings`), { class: "link" }, "Change how long")),
        ),
        found.segments.length ? h("div", { class: "in strip" }, this.ages(found.segments)) : null,
        found.segments.length
          ? h(
              "div",
              { class: "scroll" },
              table(
                [["Events"], ["", "n"], ["Size", "n"], ["File", "n hide"], ["Recorded", ""], [""]],
                [...found.segments]
                  .reverse()
                  .slice(0, 50)
                  .map((each) =>
                    h(
                      "tr",
                      {},
                      td(
                        "mono",
                        link(logPath(this.log, `/${each.first}`), {}, `${count(each.first)} to ${count(each.last)}`),
                      ),
                      td("n", plural(each.events, "event")),
                      td("n", bytes(each.bytes)),
                      td("n dim hide", bytes(each.allocated_bytes)),
                      h(
                        "td",
                        {},
                        each.first_recorded_at
                          ? [time(each.first_recorded_at), " to ", time(each.last_recorded_at)]
                          : NOTHING,
                      ),
                      h("td", {}, each.is_written ? pill("plain", "is written to") : null),
                    ),
                  ),
              ),
            )
          : empty("No event is retained."),
        found.segments.length > 50
          ? h("p", { class: "empty small" }, `${count(found.segments.length - 50)} older segments are not shown.`)
          : null,
      ),
    );
    if (!this.trimming.firstChild) this.trim(log);
  }

  /** The segments as a bar by size, older to the left, with the day at which each begins. */
  ages(segments) {
    const width = Math.max(280, this.clientWidth - 30),
      whole = segments.reduce((sum, each) => sum + Number(each.bytes), 0) || 1,
      node = svg("svg", {
        viewBox: `0 0 ${width} 46`,
        height: 46,
        role: "img",
        "aria-label": `${segments.length} segments, oldest first; the table has them`,
      });
    let x = 0,
      free = -Infinity;
    for (const each of segments) {
      const wide = (Number(each.bytes) / whole) * width;
      node.append(
        svg(
          "rect",
          {
            x: x + 0.5,
            y: 4,
            width: Math.max(0.5, wide - 1),
            height: 18,
            fill: each.is_written ? "var(--s0)" : "var(--other)",
            opacity: each.is_written ? 0.8 : 0.45,
          },
          svg("title", {}, `${count(each.first)} to ${count(each.last)}, ${bytes(each.bytes)}`),
        ),
      );
      if (x - free > 120 && wide > 20) {
        node.append(
          svg(
            "text",
            { x, y: 40 },
            each.first_recorded_at
              ? `${day(each.first_recorded_at).slice(5)} ${clock(each.first_recorded_at).slice(0, 5)}`
              : "",
          ),
        );
        free = x;
      }
      x += wide;
    }
    return node;
  }

  // ---- Trim -------------------------------------------------------------------------------------

  trim(log) {
    if (!mayAct("manage", this.log)) {
      put(
        this.trimming,
        card(
          "Trim",
          null,
          h(
            "p",
            { class: "empty" },
            `Previewing and running a trim requires manage on ${this.log}, and a console that is not read-only.`,
          ),
        ),
      );
      return;
    }
    const input = h("input", {
        class: "mono",
        placeholder: numberOrTime(),
        "aria-label": "Trim events below",
        spellcheck: "false",
      }),
      slider = h("input", {
        type: "range",
        min: "0",
        max: "1000",
        value: "0",
        "aria-label": "Trim events below, by sliding",
      }),
      told = h("div", { "aria-live": "polite" }),
      button = h("button", { class: "ends", disabled: true, onclick: () => this.drop(this.below) }, "Trim\u2026");
    const first = BigInt(log.first_retained),
      head = BigInt(log.head);
    let turn = 0;
    const look = async () => {
      const asked = ++turn,
        text = input.value.trim();
      this.below = null;
      button.disabled = true;
      if (!text) {
        put(
          told,
          remark("Enter the first number or time to keep, or use the slider."),
        );
        return;
      }
      try {
        if (/^[\d, ]+$/.test(text)) this.below = BigInt(text.replace(/[, ]/g, ""));
        else {
          const ms = typedTime(text);
          if (Number.isNaN(ms)) {
            put(told, h("p", { class: "bad small" }, "Expected a number or a time."));
            return;
          }
          this.below = BigInt(
            (await get(logPath(this.log, `/position?at=${ms}`), this.leaving.signal)).sequence_number,
          );
        }
        const found = await this.preview(this.below);
        if (asked !== turn) return;
        put(told, this.told(found));
        button.disabled = !Number(found.events);
      } catch (problem) {
        if (problem.name !== "AbortError" && asked === turn) put(told, trouble(problem, look));
      }
    };
    slider.addEventListener("input", () => {
      input.value = String(first + ((head - first + 1n) * BigInt(slider.value)) / 1000n);
      look();
    });
    input.addEventListener("input", look);
    this.look = look;
    put(
      this.trimming,
      card(
        "Trim",
        "with a preview; registered consumers are respected",
        h(
          "div",
          { class: "in stack small-gap" },
          h(
            "div",
            { class: "row trim" },
            dim("drop events below"),
            input,
            slider,
            gap(),
            button,
          ),
          told,
        ),
      ),
    );
    look();
  }

  preview(below) {
    return ask("POST", logPath(this.log, "/trim"), { below, dry_run: true }, this.leaving.signal);
  }

  told(found) {
    const held = found.held_back ?? [];
    return [
      h(
        "p",
        { data: { events: String(found.events) } },
        h("strong", {}, plural(found.events, "event")),
        `, about ${bytes(found.bytes)}, are dropped; ${plural(found.freed_segments, "segment")} with ` +
          `${bytes(found.freed_bytes)} are freed on the disk. The log then starts at `,
        h("span", { class: "mono" }, count(found.first_retained)),
        ".",
      ),
      Number(found.held_back_by)
        ? h(
            "p",
            { class: "warn" },
            `Held back by ${plural(found.held_back_by, "consumer")}: `,
            held
              .slice(0, 5)
              .map((each, place) => [
                place ? ", " : "",
                h("strong", {}, `${each.owner} / ${each.component}`),
                ` ${plural(each.events, "event")}, ${bytes(each.bytes)}`,
              ]),
            held.length > 5 ? " and others" : "",
            ".",
          )
        : null,
      headwater("logs", "trim", this.log, "--below", String(this.below)),
    ];
  }

  async drop(below) {
    let found;
    try {
      found = await this.preview(below);
    } catch (problem) {
      complain(problem);
      return;
    } // read anew: a consumer may have come meanwhile
    const lines = [
      `${plural(found.events, "event")}, about ${bytes(found.bytes)}, are deleted permanently`,
      `The log then starts at ${count(found.first_retained)}; readers below are notified`,
      Number(found.held_back_by)
        ? `${plural(found.held_back_by, "consumer holds", "consumers hold")} back the rest`
        : "Nothing is held back",
    ];
    if (
      !(await confirm(`Trim ${this.log}?`, lines, {
        act: `Drop ${plural(found.events, "event")}`,
        name: this.log,
        command: headwater("logs", "trim", this.log, "--below", String(below)),
      }))
    )
      return;
    try {
      const done = await ask("POST", logPath(this.log, "/trim"), { below });
      say(`${this.log} begins at ${count(done.first_retained)}`);
      surveyNow();
      put(this.trimming);
      await this.load(this.leaving.signal);
    } catch (problem) {
      complain(problem);
    }
  }
}
customElements.define("hw-storage", HwStorage);
