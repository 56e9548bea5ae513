/* Webhooks of cloud native events: how delivery stands, since when, with which answer; dead letters; resume, delete. */

import {
  NOTHING,
  View,
  beside,
  closer,
  clock,
  command,
  complain,
  confirm,
  count,
  crumbs,
  empty,
  factList,
  fetched,
  gap,
  get,
  h,
  headwater,
  howMany,
  lasting,
  mayAct,
  opener,
  pill,
  plural,
  put,
  remark,
  say,
  segment,
  shell,
  skeleton,
  surveyNow,
  standing,
  table,
  td,
  time,
  titled,
  world,
} from "./core.js";

class HwWebhooks extends View {
  show() {
    crumbs.value = [["Webhooks", null]];
    this.deliveries = new Map();
    this.top = h("div");
    this.listed = h("section", { class: "card scroll" }, skeleton(4));
    this.side = h("aside", { class: "inspector" });
    put(this, this.top, h("div", { class: "split" }, this.listed, this.side));
    this.watch(() => {
      if (world.value) this.draw();
    });
    this.every(3000, (ending) => this.load(ending));
  }

  path(each) {
    return `/ocloudNotifications/${each.dialect === "v1" ? "v1" : "v2"}/subscriptions/${segment(each.name)}`;
  }

  async load(ending) {
    for (const each of (world.peek()?.webhooks ?? []).slice(0, 50)) {
      if (!each.endpoint) continue;
      try {
        this.deliveries.set(each.name, await get(`${this.path(each)}/delivery`, ending));
      } catch (problem) {
        if (problem.name === "AbortError") throw problem;
        this.deliveries.set(each.name, { problem: problem.message });
      }
    }
    this.draw();
  }

  draw() {
    if (!world.peek()) return;
    const all = world.peek().webhooks,
      bad = all.filter((each) => ["bad", "warn"].includes(standing(each)[1]));
    put(
      this.top,
      titled(
        "Webhooks",
        h("span", {}, howMany(all, "subscription")),
        bad.length ? h("span", { class: "warn" }, `${plural(bad.length, "fails", "fail")}`) : null,
      ),
    );
    const picked = all.find((each) => each.name === this.chosen) ?? (beside.matches ? (bad[0] ?? all[0]) : undefined);
    put(
      this.listed,
      all.length
        ? table(
            [
              ["Endpoint"],
              ["Resource", "hide"],
              ["Dialect", "hide"],
              ["Owner", "hide"],
              ["Standing"],
              ["Since", "n hide"],
              ["Waiting", "n"],
              ["Delivered", "n"],
              ["Dead letters", "n"],
            ],
            all.map((each) => {
              const [text, kind] = standing(each),
                delivery = this.deliveries.get(each.name);
              return h(
                "tr",
                {
                  data: { open: "1" },
                  "aria-selected": String(each === picked),
                  onclick: () => this.choose(each),
                },
                td(
                  "clip",
                  opener(each.endpoint || "pulls the state", () => this.choose(each)),
                ),
                td("dim hide clip", each.resource),
                td("dim hide", each.dialect),
                td("dim hide", each.owner || NOTHING),
                h("td", {}, pill(kind, text)),
                td(
                  "n dim hide",
                  delivery?.failing_since
                    ? time(delivery.failing_since, lasting(Date.now() - delivery.failing_since))
                    : NOTHING,
                ),
                td("n", delivery?.waiting === undefined ? NOTHING : count(delivery.waiting)),
                td("n", count(each.delivered)),
                td(`n ${Number(each.deadLetters) ? "warn" : ""}`, count(each.deadLetters)),
              );
            }),
          )
        : empty(
            "There are no subscriptions.",
            h(
              "p",
              {},
              "A program subscribes to a resource and gets notifications at its endpoint; a webhook that fails is " +
                "retried, then suspended, and is shown here.",
            ),
            command(`curl ${location.origin}/ocloudNotifications/v2/subscriptions`),
          ),
    );
    if (picked) this.detail(picked);
    else put(this.side);
  }

