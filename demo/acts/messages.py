"""AMQP on the same log: a tower sends messages, a hangar receives those of one aircraft, a dispatcher uses HTTP."""

from __future__ import annotations

import json
import time

from headwater.amqp.client import Client, Delivery, Receiver
from headwater.amqp.filters import QUERY_FILTER
from headwater.amqp.protocol.message import DATA, Message
from headwater.amqp.protocol.performatives import Accepted
from headwater.amqp.protocol.types import Described, Symbol
from headwater.core import EventLog
from headwater.decisions import decide

from ..stage import LOG, Stage
from . import decide as decisions
from .decide import TAIL, InTheAir, movements

TITLE = "Messages"
BURST = 20_000
PATIENCE_S = 20.0


def play(stage: Stage) -> None:
    """Replay, share, and burst."""
    log = stage.log()
    with Client(stage.server.amqp_url) as hangar, Client(stage.server.amqp_url) as tower:
        _replay(stage, hangar, log)
        _share(stage, hangar, tower, log)
        _burst(stage, tower, log)


def about(tail: str, *, from_the_beginning: bool) -> dict[str, object]:
    """The source filters of a consumer that wants what one aircraft did, and nothing else in the log."""
    query = json.dumps({"items": [{"tags": [f"tail:{tail}"]}]})
    filters: dict[str, object] = {"aircraft": Described(QUERY_FILTER, query)}
    if from_the_beginning:
        start = {Symbol("event-streams-offset"): Symbol("@earliest")}
        filters["start"] = Described(Symbol("amqp:event-streams-delivery-annotations-filter"), start)
    return filters


def departure(tail: str) -> Message:
    """A departure as a CloudEvent in an AMQP message (CloudEvents AMQP binding, binary mode)."""
    properties = {
        "cloudEvents:specversion": "1.0",
        "cloudEvents:id": f"tower-{time.time_ns()}",
        "cloudEvents:source": "/tower/jfk",
        "cloudEvents:type": "FlightDeparted",
        "cloudEvents:tags": f"tail:{tail},origin:JFK,dest:BOS",
    }
    return Message([b"{}"], DATA, application_properties=properties)


def _replay(stage: Stage, hangar: Client, log: EventLog) -> None:
    expected = sum(1 for _ in log.read(movements(TAIL)))
    started = time.perf_counter()
    receiver = hangar.receiver(LOG, credit=1000, filter=about(TAIL, from_the_beginning=True))
    deliveries = receiver.take(expected, PATIENCE_S)
    milliseconds = 1000 * (time.perf_counter() - started)
    receiver.close()
    assert len(deliveries) == expected, f"{len(deliveries)} of {expected} events came over AMQP"
    stage.say(
        f"a hangar attaches over AMQP, from the beginning, for [bold]{TAIL}[/] only: {expected:,} of "
        f"{log.head():,} events in {milliseconds:.0f} ms, by the index"
    )
    stage.note("one aircraft's year over AMQP", f"{expected:,} messages in {milliseconds:.0f} ms")


def _share(stage: Stage, hangar: Client, tower: Client, log: EventLog) -> None:
    live = hangar.receiver(LOG, filter=about(TAIL, from_the_beginning=False))
    decide(log, decisions.arrival(TAIL))
    _next(live).settle()
    stage.say(f"a dispatcher (DCB over HTTP) sees {TAIL} on the ground; before it decides, the tower sends a message")
    offsets: list[int] = []

    def tower_sends() -> None:
        state = tower.sender(LOG).send(departure(TAIL))
        assert state == Accepted(), f"the message was {state}"
        offset = _next(live).message.delivery_annotations["event-streams-offset"]
        offsets.append(int(offset))
        stage.say(f"  the tower's AMQP message: [green]accepted[/], durable; the hangar has it, offset {offset}")

    try:
        decide(log, decisions.departure(TAIL, meanwhile=tower_sends))
        raise AssertionError("the dispatcher's departure went in")
    except InTheAir as refused:
        (offset,) = offsets
        number = refused.departure.sequence_number
        assert number == offset, f"the conflict is {number}, the message {offset}"
        stage.say(f"  the dispatcher: [red]refused[/]: event {number:,} is that message, one number everywhere")
    number = decide(log, decisions.arrival(TAIL)).last
    arrived = _next(live).message
    assert int(arrived.delivery_annotations["event-streams-offset"]) == number
    stage.say(f"  the arrival, appended over HTTP: event {number:,}; the hangar gets it as a message (CloudEvents)")
    live.close()
    stage.note("an AMQP message and a DCB decision", "one number, one condition")


def _burst(stage: Stage, tower: Client, log: EventLog) -> None:
    before = log.head()
    sender = tower.sender(LOG)
    message = Message([bytes(256)], DATA, application_properties={"station": "JFK"})
    started = time.perf_counter()
    states = sender.send_all([message] * BURST)
    seconds = time.perf_counter() - started
    assert states == [Accepted()] * BURST and log.head() == before + BURST, f"{log.head() - before} were stored"
    stage.say(
        f"a burst of {BURST:,} messages, each accepted when durable: {BURST / seconds:,.0f}/s with one connection"
    )
    stage.note("AMQP messages, each accepted when durable", f"{BURST / seconds:,.0f}/s")


def _next(receiver: Receiver) -> Delivery:
    (delivery,) = receiver.take(1, PATIENCE_S)
    delivery.settle()
    return delivery
