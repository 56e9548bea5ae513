/* The frame around every page: rail, top, login, keyboard, and which page an address leads to. */

import {
  Problem,
  View,
  at,
  away,
  awayWhy,
  ask,
  clock,
  count,
  crumbs,
  effect,
  factList,
  fetched,
  gap,
  get,
  h,
  howMany,
  icon,
  keep,
  keepSecret,
  kept,
  link,
  loggedOut,
  may,
  over,
  plural,
  put,
  remark,
  restartStream,
  said,
  say,
  sending,
  signal,
  skeleton,
  startStream,
  standing,
  survey,
  surveyNow,
  svg,
  trouble,
  unsurveyed,
  utc,
  who,
  world,
  zone,
  logPath,
} from "./core.js";

/* Pages in the order of the rail. `counts` answers [number, kind] beside the entry. */
const PAGES = [
  { path: "/", title: "Overview", icon: "overview", key: "o", module: "./overview.js", tag: "hw-overview" },
  { path: "/logs", title: "Logs", icon: "logs", key: "l", module: "./logs.js", tag: "hw-logs" },
  {
    path: "/consumers",
    title: "Consumers",
    icon: "consumers",
    key: "c",
    module: "./consumers.js",
    tag: "hw-consumers",
  },
  {
    path: "/connections",
    title: "Connections",
    icon: "connections",
    key: "n",
    module: "./connections.js",
    tag: "hw-connections",
    needs: "manage",
  },
  { path: "/webhooks", title: "Webhooks", icon: "webhooks", key: "w", module: "./webhooks.js", tag: "hw-webhooks" },
  {
    path: "/storage",
    title: "Storage",
    icon: "storage",
    key: "s",
    module: "./storage.js",
    tag: "hw-storage",
    needs: "manage",
  },
  {
    path: "/happenings",
    title: "What happens",
    icon: "happenings",
    key: "h",
    module: "./happenings.js",
    tag: "hw-happenings",
  },
  {
    path: "/pipelines",
    title: "Archive and pipelines",
    icon: "pipelines",
    key: "p",
    module: "./happenings.js",
    tag: "hw-pipelines",
  },
  {
    path: "/users",
    title: "Users and rights",
    icon: "users",
    key: "u",
    module: "./users.js",
    tag: "hw-users",
    needs: "manage",
  },
];
const DEEP = [
  { path: "/logs/:log/stories", module: "./stories.js", tag: "hw-stories" },
  { path: "/logs/:log/storage", module: "./storage.js", tag: "hw-storage" },
  { path: "/logs/:log/consumers", module: "./consumers.js", tag: "hw-consumers" },
  { path: "/connections/:kind", module: "./connections.js", tag: "hw-connections" },
  { path: "/logs/:log/settings", module: "./logs.js", tag: "hw-log-settings" },
  { path: "/logs/:log", module: "./log.js", tag: "hw-log" },
  { path: "/logs/:log/:number", module: "./event.js", tag: "hw-event" },
];

/** Scripts of the pages of a log, each behind those that it needs, so that they come one by one. */
const EXPECTED = [
  "./charts.js",
  "./telling.js",
  "./overview.js",
  "./logs.js",
  "./query.js",
  "./forms.js",
  "./rows.js",
  "./completion.js",
  "./columns.js",
  "./pins.js",
  "./histogram.js",
  "./chips.js",
  "./find.js",
  "./unmatched.js",
  "./inspector.js",
  "./export.js",
  "./appending.js",
  "./list.js",
  "./tail.js",
  "./log.js",
  "./event.js",
];

const shown = signal(null);
let current = null,
  moves = 0;

// ---- Addresses ------------------------------------------------------------------------------------------------------

function routed(path) {
  for (const page of [...PAGES, ...DEEP]) {
    const wanted = page.path.split("/"),
      given = path.replace(/(.)\/$/, "$1").split("/");
    if (wanted.length !== given.length) continue;
    const found = {};
    if (
      wanted.every((part, index) =>
        part.startsWith(":") ? (found[part.slice(1)] = decodeURIComponent(given[index])) !== "" : part === given[index],
      )
    )
      return { page, found };
  }
  return null;
}

