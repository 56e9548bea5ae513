"""How long does the console take in a log of a million events? In the page, by its own clock."""

from __future__ import annotations

import statistics
from typing import Any, NamedTuple

import click
from playwright.sync_api import Browser, Page
from tests.server.running import RunningServer

from headwater.client import connect
from headwater.core import Event

LOG = "large"
BATCH = 5_000
TYPES, ORDERS = 20, 5_000
LINK = f"hw-logs td a[href$='/logs/{LOG}']"
WINDOW = {"width": 1440, "height": 900}

ACT = """([act, target, wanted]) => new Promise((resolve) => {
    const on = document.querySelector(target), began = performance.now();
    const observer = new MutationObserver(look);
    function look() {
        if (!document.querySelector(wanted)) return;
        observer.disconnect();
        requestAnimationFrame(() => resolve(performance.now() - began));
    }
    observer.observe(document, {childList: true, subtree: true, attributes: true, characterData: true});
    if (act === "click") on.click();
    else if (act === "end") on.scrollTop = on.scrollHeight;
    else if (act === "j") on.dispatchEvent(new KeyboardEvent("keydown", {key: "j", bubbles: true}));
    else { on.value = act; on.dispatchEvent(new Event("input", {bubbles: true})); }
    look();
})"""
"""Do something to a node; answers after how many ms another one was there to be painted."""
LONGEST = """new PerformanceObserver((list) => {
    for (const each of list.getEntries()) window.longest_ = Math.max(window.longest_ ?? 0, each.duration);
}).observe({type: "longtask"})"""


class Step(NamedTuple):
    """Something that somebody does, and what is then to be there."""

    label: str
    act: str
    target: str
    wanted: str
    goal_ms: int


STEPS = (
    Step("another page", "click", "#rail a[href$='/logs']", LINK, 100),
    Step("the log, with its newest events", "click", LINK, ".list .line[data-number]", 250),
    Step("a row, by a key", "j", "body", ".list .line[aria-selected='true']", 16),
    Step("the first event, by the scrollbar", "end", ".list", ".list .line[data-number='1']", 100),
    Step("what completes a tag", "order:12", "#page input[role=combobox]", ".complete li", 30),
    Step("a page of consumers", "click", "#rail a[href$='/consumers']", "hw-consumers h1", 100),
)


def large(browser: Browser, server: RunningServer, events: int, turns: int) -> None:
    """Print the medians of so many turns; the first one, in which scripts are compiled, is not counted."""
    _fill(server, events)
    found: dict[str, list[float]] = {step.label: [] for step in STEPS}
    histogram, longest = list[float](), list[float]()
    for turn in range(turns + 1):
        context = browser.new_context(viewport=WINDOW)
        page = context.new_page()
        page.goto(f"{server.url}/console/")
        page.get_by_text("Ready").first.wait_for()
        page.evaluate(LONGEST)
        for step in STEPS:
            taken = _take(page, step)
            if turn:
                found[step.label].append(taken)
        if turn:
            longest.append(page.evaluate("window.longest_ ?? 0"))
            histogram.append(_histogram(page, server))
        context.close()
    for step in STEPS:
        click.echo(f"{step.label}: {_told(found[step.label])} ms (goal {step.goal_ms})")
    click.echo(f"a histogram of 200 buckets by recording, from the server: {_told(histogram)} ms (goal 150)")
    click.echo(f"longest task of the main thread in a turn, 0 if none took 50 ms: {_told(longest)} ms (goal 50)")


def _fill(server: RunningServer, events: int) -> None:
    with connect(server.url) as client:
        log = client.create(LOG)
        for first in range(0, events, BATCH):
            log.append([_event(number) for number in range(first, min(first + BATCH, events))])


def _event(number: int) -> Event:
    tags = (f"order:{number % ORDERS}", f"region:{number % 7}")
    return Event(f"Order{number % TYPES:02d}", b'{"number": %d, "amount": 17}' % number, tags)


def _take(page: Page, step: Step) -> float:
    page.locator(step.target).first.wait_for()
    taken: float = page.evaluate(ACT, [step.act, step.target, step.wanted])
    page.wait_for_timeout(300)  # what is read behind it is not of the next step
    return taken


def _histogram(page: Page, server: RunningServer) -> float:
    """In ms, of a query, asked by the page."""
    asked: dict[str, Any] = {"query": {"items": [{"types": ["Order07"]}]}, "buckets": 200}
    taken: float = page.evaluate(
        """async ([path, body]) => {
            const began = performance.now();
            const answer = await fetch(path, {method: "POST", body: JSON.stringify(body),
                headers: {"Content-Type": "application/json", "Headwater-Console": "1"}});
            if (!answer.ok) throw new Error(await answer.text());
            await answer.json();
            return performance.now() - began;
        }""",
        [f"{server.url}/logs/{LOG}/histogram", asked],
    )
    return taken


def _told(values: list[float]) -> str:
    return f"{statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"
