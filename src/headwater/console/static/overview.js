/* The overview: what needs somebody, what the server does, who is behind, what happens. */

import {
  NOTHING,
  View,
  at,
  away,
  awayWhy,
  bytes,
  card,
  choice,
  clock,
  count,
  crumbs,
  dim,
  empty,
  following,
  gap,
  get,
  go,
  grown,
  h,
  happenings,
  headwater,
  heldBack,
  history,
  howMany,
  icon,
  lagSeries,
  lasting,
  link,
  may,
  mayAct,
  noLog,
  pill,
  plural,
  put,
  rate,
  short,
  sized,
  skeleton,
  standing,
  stats,
  table,
  td,
  time,
  titled,
  trends,
  trouble,
  world,
  logPath,
} from "./core.js";
import { chart, colours, spark } from "./charts.js";
import { before, keptTypes, kindOf, reserveIn, worded } from "./telling.js";

const RANGES = [
  ["0.25", "15 min"],
  ["1", "1 h"],
  ["6", "6 h"],
  ["24", "24 h"],
];
const BIGGEST = 4;
const FURTHEST = 4;
/** From then on a replica refuses reads, unless it is configured otherwise. */
const STALE_MS = 30000;

/** What waits for somebody: [kind, what, more, address], worst first. `held`: bytes by the key of who holds them. */
export function needs(now, numbers, happened, held = new Map()) {
  const found = [],
    serverPage = may("manage") ? "/storage" : "/logs";
  for (const log of now.logs)
    if (log.problem)
      found.push([
        "bad",
        `The log ${log.name} cannot be opened`,
        `${log.problem}. Appends and reads are refused.`,
        serverPage,
      ]);
  for (const reason of now.troubles) found.push(["bad", "The server has a problem", reason, "/happenings"]);
  found.push(...now.servers.flatMap(ofServer));
  for (const each of now.consumers) {
    if (!each.lags) continue;
    const heard = each.seenAt ? `Last seen ${lasting(Date.now() - each.seenAt)} ago` : "",
      holds = held.get(each.key) ? `${heard ? "holds" : "Holds"} back ${bytes(held.get(each.key))} from trimming` : "",
      causes = [heard, holds].filter(Boolean).join("; ");
    found.push([
      "bad",
      `${each.title} is ${each.lagMs === null ? "" : `${lasting(Number(each.lagMs))} `}behind on ${each.log}`,
      `${plural(each.lag, "event")}${rising(each)}.${causes ? ` ${causes}.` : ""}`,
      `/consumers?c=${encodeURIComponent(each.key)}`,
    ]);
  }
  for (const each of now.webhooks) {
    const [text, kind] = standing(each),
      since = each.failingSince ? ` since ${clock(Number(each.failingSince))}` : "",
      said = each.problem ? `${each.problem}. ` : "";
    if (kind === "bad" || kind === "warn")
      found.push([
        kind,
        `The webhook ${each.endpoint} ${kind === "bad" ? "is suspended" : "fails"}${since}`,
        kind === "bad"
          ? `${said}Delivery stops until it is resumed; ${plural(each.deadLetters, "event")} given up.`
          : `${said}${text[0].toUpperCase()}${text.slice(1)}. After too many failures it is suspended.`,
        "/webhooks",
      ]);
  }
  const free = numbers?.server?.disk_free_bytes,
    reserve = numbers?.server?.disk_reserve_bytes;
  if (free !== undefined && reserve && free < reserve * 2)
    found.push([
      free <= reserve ? "bad" : "warn",
      free <= reserve ? "The disk is at its reserve" : "The disk is near its reserve",
      `${bytes(free)} are free; below ${bytes(reserve)} appends are refused, but reads and trims still work.`,
      may("manage") ? "/storage" : null,
    ]);
  const minutes = (name, ago) =>
    happened.filter((each) => each.eventType.endsWith(name) && Date.now() - each.time < ago * 60000);
  const clocks = happened.find((each) => /clock\.(jumped|settled)$/.test(each.eventType));
  if (clocks?.eventType.endsWith("jumped"))
    found.push([
      "warn",
      "The system's clock jumped",
      `It shows ${clocks.shown}; events get ${clocks.trusted}, until it is trusted.`,
      "/happenings?type=clock",
    ]);
  const wrong = minutes("authentication.failed", 15).length;
  if (wrong >= 5)
    found.push([
      "warn",
      "Logins fail",
      `${plural(wrong, "wrong login")} in the last 15 min.`,
      may("manage") ? "/happenings?type=authentication" : null,
    ]);
  return found.sort((a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0));
}

