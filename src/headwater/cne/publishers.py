"""The publisher routes: register, create events, and write an event into the server's own log lines."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from ..core.access import Right
from ..core.errors import InvalidEvent, InvalidInput
from ..core.event import Event
from ..core.limits import show
from ..core.loop.slices import Slices
from ..formats import cloudevents
from ..formats.tracing import TRACEPARENT, trace_of_headers
from ..http.errors import json_path
from ..http.exchange import as_json
from .errors import RequestRefused, too_large
from .exchange import Exchange, answer_infos
from .host import Host
from .notifications import envelope, reader, records, rules, stored, writer
from .notifications.document import Members
from .notifications.notification import JSON_TYPE, Notification
from .notifications.records import Publisher
from .repeats import IdReused
from .selection import chosen

_logger = logging.getLogger("headwater.cne.events")
BATCH_EVENTS_MAX = 1000
DIARY_BYTES_MAX = 2000
ANNOUNCED_BYTES_MAX = 16 * 1024
"""For events up to this size, the feed keeps the parsed notification until it finds them in the log."""
_WIDEST_NUMBER = 10**18 - 1
_SENT = b'{"status":"Event sent"}'


class Given(NamedTuple):
    """One event of a request: its notification and the bytes to store."""

    notification: Notification
    original: bytes
    content_type: str
    tags: tuple[str, ...] = ()
    where: str = ""
    """Its path in the body, if the body contains several events."""


async def create_publisher(host: Host, exchange: Exchange) -> None:
    """POST /publishers"""
    owner = await host.owner(exchange, Right.APPEND)
    members = reader.members_of(await exchange.body())
    request = records.request_of(members, exchange.dialect, needs_endpoint=False)
    made = await host.service.publisher(request, exchange.dialect, owner, exchange.url("/publishers"))
    await exchange.answer(201, as_json(made.info(exchange.dialect)))


async def list_publishers(host: Host, exchange: Exchange) -> None:
    """GET /publishers"""
    await host.reader(exchange)
    await answer_infos(exchange, host.service.publishers.by_id.values())


async def get_publisher(host: Host, exchange: Exchange) -> None:
    """GET /publishers/{id}"""
    await host.reader(exchange)
    found = host.service.publishers.by_id.get(exchange.arguments[0])
    if found is None:
        raise RequestRefused(400, "publisher not found")
    await exchange.answer(200, as_json(found.info(exchange.dialect)))


async def delete_publisher(host: Host, exchange: Exchange) -> None:
    """DELETE /publishers/{id}: also succeeds for an unknown id."""
    owner = await host.owner(exchange, Right.APPEND)
    if (found := host.service.publishers.by_id.get(exchange.arguments[0])) is not None:
        await host.check_own(exchange, found, owner)
        await host.service.publishers.remove([found.id])
    await exchange.answer(200, as_json({"status": "OK"}))


async def delete_own_publishers(host: Host, exchange: Exchange) -> None:
    """DELETE /publishers: deletes the caller's own; see `selection`."""
    owner = await host.owner(exchange, Right.APPEND)
    found = await chosen(exchange, owner, list(host.service.publishers.by_id.values()))
    await host.service.publishers.remove(each.id for each in found)
    await exchange.answer(200, as_json({"status": "deleted all publishers"}))


async def create_event(host: Host, exchange: Exchange) -> None:
    """POST /create/event: a publisher's bare event, or CloudEvents: structured, binary, in a batch or an envelope."""
    await host.owner(exchange, Right.APPEND)
    body, is_strict, slices = await exchange.body(), _is_strict(host, exchange), Slices()
    given = await _read(exchange, body, slices, is_strict=is_strict)
    events, known = [], []
    for each in given:
        await slices.pause()
        try:
            event, notification, is_publishers = _event_of(host, each)
            events.append(event)
            if is_publishers and len(event.data) <= ANNOUNCED_BYTES_MAX:
                known.append((event, notification))
        except InvalidInput as error:
            error.where = _joined(each.where, error.where)
            raise
    await _append(host, events, known, given)
    await exchange.answer(202, _SENT)


async def _append(
    host: Host, events: Sequence[Event], known: Sequence[tuple[Event, Notification]], given: Sequence[Given]
) -> None:
    try:
        await host.service.append(events, known)
    except InvalidInput as error:
        error.where = _in_document(error.where, given)
        raise
    except IdReused as error:
        raise RequestRefused(409, str(error), json_path(_joined(given[error.index].where, "id"))) from None


async def write_diary(host: Host, exchange: Exchange) -> None:
    """POST /log: write the event as a line of the server's own log; it is not appended to any event log."""
    await host.owner(exchange, Right.APPEND)
    slices = Slices()
    for each in await _read(exchange, await exchange.body(), slices, is_strict=False):
        await slices.pause()
        _logger.info(
            "event received: %s", writer.structured(each.notification)[:DIARY_BYTES_MAX].decode(errors="replace")
        )
    await exchange.answer(202, as_json({"status": "Event published to log"}))


