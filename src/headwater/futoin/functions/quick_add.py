"""A fast path for plain addEvent messages: one pass, without building a message and without waiting.

It has the same effect as `calls.answer`. All other messages are left to `calls.answer`, which handles or refuses them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw, Struct

from ...core.access import Right, User
from ...core.event import Event
from ...core.log import AppendResult
from ..calls import Channel
from ..errors import FutoInError
from ..host import Host
from ..identity import recall
from ..messages import interface
from ..messages.message import PLAIN_BYTES, is_rid
from ..messages.types import Check


class _Parameters(Struct, forbid_unknown_fields=True):
    type: str
    data: Raw


class _Request(Struct, forbid_unknown_fields=True):
    f: str
    p: _Parameters
    rid: str
    sec: Any = None


class Adding(NamedTuple):
    """An addition that has begun."""

    rid: str
    user: User


class _Addition(NamedTuple):
    """A function that adds one event."""

    is_type: Check
    needs_secure_channel: bool
    counted_as: str


Then = Callable[[str, AppendResult | BaseException], None]
"""Receives the `rid` of an addition, and its result once the event is durable, or the error."""
_decode = msgspec.json.Decoder(_Request).decode
_decode_data = msgspec.json.Decoder().decode


def begin(host: Host, log_name: str, channel: Channel, body: bytes, then: Then) -> Adding | None:
    """Begin the addition in a message if it is a plain one, in JSON; None decides nothing."""
    if body[:1] != b"{" or len(body) > PLAIN_BYTES or host.stopping.done():
        return None
    try:
        if not body.isascii():
            body.decode()  # the decoder does not check values that it keeps raw
        given = _decode(body)
        data = bytes(given.p.data)
        _decode_data(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    addition = _additions().get(given.f)
    if addition is None or not is_rid(given.rid) or not addition.is_type(given.p.type):
        return None
    if addition.needs_secure_channel and not channel.is_secure:
        return None
    try:
        caller = recall(host.guard, given.sec, channel.authorization)
    except FutoInError:
        return None
    opened = None if caller is None else host.opened(log_name, caller, Right.APPEND)
    if caller is None or opened is None:
        return None
    host.statistics.calls[addition.counted_as] += 1
    event = Event(given.p.type, data, attributes=channel.trace)
    opened.asynchronous.batcher.join(event, partial(then, given.rid))
    return Adding(given.rid, caller.user)


def reply_to(rid: str, number: int) -> bytes:
    """The reply, in JSON, once the number is known."""
    return b'{"r":"%d","rid":"%b"}' % (number, rid.encode())


@cache
def _additions() -> dict[str, _Addition]:
    """The functions that add one event, by their name in `f`."""
    return {
        function.name: _Addition(
            function.parameters["type"].check, "SecureChannel" in function.requires, ".".join(function.key)
        )
        for function in interface.served()
        if function.key[1] == "addEvent"
    }
