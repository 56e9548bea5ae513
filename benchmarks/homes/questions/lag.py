"""How far behind is a replica: when does its subscriber receive an event that the primary has acknowledged?

Single appends at an even pace, over HTTP, by one client; a subscription with Server-Sent Events at the replica. Zero
where the subscriber was quicker than the answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial

from tests.load.chaos.members import Member

from headwater.client import connect
from headwater.core import Event, SequencedEvent

from ...measure import Aim, Case, Sample, WrongAnswer, percentile_ms
from ..bench import HomesBench
from ..servers import LOG, members

TITLE = "How far a replica is behind"
PER_SECOND = (50, 200)
PATIENCE_S = 60.0


def cases(bench: HomesBench) -> Iterator[Case]:
    """Two paces."""
    with members(bench.directory / "lag", bench.database, 1) as (primary, replica):
        for pace in PER_SECOND:
            runs = {"headwater, replica": partial(_follow, bench, primary, replica, pace)}
            yield Case(f"{pace} appends/s, p99 of the lag", "ms", runs, (Aim("", 50),), is_lower_better=True)


def _follow(bench: HomesBench, primary: Member, replica: Member, pace: int) -> Sample:
    count = max(10, int(pace * bench.seconds))
    seen: dict[int, float] = {}
    answered: dict[int, float] = {}
    with connect(primary.url) as at_primary, connect(replica.url) as at_replica:
        log = at_primary.log(LOG)
        began_at = log.append([Event("Begin", b"")]).last
        subscription = at_replica.log(LOG).subscribe(after=began_at - 1)
        with subscription:
            events = iter(subscription)
            next(events)
            reader = threading.Thread(target=_read, args=(events, count, seen), daemon=True)
            reader.start()
            began = time.perf_counter()
            for number in range(count):
                time.sleep(max(0.0, began + number / pace - time.perf_counter()))
                last = log.append([Event("E", b"x" * 256)]).last
                answered[last] = time.perf_counter()
            reader.join(PATIENCE_S)
    if seen.keys() != answered.keys():
        raise WrongAnswer(f"the replica told {len(seen)} of {len(answered)} events")
    lags = [max(0.0, seen[number] - moment) for number, moment in answered.items()]
    p50, p99 = percentile_ms(lags, 50), percentile_ms(lags, 99)
    assert p99 is not None
    return Sample(max(p99, 0.001), None, p50, p99)


def _read(events: Iterator[SequencedEvent], count: int, seen: dict[int, float]) -> None:
    for _ in range(count):
        event = next(events)
        seen[event.sequence_number] = time.perf_counter()
