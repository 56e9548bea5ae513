"""Some seconds in the life of a server, on every protocol, with marks of what was asked for and what was acknowledged.

The server is stopped in order once and killed once, in between. Each life takes as long as it takes until everybody has
done its part, so that a slow machine records as much as a quick one.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headwater.client import connect
from headwater.core.settings import LogSettings
from tests.load.ledger import Book
from tests.load.place import LOG

from .clients import READERS, WRITERS, MarkingWriter
from .marking import REPEATS, Marking, marker_in
from .operators import Commander, Operator
from .recording import Recording
from .serving import ROLLING, ROLLING_BYTES, TRIMMED, Served

LIFE_S_MAX = 120.0
"""What a life may take."""
IDLE_S = 1.0
"""The pause of a writer that has done its part."""


def run(folder: Path, root: Path, file: Path) -> Recording:
    """Record a run on `root/data`, whose configuration is in `folder`; answers when the server has ended in order."""
    recording = Recording(root, file)
    marking = Marking(recording)
    served = Served(folder, root / "data", recording.environment)
    book = {LOG: Book(), TRIMMED: Book(REPEATS[TRIMMED]), ROLLING: Book(REPEATS[ROLLING])}
    everybody: list[Any] = [kind(served.place, book[kind.log]) for kind in (*WRITERS, *READERS)]
    operator = Operator(served.place)
    everybody.append(operator)
    for each in everybody:
        each.marking, each.served = marking, served
    commander = Commander(marking, served, folder)
    try:
        _begin(marking, served)
        for each in everybody:
            each.start()
        commander.start()
        _live(everybody)
        served.stop()
        recording.mark(stopped=True)
        served.start()
        _live(everybody)
        with recording.standing_still():
            served.kill()
        served.start()
        _live(everybody)
        commander.join()
        _end(everybody)
        _see(recording, served)
        served.stop()
        recording.mark(stopped=True)
    finally:
        for each in everybody:
            each.is_given_up = True
        served.__exit__()
        operator.close()
    faults = [f"{type(each).__name__}: {each.fault!r}" for each in (*everybody, commander) if each.fault]
    assert not faults, faults
    assert "Traceback" not in served.complaints, served.complaints[-4000:]
    return recording


def _begin(marking: Marking, served: Served) -> None:
    """The server makes the logs of its configuration."""
    with contextlib.ExitStack() as steps:
        made = []
        for name in (LOG, TRIMMED, ROLLING):
            settings = LogSettings(retention_bytes=ROLLING_BYTES if name == ROLLING else None)
            made.append((name, steps.enter_context(marking.step("log", name, value=asdict(settings)))))
        served.start()
        with connect(served.place.http, user=served.place.user, password=served.place.password) as server:
            for name, answer in made:
                answer["incarnation"] = server.log(name).info().incarnation


def _live(everybody: list[Any]) -> None:
    """Until all have done their part."""
    begun, until = {each: _done_by(each) for each in everybody}, time.monotonic() + LIFE_S_MAX
    while slow := [each for each in everybody if _done_by(each) - begun[each] < getattr(each, "life", 0)]:
        for each in everybody:
            if isinstance(each, MarkingWriter):  # who has done its part goes on slowly: each state is read whole
                each.pause_s = type(each).pause_s if each in slow else IDLE_S
        time.sleep(0.02)
        faults = [f"{type(each).__name__}: {each.fault!r}" for each in everybody if each.fault]
        assert not faults, faults
        assert time.monotonic() < until, f"{slow[0].name} stands at {slow[0].stands_at}"


def _done_by(each: Any) -> int:
    return len(each.latencies) if isinstance(each, MarkingWriter) else getattr(each, "turns", 0)


def _end(everybody: list[Any]) -> None:
    for each in everybody:
        each.end()
    for each in everybody:
        each.stop()


def _see(recording: Recording, served: Served) -> None:
    """Which number each event has: acknowledgements of some protocols do not say it."""
    place = served.place
    with connect(place.http, user=place.user, password=place.password) as server:
        for name in (LOG, TRIMMED, ROLLING):
            numbers = {marker_in(event.data): event.sequence_number for event in server.log(name).read()}
            recording.mark(seen=numbers, log=name)
