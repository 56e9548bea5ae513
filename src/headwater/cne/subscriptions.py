"""The routes of subscriptions and of current states."""

from __future__ import annotations

from ..core.access import Right
from ..core.limits import show
from ..core.loop.slices import Slices
from ..http.arrays import answer_array, in_slices
from ..http.exchange import as_json
from .delivery.endpoint import Endpoint
from .errors import RequestRefused
from .exchange import Exchange, answer_infos
from .host import Host
from .notifications import records, writer
from .notifications.document import Members
from .notifications.notification import Dialect, Notification
from .notifications.reader import members_of
from .notifications.records import Subscription
from .notifications.stored import Stored
from .registry import AlreadyThere
from .selection import chosen
from .states import about


async def create(host: Host, exchange: Exchange) -> None:
    """POST /subscriptions"""
    owner = await host.owner(exchange, Right.READ)
    is_v2 = exchange.dialect is Dialect.V2
    members: Members = members_of(await exchange.body())
    request = records.request_of(members, exchange.dialect, needs_endpoint=is_v2)
    try:
        made = await host.service.subscribe(request, exchange.dialect, owner, exchange.url("/subscriptions"))
    except AlreadyThere as error:
        if is_v2:
            host.service.conflicts.add(owner, request.endpoint)
            raise
        made = error.subscription
    location = ((b"location", made.location.encode()),)
    await exchange.answer(201, as_json(made.info(exchange.dialect)), headers=location)


async def list_all(host: Host, exchange: Exchange) -> None:
    """GET /subscriptions"""
    await host.reader(exchange)
    await answer_infos(exchange, host.service.subscriptions.by_id.values())


async def get(host: Host, exchange: Exchange) -> None:
    """GET /subscriptions/{id}"""
    await host.reader(exchange)
    await exchange.answer(200, as_json(_found(host, exchange).info(exchange.dialect)))


async def delete(host: Host, exchange: Exchange) -> None:
    """DELETE /subscriptions/{id}"""
    owner = await host.owner(exchange, Right.READ)
    found = _found(host, exchange)
    await host.check_own(exchange, found, owner)
    await host.service.unsubscribe(found)
    await _deleted(exchange, "OK")


async def delete_own(host: Host, exchange: Exchange) -> None:
    """DELETE /subscriptions: deletes the caller's own; see `selection`."""
    owner = await host.owner(exchange, Right.READ)
    service = host.service
    records = list(service.subscriptions.by_id.values())
    await service.unsubscribe(*await chosen(exchange, owner, records, service.conflicts))
    await _deleted(exchange, "deleted all subscriptions")


async def ping(host: Host, exchange: Exchange) -> None:
    """PUT /subscriptions/status/{id}"""
    await host.owner(exchange, Right.READ)
    found = host.service.subscriptions.by_id.get(exchange.arguments[0])
    if found is None:
        raise RequestRefused(400, "subscription not found")
    await host.service.ping(found)
    await exchange.answer(202, as_json({"status": "ping sent"}))


async def delivery(host: Host, exchange: Exchange) -> None:
    """GET /subscriptions/{id}/delivery (ours): the state of delivery."""
    await host.reader(exchange)
    found = _found(host, exchange)
    await exchange.answer(200, as_json(_delivery_of(found, host.service.endpoint(found))))


async def resume(host: Host, exchange: Exchange) -> None:
    """POST /subscriptions/{id}/resume (ours): deliver again, including dead letters."""
    owner = await host.owner(exchange, Right.READ)
    found = _found(host, exchange)
    await host.check_own(exchange, found, owner)
    await host.service.resume(found)
    await exchange.answer(202, as_json(_delivery_of(found, host.service.endpoint(found))))


async def current_state(host: Host, exchange: Exchange) -> None:
    """GET /{ResourceAddress}/CurrentState"""
    await host.reader(exchange)
    resource = exchange.arguments[0]
    found = await host.service.states(resource)
    if not found:
        is_v2 = exchange.dialect is Dialect.V2
        raise RequestRefused(404 if is_v2 else 400, f"there is no event for the resource {show(resource)}")
    states = [pair async for pair in about(found, resource, Slices())]
    if len(states) == 1:
        await exchange.answer(200, _rendered(host, exchange.dialect, resource, *states[0]))
    else:
        await answer_array(exchange, in_slices(_rendered(host, exchange.dialect, resource, *pair) for pair in states))


def _rendered(host: Host, dialect: Dialect, resource: str, stored: Stored, notification: Notification) -> bytes:
    if dialect is Dialect.V2:
        return writer.structured(notification, stored.sequence_number)
    if host.settings.v1_wraps:
        return writer.wrapped_v1(notification, resource, stored.sequence_number)
    return writer.bare(notification, notification.id)


def _found(host: Host, exchange: Exchange) -> Subscription:
    found = host.service.subscriptions.by_id.get(exchange.arguments[0])
    if found is None:
        raise RequestRefused(404 if exchange.dialect is Dialect.V2 else 400, "subscription not found")
    return found


async def _deleted(exchange: Exchange, status: str) -> None:
    if exchange.dialect is Dialect.V2:
        await exchange.answer_empty(204)
    else:
        await exchange.answer(200, as_json({"status": status}))


def _delivery_of(subscription: Subscription, endpoint: Endpoint | None) -> dict[str, object]:
    if endpoint is None:
        return {"id": subscription.id, "endpoint": subscription.endpoint, "standing": "none"}
    kept = endpoint.kept
    return {
        "id": subscription.id,
        "endpoint": subscription.endpoint,
        "standing": endpoint.standing.value,
        "delivered": endpoint.delivered,
        "waiting": endpoint.waiting,
        "is_current": endpoint.is_current,
        "cursor": endpoint.cursor,
        "failures": endpoint.failures,
        "problem": kept.problem,
        "failing_since": kept.since,
        "dead_letters": kept.dead_letters,
        "dead_letters_total": kept.dead_letters_total,
        "gaps": kept.gaps,
    }