/** What of a server of the home waits for somebody. */
function ofServer(each) {
  const place = may("manage") ? "/happenings?type=home" : null;
  if (each.ahead) return [["bad", `The server ${each.server} is ahead of the home`, `${each.ahead}.`, place]];
  if (each.role === "went back")
    return [["bad", "The home lost events", `${each.server} refuses appends until this is accepted.`, place]];
  if (!each.runs)
    return [
      [
        "warn",
        `The server ${each.server} is silent`,
        `It has not reported to the home for ${lasting(Number(each.heardMs))}. It was ${each.role}.`,
        place,
      ],
    ];
  if (each.role === "following" && Number(each.lagMs) > STALE_MS)
    return [
      [
        "warn",
        `The replica ${each.server} is ${lasting(Number(each.lagMs))} behind the home`,
        `${plural(each.lag ?? 0, "event")} at its last check. Reads there are refused.`,
        place,
      ],
    ];
  return [];
}

function rising(each) {
  const trend = trends.get(each.key) ?? [];
  return trend.length > 2 && trend.at(-1)[1] > trend[0][1] ? ", rising" : "";
}

/** How long events of a log are kept, as a phrase. */
export function keptFor(log) {
  const found = [];
  if (log.retentionMs !== null && log.retentionMs !== undefined) found.push(lasting(Number(log.retentionMs)));
  if (log.retentionBytes !== null && log.retentionBytes !== undefined) found.push(bytes(log.retentionBytes));
  if (log.retentionUntilAcknowledged) return found.length ? `${found.join(", ")} or until done` : "until done";
  return found.join(", ") || "for ever";
}

class HwOverview extends View {
  show() {
    crumbs.value = [
      ["Overview", null],
      [location.host, null],
    ];
    this.hours = new URLSearchParams(location.search).get("range") ?? "1";
    this.parts = Object.fromEntries(
      ["head", "needs", "five", "protocols", "servers", "appended", "behind", "logs", "happens"].map((name) => [
        name,
        h("div"),
      ]),
    );
    const { head, needs: above, five, protocols, servers, appended, behind, logs, happens } = this.parts;
    put(
      this,
      head,
      h(
        "div",
        { class: "stack numbers" },
        above,
        five,
        protocols,
        servers,
        h("div", { class: "cards over" }, appended, behind),
        h("div", { class: "cards under" }, logs, happens),
      ),
    );
    this.past = null;
    this.hasLooked = false;
    this.held = new Map();
    put(appended, h("div", { class: "card" }, skeleton(5)));
    this.watch(() => this.heading());
    this.watch(() => {
      if (world.value) {
        this.needing();
        queueMicrotask(() => {
          if (this.hasLooked) return; // both were begun when the page was shown, if it knew then of what
          this.load();
          this.weigh(this.leaving.signal).catch(() => {}); // without it, the rest is said
        });
      } else put(above, skeleton(1));
    });
    this.watch(() => this.numbers());
    this.watch(() => this.home());
    this.watch(() => this.lagging());
    this.watch(() => this.logged());
    this.watch(() => this.happening());
    this.happened().catch(() => {}); // without it, the list begins now
    this.every(15000, (ending) => this.weigh(ending));
    this.load = this.every(
      5000,
      (ending) => this.looked(ending),
      (problem) => {
        if (!this.past)
          put(
            appended,
            h(
              "div",
              { class: "card" },
              trouble(problem, () => this.load()),
            ),
          );
      },
    );
  }

  again() {
    this.load();
  }