/** Go to an address of the console. */
export function go(address, { replace = false } = {}) {
  window.history[replace ? "replaceState" : "pushState"]({}, "", address);
  return show();
}

async function show() {
  const path = location.pathname.replace(/^\/console/, "") || "/",
    turn = ++moves;
  let route = null;
  try {
    route = routed(path);
  } catch {
    /* an address that is no percent-encoded text leads nowhere */
  }
  const same =
    current && route && current.page === route.page && JSON.stringify(current.found) === JSON.stringify(route.found);
  if (same && current.node.moved) {
    current.node.moved();
    return;
  }
  const page = /** @type {HTMLElement} */ (document.querySelector("#page"));
  if (!route) {
    crumbs.value = [["Nowhere", null]];
    current = null;
    put(
      page,
      trouble(new Problem(404, { title: "Page not found", detail: `There is nothing at ${path}.` })),
      link("/", { class: "link" }, "Overview"),
    );
    return;
  }
  try {
    await import(route.page.module);
  } catch {
    if (turn === moves)
      put(
        page,
        trouble(
          new Problem(0, {
            title: "This page cannot be loaded",
            detail: "The server is unreachable, or was replaced by another version.",
          }),
          () => location.reload(),
        ),
      );
    return;
  }
  if (turn !== moves) return;
  const node = /** @type {View} */ (document.createElement(route.page.tag));
  node.params = route.found;
  current = { ...route, node };
  shown.value = route;
  put(page, node);
  document.title = `${
    crumbs
      .peek()
      .map(([text]) => text)
      .reverse()
      .join(" \u2013 ") || route.page.title
  } \u2013 Headwater`;
  if (turn > 1) {
    page.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
}

document.addEventListener("click", (event) => {
  const anchor = /** @type {any} */ (event.target).closest?.("a[href]");
  if (
    !anchor ||
    event.defaultPrevented ||
    event.button ||
    event.metaKey ||
    event.ctrlKey ||
    event.shiftKey ||
    event.altKey ||
    anchor.target ||
    anchor.download
  )
    return;
  const url = new URL(anchor.href.baseVal ?? anchor.href, location.href);
  if (url.origin !== location.origin || !url.pathname.startsWith("/console/")) return;
  event.preventDefault();
  go(url.pathname + url.search);
});
addEventListener("popstate", () => show());
addEventListener("headwater:go", (/** @type {any} */ event) => go(event.detail.address, event.detail));

// ---- Rail and top ---------------------------------------------------------------------------------------------------

const SERVER_PAGES = ["/storage", "/happenings", "/pipelines", "/users"];
const NARROW = ["/", "/logs", "/consumers", "/connections", "/webhooks"];
const allowed = (page) => !page.needs || may(page.needs);

/** The number beside an entry, and how bad it is. */
function counted(path) {
  const now = world.value;
  if (!now) return null;
  const all = (list) => Number(list.total ?? list.length);
  if (path === "/logs") return [all(now.logs), now.logs.some((log) => log.problem) ? "bad" : ""];
  if (path === "/consumers") {
    const lag = now.consumers.filter((each) => each.lags).length;
    return lag ? [lag, "bad"] : [all(now.consumers), ""];
  }
  if (path === "/connections")
    return may("manage") && now.server ? [Number(now.server.connections) + now.clients.length, ""] : null;
  if (path === "/webhooks") {
    const bad = now.webhooks.filter((each) => ["bad", "warn"].includes(standing(each)[1])).length;
    return bad ? [bad, "warn"] : [all(now.webhooks), ""];
  }
  return null;
}
function number(path) {
  const found = counted(path);
  if (!found || !found[0]) return null;
  const [value, kind] = found;
  return h("b", { class: kind, "aria-label": kind ? `${value} that need attention` : String(value) }, count(value));
}

function railed() {
  const chosen = shown.value?.page,
    log = shown.value?.found.log,
    root = chosen ? `/${chosen.path.split("/")[1]}` : null;
  const entry = (page) =>
    link(
      page.path,
      { "aria-current": root === page.path ? "page" : null, title: page.title },
      icon(page.icon),
      h("span", {}, page.title),
      number(page.path),
    );
  const first = PAGES.filter((page) => !SERVER_PAGES.includes(page.path) && allowed(page)),
    second = PAGES.filter((page) => SERVER_PAGES.includes(page.path) && allowed(page));
  const recent = kept("headwater.recent", "").split(",").filter(Boolean),
    names = (world.value?.logs ?? []).map((each) => each.name);
  const logs = [
    ...recent.filter((name) => names.includes(name)),
    ...names.filter((name) => !recent.includes(name) && !name.startsWith("$")),
  ]
    .slice(0, 5)
    .sort();
  return [
    h("a", { class: "brand", href: at("/") }, brand(), h("span", {}, "Headwater")),
    h(
      "nav",
      { "aria-label": "Pages" },
      first.map((page) => [
        entry(page),
        page.path === "/logs"
          ? logs.map((name) =>
              link(logPath(name), { class: "sub", "aria-current": name === log ? "page" : null }, h("span", {}, name)),
            )
          : null,
      ]),
      second.length ? h("h3", {}, "Server") : null,
      second.map(entry),
    ),
    h(
      "footer",
      {},
      who.value?.has_users
        ? h(
            "button",
            { class: "plain clip", title: "Log out", onclick: menu },
            h("span", { class: "initial", "aria-hidden": "true" }, who.value.user[0] ?? "?"),
            h("span", { class: "name clip" }, who.value.user),
          )
        : who.value
          ? h("span", { class: "name dim small" }, "no login required")
          : null,
      gap(),
      h(
        "button",
        { class: "plain", "aria-label": "Light or dark", title: "Light or dark (T)", onclick: turnTheme },
        icon("sun"),
      ),
    ),
  ];
}

const brand = () =>
  svg(
    "svg",
    { viewBox: "0 0 19 16", "aria-hidden": "true" },
    svg("rect", { x: 0, y: 0, width: 5, height: 16, rx: 1.2, fill: "var(--s0)", opacity: 0.4 }),
    svg("rect", { x: 7, y: 0, width: 5, height: 16, rx: 1.2, fill: "var(--s0)", opacity: 0.7 }),
    svg("rect", { x: 14, y: 0, width: 5, height: 16, rx: 1.2, fill: "var(--accent)" }),
  );

function barred() {
  const root = shown.value ? `/${shown.value.page.path.split("/")[1]}` : null;
  return PAGES.filter((page) => NARROW.includes(page.path) && allowed(page)).map((page) =>
    link(
      page.path,
      { "aria-current": root === page.path ? "page" : null },
      icon(page.icon),
      page.title,
      number(page.path),
    ),
  );
}

function stated() {
  const since = away.value;
  if (since)
    return [h("span", { class: "dot bad" }), h("span", { title: awayWhy.value || null }, `Away since ${clock(since)}`)];
  return [h("span", { class: "dot good live" }), "Live"];
}

// ---- Light and dark, and other choices ----------------------------------------------------------

function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}
function turnTheme() {
  const isDark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  setTheme(isDark ? "light" : "dark");
  keep("headwater.theme", isDark ? "light" : "dark");
}

