/* Everybody who has a position: how far behind, in events and in time; who holds what back; moving and ending them. */

import {
  NOTHING,
  View,
  ask,
  at,
  beside,
  bytes,
  card,
  choice,
  closer,
  confirm,
  count,
  crumbs,
  dropping,
  empty,
  factList,
  fetched,
  firstOf,
  formDialog,
  gap,
  get,
  go,
  h,
  headwater,
  heldBack,
  lagsLately,
  icon,
  lasting,
  link,
  logPath,
  mayAct,
  may,
  numberOrTime,
  pill,
  plural,
  put,
  rate,
  readEvents,
  remark,
  say,
  segment,
  skeleton,
  surveyNow,
  stats,
  svg,
  table,
  td,
  time,
  titled,
  trends,
  typedTime,
  who,
  world,
} from "./core.js";
import { chart, spark } from "./charts.js";
import { logHead, visited } from "./logs.js";

const KINDS = [
  ["all", "All"],
  ["registered", "Registered"],
  ["group", "AMQP groups"],
  ["durable", "Durable links"],
  ["stream", "Streams"],
  ["webhook", "Webhooks"],
];

/** Positions of all readers of a log, as one bar: trimmed, free to go, held back, done by some. */
export function standingBar(name, now, held, width = 1000) {
  const log = now.logs.find((each) => each.name === name),
    those = now.consumers.filter((each) => each.log === name);
  if (!log || log.problem) return null;
  const head = Number(stats.value?.logs?.[name]?.head ?? log.head),
    first = Number(log.firstRetained),
    trimmed = first > 1 ? 90 : 0,
    height = 84;
  const x = (number) =>
    trimmed +
    8 +
    Math.min(1, Math.max(0, (number - first + 1) / Math.max(1, head - first + 1))) * (width - trimmed - 16);
  const node = svg("svg", {
    viewBox: `0 0 ${width} ${height}`,
    height,
    role: "img",
    "aria-label": `${name}: ${plural(those.length, "consumer")}, the table has their positions`,
  });
  const registered = those
      .filter((each) => each.kind === "registered")
      .sort((a, b) => Number(a.position) - Number(b.position)),
    least = registered[0];
  node.append(
    svg(
      "defs",
      {},
      svg(
        "pattern",
        { id: "hatch", width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
        svg("rect", { class: "hatch-ground", width: 7, height: 7 }),
        svg("line", { class: "hatch-line", x1: 0, y1: 0, x2: 0, y2: 7 }),
      ),
    ),
  );
  const band = (kind, from, to, text) => {
    if (to - from < 1) return;
    node.append(svg("rect", { class: kind, x: from, y: 36, width: to - from, height: 20 }));
    if (text && to - from > text.length * 6.4)
      node.append(svg("text", { class: "inside", x: (from + to) / 2, y: 50, "text-anchor": "middle" }, text));
  };
  if (trimmed) band("trimmed", 8, x(first - 1), "trimmed");
  const to = least ? Number(least.position) : head;
  band("free", x(first - 1), x(to), least ? "done by all, may go" : "not held back");
  if (least && to < head) {
    const holders = registered.filter((each) => Number(each.position) === to),
      beyond = registered.find((each) => Number(each.position) > to),
      next = beyond ? Number(beyond.position) : head;
    const mine = held?.held_back?.find((each) => each.owner === least.owner && each.component === least.component),
      alone =
        holders.length === 1
          ? `${least.component} alone`
          : `${least.component} and ${plural(holders.length - 1, "other")}`;
    band(
      "held",
      x(to),
      x(next),
      `held back by ${alone}: ${plural(next - to, "event")}` +
        (mine && holders.length === 1 && !beyond ? `, ${bytes(mine.bytes)}` : ""),
    );
    if (beyond) band("free", x(next), x(head), "");
  }
  let right = Infinity;
  for (const each of [...those].sort((a, b) => Number(b.position) - Number(a.position)).slice(0, 12)) {
    const place = x(Number(each.position)),
      kind = each.lags ? " bad" : "";
    node.append(
      svg(
        "line",
        { class: `at${kind}`, x1: place, x2: place, y1: 32, y2: 60 },
        svg("title", {}, `${each.title}: ${count(each.position)}`),
      ),
    );
    const title = each.title.length > 32 ? `${each.title.slice(0, 31)}\u2026` : each.title,
      wide = title.length * 7,
      anchor = place > width - wide / 2 ? "end" : place < wide / 2 ? "start" : "middle";
    const ends = anchor === "end" ? place : anchor === "start" ? place + wide : place + wide / 2;
    if (ends > right - 8) continue;
    right = ends - wide;
    node.append(
      svg("text", { class: `name${kind}`, x: place, y: 14, "text-anchor": anchor }, title),
      svg("text", { x: place, y: 27, "text-anchor": anchor }, count(each.position)),
    );
  }
  node.append(
    svg("text", { x: 8, y: 74 }, trimmed ? "1" : `${count(first)} first retained`),
    trimmed ? svg("text", { x: x(first - 1), y: 74 }, `${count(first)} first retained`) : "",
    svg("text", { x: width - 8, y: 74, "text-anchor": "end" }, `${count(head)} head`),
  );
  return card(
    `Positions of all readers of ${name}`,
    `${plural(those.length, "consumer")}; by number${trimmed ? ", not to scale where trimmed" : ""}`,
    h("div", { class: "in strip" }, node),
  );
}

const LATELY = "in the last hour",
  SEEN = "since this page was opened"; // of those for whom the server had no room, or no time yet

class HwConsumers extends View {
  show() {
    this.log = this.params.log ?? null;
    if (this.log) visited(this.log, "Consumers");
    else crumbs.value = [["Consumers", null]];
    this.kind = "all";
    this.open = new Set();
    this.held = new Map();
    this.move = "head";
    this.target = "";
    this.top = h("div");
    this.bar = h("div");
    this.listed = h("div", { class: "card scroll" }, skeleton(6));
    this.side = h("aside", { class: "inspector" });
    put(this, this.top, h("div", { class: "stack" }, this.bar, h("div", { class: "split" }, this.listed, this.side)));
    this.lately = null;
    let isWeighed = false;
    this.watch(() => {
      if (!world.value) return;
      this.draw();
      if (!isWeighed) {
        queueMicrotask(() => this.weigh(this.leaving.signal).catch(() => {})); // asked again before long
        queueMicrotask(() => this.looked(this.leaving.signal).catch(() => {}));
      }
      isWeighed = true;
    });
    this.on(beside, "change", () => {
      if (world.peek()) this.draw();
    });
    this.moved();
    this.every(10000, (ending) => this.weigh(ending));
    this.every(10000, (ending) => this.looked(ending));
  }

  /** Ask how far behind they were in the last hour. */
  async looked(ending) {
    if (!world.peek()) return;
    this.lately = await lagsLately(world.peek().consumers, ending);
    this.draw();
  }

  moved() {
    this.chosen = new URLSearchParams(location.search).get("c");
    this.detailed = null;
    if (world.peek()) {
      this.draw();
      this.weigh(this.leaving.signal).catch(() => {});
    }
  }
  choose(key) {
    go(
      at(this.log ? logPath(this.log, `/consumers`) : "/consumers", key ? new URLSearchParams({ c: key }) : undefined),
      true,
    );
  }

  /** Ask what each registered consumer holds back: a trim that is not done says it. */
  async weigh(ending) {
    for (const log of new Set(
      (world.peek()?.consumers ?? [])
        .filter((each) => each.kind === "registered" && (!this.log || each.log === this.log))
        .map((each) => each.log),
    )) {
      if (!mayAct("manage", log)) continue;
      const head = world.peek().logs.find((each) => each.name === log)?.head;
      if (head)
        this.held.set(
          log,
          await heldBack(log, head, ending),
        );
    }
    this.draw();
  }

  holds(each) {
    if (each.kind !== "registered") return null;
    return (
      this.held.get(each.log)?.held_back?.find((one) => one.owner === each.owner && one.component === each.component)
        ?.bytes ?? (this.held.has(each.log) ? 0 : null)
    );
  }

  draw() {
    if (!world.peek()) return;
    const now = world.peek(),
      all = now.consumers.filter((each) => !this.log || each.log === this.log),
      shown = all.filter((each) => this.kind === "all" || each.kind === this.kind);
    const lag = all.filter((each) => each.lags).length,
      retried = this.log ? 0 : now.webhooks.filter((each) => Number(each.failures)).length,
      held = [...new Set(all.map((each) => each.log))].reduce(
        (sum, log) => sum + Math.max(0, ...(this.held.get(log)?.held_back ?? []).map((each) => Number(each.bytes))),
        0,
      );
    const kinds = KINDS.map(([kind, text]) => {
      const of = all.filter((each) => kind === "all" || each.kind === kind).length;
      return [kind, kind === "all" ? text : `${text} ${of}`];
    });
    const acts = [
      firstOf(now.consumers, "consumer"),
      choice("Kind", kinds, this.kind, (kind) => {
        this.kind = kind;
        this.draw();
      }),
      (this.log ? mayAct("manage", this.log) : now.logs.some((log) => mayAct("manage", log.name)))
        ? h("button", { onclick: () => this.register() }, icon("plus"), "Register")
        : null,
    ];
    put(
      this.top,
      this.log
        ? logHead(this.log, "/consumers", acts)
        : titled(
            "Consumers",
            h("span", {}, `${count(all.length)} of ${plural(new Set(all.map((each) => each.log)).size, "log")}`),
            lag ? h("span", { class: "bad" }, plural(lag, "lags", "lag")) : null,
            retried
              ? link("/webhooks", { class: "warn" }, `${plural(retried, "webhook is", "webhooks are")} retried`)
              : null,
            held ? h("span", {}, `${bytes(held)} held back from trimming`) : null,
            gap(),
            acts,
          ),
    );
    const first = beside.matches ? (all.find((each) => each.lags) ?? all[0]) : undefined,
      picked = all.find((each) => each.key === this.chosen) ?? first,
      name = (picked ?? all[0])?.log ?? this.log;
    put(this.bar, name ? standingBar(name, now, this.held.get(name), Math.max(280, this.clientWidth - 30)) : null);
    put(
      this.listed,
      shown.length
        ? table(
            [
              ["Consumer"],
              ["Kind", "hide"],
              ["Log"],
              ["Behind, events", "n"],
              ["Behind, time", "n"],
              ["Last hour", "hide"],
              ["Takes /s", "n hide"],
              ["Heard of", "n hide"],
              ["Holds back", "n hide"],
            ],
            shown.flatMap((each) => this.row(each, picked)),
          )
        : empty(
            all.length ? "None of this kind." : "There are no positions here.",
            h(
              "p",
              {},
              "A registered consumer keeps its position on the server and holds back trimming; it " +
                "continues there after a restart.",
            ),
            headwater("consumers", "register", this.log ?? now.logs[0]?.name ?? "orders", "billing", "invoicer"),
          ),
    );
    if (picked) this.detail(picked, now);
    else {
      this.detailed = null;
      put(this.side);
    }
  }

  row(each, picked) {
    const kind = each.lags ? "bad" : "",
      held = this.holds(each),
      hour = this.lately?.of.get(each.key),
      trend = hour ?? (trends.get(each.key) ?? []).map((one) => one[1] / 1000),
      still = each.partitions?.filter((one) => one.lag > 0 && !one.owner).length,
      isOpen = this.open.has(each.key);
    const rows = [
      h(
        "tr",
        {
          data: { open: "1", key: each.key },
          "aria-selected": String(each === picked),
          onclick: () => this.choose(each.key),
        },
        h(
          "td",
          { title: each.title },
          h(
            "a",
            {
              class: "clip",
              href: `?c=${encodeURIComponent(each.key)}`,
              onclick: (event) => {
                event.preventDefault();
                this.choose(each.key);
              },
            },
            each.title,
          ),
          still ? h("span", { class: "warn" }, ` ${still} of ${each.partitions.length} without owner`) : null,
          each.partitions?.length
            ? h(
                "button",
                {
                  class: "plain small",
                  "aria-expanded": String(isOpen),
                  "aria-label": "Partitions",
                  onclick: (event) => {
                    event.stopPropagation();
                    this.open[isOpen ? "delete" : "add"](each.key);
                    this.draw();
                  },
                },
                icon(isOpen ? "down" : "right"),
              )
            : null,
        ),
        td("dim hide", each.kindName),
        td("clip", each.log),
        td("n", count(each.lag)),
        td(
          `n ${kind}`,
          Number(each.lag) ? (each.lagMs === null ? "?" : lasting(Number(each.lagMs))) : NOTHING,
        ),
        td("hide", spark(trend, { kind, unit: `s behind, ${hour ? LATELY : SEEN}` })),
        td("n hide", rate(each.takes)),
        td(
          "n dim hide",
          each.seenAt
            ? time(each.seenAt, Date.now() - each.seenAt < 2000 ? "now" : lasting(Date.now() - each.seenAt))
            : NOTHING,
        ),
        td(
          `n hide ${held && each.lags ? "bad" : "dim"}`,
          held ? bytes(held) : held === null && each.kind === "registered" ? "?" : NOTHING,
        ),
      ),
    ];
    if (isOpen)
      rows.push(
        h(
          "tr",
          { class: "more" },
          h(
            "td",
            { colspan: "9" },
            h(
              "div",
              { class: "inner" },
              table(
                [
                  ["Partition"],
                  ["Events behind", "n"],
                  ["Time behind", "n"],
                  ["Position", "n"],
                  ["Owner"],
                  ["Epoch", "n"],
                ],
                each.partitions.map((one) =>
                  h(
                    "tr",
                    {},
                    h("td", {}, one.number),
                    td("n", count(one.lag)),
                    td("n", one.lag ? lasting(one.lagMs) : NOTHING),
                    td("n mono", count(one.position)),
                    h("td", { class: one.owner ? "" : "dim" }, one.owner ?? "nobody"),
                    td("n dim", one.epoch ?? 0),
                  ),
                ),
              ),
            ),
          ),
        ),
      );
    return rows;
  }

  /** The detail of one; made once, so that what is typed stays, and its numbers anew. */
  detail(each, now) {
    const trend = trends.get(each.key) ?? [],
      kind = each.lags ? "bad" : "",
      isRising = trend.length > 3 && trend.at(-1)[1] > trend[0][1];
    const head = stats.value?.logs?.[each.log]?.head ?? now.logs.find((log) => log.name === each.log)?.head ?? 0;
    if (this.detailed?.key !== each.key) {
      this.detailed = { key: each.key, numbers: h("div"), acts: h("div"), next: h("span", {}, NOTHING) };
      put(this.detailed.acts, this.acts(each));
      put(this.side, h("div", { class: "card" }, this.detailed.numbers, this.detailed.acts));
      this.nextAfter = null;
    }
    const facts = [
      ["acknowledged", h("span", { class: "mono" }, count(each.position))],
      ["next for it", this.detailed.next],
      each.registeredAt ? ["registered", [time(Number(each.registeredAt)), `, ${plural(each.epoch, "time")}`]] : null,
      each.seenAt ? ["heard of", [lasting(Date.now() - Number(each.seenAt)), " ago"]] : null,
      each.container ? ["container", each.container] : null,
      each.expiryPolicy ? ["forgotten", each.expiryPolicy === "never" ? "never" : `after ${each.expiryPolicy}`] : null,
      each.members !== undefined ? ["members", count(each.members)] : null,
      each.isAttached !== undefined ? ["attached", each.isAttached ? "yes" : "no"] : null,
    ].filter(Boolean);
    const hour = this.lately?.of.get(each.key),
      known = hour?.findIndex((one) => one !== null) ?? -1,
      seconds = known >= 0 ? hour.slice(known) : trend.map((one) => one[1] / 1000),
      inMinutes = seconds.some((one) => one > 120),
      values = seconds.map((one) => (one === null ? null : one / (inMinutes ? 60 : 1)));
    const [newest, step] =
      known >= 0
        ? [this.lately.newest_at, this.lately.step_s]
        : [trend.at(-1)?.[0], Math.max(1, ((trend.at(-1)?.[0] - trend[0]?.[0]) / 1000 || 0) / (values.length - 1))];
    put(
      this.detailed.numbers,
      h(
        "header",
        {},
        h("h2", {}, each.title),
        each.lags ? pill("bad plain", "lags") : Number(each.lag) ? null : pill("good plain", "up to date"),
        h(
          "span",
          { class: "right" },
          `on ${each.log}`,
          closer(() => this.choose(null)),
        ),
      ),
      h(
        "div",
        { class: "in row" },
        h(
          "div",
          {},
          h(
            "div",
            { class: `big ${kind}` },
            Number(each.lag) ? (each.lagMs === null ? "?" : lasting(Number(each.lagMs))) : "0",
          ),
          h("div", { class: "dim small" }, `behind${isRising ? ", rising" : ""}`),
        ),
        h("div", {}, h("div", { class: "big" }, count(each.lag)), h("div", { class: "dim small" }, "events behind")),
      ),
      h(
        "section",
        {},
        h("h3", {}, "Time behind ", h("span", { class: "right" }, inMinutes ? "minutes" : "seconds")),
        values.length > 1
          ? chart(
              "hw-series",
              {
                series: [{ name: "behind", colour: each.lags ? "bad" : "c0", values }],
                newest_at: newest,
                step_s: step,
                height: 110,
                unit: inMinutes ? "min" : "s",
              },
              { label: `Time behind, ${known >= 0 ? LATELY : SEEN}` },
            )
          : remark("shown from when this page was opened"),
      ),
      h(
        "section",
        {},
        factList(facts),
      ),
    );
    if (this.nextAfter !== String(each.position)) {
      this.nextAfter = String(each.position);
      this.nextFor(each, head);
    }
    this.passes?.(each, BigInt(head));
  }

  async nextFor(each, head) {
    const node = this.detailed.next;
    if (BigInt(each.position) >= BigInt(head) || !may("read", each.log)) {
      put(node, BigInt(each.position) >= BigInt(head) ? "nothing yet" : NOTHING);
      return;
    }
    try {
      const body = { query: { all: true }, after: BigInt(each.position), limit: 1, data_bytes_max: 0 },
        [found] = await readEvents(each.log, body, this.leaving.signal);
      if (!found) {
        put(node, "nothing yet");
        return;
      }
      put(
        node,
        `${found.event.type}, `,
        time(found.recorded_at),
        " ",
        link(logPath(each.log, `/${found.sequence_number}`), { class: "link" }, "open"),
      );
    } catch (problem) {
      if (problem.name !== "AbortError") put(node, problem.message);
    }
  }

  // ---- Acts -------------------------------------------------------------------------------------

  acts(each) {
    if (!mayAct("manage", each.log) && !(each.kind === "durable" && mayAct("manage"))) {
      this.passes = null;
      return h(
        "section",
        {},
        remark(
          who.peek()?.console?.read_only
            ? "This console is read-only."
            : `Moving or ending it requires manage on ${each.log}.`,
        ),
      );
    }
    if (each.kind === "webhook") {
      this.passes = null;
      return h("section", {}, h("p", {}, link("/webhooks", { class: "link" }, "Delivery status")));
    }
    const type = { group: "consumerGroup", durable: "durableLink", stream: "stream" }[each.kind];
    const isHeld = (now) => Number(now.members) > 0 || now.isAttached === true;
    const forgetting =
      type &&
      h(
        "section",
        {},
        h("h3", {}, "Forget it"),
        remark(
          isHeld(each)
            ? "It has members, which must be detached or leave first."
            : "Its position is deleted. A new one with its name starts where it asks to, or at the " +
                "log's default.",
        ),
        headwater("manage", "delete", type, each.name),
        h(
          "p",
          { class: "row" },
          h("button", { class: "ends", disabled: isHeld(each), onclick: () => this.forget(each, type) }, "Forget"),
        ),
      );
    if (type && each.kind !== "group") {
      this.passes = null;
      return forgetting;
    }
    const reset = type ? ["groups", "reset", each.name] : ["consumers", "reset", each.log, each.owner, each.component];
    const passes = h("span", { class: "right" }),
      target = h("input", {
        placeholder: numberOrTime(),
        "aria-label": "Number or time",
        value: this.target,
        oninput: () => {
          this.target = target.value;
          radios[1].checked = true;
          this.move = "to";
          draw();
        },
      }),
      same = h("div"),
      button = h("button", { class: "primary", onclick: () => this.moveIt(each) }, "Skip to the head");
    const radios = ["head", "to"].map((value) =>
      h("input", {
        type: "radio",
        name: "move",
        value,
        checked: this.move === value,
        onchange: () => {
          this.move = value;
          draw();
        },
      }),
    );
    const draw = async () => {
      const [number, words] = await this.aim(each),
        over = number === null ? null : number - BigInt(this.now?.position ?? each.position);
      put(passes, number === null ? "" : over >= 0n ? `skips ${count(over)}` : `goes back by ${count(-over)}`);
      put(
        same,
        headwater(
          ...(this.move === "head" && !type
            ? ["consumers", "skip", each.log, each.owner, each.component]
            : [...reset, "--after", number === null ? "N" : String(number)]),
        ),
      );
      put(button, this.move === "head" ? "Skip to the head" : words ? `Continue after ${words}` : "Move it");
      button.disabled = number === null || isHeld(this.now ?? each); // who is a member holds its own place
    };
    this.passes = (now, head) => {
      this.now = now;
      this.head = head;
      draw();
    };
    this.head = BigInt(world.peek().logs.find((log) => log.name === each.log)?.head ?? 0);
    draw();
    const moving = h(
      "section",
      {},
      h("h3", {}, "Move it"),
      h(
        "div",
        { class: "stack small-gap" },
        h("div", { class: "row" }, h("label", {}, radios[0], "Skip to the head"), passes),
        h("div", { class: "row" }, h("label", {}, radios[1], "To a number or time"), target),
        same,
        h(
          "div",
          { class: "row" },
          button,
          gap(),
          type ? null : h("button", { class: "ends", onclick: () => this.unregister(each) }, "Unregister"),
        ),
      ),
    );
    return [moving, forgetting];
  }

  /** Where the chosen move leads: [number, its words], or null where nothing that can be read is typed. */
  async aim(each) {
    if (this.move === "head") return [this.head, count(this.head)];
    const text = this.target.trim().replace(/[, ]/g, "");
    if (/^\d{1,19}$/.test(text)) return [BigInt(text) > this.head ? null : BigInt(text), count(BigInt(text))];
    const ms = typedTime(this.target);
    if (Number.isNaN(ms)) return [null, ""];
    try {
      const found = await get(logPath(each.log, `/position?at=${ms}`), this.leaving.signal);
      return [BigInt(found.sequence_number) - 1n, count(BigInt(found.sequence_number) - 1n)];
    } catch {
      return [null, ""];
    } // what the number of that time is cannot be known now: the button stays off
  }

  path(each, act = "") {
    return logPath(each.log, `/consumers/${segment(each.owner)}/${segment(each.component)}${act}`);
  }

  /** Have it go on after a number: a group in all partitions, or by partition as it is given. */
  carry(each, after, query = "") {
    if (each.kind !== "group") return ask("POST", this.path(each, `/reset${query}`), { after });
    const partitions = world.peek().logs.find((log) => log.name === each.log)?.partitions ?? 1,
      all = Array.from({ length: Number(partitions) }, (_, number) => [number, after]),
      positions = typeof after === "bigint" ? Object.fromEntries(all) : after;
    return ask("PATCH", `/management/consumerGroup/${segment(each.name)}`, { positions });
  }

  async moveIt(each) {
    const [number] = await this.aim(each),
      before = this.now ?? each;
    if (number === null) return;
    const undo = async () => {
      try {
        await this.carry(each, before.positions ?? BigInt(before.position));
        say("Its position did not change");
      } catch (problem) {
        say(problem.message);
      }
    };
    try {
      const found = await dropping(`Move ${each.title}?`, (query) =>
        this.carry(each, number, query),
      );
      if (!found) return;
      say(`${each.title} continues after ${count(number)}`, found.dropped ? undefined : undo);
      surveyNow();
    } catch (problem) {
      say(problem.message);
    }
  }

  async unregister(each) {
    let held = null;
    try {
      held = await ask("POST", logPath(each.log, "/trim"), { below: this.head + 1n, dry_run: true });
    } catch (problem) {
      say(problem.message);
      return;
    }
    const mine = held.held_back.find((one) => one.owner === each.owner && one.component === each.component),
      frees = Number(mine?.events ?? 0);
    const done = await confirm(
      `Unregister ${each.title}?`,
      [
        frees
          ? `It holds back ${plural(frees, "event")}, ${bytes(mine.bytes)}, which may then be trimmed`
          : "It holds nothing back",
        "Its position is deleted: if registered again, it starts at the head",
        "A program that uses this name is refused from then on",
      ],
      {
        act: "Unregister",
        command: headwater("consumers", "unregister", each.log, each.owner, each.component),
        ...(frees ? { name: each.component } : {}),
      },
    );
    if (!done) return;
    try {
      const found = await dropping(`Unregister ${each.title}?`, (query) => fetched("DELETE", this.path(each, query)));
      if (!found) return;
      say(`${each.title} is unregistered`);
      this.choose(null);
      surveyNow();
    } catch (problem) {
      say(problem.message);
    }
  }

  async forget(each, type) {
    if (
      !(await confirm(
        `Forget ${each.title}?`,
        [`Its position, ${count(each.position)} on ${each.log}, is deleted`, "Events are not affected"],
        { act: "Forget it", command: headwater("manage", "delete", type, each.name) },
      ))
    )
      return;
    try {
      await fetched("DELETE", `/management/${type}/${segment(each.name)}`);
      say(`${each.title} is forgotten`);
      this.choose(null);
      surveyNow();
    } catch (problem) {
      say(problem.message);
    }
  }

  register() {
    const log = h(
        "select",
        {},
        world
          .peek()
          .logs.filter((each) => mayAct("manage", each.name))
          .map((each) => h("option", { selected: each.name === this.log }, each.name)),
      ),
      owner = h("input", { required: true, autofocus: true, spellcheck: "false" }),
      component = h("input", { required: true, spellcheck: "false" }),
      after = h("input", { placeholder: "the head", inputmode: "numeric", pattern: "[0-9]*" });
    formDialog(
      "Register a consumer",
      "Register",
      [
        h("label", {}, "Log", log),
        h("label", {}, "Owner: the user who runs it", owner),
        h("label", {}, "Component: its name, unique per owner", component),
        h("label", {}, "Continues after this number", after),
      ],
      () =>
        headwater(
          "consumers",
          "register",
          log.value,
          owner.value || "OWNER",
          component.value || "COMPONENT",
          ...(after.value ? ["--after", after.value] : []),
        ),
      async (dialog) => {
        const path = `/consumers/${segment(owner.value)}/${segment(component.value)}`;
        const found = await dropping(`Register ${owner.value} / ${component.value}?`, (query) =>
          ask("PUT", logPath(log.value, path + query), after.value ? { after: BigInt(after.value) } : {}),
        );
        if (!found) return;
        dialog.close();
        say("It is registered and holds back trimming from now on");
        surveyNow();
      },
    );
  }

  key(event) {
    const keys = [...this.listed.querySelectorAll("tr[data-key]")].map((each) => each.getAttribute("data-key")),
      place = keys.indexOf(this.chosen),
      by = { j: 1, k: -1 }[event.key.toLowerCase()];
    if (by && keys.length) this.choose(keys[Math.min(keys.length - 1, Math.max(0, place + by))]);
    else if (event.key === "Escape" && this.chosen) this.choose(null);
  }
}
customElements.define("hw-consumers", HwConsumers);