  async happened() {
    const ending = this.leaving.signal;
    this.kept = await before(9, (await keptTypes(ending)) ?? [], ending);
    this.happening();
  }

  /** Ask what those hold back who lag: it is said with them. */
  async weigh(ending) {
    const lag = (world.peek()?.consumers ?? []).filter((each) => each.lags && each.kind === "registered").slice(0, 4);
    for (const each of lag) {
      const head = world.peek().logs.find((log) => log.name === each.log)?.head;
      if (!head || !mayAct("manage", each.log)) continue;
      const own = (one) => one.owner === each.owner && one.component === each.component;
      this.held.set(each.key, (await heldBack(each.log, head, ending)).held_back.find(own)?.bytes);
    }
    if (lag.length) this.needing();
  }

  async looked(ending) {
    if (!world.peek()) return;
    this.hasLooked = true;
    const logs = (world.peek()?.logs ?? []).filter((log) => !log.problem),
      known = new Set((await get("/console/history", ending)).series);
    const most = [...logs]
      .sort((one, other) => Number(other.eventsAppended) - Number(one.eventsAppended))
      .slice(0, 12)
      .map((log) => log.name);
    const server = may("manage")
      ? [
          "events_appended",
          "events_read",
          "commit_seconds_max",
          "disk_free_bytes",
          "amqp_messages_received",
          "amqp_messages_sent",
          "requests",
        ]
      : [];
    const behind = world.peek().consumers.slice(0, FURTHEST);
    const wanted = [
      ...server,
      ...behind.map(lagSeries),
      ...most.flatMap((name) =>
        ["events_appended", "events_read", "commits", "fsync_seconds", "conditions_failed"].map(
          (each) => `${name}/${each}`,
        ),
      ),
    ].filter((name) => known.has(name));
    if (!wanted.length) {
      put(this.parts.appended);
      return;
    }
    this.past = await history(wanted, Number(this.hours), ending);
    this.pastLogs = most.filter((name) => this.past.series[`${name}/events_appended`]);
    this.drawn();
    this.lagging();
  }

  heading() {
    const now = world.value,
      totals = now?.logs ?? [],
      server = now?.server;
    const events = totals.reduce((sum, log) => sum + Number(log.events ?? 0), 0),
      size = totals.reduce((sum, log) => sum + Number(log.bytes ?? 0), 0);
    const why = awayWhy.value ? `: ${awayWhy.value}` : "";
    const ready = away.value
      ? h("span", { class: "ready bad" }, h("span", { class: "dot bad" }), `Away since ${clock(away.value)}${why}`)
      : now &&
        (now.ready?.status === "ready"
          ? h("span", { class: "ready good" }, h("span", { class: "dot good" }), "Ready")
          : h("span", { class: "ready bad" }, h("span", { class: "dot bad" }), now.ready?.detail ?? "Not ready"));
    put(
      this.parts.head,
      titled(
        "Overview",
        ready,
        server
          ? [
              h("span", {}, `version ${server.version}`),
              h("span", {}, "up ", time(Number(server.startedAt), lasting(Date.now() - Number(server.startedAt)))),
            ]
          : null,
        now ? h("span", {}, `${howMany(totals, "log")}, ${short(events)} events, ${bytes(size)}`) : null,
        gap(),
        choice("Range", RANGES, this.hours, (range) => {
          this.hours = range;
          window.history.replaceState({}, "", at("/", new URLSearchParams({ range })));
          this.heading();
          this.load();
        }),
      ),
    );
  }

  needing() {
    const now = world.value,
      found = needs(now, stats.peek(), happenings.value, this.held),
      place = this.parts.needs;
    if (!found.length) {
      put(place, h("p", { class: "nothing" }, "Nothing needs attention."));
      return;
    }
    put(
      place,
      h(
        "ul",
        {
          class: `card needs ${found.some((each) => each[0] === "bad") ? "" : "soon"}`,
          "aria-label": "Needs attention",
        },
        found.map(([kind, what, more, address]) =>
          h(
            "li",
            {},
            h("span", { class: kind }, icon("warn", kind === "bad" ? "now" : "soon")),
            h("strong", {}, what),
            h("p", {}, more),
            address ? link(address, { class: "button small" }, "Look at it") : null,
          ),
        ),
      ),
    );
  }