  choose(each) {
    this.chosen = each.name;
    this.draw();
  }
  close() {
    this.chosen = null;
    this.draw();
  }
  key(event) {
    if (event.key === "Escape" && this.chosen) this.close();
  }

  detail(each) {
    const delivery = this.deliveries.get(each.name),
      [text, kind] = standing(each),
      letters = delivery?.dead_letters ?? [],
      sent = ["curl", "-s", "-X", "POST", `${this.path(each)}/resume`];
    const facts = [
      ["resource", each.resource],
      ["owner", each.owner || NOTHING],
      ["made", time(Number(each.createdAt))],
      ["mode", each.mode],
      ["last problem", delivery?.problem ?? "none"],
      each.lastAnswer ? ["last answer", [each.lastAnswer, ", ", time(Number(each.answeredAt))]] : null,
      delivery?.failing_since
        ? [
            "fails since",
            [time(delivery.failing_since, clock(delivery.failing_since)), `, ${plural(each.failures, "try", "tries")}`],
          ]
        : null,
      delivery?.cursor === undefined
        ? null
        : ["done up to", delivery.is_current ? "all of them" : h("span", { class: "mono" }, count(delivery.cursor))],
      delivery?.gaps?.length
        ? ["gaps", `${plural(delivery.gaps.length, "range")} trimmed before they were delivered`]
        : null,
    ].filter(Boolean);
    put(
      this.side,
      h(
        "div",
        { class: "card" },
        h(
          "header",
          {},
          h("h2", { class: "clip" }, each.endpoint || "pulls the state"),
          h(
            "span",
            { class: "right" },
            closer(() => this.close()),
          ),
        ),
        h("div", { class: "in" }, pill(kind, text)),
        h(
          "section",
          {},
          factList(facts),
        ),
        letters.length
          ? h(
              "section",
              {},
              h("h3", {}, `Given up: ${count(delivery.dead_letters_total ?? letters.length)} in all, the latest`),
              h(
                "ul",
                { class: "small" },
                letters
                  .slice(-8)
                  .reverse()
                  .map((one) =>
                    h(
                      "li",
                      {},
                      h("span", { class: "mono" }, count(one.sequence_number ?? one.number ?? 0)),
                      ` ${one.reason ?? ""}`,
                    ),
                  ),
              ),
              mayAct("manage", each.log)
                ? [
                    h("p", {}, h("button", { onclick: () => this.resume(each) }, "Send them again")),
                    command(shell(...sent), shell(...sent.slice(0, -1), location.origin + sent.at(-1))),
                  ]
                : null,
            )
          : null,
        mayAct("manage", each.log)
          ? h(
              "section",
              {},
              h(
                "p",
                { class: "row" },
                each.endpoint && kind !== "good"
                  ? h("button", { class: "primary", onclick: () => this.resume(each) }, "Try it now")
                  : null,
                gap(),
                h("button", { class: "ends", onclick: () => this.drop(each) }, "Delete"),
              ),
            )
          : h(
              "section",
              {},
              remark(`Resuming or deleting it requires manage on ${each.log}, or having created it.`),
            ),
      ),
    );
  }

  async resume(each) {
    try {
      await fetched("POST", `${this.path(each)}/resume`, { body: {} });
      say("It is retried at once, with all failed events that the log still has");
      await this.load(this.leaving.signal);
    } catch (problem) {
      complain(problem);
    }
  }

  async drop(each) {
    const waiting = this.deliveries.get(each.name)?.waiting ?? 0;
    if (
      !(await confirm(
        `Delete the subscription of ${each.endpoint || each.resource}?`,
        [
          `${plural(waiting, "notification")} will not be delivered`,
          `${plural(each.deadLetters, "dead letter")} are deleted`,
          "To receive events again, subscribe again",
        ],
        {
          act: "Delete it",
          command: headwater("manage", "delete", "subscription", each.name),
        },
      ))
    )
      return;
    try {
      await fetched("DELETE", `/management/subscription/${segment(each.name)}`);
      say("It is deleted");
      surveyNow();
    } catch (problem) {
      say(problem.message);
    }
  }
}
customElements.define("hw-webhooks", HwWebhooks);
