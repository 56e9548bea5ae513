/* Users: their grants, their ways in, where they come from; what one may do with a log; add, change, remove. */

import {
  View,
  beside,
  closer,
  ask,
  confirm,
  copy,
  crumbs,
  empty,
  entities,
  entityTypes,
  fetched,
  firstOf,
  formDialog,
  gap,
  h,
  headwater,
  howMany,
  icon,
  mayAct,
  may,
  opener,
  plural,
  put,
  remark,
  say,
  segment,
  skeleton,
  table,
  td,
  titled,
  trouble,
  who,
  world,
} from "./core.js";

const RIGHTS = ["read", "append", "manage"];

/** Whether grants as texts (`read,append:orders-*`) give a right on a log; `*` is the server itself. */
export function allows(grants, right, log) {
  if (log.startsWith("$")) return right !== "append" && allows(grants, "manage", "*");
  return grants.some((text) => {
    const place = text.indexOf(":"),
      rights = text.slice(0, place).split(","),
      pattern = text.slice(place + 1);
    return (
      (rights.includes(right) || rights.includes("all")) && (pattern === "*" || (log !== "*" && matching(pattern, log)))
    );
  });
}
function matching(pattern, name) {
  return new RegExp(
    `^${pattern
      .replace(/[\\^$.+(){}|]/g, "\\$&")
      .replaceAll("*", ".*")
      .replaceAll("?", ".")
      .replaceAll("[!", "[^")}$`,
    "s",
  ).test(name);
}

class HwUsers extends View {
  show() {
    crumbs.value = [["Users and rights", null]];
    this.top = h("div");
    this.listed = h("section", { class: "card scroll" }, skeleton(4));
    this.side = h("aside", { class: "inspector" });
    put(this, this.top, h("div", { class: "split" }, this.listed, this.side));
    if (!may("manage")) {
      put(
        this.listed,
        empty("Users are shown to users with manage on the server."),
      );
      return;
    }
    this.every(
      5000,
      (ending) => this.load(ending),
      (problem) => put(this.listed, trouble(problem)),
    );
  }

  again() {
    this.load(this.leaving.signal).catch(() => {});
  }
  async load(ending) {
    const hasTokens = (await entityTypes(ending)).has("token"),
      [users, tokens] = await Promise.all([
        entities("user", { signal: ending }),
        hasTokens ? entities("token", { signal: ending }) : null,
      ]);
    this.users = users;
    this.tokens = tokens;
    this.draw();
  }