  /** A sum over all logs of what they count. */
  sum(name) {
    const now = stats.value;
    if (!now?.before) return null;
    return Object.keys(now.logs).reduce((sum, log) => sum + (grown(now, log, name) ?? 0), 0);
  }

  over(name) {
    const lines = (this.pastLogs ?? []).map((log) => this.past.series[`${log}/${name}`]).filter(Boolean);
    return lines.length
      ? lines[0].map((_, index) => {
          const known = lines.map((line) => line[index]).filter((each) => each !== null);
          return known.length ? known.reduce((a, b) => a + b, 0) : null;
        })
      : [];
  }

  numbers() {
    const now = stats.value,
      everything = may("manage");
    if (!now) {
      put(this.parts.five, h("div", { class: "card" }, skeleton(2)));
      put(this.parts.protocols);
      return;
    }
    const appended = this.sum("events_appended"),
      read = this.sum("events_read"),
      commits = this.sum("commits"),
      synced = this.sum("fsync_seconds"),
      conflicts = this.sum("conditions_failed"),
      refused = this.sum("refused");
    const longs = this.over("fsync_seconds").map((each, index) => {
      const of = this.over("commits")[index];
      return each !== null && of ? (each / of) * 1000 : null;
    });
    const commit = commits ? (synced / commits) * 1000 : (longs.findLast?.((each) => each !== null) ?? null),
      peaks = (this.past?.series.commit_seconds_max ?? []).filter((each) => each !== null),
      slowest = peaks.length ? Math.max(...peaks) * 1000 : Math.max(0, ...longs.filter((each) => each !== null));
    const tile = (label, value, unit, note, figure, kind = "") =>
      h(
        "div",
        {},
        h("div", { class: "label" }, label),
        h("div", { class: "figure" }, h("div", { class: `big ${kind}` }, value, h("small", {}, unit)), figure),
        h("div", { class: "note", title: typeof note === "string" ? note : null }, note),
      );
    const free = now.server?.disk_free_bytes,
      size = now.server?.disk_bytes,
      reserve = now.server?.disk_reserve_bytes;
    const past = this.past?.series ?? {};
    const [freeNumber, freeUnit] = sized(free);
    const budget = now.server?.memory_budget_bytes,
      held = budget ? `; ${bytes(now.server.memory_held_bytes)} of ${bytes(budget)} memory held for peers` : "";
    put(
      this.parts.five,
      h(
        "div",
        { class: "card tiles" },
        tile(
          "Appended",
          rate(appended),
          "/s",
          commits ? `${rate(commits)} commits/s, ${rate(appended / commits)} events each` : "no commits at present",
          spark(past.events_appended ?? this.over("events_appended")),
        ),
        tile(
          "Read and sent",
          rate(read),
          "/s",
          everything
            ? `${plural(now.server?.streams ?? 0, "follower")}, ` +
              `${plural(world.value?.groups?.length ?? 0, "group")}${held}`
            : "of logs that you can read",
          spark(past.events_read ?? this.over("events_read")),
        ),
        tile(
          "Commit",
          commit === null ? NOTHING : commit < 9.95 ? commit.toFixed(2) : count(commit),
          commit === null ? "" : " ms",
          slowest ? `longest ${peaks.length ? "" : "mean "}in the range ${slowest.toFixed(1)} ms` : "none in the range",
          spark(longs, { unit: "ms" }),
        ),
        tile(
          "Conflicts",
          rate(conflicts),
          "/s",
          (conflicts && appended
            ? `${((conflicts / (conflicts + (commits || 1))) * 100).toFixed(2)} % of commits, `
            : "") + `${rate(refused)} refused/s`,
          spark(this.over("conditions_failed")),
        ),
        !everything
          ? tile("Disk free", NOTHING, "", "requires manage on the server")
          : free === undefined
            ? tile("Disk free", NOTHING, "", "logs are in memory")
            : tile(
                "Disk free",
                freeNumber,
                ` ${freeUnit}`,
                size ? `of ${bytes(size)}${this.forecast(free, reserve)}` : "",
                meter(free, size, reserve),
                reserve && free < reserve * 2 ? "bad" : "",
              ),
      ),
    );
    this.protocols(now, everything);
  }

