/* Who is connected, what each does or waits for, and closing them. */

import {
  NOTHING,
  View,
  at,
  bytes,
  choice,
  clock,
  command,
  confirm,
  count,
  crumbs,
  dim,
  empty,
  entities,
  entityTypes,
  fetched,
  firstOf,
  go,
  h,
  happenings,
  history,
  howMany,
  icon,
  lasting,
  mayAct,
  may,
  pill,
  plural,
  put,
  rate,
  say,
  segment,
  skeleton,
  table,
  td,
  time,
  titled,
  trouble,
  who,
  world,
  stats,
  grown,
  shell,
} from "./core.js";
import { spark } from "./charts.js";
import { kindOf, worded } from "./telling.js";

const STALLED_MS = 30000,
  LATELY = ["amqp_connections", "requests", "futoin_events_out", "flight_events_out", "refusals"],
  REFUSALS = /connection\.refused|authentication\.failed|link\.refused|forbidden/;

/** What a link does, in a word: [text, kind]; null where nothing is to be said. The server says what it waits for;
   else its facts do. */
export function diagnosis(links, connection) {
  if (connection.stage !== "frames") return ["logging in", "plain"];
  const since = (each) => (each.waitsSince ? ` for ${lasting(Date.now() - Number(each.waitsSince))}` : "");
  const worst = (test) => links.filter(test).sort((a, b) => Number(a.waitsSince ?? 0) - Number(b.waitsSince ?? 0))[0];
  const receives = links.filter((each) => each.role === "receiver" && Number(each.lag) > 0),
    still = (each) => each.past?.length > 5 && each.past.slice(-15).every((value) => value === 0),
    old = (each) =>
      each.waitsFor === undefined ? still(each) : Date.now() - Number(each.waitsSince ?? 0) > STALLED_MS;
  const unsettled = worst(
    (each) =>
      receives.includes(each) &&
      old(each) &&
      (each.waitsFor === "outcomes" ||
        (each.waitsFor === undefined && Number(each.credit) === 0 && Number(each.unsettled) > 0)),
  );
  if (unsettled) return [`settles nothing${since(unsettled)}`, "warn"];
  const asks = worst(
    (each) =>
      receives.includes(each) &&
      old(each) &&
      (each.waitsFor === "credit" ||
        (each.waitsFor === undefined && Number(each.credit) === 0 && !Number(each.unsettled))),
  );
  if (asks) return [`gives no credit${since(asks)}`, "warn"];
  const reads = worst((each) => old(each) && (each.waitsFor === "reading" || each.waitsFor === "window"));
  if (reads) return [`reads nothing${since(reads)}`, "warn"];
  return links.length ? null : ["no links", "plain"];
}

const returns = (n) => plural(n, "unsettled message") + " will return";

class HwConnections extends View {
  show() {
    this.kind = this.params.kind ?? "amqp";
    crumbs.value = [
      ["Connections", "/connections"],
      [
        { amqp: "AMQP 1.0", http: "HTTP", websocket: "WebSockets", flight: "Arrow Flight", refused: "Refused" }[
          this.kind
        ] ?? this.kind,
        null,
      ],
    ];
    this.open = new Set();
    this.text = "";
    this.only = "all";
    this.rates = new Map();
    this.top = h("div");
    this.tiles = h("div");
    this.find = h("div", { class: "query" });
    this.listed = h("div", { class: "scroll" }, skeleton(6));
    if (!may("manage")) {
      put(
        this,
        h("div", { class: "head" }, h("h1", {}, "Connections")),
        h(
          "div",
          { class: "card" },
          empty(
            "Connections are shown to users with manage on the server.",
            h("p", {}, `${who.peek()?.user} does not have it.`),
          ),
        ),
      );
      return;
    }
    put(
      this,
      this.top,
      h("div", { class: "stack" }, this.tiles, h("section", { class: "card" }, this.find, this.listed)),
    );
    this.finding();
    this.every(
      2000,
      (ending) => this.load(ending),
      (problem) => put(this.listed, trouble(problem)),
    );
    this.watch(() => {
      void happenings.value;
      if (this.connections) this.draw();
    });
    this.every(10000, async (ending) => {
      this.past = await history(LATELY, 1, ending);
      if (this.connections) this.draw();
    });
  }

  again() {
    this.load(this.leaving.signal).catch(() => {});
  }