// ---- Login --------------------------------------------------------------------------------------

let loginDialog = null;
function logIn() {
  if (loginDialog) return;
  const name = h("input", { name: "name", autocomplete: "username", required: true, autofocus: true }),
    secret = h("input", { type: "password", name: "password", autocomplete: "current-password", required: true });
  const byToken = h("input", {
      type: "checkbox",
      onchange: () => {
        named.hidden = byToken.checked;
        name.required = !byToken.checked;
      },
    }),
    error = h("p", { class: "error", role: "alert" });
  const named = h("label", {}, "Name", name);
  const clear = location.protocol === "http:" && !["localhost", "127.0.0.1", "[::1]"].includes(location.hostname);
  const form = h(
    "form",
    {
      onsubmit: sending(
        error,
        async () => {
          keepSecret();
          const shown = byToken.checked ? { token: secret.value } : { name: name.value, password: secret.value };
          keepSecret((await ask("POST", "/console/session", shown)).session?.secret);
          who.value = await get("/console/session");
          loggedOut.value = false;
          secret.value = "";
          restart();
        },
        (problem) => {
          secret.focus();
          return problem.status === 401 ? "Name, password or token is wrong." : problem.message;
        },
      ),
    },
    named,
    h("label", {}, "Password or token", secret),
    h("label", { class: "inline" }, byToken, "It is a token"),
    clear
      ? h("p", { class: "warn" }, icon("warn"), " This address has no TLS: your input is sent unencrypted.")
      : null,
    error,
    h("footer", {}, gap(), h("button", { class: "primary" }, "Log in")),
  );
  loginDialog = h(
    "dialog",
    { class: "login", "aria-label": "Log in", oncancel: (event) => event.preventDefault() },
    h("h2", {}, "Log in to Headwater"),
    h("p", { class: "dim" }, location.host),
    form,
  );
  document.body.append(loginDialog);
  loginDialog.showModal();
}
effect(() => {
  if (loggedOut.value) setTimeout(logIn);
  else if (loginDialog) {
    loginDialog.close();
    loginDialog.remove();
    loginDialog = null;
  }
});