  /** When the reserve is reached, if it goes on as in the range. */
  forecast(free, reserve) {
    const left = reserveIn(this.past, free, reserve);
    if (left === null) return "";
    return left < Infinity ? `; reserve in about ${lasting(left * 1000)}` : "; reserve far away";
  }

  protocols(now, everything) {
    const past = world.value,
      clients = past?.clients ?? [],
      of = (name) => clients.filter((each) => each.protocol === name).length;
    if (!everything || !past) {
      put(
        this.parts.protocols,
        past
          ? h("p", { class: "nothing" }, "Protocols, connections and the disk are shown with manage on the server.")
          : null,
      );
      return;
    }
    const tile = (title, protocol, note, kind = "", fallback = []) => {
      const isCounted = now.server?.[`${protocol}_events_in`] !== undefined;
      const [in_, out] = isCounted
        ? ["in", "out"].map((way) => grown(now, null, `${protocol}_events_${way}`))
        : fallback;
      return h(
        "div",
        {},
        h("div", { class: "label" }, h("strong", {}, title)),
        h(
          "div",
          {},
          in_ === undefined
            ? h("span", { class: "dim small" }, "events are not counted")
            : [h("b", {}, rate(in_), h("small", {}, " in")), h("b", {}, rate(out), h("small", {}, " out"))],
        ),
        h("div", { class: `note ${kind}` }, note),
      );
    };
    const bad = past.webhooks.filter((each) => ["bad", "warn"].includes(standing(each)[1])).length,
      hooks = past.webhooks.filter((each) => each.endpoint).length;
    put(
      this.parts.protocols,
      h(
        "div",
        { class: "card tiles five" },
        tile(
          "DCB over HTTP",
          "http",
          `${plural(of("http"), "connection")}, ${rate(grown(now, null, "requests"))} requests/s`,
        ),
        tile("AMQP 1.0", "amqp", plural(now.server?.amqp_connections ?? 0, "connection"), "", [
          grown(now, null, "amqp_messages_received"),
          grown(now, null, "amqp_messages_sent"),
        ]),
        tile("FutoIn", "futoin", plural(of("websocket"), "WebSocket")),
        tile(
          "O-RAN notifications",
          "cne",
          bad
            ? `${bad} of ${plural(hooks, "webhook")} fails`
            : hooks
              ? `${plural(hooks, "webhook")}, all deliver`
              : "no webhooks",
          bad ? "warn" : "",
        ),
        tile("Arrow Flight", "flight", `${plural(of("flight"), "client")} in the last hour`),
      ),
    );
  }

  /** The servers of the home, if this one shares a home: who appends, and how far the others are behind. */
  home() {
    const servers = world.value?.servers ?? [];
    put(
      this.parts.servers,
      servers.length
        ? h(
            "section",
            { class: "card scroll" },
            h(
              "header",
              {},
              h("h2", {}, "Servers of this home"),
              h("span", { class: "right" }, plural(servers.filter((each) => each.runs).length, "runs", "run")),
            ),
            table(
              [["Server"], ["Role"], ["Behind, events", "n"], ["Behind, time", "n"], ["Heard of", "n hide"], [""]],
              [...servers].sort((a, b) => Number(b.term ?? 0) - Number(a.term ?? 0)).map((each) => this.server(each)),
            ),
          )
        : null,
    );
  }