  async load(ending) {
    const [connections, links, clients] = await Promise.all([
      entities("connection", { signal: ending }),
      entities("link", { signal: ending }),
      entities("client", { signal: ending }),
    ]);
    const types = await entityTypes(ending),
      now = Date.now();
    this.refusals = types.has("refusal") ? await entities("refusal", { signal: ending }) : null;
    this.readers = types.has("reader") ? await entities("reader", { signal: ending }) : [];
    for (const link of links) {
      const before = this.rates.get(link.name),
        passed = before ? (now - before.at) / 1000 : 0;
      const value = before && passed > 0 ? Math.max(0, (Number(link.deliveries) - before.deliveries) / passed) : null;
      link.rate = value;
      link.past = [...(before?.past ?? []), ...(value === null ? [] : [value])].slice(-300);
      this.rates.set(link.name, { at: now, deliveries: Number(link.deliveries), past: link.past });
    }
    for (const each of connections) {
      each.own = links.filter((link) => link.connection === each.name);
      const sum = (role) => {
        const of = each.own.filter((link) => link.role === role);
        return of.some((link) => link.rate === null) ? null : of.reduce((total, link) => total + link.rate, 0);
      };
      each.in = sum("sender");
      each.out = sum("receiver");
      each.tells = diagnosis(each.own, each);
      each.past = each.own
        .map((link) => this.rates.get(link.name).past)
        .reduce((sums, past) => past.map((value, place) => (value === null ? null : value + (sums[place] ?? 0))), []);
    }
    this.connections = connections;
    this.links = links;
    this.clients = clients;
    this.at = now;
    this.draw();
  }

  finding() {
    const input = h("input", {
      placeholder: "Container, user, peer, product or log",
      "aria-label": "Find",
      oninput: () => {
        this.text = input.value.toLowerCase();
        this.draw();
      },
    });
    this.filters = h("span");
    this.age = h("span", { class: "right" });
    put(this.find, input, this.filters, this.age);
  }

