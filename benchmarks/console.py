"""What does the console cost: a first visit, a tail, a log of a million events, a server with 1 and 20 consoles open?

`python -m benchmarks.console`, in Debian's Chromium. Browser, server and the load share one machine.
CPU times are those of whole processes, from `/proc`: the server's, and those of all processes of the browser together.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from playwright.sync_api import Browser, Page, sync_playwright
from tests.interop.runtimes import Chromium
from tests.server.running import RunningServer

from headwater.client import connect
from headwater.core import Event

from . import machine
from .console_large import large
from .measure import expect

TICK = os.sysconf("SC_CLK_TCK")
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
NUMBERS_SHOWN = """new MutationObserver((_, observer) => {
    if (!document.body?.innerText.includes("Ready")) return;
    performance.mark("numbers");
    observer.disconnect();
}).observe(document, {childList: true, subtree: true, characterData: true})"""
"""Run before anything of the page; the page itself knows when, the driving program only when it was told."""
NUMBERS = "performance.getEntriesByName('numbers')[0]?.startTime ?? null"
FRAMES = "() => { window.frames_ = 0; const each = () => { window.frames_++; requestAnimationFrame(each); }; each(); }"
BATCHES = 20
"""A second, so that events come as they do from many producers, not once a second."""
EVENT_BYTES = 200


@click.command()
@click.option("--visits", default=7, show_default=True)
@click.option("--seconds", default=60, show_default=True, help="Of the tail; 0 leaves it out.")
@click.option("--rate", default=5000, show_default=True, help="Events a second.")
@click.option("--idle-seconds", default=20, show_default=True, help="For each number of consoles; 0: none.")
@click.option("--events", default=1_000_000, show_default=True, help="Of the large log; 0 leaves it out.")
@click.option("--consoles", default=(0, 1, 20), show_default=True, multiple=True)
def main(visits: int, seconds: int, rate: int, idle_seconds: int, events: int, consoles: tuple[int, ...]) -> None:
    """Print the numbers of `docs/benchmarks-console.md`."""
    runtime = Chromium()
    if reason := runtime.missing():
        raise click.ClickException(reason)
    arguments = [each for each in runtime.command()[2:] if each.startswith("--")]
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm") as directory,
        RunningServer("--log", "orders", cwd=Path(directory)) as server,
    ):
        for name, value in machine.describe(Path(directory)).items():
            click.echo(f"{name}: {value}")
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
            _visits(browser, server, visits)
            if seconds:
                _tail(browser, server, seconds, rate)
            for count in consoles if idle_seconds else ():
                _idle(browser, server, count, idle_seconds)
            if events:
                large(browser, server, events, visits)
            browser.close()


def _visits(browser: Browser, server: RunningServer, count: int) -> None:
    paints, useful, sizes, requests, browsing, serving = [], [], [], [], [], []
    for _ in range(count):
        context = browser.new_context()  # with an empty cache
        page, taken = context.new_page(), []
        page.on("response", lambda response, taken=taken: taken.append(int(response.headers.get("content-length", 0))))
        page.add_init_script(NUMBERS_SHOWN)
        before = _browser_s(), _process_s(server.process.pid)
        page.goto(f"{server.url}/console/")
        useful.append(_until(page, lambda page=page: page.evaluate(NUMBERS)))
        requests.append(len(taken))
        browsing.append((_browser_s() - before[0]) * 1000)
        serving.append((_process_s(server.process.pid) - before[1]) * 1000)
        paints.append(_until(page, lambda page=page: page.evaluate(PAINT)))
        sizes.append(sum(taken))
        context.close()
    click.echo(
        f"first visit, median of {count}: first paint {statistics.median(paints):,.0f} ms, numbers "
        f"{statistics.median(useful):,.0f} ms, {statistics.median(sizes):,.0f} bytes; "
        f"until then {statistics.median(requests):,.0f} requests, and CPU: of the browser, in all its processes, "
        f"{statistics.median(browsing):,.0f} ms, of the server {statistics.median(serving):,.0f} ms"
    )


def _tail(browser: Browser, server: RunningServer, seconds: int, rate: int) -> None:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.goto(f"{server.url}/console/logs/orders")
    page.get_by_role("button", name="Follow").click()
    page.get_by_role("button", name="Following").wait_for()
    page.evaluate(FRAMES)
    heap = page.evaluate("performance.memory.usedJSHeapSize")
    browsing, serving, began = _browser_s(), _process_s(server.process.pid), time.perf_counter()
    sent = _append(server.url, seconds, rate)
    elapsed = time.perf_counter() - began
    _until(page, lambda: _counted(page) == sent or None)
    expect("events counted by the page", sent, _counted(page))
    late_s = time.perf_counter() - began - elapsed
    browser_s, server_s = _browser_s() - browsing, _process_s(server.process.pid) - serving
    frames, grown = page.evaluate("window.frames_"), page.evaluate("performance.memory.usedJSHeapSize")
    click.echo(
        f"tail: {sent:,} events in {elapsed:.1f} s ({sent / elapsed:,.0f} /s), counted {_counted(page):,}, up to date "
        f"{late_s:.2f} s after the last; browser {_share(browser_s, elapsed)} of a core, server "
        f"{_share(server_s, elapsed)}; {frames / elapsed:.0f} frames/s; heap {_mb(heap)} MB, then {_mb(grown)}"
    )
    context.close()


def _append(url: str, seconds: int, rate: int) -> int:
    """Append at a steady rate; answers how many events."""
    sent, batch = 0, [Event("OrderPlaced", b"x" * EVENT_BYTES, ("order:17",))] * (rate // BATCHES)
    with connect(url) as client:
        log, began = client.log("orders"), time.perf_counter()
        for number in range(seconds * BATCHES):
            log.append(batch)
            sent += len(batch)
            time.sleep(max(0.0, began + (number + 1) / BATCHES - time.perf_counter()))
    return sent


def _idle(browser: Browser, server: RunningServer, count: int, seconds: int) -> None:
    contexts = [browser.new_context() for _ in range(count)]
    for context in contexts:
        page = context.new_page()
        page.goto(f"{server.url}/console/")
        page.get_by_text("Ready").first.wait_for()
    time.sleep(1)
    before = _process_s(server.process.pid)
    time.sleep(seconds)
    spent = _process_s(server.process.pid) - before
    click.echo(f"{count} consoles on the overview, {seconds} s: server {_share(spent, seconds)} of a core")
    for context in contexts:
        context.close()


def _counted(page: Page) -> int:
    return int(page.evaluate("document.querySelector('[data-counted]')?.dataset.counted ?? 0"))


def _until(page: Page, look: Callable[[], Any], seconds: float = 60) -> Any:
    until = time.perf_counter() + seconds
    while (found := look()) is None and time.perf_counter() < until:
        page.wait_for_timeout(20)
    return found


def _process_s(pid: int) -> float:
    """The CPU time of a process so far, in s."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def _browser_s() -> float:
    """The CPU time of all processes of the browser that this process began."""
    below, found = {str(os.getpid())}, 0.0
    listed = subprocess.run(["ps", "-eo", "pid,ppid,comm"], capture_output=True, text=True, check=True).stdout
    for line in sorted(listed.splitlines()[1:], key=lambda line: int(line.split()[0])):
        pid, parent, name = line.split(None, 2)
        if parent in below:
            below.add(pid)
            if "chrom" in name:
                found += _process_s(int(pid))
    return found


def _share(spent_s: float, seconds: float) -> str:
    return f"{spent_s / seconds:.1%}"


def _mb(size: float) -> str:
    return f"{size / 1e6:.1f}"


if __name__ == "__main__":
    main()