  draw() {
    const acts = mayAct("manage");
    put(
      this.top,
      titled(
        "Users and rights",
        h("span", {}, howMany(this.users, "user")),
        firstOf(this.tokens, "token"),
        who.peek()?.has_users
          ? null
          : h("span", { class: "warn" }, "no login required: all requests are allowed"),
        gap(),
        acts ? h("button", { onclick: () => this.edit(null) }, icon("plus"), "New user") : null,
      ),
    );
    const picked = this.users.find((each) => each.name === this.chosen) ?? (beside.matches ? this.users[0] : undefined);
    put(
      this.listed,
      this.users.length
        ? table(
            [["Name"], ["May"], ["Ways in"], ["Comes from", "hide"], ["", "n"]],
            this.users.map((each) =>
              h(
                "tr",
                {
                  data: { open: "1" },
                  "aria-selected": String(each === picked),
                  onclick: () => this.choose(each),
                },
                h(
                  "td",
                  {},
                  opener(each.name, () => this.choose(each)),
                ),
                h(
                  "td",
                  {},
                  each.grants.map((grant) => h("span", { class: "tag" }, grant)),
                ),
                td(
                  "dim",
                  [
                    each.hasPassword ? "password" : null,
                    Number(each.tokens) ? plural(each.tokens, "token") : null,
                    each.hasKey ? "key" : null,
                  ]
                    .filter(Boolean)
                    .join(", ") || "none",
                ),
                td("dim hide", each.origin),
                td(
                  "n",
                  acts && each.origin === "data directory"
                    ? [
                        h(
                          "button",
                          {
                            class: "plain small",
                            onclick: (event) => {
                              event.stopPropagation();
                              this.edit(each);
                            },
                          },
                          "Change",
                        ),
                        h(
                          "button",
                          {
                            class: "plain small",
                            onclick: (event) => {
                              event.stopPropagation();
                              this.drop(each);
                            },
                          },
                          "Remove",
                        ),
                      ]
                    : null,
                ),
              ),
            ),
          )
        : empty(
            "There are no users.",
            h(
              "p",
              {},
              "Without users, all requests are allowed, and the server listens on loopback " +
                "only. Give the first user all rights:",
            ),
            headwater("user", "add", "alice", "--grant", "all:*"),
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
    const logs = (world.peek()?.logs ?? []).slice(0, 100),
      yes = (is) => td(`n ${is ? "good" : "faint"}`, is ? "yes" : "\u2013");
    put(
      this.side,
      h(
        "div",
        { class: "card" },
        h(
          "header",
          {},
          h("h2", {}, `Rights of ${each.name}`),
          h(
            "span",
            { class: "right" },
            closer(() => this.close()),
          ),
        ),
        h(
          "div",
          { class: "scroll" },
          table(
            [["On"], ...RIGHTS.map((right) => [right, "n"])],
            [
              h(
                "tr",
                {},
                td("dim", "the server"),
                RIGHTS.map((right) => yes(allows(each.grants, right, "*"))),
              ),
              ...logs.map((log) =>
                h(
                  "tr",
                  {},
                  h("td", {}, log.name),
                  RIGHTS.map((right) => yes(allows(each.grants, right, log.name))),
                ),
              ),
            ],
          ),
        ),
        this.tokens && each.origin === "data directory" ? this.tokensOf(each) : null,
        each.origin === "data directory"
          ? null
          : h("p", { class: "empty small" }, "This user is defined in the configuration; change it there."),
      ),
    );
  }

  /** The tokens of a user; a new one is shown once. */
  tokensOf(user) {
    const own = this.tokens.filter((each) => each.user === user.name),
      acts = mayAct("manage");
    return h(
      "section",
      {},
      h("h3", {}, "Tokens"),
      own.length
        ? h(
            "ul",
            { class: "stories" },
            own.map((each) =>
              h(
                "li",
                {},
                h("span", { class: "mono" }, each.label),
                each.isOver ? h("span", { class: "warn" }, "is over") : null,
                acts
                  ? h("button", { class: "plain small right", onclick: () => this.dropToken(each) }, "Delete")
                  : null,
              ),
            ),
          )
        : remark("none"),
      acts
        ? h(
            "p",
            { class: "row" },
            h("button", { class: "small", onclick: () => this.newToken(user) }, icon("plus"), "New token"),
          )
        : null,
    );
  }

  newToken(user) {
    const label = h("input", {
      required: true,
      autofocus: true,
      pattern: "[A-Za-z0-9._\\-]{1,64}",
      spellcheck: "false",
    });
    formDialog(
      `New token of ${user.name}`,
      "Make it",
      [h("label", {}, "Label: what it is for", label)],
      () => headwater("manage", "create", "token", `${user.name}/LABEL`),
      async (dialog) => {
        const made = await ask("PUT", `/management/token/${segment(`${user.name}/${label.value}`)}`, {});
        put(
          dialog,
          h("h2", {}, "It is only shown once"),
          h(
            "div",
            { class: "command" },
            h("code", {}, made.secret),
            h(
              "button",
              {
                class: "plain",
                "aria-label": "Copy the token",
                onclick: (click) => copy(made.secret, click.currentTarget),
              },
              icon("copy"),
            ),
          ),
          h("footer", {}, gap(), h("button", { onclick: () => dialog.close() }, "Done")),
        );
        await this.load(this.leaving.signal);
      },
    );
  }

  async dropToken(token) {
    if (
      !(await confirm(
        `Delete the token ${token.label} of ${token.user}?`,
        ["Every login and session of its user ends within a second"],
        { act: "Delete it", command: headwater("manage", "delete", "token", token.name) },
      ))
    )
      return;
    try {
      await fetched("DELETE", `/management/token/${segment(token.name)}`);
      say("It is deleted");
      await this.load(this.leaving.signal);
    } catch (problem) {
      if (problem.name !== "AbortError") say(problem.message);
    }
  }

  edit(user) {
    const name = h("input", {
        required: true,
        value: user?.name ?? "",
        disabled: Boolean(user),
        autofocus: !user,
        spellcheck: "false",
        autocomplete: "off",
      }),
      grants = h("textarea", {
        rows: "3",
        class: "mono",
        placeholder: "read,append:orders-*",
        spellcheck: "false",
        required: true,
      }),
      password = h("input", {
        type: "password",
        minlength: "8",
        maxlength: "1024",
        autocomplete: "new-password",
        placeholder: user ? "as it is" : "none",
      });
    grants.value = (user?.grants ?? ["read:*"]).join("\n");
    const given = () => grants.value.split(/\s+/).filter(Boolean);
    formDialog(
      user ? `Change ${user.name}` : "New user",
      user ? "Save" : "Add",
      [
        !user && !this.users.length
          ? h(
              "p",
              { class: "warn small" },
              icon("warn"),
              " With the first user every request needs credentials, also of this page. Grant it all:*.",
            )
          : null,
        h("label", {}, "Name", name),
        h("label", {}, "Grants, one per line: RIGHTS:PATTERN", grants),
        h("label", {}, "Password", password),
      ],
      () =>
        user
          ? headwater("manage", "update", "user", user.name, `grants=${JSON.stringify(given())}`)
          : headwater("user", "add", name.value || "NAME", ...given().flatMap((grant) => ["--grant", grant])),
      async (dialog) => {
        await ask(user ? "PATCH" : "PUT", `/management/user/${segment(name.value)}`, {
          grants: given(),
          ...(password.value ? { password: password.value } : {}),
        });
        dialog.close();
        say(
          user ? `${user.name} is changed${password.value ? "; sessions of it end" : ""}` : `${name.value} is there`,
        );
        await this.load(this.leaving.signal);
      },
    );
  }

  async drop(user) {
    if (
      !(await confirm(
        `Remove ${user.name}?`,
        [
          "Its logins, sessions and tokens end within a second",
          this.users.length === 1
            ? "It is the last user: every request is then refused"
            : `${plural(this.users.length - 1, "user stays", "users stay")}`,
          "Its consumers and subscriptions are kept",
        ],
        { act: "Remove", name: user.name, command: headwater("user", "remove", user.name) },
      ))
    )
      return;
    try {
      await fetched("DELETE", `/management/user/${segment(user.name)}`);
      say(`${user.name} is removed`);
      await this.load(this.leaving.signal);
    } catch (problem) {
      if (problem.name !== "AbortError") say(problem.message);
    }
  }
}
customElements.define("hw-users", HwUsers);