async function logOut() {
  try {
    await fetched("DELETE", "/console/session");
  } catch (problem) {
    say(problem.message);
    return;
  }
  keepSecret();
  location.assign("/console/");
}

/** Who is logged in, what a narrow window has no room for, and the way out: from the rail, or from the top. */
function menu() {
  const dialog = h(
    "dialog",
    { class: "menu", "aria-label": "Menu", onclick: () => dialog.close() },
    who.value?.has_users ? h("h2", {}, `Logged in as ${who.value.user}`) : null,
    h(
      "nav",
      {},
      PAGES.filter((page) => !NARROW.includes(page.path) && allowed(page)).map((page) =>
        link(page.path, {}, icon(page.icon), page.title),
      ),
    ),
    h(
      "footer",
      {},
      h("button", { onclick: turnTheme }, icon("sun"), "Light or dark"),
      gap(),
      who.value?.has_users ? h("button", { class: "primary", onclick: logOut }, "Log out") : null,
    ),
  );
  over(dialog);
}

// ---- Go anywhere: a log, a number, a tag, a page ------------------------------------------------

function jump() {
  const field = h("input", {
      placeholder: "Go to a log, tag, number or page",
      "aria-label": "Go to",
      role: "combobox",
      "aria-expanded": "true",
      "aria-controls": "jump-list",
      autocomplete: "off",
      spellcheck: "false",
    }),
    list = h("ul", { id: "jump-list", role: "listbox" });
  let found = [],
    chosen = 0,
    asked = 0,
    known = null;
  const close = () => {
    forget();
    dialog.close();
  };
  const draw = () =>
    put(
      list,
      found.map(([text, kind, address], index) =>
        h(
          "li",
          {
            role: "option",
            id: `jump-${index}`,
            "aria-selected": String(index === chosen),
            onclick: () => {
              close();
              go(address);
            },
          },
          h("span", {}, text),
          h("span", {}, kind),
        ),
      ),
    );
  const look = async () => {
    const text = field.value.trim(),
      lower = text.toLowerCase(),
      turn = ++asked,
      here = shown.peek()?.found.log,
      logs = (world.peek()?.logs ?? []).map((log) => log.name);
    const log = here ?? logs[0];
    found = [];
    if (/^[\d,.\u2009 ]+$/.test(text) && log)
      found.push([`Event ${text}`, `in ${log}`, at(logPath(log, `/${text.replace(/\D/g, "")}`))]);
    found.push(
      ...PAGES.filter((page) => allowed(page) && page.title.toLowerCase().includes(lower)).map((page) => [
        page.title,
        "page",
        at(page.path),
      ]),
    );
    found.push(
      ...logs
        .filter((name) => name.toLowerCase().includes(lower))
        .slice(0, 12)
        .map((name) => [name, "log", at(logPath(name))]),
    );
    chosen = 0;
    draw();
    if (text.length < 2 || !log || !routed(logPath(log))) return;
    try {
      const terms = await get(
        `/logs/${encodeURIComponent(log)}/terms?${new URLSearchParams({ kind: "tag", prefix: text, limit: "8" })}`,
      );
      if (turn !== asked) return;
      const { worded } = await import("./query.js");
      found.push(
        ...terms.terms.map((each) => [
          each.term,
          `tag in ${log}, ${plural(each.events, "event")}`,
          at(logPath(log), new URLSearchParams({ q: worded([{ types: [], tags: [], exact: [each.term] }]) })),
        ]),
      );
      draw();
    } catch {
      /* without the right to read it, or away: the other results stay */
    }
  };
  field.addEventListener("input", look);
  field.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      chosen = (chosen + (event.key === "ArrowDown" ? 1 : found.length - 1)) % Math.max(1, found.length);
      draw();
      field.setAttribute("aria-activedescendant", `jump-${chosen}`);
      event.preventDefault();
    }
    if (event.key === "Enter" && found[chosen]) {
      close();
      go(found[chosen][2]);
    }
  });
  const dialog = h(
    "dialog",
    {
      class: "jump",
      "aria-label": "Go to",
      oncancel: close,
      onclick: (event) => {
        if (event.target === dialog) close();
      },
    },
    field,
    list,
    remark("Of logs: ", howMany(world.peek()?.logs ?? [], "log")),
  );
  over(dialog);
  const forget = effect(() => {
    const names = (world.value?.logs ?? []).map((log) => log.name).join("\n");
    if (names === known) return; // the logs are asked for again and again: only new ones are news
    known = names;
    look();
  });
}