  draw() {
    const { connections, clients, links } = this,
      of = (protocol) => clients.filter((each) => each.protocol === protocol),
      refused = happenings.peek().filter((each) => REFUSALS.test(each.eventType));
    const stalled = connections.filter((each) => each.tells?.[1] === "warn").length,
      held = connections.reduce((sum, each) => sum + Number(each.bytesHeld ?? 0), 0),
      now = stats.peek();
    put(
      this.top,
      titled(
        "Connections",
        firstOf(connections, "AMQP connection") ??
          h("span", {}, `${count(connections.length + of("http").length + of("websocket").length)} open`),
        firstOf(clients, "other client"),
        firstOf(this.readers, "reader"),
        firstOf(this.refusals, "refusal"),
        stalled ? h("span", { class: "warn" }, plural(stalled, "reads nothing", "take nothing")) : null,
        h("span", {}, `${bytes(held)} from producers on the way to the disk`),
      ),
    );
    const past = this.past?.series ?? {},
      server = world.peek()?.server;
    const tile = (kind, label, number, unit, note, lately, looks = {}) =>
      h(
        "button",
        {
          "aria-pressed": String(this.kind === kind),
          onclick: () => go(at(`/connections/${kind}`)),
        },
        h("div", { class: "label" }, h("strong", {}, label)),
        h(
          "div",
          { class: "figure" },
          h("div", { class: "big" }, count(number), unit ? h("small", {}, ` ${unit}`) : null),
          lately ? spark(lately, looks) : null,
        ),
        h("div", { class: "note" }, note),
      );
    put(
      this.tiles,
      h(
        "div",
        { class: "card tiles kinds" },
        tile(
          "amqp",
          "AMQP 1.0",
          connections.total ?? connections.length,
          server?.connectionsMax ? `of ${count(server.connectionsMax)}` : null,
          `${howMany(links, "link")}, ${rate(grown(now, null, "amqp_messages_received"))} /s in, ` +
            `${rate(grown(now, null, "amqp_messages_sent"))} /s out`,
          past.amqp_connections,
          { unit: "connections" },
        ),
        tile(
          "http",
          "HTTP",
          of("http").length,
          server?.httpConnectionsMax ? `of ${count(server.httpConnectionsMax)}` : null,
          `${plural(of("http").filter((each) => each.isAnswering).length, "request")} run`,
          past.requests,
          { unit: "requests/s" },
        ),
        tile("websocket", "WebSockets", of("websocket").length, null, "of FutoIn", past.futoin_events_out, {
          unit: "events/s sent",
        }),
        tile("flight", "Arrow Flight", of("flight").length, null, "seen in the last hour", past.flight_events_out, {
          unit: "events/s sent",
        }),
        tile(
          "refused",
          "Refused",
          this.refusals ? this.refusals.reduce((sum, each) => sum + Number(each.count), 0) : refused.length,
          this.refusals ? "in the hour" : "since this page was opened",
          "credentials, rights, limits",
          past.refusals,
          { kind: "warn", unit: "refused/s" },
        ),
      ),
    );
    put(this.age, `as of ${clock(this.at)}`);
    const has = (...texts) =>
      !this.text ||
      texts.some((text) =>
        String(text ?? "")
          .toLowerCase()
          .includes(this.text),
      );
    put(this.filters);
    if (this.kind === "amqp") this.amqp(has);
    else if (this.kind === "refused" && this.refusals)
      put(
        this.listed,
        this.refusals.length
          ? table(
              [["Last"], ["What"], ["Why"], ["User"], ["Peer"], ["Times", "n"], ["Since", "n"]],
              [...this.refusals]
                .sort((a, b) => Number(b.lastAt) - Number(a.lastAt))
                .filter((each) => has(each.user, each.peer, each.reason))
                .map((each) =>
                  h(
                    "tr",
                    {},
                    td("mono", time(Number(each.lastAt))),
                    h("td", {}, each.kind),
                    h(
                      "td",
                      {},
                      each.reason,
                      each.right
                        ? dim(` ${each.right} on ${each.log === "*" ? "the server" : each.log}`)
                        : null,
                    ),
                    h("td", {}, each.user ?? NOTHING),
                    td("mono", each.peer ?? NOTHING),
                    td("n", count(each.count)),
                    td("n dim", time(Number(each.firstAt))),
                  ),
                ),
            )
          : h("p", { class: "empty" }, "There were no refusals in the last hour."),
      );
    else if (this.kind === "refused")
      put(
        this.listed,
        refused.length
          ? table(
              [["Time"], ["What"], [""]],
              refused.map((each) =>
                h(
                  "tr",
                  {},
                  td("mono", time(each.time, clock(each.time))),
                  h(
                    "td",
                    {},
                    h("span", { class: `dot ${kindOf(each)}` }),
                    " ",
                    each.eventType.replace("io.headwater.", ""),
                  ),
                  td("wide dim", worded(each)),
                ),
              ),
            )
          : h("p", { class: "empty" }, "There were no refusals since this page was opened."),
      );
    else this.others(of(this.kind).filter((each) => has(each.peer, each.user, each.request)));
  }

