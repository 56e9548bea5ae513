"""Bodies that cost far more than their bytes where nobody counts what they hold: each by how much of it there is."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import msgspec

BATCH = b"headwater.evt.gen:1.0:addEvents"
SIGNED = b'"sec":"-hmac:nobody:SHA256:AAAA"'


def signed_tree(n: int, name: bytes = b"nobody") -> bytes:
    """A FutoIn message of about `n` values, nested 200 deep, with a signature that nobody made."""
    nested = b"[" * 200 + b"0" + b"]" * 200
    data = b",".join([nested] * max(1, n // 201))
    return b'{"f":"%b","p":{"events":[{"type":"A","data":[%b]}]},%b}' % (BATCH, data, SIGNED.replace(b"nobody", name))


def signed_add_event(n: int) -> bytes:
    """The same of a function that takes 64 KiB."""
    return signed_tree(n).replace(BATCH, b"futoin.evt.gen:1.1:addEvent")


def envelope_tree(n: int) -> bytes:
    """A FutoIn message whose `sec` is an array of `n` arrays."""
    return b'{"f":"%b","p":{},"sec":[%b[]]}' % (BATCH, b"[]," * n)


def add_events(n: int) -> bytes:
    """A legal addEvents of 1,000 events at most, with about `n` bytes of data."""
    data = b'{"a":[1,2.5,"x",{"b":null}],"text":"%b"}' % (b"y" * 60)
    each = b"[%b]" % b",".join([data] * max(1, n // 1000 // len(data)))
    return b'{"f":"%b","p":{"events":[%b]}}' % (BATCH, b",".join([b'{"type":"A","data":%b}' % each] * 1000))


def packed_add_events(n: int) -> bytes:
    """The same as MessagePack."""
    return b"MPCK" + msgspec.msgpack.encode(json.loads(add_events(n)))


def too_many_events(n: int) -> bytes:
    """An addEvents of `n` events, where 1,000 are allowed."""
    return b'{"f":"%b","p":{"events":[%b]}}' % (BATCH, b",".join([b'{"type":"A","data":1}'] * n))


def packed_data(n: int) -> bytes:
    """An addEvents in MessagePack whose one event is an array of `n` empty arrays."""
    data = b"\xdd" + n.to_bytes(4, "big") + b"\x90" * n
    return b"MPCK" + msgspec.msgpack.encode(
        {"f": BATCH.decode(), "p": {"events": [{"type": "A", "data": msgspec.Raw(data)}]}}
    )


def many_members(n: int) -> bytes:
    """A notification of `n` members, the last of which is there twice."""
    return b"{%b}" % b",".join([b'"%d":0' % number for number in [*range(n), n - 1]])


def many_values(n: int) -> bytes:
    """A notification of `n` values of resources."""
    return b'{"id":"x","type":"t","data":{"version":"1","values":[%b]}}' % b",".join([b"{}"] * n)


def query_items(n: int) -> bytes:
    """A read whose query has `n` items."""
    return b'{"query":{"items":[%b]}}' % b",".join([b'{"types":["A"]}'] * n)


def empty_items(n: int) -> bytes:
    """The same, of items that take three bytes each, in the seed's form."""
    return b'{"query":{"criteria":[%b]}}' % b",".join([b"{}"] * n)


def query_terms(n: int) -> bytes:
    """A read whose query has one item of `n` tags."""
    return b'{"query":{"items":[{"tags":[%b]}]}}' % b",".join([b'"a"'] * n)


def condition_items(n: int) -> bytes:
    """An append whose condition has `n` items."""
    items = b",".join([b"{}"] * n)
    return b'{"events":[{"type":"A"}],"condition":{"failIfEventsMatch":{"items":[%b]}}}' % items


def condition_first(n: int) -> bytes:
    """The same, before the events."""
    items = b",".join([b"{}"] * n)
    return b'{"condition":{"failIfEventsMatch":{"items":[%b]}},"events":[{"type":"A"}]}' % items


def packed_condition(n: int) -> bytes:
    """The same as MessagePack."""
    items = b"\xdd" + n.to_bytes(4, "big") + b"\x80" * n
    condition = {"fail_if_events_match": {"items": msgspec.Raw(items)}}
    return msgspec.msgpack.encode({"events": [["A"]], "condition": condition})


def many_events(n: int) -> bytes:
    """An append of `n` events, each as short as can be."""
    return b'{"events":[%b]}' % b",".join([b'{"type":"A"}'] * n)


def many_tags(n: int) -> bytes:
    """An append of one event with `n` tags."""
    return b'{"events":[{"type":"A","tags":[%b]}]}' % b",".join([b'"a"'] * n)


def packed_tags(n: int) -> bytes:
    """The same as MessagePack."""
    tags = b"\xdd" + n.to_bytes(4, "big") + b"\xa1a" * n
    return msgspec.msgpack.encode({"events": [["A", b"", msgspec.Raw(tags)]]})


def false_ends(n: int) -> bytes:
    """An append of one event whose data looks everywhere as if an event ended there."""
    return b'{"events":[{"type":"A","data":"%b"}]}' % (b"},{" * n)


def batch_of_cloudevents(n: int) -> bytes:
    """A batch of `n` CloudEvents that are none."""
    return b"[%b]" % b",".join([b"{}"] * n)


def chunked(n: int) -> bytes:
    """A body of `n` bytes in as many chunks (RFC 9112, 7.1)."""
    return b"1\r\n \r\n" * n + b"0\r\n\r\n"


FUTOIN: Mapping[str, Callable[[int], bytes]] = {
    "signed tree": signed_tree,
    "signed tree for a function of 64 KiB": signed_add_event,
    "tree in the envelope": envelope_tree,
    "too many events": too_many_events,
    "arrays in MessagePack": packed_data,
}
NOTIFICATIONS: Mapping[str, Callable[[int], bytes]] = {"16,000 members": many_members, "values": many_values}
READS: Mapping[str, Callable[[int], bytes]] = {
    "query items": query_items,
    "empty items": empty_items,
    "tags of a query": query_terms,
}
APPENDS: Mapping[str, Callable[[int], bytes]] = {
    "items of a condition": condition_items,
    "items of a condition that comes first": condition_first,
    "too many events": many_events,
    "tags of an event": many_tags,
    "false ends": false_ends,
}
PACKED_APPENDS: Mapping[str, Callable[[int], bytes]] = {
    "items of a condition": packed_condition,
    "tags of an event": packed_tags,
}