// ---- Keyboard -----------------------------------------------------------------------------------

let afterG = 0;
const isTyping = (target) => target.closest?.("input, textarea, select, [contenteditable]");
document.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    if (!document.querySelector("dialog[open]")) jump();
    return;
  }
  if (
    event.ctrlKey ||
    event.metaKey ||
    event.altKey ||
    isTyping(event.target) ||
    document.querySelector("dialog[open]")
  )
    return;
  const key = event.key.toLowerCase();
  if (Date.now() - afterG < 1500) {
    afterG = 0;
    const page = PAGES.find((each) => each.key === key && allowed(each));
    if (page) {
      event.preventDefault();
      go(at(page.path));
    }
    return;
  }
  if (key === "g") afterG = Date.now();
  else if (key === "t") turnTheme();
  else if (event.key === "?") help();
  else if (key === "c" && document.querySelector("#page [data-copy]"))
    /** @type {HTMLElement} */ (document.querySelector("#page [data-copy]")).click();
  else if ((key === "j" || key === "k") && current && WALKED.includes(current.page)) walk(key === "j" ? 1 : -1);
  else current?.node.key?.(event);
});

/** Pages of tables that do not walk through their rows themselves. */
const WALKED = PAGES.filter((page) => page.path !== "/consumers");

/** The next row, or the one before: what opens it gets the focus, so that Enter does. */
function walk(by) {
  const openers = [...document.querySelectorAll("#page tbody tr, #page .needs li")]
    .map((row) => /** @type {HTMLElement | null} */ (row.querySelector("a[href], button")))
    .filter((each) => each?.checkVisibility());
  const at = openers.findIndex((each) => each.closest("tr, li") === document.activeElement?.closest("tr, li"));
  openers[at < 0 ? (by > 0 ? 0 : openers.length - 1) : Math.min(openers.length - 1, Math.max(0, at + by))]?.focus();
}

function help() {
  const keys = [
    ["Ctrl K", "go anywhere"],
    [
      "g, then a letter",
      `pages: ${PAGES.filter(allowed)
        .map((page) => `${page.key} ${page.title}`)
        .join(", ")}`,
    ],
    ["/", "query"],
    ["J K", "next and previous row"],
    ["Enter", "open"],
    ["F", "follow"],
    ["E", "export"],
    ["Ctrl F", "find in the loaded events"],
    ["[ ] and , .", "previous and next in the story and in the log"],
    ["C", "copy the command"],
    ["T", "light or dark"],
    ["U", "times in UTC or local"],
    ["Esc", "one step back"],
  ];
  const dialog = h(
    "dialog",
    { "aria-label": "Keyboard" },
    h("h2", {}, "Keyboard"),
    factList(keys),
    h(
      "footer",
      {},
      gap(),
      h("button", { autofocus: true, onclick: () => dialog.close() }, "Close"),
    ),
  );
  over(dialog);
}

// ---- Start --------------------------------------------------------------------------------------