  amqp(has) {
    const all = this.connections;
    /** @type {[string, string, (each: any) => boolean][]} */
    const groups = [
        ["all", `All ${all.length}`, () => true],
        [
          "send",
          `Send ${all.filter((each) => each.own.some((link) => link.role === "sender")).length}`,
          (each) => each.own.some((link) => link.role === "sender"),
        ],
        [
          "receive",
          `Receive ${all.filter((each) => each.own.some((link) => link.role === "receiver")).length}`,
          (each) => each.own.some((link) => link.role === "receiver"),
        ],
        [
          "stalled",
          `Stalled ${all.filter((each) => each.tells?.[1] === "warn").length}`,
          (each) => each.tells?.[1] === "warn",
        ],
      ];
    put(
      this.filters,
      choice(
        "Which",
        groups.map(([value, text]) => [value, text]),
        this.only,
        (value) => {
          this.only = value;
          this.draw();
        },
      ),
    );
    const shown = all
      .filter(groups.find(([value]) => value === this.only)[2])
      .filter((each) => has(each.containerId, each.user, each.peer, each.product, ...each.own.map((link) => link.log)));
    const rows = shown.flatMap((each) => {
      const isOpen = this.open.has(each.name),
        row = h(
          "tr",
          {
            data: { open: "1" },
            "aria-selected": String(isOpen),
            onclick: () => {
              this.open[isOpen ? "delete" : "add"](each.name);
              this.draw();
            },
          },
          h(
            "td",
            {},
            h(
              "button",
              { class: "plain small", "aria-expanded": String(isOpen), "aria-label": `Links of ${each.name}` },
              icon(isOpen ? "down" : "right"),
              each.name,
            ),
          ),
          h("td", { class: "clip", title: each.containerId }, h("strong", {}, each.containerId || NOTHING)),
          h("td", { class: "dim hide clip", title: each.product }, each.product ?? NOTHING),
          td("hide clip", each.user || NOTHING),
          td("mono hide", each.peer),
          td("dim hide", time(Number(each.openedAt), lasting(Date.now() - Number(each.openedAt)))),
          td("n hide", count(each.links)),
          td("n hide", rate(each.in)),
          td("n hide", rate(each.out)),
          td("hide", spark(each.past, { kind: each.tells?.[1] === "warn" ? "warn" : "" })),
          td("n dim hide", bytes(each.bytesHeld)),
          h("td", {}, each.tells ? pill(`${each.tells[1]} plain`, each.tells[0]) : null),
          td(
            "n",
            mayAct("manage")
              ? h(
                  "button",
                  {
                    class: "plain small",
                    onclick: (event) => {
                      event.stopPropagation();
                      this.close(each);
                    },
                  },
                  "Close",
                )
              : null,
          ),
        );
      if (!isOpen) return [row];
      const inner = each.own.length
        ? table(
            [
              ["Link"],
              ["Peer is"],
              ["Log"],
              ["Reads as"],
              ["Credit", "n"],
              ["Unsettled", "n"],
              ["Behind", "n"],
              ["Deliveries", "n"],
              ["/s", "n"],
              ["", "n"],
            ],
            each.own.map((link) =>
              h(
                "tr",
                {},
                td("mono", link.name),
                h("td", {}, link.role),
                h("td", {}, h("strong", {}, link.log ?? link.address ?? NOTHING)),
                h(
                  "td",
                  {},
                  link.group
                    ? `${link.group}${link.partition === null ? "" : `, partition ${link.partition}`}`
                    : link.linkName,
                ),
                td(
                  `n ${Number(link.credit) === 0 && link.role === "receiver" ? "warn" : ""}`,
                  count(link.credit),
                ),
                td("n", link.unsettled === null ? NOTHING : count(link.unsettled)),
                td("n", link.lag === null || link.lag === undefined ? NOTHING : count(link.lag)),
                td("n", count(link.deliveries)),
                td("n", rate(link.rate)),
                td(
                  "n",
                  mayAct("manage")
                    ? h("button", { class: "plain small", onclick: () => this.detach(link) }, "Detach")
                    : null,
                ),
              ),
            ),
          )
        : h("p", { class: "empty" }, "It has no links.");
      return [row, h("tr", { class: "more" }, h("td", { colspan: "13" }, h("div", { class: "inner" }, inner)))];
    });
    put(
      this.listed,
      rows.length
        ? table(
            [
              ["No."],
              ["Container"],
              ["Product", "hide"],
              ["User", "hide"],
              ["Peer", "hide"],
              ["Open for", "hide"],
              ["Links", "n hide"],
              ["In /s", "n hide"],
              ["Out /s", "n hide"],
              ["Since opened", "hide"],
              ["Held", "n hide"],
              [""],
              ["", "n"],
            ],
            rows,
          )
        : empty(
            all.length ? "None match." : "There are no AMQP connections.",
            all.length ? null : command(shell("headwater", "connections", "list")),
          ),
    );
  }