  server(each) {
    const late = each.runs && each.role === "following" && Number(each.lagMs) > STALE_MS;
    return h(
      "tr",
      {},
      td("clip", h("strong", {}, each.server), " ", dim(each.addresses?.http)),
      h(
        "td",
        {},
        each.role,
        each.term ? dim(`, term ${count(each.term)}`) : null,
        each.since ? dim(` for ${lasting(Date.now() - Number(each.since))}: ${each.why}`) : null,
      ),
      td("n", each.role === "primary" ? NOTHING : count(each.lag)),
      td(
        `n ${late ? "warn" : ""}`,
        each.role === "primary" ? NOTHING : each.lagMs === null ? "?" : lasting(Number(each.lagMs)),
      ),
      td("n dim hide", Number(each.heardMs) < 2000 ? "now" : lasting(Number(each.heardMs))),
      h(
        "td",
        {},
        each.ahead
          ? pill("bad plain", "ahead of the home")
          : each.runs
            ? null
            : pill("warn plain", "silent"),
      ),
    );
  }

  /** What comes of the past: once in some seconds. */
  drawn() {
    const all = this.pastLogs ?? [],
      total = (log) => this.past.series[`${log}/events_appended`].reduce((sum, each) => sum + (each ?? 0), 0);
    const sorted = [...all].sort((a, b) => total(b) - total(a)),
      first = sorted.slice(0, BIGGEST).filter((log) => total(log) > 0 || sorted.length === 1),
      rest = sorted.slice(first.length);
    const colour = colours([...first].sort());
    const series = first.map((log) => ({
      name: log,
      colour: colour.get(log),
      values: this.past.series[`${log}/events_appended`],
    }));
    if (rest.length && rest.some((log) => total(log) > 0))
      series.push({
        name: plural(rest.length, "other"),
        colour: "c6",
        values: this.past.series[`${rest[0]}/events_appended`].map((_, index) =>
          rest.reduce((sum, log) => sum + (this.past.series[`${log}/events_appended`][index] ?? 0), 0),
        ),
      });
    const data = { series, newest_at: this.past.newest_at, step_s: this.past.step_s, height: 158, unit: "/s" };
    if (!series.length)
      put(
        this.parts.appended,
        card(
          "Appended",
          null,
          h("p", { class: "empty" }, "No events were appended in this time."),
        ),
      );
    else if (this.chart?.isConnected && this.legend === series.map((each) => each.name).join()) this.chart.data = data;
    else {
      this.chart = chart("hw-series", data, { label: "Events appended per second, by log" });
      this.legend = series.map((each) => each.name).join();
      put(
        this.parts.appended,
        h(
          "section",
          { class: "card" },
          h(
            "header",
            {},
            h("h2", {}, "Appended"),
            h(
              "span",
              { class: "legend" },
              series.map((each) => h("span", {}, h("i", { class: `square ${each.colour}` }), each.name)),
            ),
            h("span", { class: "right" }, "events per second"),
          ),
          h("div", { class: "in" }, this.chart),
        ),
      );
    }
    this.logged();
  }

  lagging() {
    const now = world.value;
    if (!now) {
      put(this.parts.behind, h("div", { class: "card" }, skeleton(4)));
      return;
    }
    const rows = now.consumers.slice(0, FURTHEST);
    put(
      this.parts.behind,
      card(
        "Furthest behind",
        `time and events, of ${count(now.consumers.length)}`,
        rows.length
          ? h(
              "table",
              { "aria-label": "Furthest behind" },
              h(
                "tbody",
                {},
                rows.map((each) => {
                  const kind = each.lags ? "bad" : "",
                    past = this.past?.series[lagSeries(each)];
                  return h(
                    "tr",
                    {
                      data: { open: "1" },
                      onclick: () => go(at("/consumers", new URLSearchParams({ c: each.key }))),
                    },
                    td(
                      "wide",
                      h("div", { class: "clip" }, link(`/consumers?c=${encodeURIComponent(each.key)}`, {}, each.title)),
                      h("div", { class: "dim small" }, each.log),
                    ),
                    td(
                      kind,
                      past
                        ? spark(past, { kind, unit: "s behind" })
                        : spark(
                            (trends.get(each.key) ?? []).map((one) => one[1] / 1000),
                            { kind, unit: "s behind, since this page was opened" },
                          ),
                    ),
                    td(
                      "n",
                      h("div", { class: kind }, lasting(Number(each.lagMs))),
                      h("div", { class: "dim small" }, count(each.lag)),
                    ),
                  );
                }),
              ),
            )
          : empty(
              "There are no positions.",
              h(
                "p",
                {},
                "Registered consumers, groups and durable links, which keep their position, are shown here " +
                  "with their lag.",
              ),
              headwater(
                "consumers",
                "register",
                now.logs.find((log) => !log.name.startsWith("$"))?.name ?? "orders",
                "billing",
                "invoicer",
              ),
            ),
      ),
    );
  }