async def _read(exchange: Exchange, body: bytes, slices: Slices, *, is_strict: bool) -> Sequence[Given]:
    media_type = exchange.media_type()
    if media_type == cloudevents.BATCH:
        return await _read_all(reader.batch_of(body), exchange, slices, is_strict)
    if exchange.header(b"ce-specversion") is not None and media_type != cloudevents.STRUCTURED:
        members = reader.members_of_headers(exchange.scope["headers"], body)
        return [_given(members, body, exchange, is_strict)._replace(content_type=media_type or JSON_TYPE)]
    members = reader.members_of(body)
    if len(members) != 1 or (key := envelope.key_of(members)) is None:
        return [_given(members, body, exchange, is_strict)]
    return await _read_all(envelope.events_of(body, key), exchange, slices, is_strict, key)


async def _read_all(
    texts: Sequence[bytes], exchange: Exchange, slices: Slices, is_strict: bool, where: str = ""
) -> list[Given]:
    """The events of a batch, or of an envelope. Raises RequestRefused, InvalidEvent with the path."""
    if len(texts) > BATCH_EVENTS_MAX:
        raise RequestRefused(413, f"{len(texts)} events given, at most {BATCH_EVENTS_MAX} are allowed")
    found = []
    for index, text in enumerate(texts):
        await slices.pause()
        path = f"{where}[{index}]"
        try:
            found.append(_given(reader.members_of(text), text, exchange, is_strict)._replace(where=path))
        except InvalidInput as error:
            raise InvalidEvent(error.problem, _joined(path, error.where)) from None
    return found


def _given(members: Members, original: bytes, exchange: Exchange, is_strict: bool) -> Given:
    if is_strict:
        rules.check(members, exchange.dialect)
    notification = _traced(reader.read(members, exchange.dialect), exchange)
    content_type = cloudevents.STRUCTURED if notification.is_wrapped else JSON_TYPE
    return Given(notification, original, content_type, reader.tags_of(members))


def _traced(notification: Notification, exchange: Exchange) -> Notification:
    """The notification. If it has no trace, it gets that of its request."""
    trace = trace_of_headers(exchange.scope["headers"])
    if not trace or TRACEPARENT in notification.extensions:
        return notification
    return replace(notification, extensions={**notification.extensions, **trace})


def _event_of(host: Host, given: Given) -> tuple[Event, Notification, bool]:
    """The event to append, its notification, and whether it has a publisher.

    A CloudEvent has its own id; a bare event has the id of its publisher.
    """
    notification, publisher = given.notification, _publisher_of(host, given.notification)
    id, address = (publisher.id, publisher.resource) if publisher else ("", "")
    ready, is_stamped = stored.prepared(notification, publisher=id, address=address)
    if not ready.source:
        raise InvalidEvent("expected a non-empty string", "source")
    _check_size(ready, len(given.original), host.settings.event_bytes_max)
    event = stored.event_of(
        ready,
        given.original,
        own=host.settings.place,
        publisher=id,
        address=address,
        tags=given.tags,
        content_type=given.content_type,
        is_stamped=is_stamped,
    )
    return event, ready, publisher is not None


def _check_size(notification: Notification, sent_bytes: int, bytes_max: int) -> None:
    """Raises RequestRefused if the event is larger than that, both as sent and as delivered."""
    if sent_bytes <= bytes_max or writer.size_at_most(notification) <= bytes_max:
        return
    size = len(writer.structured(notification, _WIDEST_NUMBER))
    if size > bytes_max:
        raise too_large(size, bytes_max, "the event as delivered")


def _publisher_of(host: Host, notification: Notification) -> Publisher | None:
    publisher = host.service.publishers.by_id.get(notification.id)
    if publisher is None and not notification.is_wrapped:
        raise RequestRefused(
            400, f"no publisher data for id {show(notification.id)[1:-1]} found to publish event for", "$.id"
        )
    return publisher


def _is_strict(host: Host, exchange: Exchange) -> bool:
    given = exchange.parameter("strict")
    if given not in (None, "true", "false"):
        raise RequestRefused(400, f"expected true or false, got {show(given)}", "strict")
    return host.settings.strict if given is None else given == "true"


def _in_document(where: str, given: Sequence[Given]) -> str:
    """Converts a path into the events of an append to a path into the body."""
    index, _, rest = where.removeprefix("events").partition(".")
    number = index.strip("[]")
    path = given[int(number)].where if number.isdigit() and int(number) < len(given) else ""
    return _joined(path, rest.removeprefix("attributes."))


def _joined(path: str, rest: str) -> str:
    return ".".join(part for part in (path, rest) if part)