/** The frame, which stays while pages change. */
class HwShell extends View {
  show() {
    this.id = "shell";
    const rail = h("div", { id: "rail" }),
      crumb = h("nav", { id: "crumbs", "aria-label": "Where" }),
      state = h("button", { id: "state", title: "Try again now; U: times in UTC or local", onclick: () => restart() }),
      bar = h("nav", { id: "bar", "aria-label": "Pages" });
    const notice = h("div", { id: "notice" }),
      toast = h("div", { id: "toast", role: "status", "aria-live": "polite" });
    put(
      this,
      rail,
      h(
        "div",
        {},
        h(
          "header",
          { id: "top" },
          crumb,
          h(
            "button",
            { id: "jump", onclick: jump, title: "Go to a log, tag, number or page" },
            icon("search"),
            h("span", {}, "Go to a log, tag, number or page"),
            h("kbd", {}, "Ctrl K"),
          ),
          state,
          h("button", { id: "menu", class: "plain", "aria-label": "Menu", onclick: menu }, icon("logs")),
        ),
        notice,
        h("main", { id: "page", tabindex: "-1" }, skeleton(6)),
      ),
      bar,
      toast,
    );
    this.watch(() => {
      const problem = world.value ? null : unsurveyed.value; // what is there already says how old it is
      put(notice, problem && !loggedOut.value ? trouble(problem, surveyNow) : null);
    });
    this.watch(() => put(rail, railed()));
    this.watch(() => put(bar, barred()));
    this.watch(() => {
      put(state, stated());
      document.documentElement.classList.toggle("away-now", Boolean(away.value));
    });
    this.watch(() => {
      const path = crumbs.value;
      put(
        crumb,
        path.map(([text, to], index) => [
          index ? h("span", { class: "faint" }, "/") : null,
          to ? h("a", { href: at(to) }, text) : h("span", { "aria-current": index ? "page" : null }, text),
        ]),
      );
    });
    this.watch(() => {
      const now = said.value;
      clearTimeout(this.silence);
      if (!now) return;
      put(
        toast,
        now.text,
        now.undo
          ? h(
              "button",
              {
                onclick: () => {
                  put(toast);
                  now.undo();
                },
              },
              "Undo",
            )
          : null,
      );
      this.silence = setTimeout(() => put(toast), 6000);
    });
    const again = this.every(5000, async (ending) => {
      if (!who.peek() || loggedOut.peek()) return;
      try {
        await survey(ending);
        unsurveyed.value = null;
      } catch (problem) {
        if (problem.name !== "AbortError") unsurveyed.value = problem;
      }
    });
    this.on(window, "headwater:survey", again);
    this.on(document, "keydown", (event) => {
      if (event.key.toLowerCase() === "u" && !isTyping(event.target) && !event.ctrlKey && !event.metaKey) {
        utc.value = !utc.peek();
        keep("headwater.utc", utc.peek() ? "1" : "0");
        say(`Times are ${zone()}`);
        show();
      }
    });
  }
}
customElements.define("hw-shell", HwShell);

function restart() {
  restartStream();
  startStream();
  surveyNow();
  if (who.peek() && !current) show();
  else if (who.peek()) current.node.again?.();
}

async function start() {
  const forget = effect(() => {
    if (!world.value) return; // the first page has what it shows: also behind a login
    setTimeout(() => forget());
    expectLogs();
  });
  put(document.body, document.querySelector("body > svg"), h("hw-shell"));
  try {
    who.value = await get("/console/session");
  } catch (problem) {
    if (problem.status === 401) return;
    put(
      document.querySelector("#page"),
      trouble(problem, () => location.reload()),
    );
    setTimeout(() => location.reload(), 5000);
    return;
  }
  startStream();
  surveyNow();
  await show();
}

/** What is opened most often comes while the first page rests, script by script, so that none keeps anybody waiting. */
async function expectLogs() {
  for (const each of EXPECTED) {
    await new Promise((resolve) => (globalThis.requestIdleCallback ?? setTimeout)(resolve));
    if (away.peek()) return; // a browser may not ask again for what it did not get
    await import(each).catch(() => null); // who goes there is told why
  }
}
start();
