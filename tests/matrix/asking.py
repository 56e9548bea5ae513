"""How each protocol is asked for events with a tag: as a key or exactly, in each spelling that it has for a query."""

from __future__ import annotations

import contextlib
import http.client
import json
import shlex
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from headwater.core import Query
from headwater.flight.wire import Ticket
from headwater.formats.arrow.tables import events_of
from headwater.formats.cloudevents import encode_tags
from tests.amqp.asking import EARLIEST, OFFSET, annotation, described, drained

from .world import LOG, SILENCE_S_MAX, World

Ask = Callable[[World, str, bool], Sequence[int]]
"""The numbers of the events that have a tag; whether it is meant exactly."""


def _json(tag: str, is_exact: bool) -> dict[str, Any]:
    return {"items": [{"types": ["Tagged"], "exact_tags" if is_exact else "tags": [tag]}]}


def _text(tag: str, is_exact: bool) -> str:
    kind = "exact_tag" if is_exact else "tag"
    return f"type=Tagged {shlex.quote(f'{kind}={tag}')}"


def _dcb(world: World, tag: str, is_exact: bool) -> Sequence[int]:
    answer = world.post(f"/logs/{LOG}/read", {"query": _json(tag, is_exact)})
    assert answer.status == 200, answer.body
    return [json.loads(line)["sequence_number"] for line in answer.body.split(b"\n") if line]


def _dcb_draft(world: World, tag: str, is_exact: bool) -> Sequence[int]:
    key, colon, value = tag.partition(":")
    pair: Any = {"key": key, "value": value} if colon else {"key": key}
    properties = {"event_types": ["Tagged"], "exact_tags" if is_exact else "tags": [pair]}
    query = {"version": "1.0", "criteria": [{"type": "EventTypesAndTags", "properties": properties}]}
    answer = world.post(f"/logs/{LOG}/read", {"query": query})
    assert answer.status == 200, answer.body
    return [json.loads(line)["sequence_number"] for line in answer.body.split(b"\n") if line]


def _suite(world: World, tag: str, is_exact: bool) -> Sequence[int]:
    found = world.call("GET", f"/dcb/{LOG}/read?query={quote(json.dumps(_json(tag, is_exact)))}").json
    return [each["position"] for each in found]


def _subscription(world: World, tag: str, is_exact: bool) -> Sequence[int]:
    """Up to the first event of another type, which is after all that can be found."""
    items = [*_json(tag, is_exact)["items"], {"types": ["End"]}]
    connection = http.client.HTTPConnection(urlsplit(world.url).netloc, timeout=SILENCE_S_MAX)
    with contextlib.closing(connection):
        connection.request("GET", f"/logs/{LOG}/subscribe?after=0&query={quote(json.dumps({'items': items}))}")
        found = []
        for line in connection.getresponse():
            if line.startswith(b"data:"):
                envelope = json.loads(line[5:])
                if envelope["event"]["type"] == "End":
                    return found
                found.append(envelope["sequence_number"])
    raise AssertionError("the stream ended")


def _client(world: World, tag: str, is_exact: bool) -> Sequence[int]:
    """In MessagePack."""
    query = Query.where(types=["Tagged"], **{"exact_tags" if is_exact else "tags": [tag]})
    return [event.sequence_number for event in world.log.read(query)]


def _flight(query: Callable[[str, bool], Any]) -> Ask:
    def ask(world: World, tag: str, is_exact: bool) -> Sequence[int]:
        ticket = msgspec.convert({"log": LOG, "query": query(tag, is_exact)}, Ticket)
        return sorted(event.sequence_number for batch in world.bulk.read(ticket) for event in events_of(batch))

    return ask


def _amqp(query: Callable[[str, bool], str]) -> Ask:
    def ask(world: World, tag: str, is_exact: bool) -> Sequence[int]:
        return _received(world, described("headwater:query-filter", query(tag, is_exact)))

    return ask


def sql(world: World, tag: str) -> Sequence[int]:
    """By the SQL filter of AMQP: the property has the tags as CloudEvents joins them."""
    literal = encode_tags([tag]).replace("'", "''")
    return _received(
        world, described("amqp:sql-filter", f"[cloudEvents:type] = 'Tagged' AND [cloudEvents:tags] = '{literal}'")
    )


def _received(world: World, filter: dict[str, object]) -> Sequence[int]:
    receiver = world.amqp.receiver(LOG, credit=0, filter={**EARLIEST, **filter})
    found = [int(annotation(each, OFFSET)) for each in drained(world.amqp, receiver)]
    receiver.close()
    return found


ASKED: dict[str, Ask] = {
    "dcb": _dcb,
    "dcb_draft": _dcb_draft,
    "dcb_suite": _suite,
    "dcb_subscription": _subscription,
    "client": _client,
    "flight_json": _flight(_json),
    "flight_text": _flight(_text),
    "amqp_json": _amqp(lambda tag, is_exact: json.dumps(_json(tag, is_exact))),
    "amqp_text": _amqp(_text),
}
"""By name."""