  logged() {
    const now = world.value,
      numbers = stats.value;
    if (!now) {
      put(this.parts.logs, h("div", { class: "card" }, skeleton(5)));
      return;
    }
    const worst = (name) =>
      now.consumers
        .filter((each) => each.log === name)
        .reduce((most, each) => (Number(each.lagMs) > Number(most?.lagMs ?? -1) ? each : most), null);
    const rows = now.logs.slice(0, 12).map((log) => {
      const behind = worst(log.name),
        head = numbers?.logs?.[log.name]?.head;
      return h(
        "tr",
        {},
        td("clip", link(logPath(log.name), {}, h("strong", {}, log.name))),
        log.problem
          ? h("td", { class: "bad", colspan: "6" }, "cannot be opened")
          : [
              td(
                "n",
                count(head === undefined ? log.events : Math.max(0, Number(head) - Number(log.firstRetained) + 1)),
              ),
              td(
                "n",
                rate(grown(numbers, log.name, "events_appended") ?? (numbers?.before ? 0 : null)),
              ),
              td("hide", spark(this.past?.series[`${log.name}/events_appended`])),
              td("n", bytes(log.bytes)),
              td(`n ${behind?.lags ? "bad" : ""}`, behind ? lasting(Number(behind.lagMs)) : NOTHING),
              td("dim", keptFor(log)),
            ],
      );
    });
    put(
      this.parts.logs,
      h(
        "section",
        { class: "card" },
        h(
          "header",
          {},
          h("h2", {}, "Logs"),
          now.logs.length > 12
            ? h("span", { class: "right" }, link("/logs", {}, `all ${count(now.logs.total ?? now.logs.length)}`))
            : null,
        ),
        rows.length
          ? table(
              [["Name"], ["Events", "n"], ["/s", "n"], ["", "hide"], ["Size", "n"], ["Behind", "n"], ["Kept"]],
              rows,
            )
          : noLog(),
      ),
    );
  }

  happening() {
    const live = happenings.value,
      oldest = live.at(-1)?.time ?? Infinity,
      rows = [...live, ...(this.kept ?? []).filter((each) => each.time < oldest)].slice(0, 9);
    put(
      this.parts.happens,
      card(
        "What happens",
        following(),
        rows.length
          ? h(
              "table",
              { "aria-label": "What happens" },
              h(
                "tbody",
                {},
                rows.map((each) =>
                  h(
                    "tr",
                    {},
                    td("faint", time(each.time, clock(each.time))),
                    h(
                      "td",
                      {},
                      h("span", { class: `dot ${kindOf(each)}` }),
                      " ",
                      h("strong", {}, each.eventType.replace("io.headwater.", "")),
                    ),
                    td("wide dim", worded(each)),
                  ),
                ),
              ),
            )
          : h("p", { class: "empty" }, "Nothing since this page was opened."),
      ),
    );
  }
}
customElements.define("hw-overview", HwOverview);

function meter(free, size, reserve) {
  if (!size) return null;
  const used = h("i"),
    line = reserve ? h("u", { title: `reserve: ${bytes(reserve)}` }) : null;
  used.style.width = `${Math.min(100, (1 - free / size) * 100)}%`;
  if (line) line.style.left = `${(1 - reserve / size) * 100}%`;
  return h(
    "span",
    { class: "meter", role: "img", "aria-label": `${bytes(size - free)} of ${bytes(size)} are used` },
    used,
    line,
  );
}