  others(rows) {
    const those = this.readers.filter(
      (each) => each.protocol === { http: "http", websocket: "futoin", flight: "flight" }[this.kind],
    );
    const following = those.length
      ? [
          h("h3", { class: "in" }, "They follow"),
          table(
            [
              ["No."],
              ["Log"],
              ["Wants"],
              ["User"],
              ["Peer", "hide"],
              ["Position", "n"],
              ["Behind", "n"],
              ["Sent", "n"],
              [""],
              ["", "n"],
            ],
            those.map((each) =>
              h(
                "tr",
                {},
                h("td", {}, each.name),
                h("td", {}, h("strong", {}, each.log)),
                td("mono wide", each.component ?? each.wants ?? "all"),
                h("td", {}, each.user || NOTHING),
                td("mono hide", each.peer),
                td("n mono", each.position === null ? NOTHING : count(each.position)),
                td("n", each.lag === null ? NOTHING : count(each.lag)),
                td("n", count(each.events)),
                h(
                  "td",
                  {},
                  each.waitsFor === "reading" || each.waitsFor === "answers"
                    ? pill(
                        "warn plain",
                        `${each.waitsFor === "reading" ? "reads nothing" : "answers nothing"} for ` +
                          `${lasting(Date.now() - Number(each.waitsSince))}`,
                      )
                    : null,
                ),
                td(
                  "n",
                  mayAct("manage")
                    ? h("button", { class: "plain small", onclick: () => this.endReader(each) }, "End")
                    : null,
                ),
              ),
            ),
          ),
          h("h3", { class: "in" }, "Connections"),
        ]
      : null;
    put(
      this.listed,
      following,
      rows.length
        ? table(
            [["Peer"], ["User"], ["Open for"], ["Request"], [""], ["", "n"]],
            rows.map((each) =>
              h(
                "tr",
                {},
                td("mono", `${each.peer}${each.port ? `:${each.port}` : ""}`),
                h("td", {}, each.user || NOTHING),
                td("dim", time(Number(each.openedAt), lasting(Date.now() - Number(each.openedAt)))),
                td(
                  "mono wide",
                  each.request ??
                    (each.seenAt ? `last seen ${lasting(Date.now() - Number(each.seenAt))} ago` : NOTHING),
                ),
                h("td", {}, each.isAnswering ? pill("good plain", "is answered") : null),
                td(
                  "n",
                  mayAct("manage") && this.kind !== "flight"
                    ? h("button", { class: "plain small", onclick: () => this.end(each) }, "Close")
                    : null,
                ),
              ),
            ),
          )
        : h("p", { class: "empty" }, "None at present."),
    );
  }

  // ---- Acts -------------------------------------------------------------------------------------

  async done(type, name, text) {
    try {
      await fetched("DELETE", `/management/${type}/${segment(name)}`);
      say(text);
      await this.load(this.leaving.signal);
    } catch (problem) {
      if (problem.name !== "AbortError") say(problem.message);
    }
  }

  async close(each) {
    const unsettled = each.own.reduce((sum, link) => sum + Number(link.unsettled ?? 0), 0),
      groups = [...new Set(each.own.filter((link) => link.group).map((link) => link.group))];
    if (
      await confirm(
        `Close connection ${each.name} of ${each.containerId}?`,
        [
          `Its ${plural(each.own.length, "link ends", "links end")}; ${returns(unsettled)}`,
          ...groups.map(
            (group) =>
              `Partitions ${each.own
                .filter((link) => link.group === group && link.partition !== null)
                .map((link) => link.partition)
                .join(", ")} go to the rest of ${group}`,
          ),
          ["It is told ", h("code", {}, "amqp:connection:forced"), "; most clients connect again"],
        ],
        {
          act: `Close connection ${each.name}`,
          command: command(
            shell("headwater", "connections", "close", each.name),
            shell("headwater", "connections", "close", each.name, "--url", location.origin),
          ),
        },
      )
    )
      await this.done("connection", each.name, `Connection ${each.name} is closed`);
  }

  async detach(link) {
    if (
      await confirm(
        `Detach link ${link.name}?`,
        [
          returns(link.unsettled ?? 0),
          ["It is told ", h("code", {}, "amqp:link:detach-forced"), "; the connection stays"],
        ],
        {
          act: "Detach it",
          command: command(
            shell("headwater", "links", "close", link.name),
            shell("headwater", "links", "close", link.name, "--url", location.origin),
          ),
        },
      )
    )
      await this.done("link", link.name, `Link ${link.name} is detached`);
  }

  async endReader(each) {
    if (
      await confirm(
        `End reader ${each.name} of ${each.log}?`,
        ["Its stream ends", "The client may reconnect and continue by number"],
        {
          act: "End it",
          command: command(
            shell("headwater", "manage", "delete", "reader", each.name),
            shell("headwater", "manage", "delete", "reader", each.name, "--url", location.origin),
          ),
        },
      )
    )
      await this.done("reader", each.name, `Reader ${each.name} is ended`);
  }

  async end(each) {
    if (
      await confirm(
        `Close ${each.name}?`,
        [
          each.isAnswering ? "Its current answer is cut off" : "It has no running request",
          "The client may connect again",
        ],
        {
          act: "Close it",
          command: command(
            shell("headwater", "manage", "delete", "client", each.name),
            shell("headwater", "manage", "delete", "client", each.name, "--url", location.origin),
          ),
        },
      )
    )
      await this.done("client", each.name, `${each.name} is closed`);
  }
}
customElements.define("hw-connections", HwConnections);
