"""`python -m tests.console.screenshots`: the pictures of the console that the documents show, from the demo's data.

They are made anew by hand when the console looks different, by `make screenshots`. It takes a minute, Chromium, and the
extra `demo`.
"""

from __future__ import annotations

import sys
import tempfile
from itertools import islice
from pathlib import Path

from demo.flights import load_year

from headwater.client import connect
from headwater.core import Event, Query, QueryItem
from tests.interop.runtimes import Chromium
from tests.server.running import RunningServer

IMAGES = Path(__file__).parents[2] / "docs" / "images"
EVENTS, BATCH = 100_000, 2_000
BYTES_MAX = 200_000
WINDOW = {"width": 1280, "height": 800}


def main() -> int:
    """See the module."""
    runtime = Chromium()
    if reason := runtime.missing():
        print(reason, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as directory, RunningServer("--log", "flights", cwd=Path(directory)) as server:
        with connect(server.url) as client:
            log = client.log("flights")
            events = islice(load_year(), EVENTS)
            while batch := list(islice(events, BATCH)):
                log.append(batch)
            cancelled = QueryItem(("FlightCancelled",), ("carrier:MQ", "origin:LGA"))
            shown = next(each for each in log.read(Query.of(cancelled), backwards=True) if _has_tail(each.event))
            story = next(tag for tag in shown.event.tags if tag.startswith("tail:"))
        query = "type=FlightDeparted type=FlightCancelled tag=carrier:UA tag=origin:EWR"
        _take(server.url, "console-log", f"/logs/flights?q={query.replace(' ', '+')}", "light")
        _take(server.url, "console-event", f"/logs/flights/{shown.sequence_number}?story={story}", "dark")
    return 0


def _has_tail(event: Event) -> bool:
    return any(tag.startswith("tail:") for tag in event.tags)


def _take(url: str, name: str, path: str, scheme: str) -> None:
    with Chromium().driven() as browser:
        page = browser.new_page(viewport=WINDOW, color_scheme=scheme)  # type: ignore[arg-type]
        page.goto(f"{url}/console{path}")
        if name == "console-log":
            page.locator(".list .line[data-number]").nth(6).click(position={"x": 40, "y": 10})
        page.locator(".inspector pre.data, pre.numbered").first.wait_for()
        page.locator(".skeleton").wait_for(state="detached")
        page.wait_for_timeout(1500)
        picture = page.screenshot(path=IMAGES / f"{name}.png")
    assert len(picture) < BYTES_MAX, f"{name} has {len(picture)} bytes"
    print(f"{name}: {len(picture)} bytes")


if __name__ == "__main__":
    sys.exit(main())
