"""What a hostile peer may send over AMQP, by size: each function takes how much of it, and answers bytes or a filter.

Plain functions without a server, so that a suite can ask for n, 2n and 4n of each and compare what they cost.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

from headwater.amqp.protocol.codec import encode
from headwater.amqp.protocol.frames import AMQP_HEADER, frame
from headwater.amqp.protocol.message import VALUE, Message, Properties, encode_message
from headwater.amqp.protocol.performatives import (
    Accepted,
    Attach,
    Begin,
    Detach,
    Disposition,
    Flow,
    Open,
    Source,
    Target,
    Transfer,
    encode_performative,
)
from headwater.amqp.protocol.types import Described, Symbol

FRAME_BYTES = 60_000
"""The most that is in one frame here; a server takes 64 KiB unless it is told otherwise."""
LOG = "orders"
SQL = Symbol("amqp:sql-filter")


def framed(*performatives: Any) -> bytes:
    """Frames of channel 0."""
    return b"".join(frame(0, encode_performative(each)) for each in performatives)


def opening(*, window: int = 2**31 - 1, handles: int = 2**16 - 1) -> bytes:
    """What comes before all else, without SASL: the header, an open and a begin."""
    begin = Begin(next_outgoing_id=0, incoming_window=window, outgoing_window=window, handle_max=handles)
    return AMQP_HEADER + framed(Open(container_id="hostile"), begin)


# Performatives: what is sent after `opening`


def begins(n: int) -> bytes:
    """So many begins, each on its channel."""
    begin = encode_performative(Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1))
    return b"".join(frame(channel % 65_536, begin) for channel in range(1, n + 1))


def attaches(n: int) -> bytes:
    """So many attaches of receivers, in one read."""
    return framed(
        *(
            Attach(name=f"link-{handle}", handle=handle, role=True, source=Source(address=LOG), target=Target())
            for handle in range(n)
        )
    )


def attaches_and_detaches(n: int) -> bytes:
    """One handle, attached and detached again and again."""
    attach = Attach(name="link", handle=0, role=True, source=Source(address=LOG), target=Target())
    return framed(attach, Detach(handle=0, closed=True)) * n


def flows(n: int) -> bytes:
    """So many flows of the session that ask for an echo."""
    return framed(Flow(incoming_window=1, next_outgoing_id=0, outgoing_window=1, next_incoming_id=0, echo=True)) * n


def dispositions(n: int) -> bytes:
    """One disposition over a range of so many deliveries that were never sent."""
    return framed(Disposition(role=True, first=0, last=min(n, 2**32 - 1), settled=True, state=Accepted()))


def empty_frames(n: int) -> bytes:
    """So many heartbeats."""
    return frame(0, b"") * n


def tiny_transfers(n: int) -> bytes:
    """One message, never ended, of so many transfers of a byte each."""
    attach = Attach(
        name="link", handle=0, role=False, source=Source(), target=Target(address=LOG), initial_delivery_count=0
    )
    first = encode_performative(Transfer(handle=0, delivery_id=0, delivery_tag=b"1", message_format=0, more=True))
    more = encode_performative(Transfer(handle=0, more=True))
    return framed(attach) + frame(0, first + b"x") + frame(0, more + b"x") * n


def nested_types(n: int) -> bytes:
    """An open whose properties nest described types so deep."""
    return _open_with(b"\x00\x40" * min(n, FRAME_BYTES // 2) + b"\x40")


def nested_lists(n: int) -> bytes:
    """An open whose properties nest lists so deep."""
    value = b"\x45"
    for _ in range(min(n, FRAME_BYTES // 9)):
        value = b"\xd0" + struct.pack(">II", len(value) + 4, 1) + value
    return _open_with(value)


def array_of_nothing(n: int) -> bytes:
    """An open with an array of so many elements that take no byte: a few bytes that become a long list."""
    return _open_with(b"\xf0" + struct.pack(">II", 5, min(n, 2**31 - 1)) + b"\x40")


def list_of_nulls(n: int) -> bytes:
    """An open with a list of so many nulls."""
    count = min(n, FRAME_BYTES)
    return _open_with(b"\xd0" + struct.pack(">II", count + 4, count) + b"\x40" * count)


def map_of_small_entries(n: int) -> bytes:
    """An open with a map of so many entries, of a few bytes each."""
    return _open_with(encode({Symbol(f"{key:x}"): None for key in range(min(n, FRAME_BYTES // 8))}))


def many_symbols(n: int) -> bytes:
    """An open that desires so many capabilities."""
    given = [Symbol(f"{each:x}") for each in range(min(n, FRAME_BYTES // 8))]
    return AMQP_HEADER + framed(Open(container_id="hostile", desired_capabilities=given))


def _open_with(properties: bytes) -> bytes:
    fields = encode("hostile") + b"\x40" * 8 + properties
    body = b"\x00\x53\x10\xd0" + struct.pack(">II", len(fields) + 4, 10) + fields
    return AMQP_HEADER + frame(0, body)


# Filters: what is given to the source of a receiver


def _sql(*texts: str) -> dict[object, object]:
    return {Symbol(f"f{number}"): Described(SQL, text) for number, text in enumerate(texts)}


def searching_likes(n: int) -> dict[object, object]:
    """So many patterns that search, each of which takes a step per character; 16 are allowed."""
    return _sql(" OR ".join(f"[x] LIKE '%a_{number % 10}%'" for number in range(n)))


def percents(n: int) -> dict[object, object]:
    """One pattern of so many pieces."""
    return _sql(f"[x] LIKE '{'%a' * n}%b'")


def many_likes(n: int) -> dict[object, object]:
    """So many patterns that look for a long text."""
    return _sql(*(f"[x] LIKE '%{'a' * 90}b{number}%'" for number in range(n)))


def long_in(n: int) -> dict[object, object]:
    """An IN list of so many members that are no constants."""
    return _sql(f"[x] IN ({', '.join(f'p.subject + {number}' for number in range(n))})")


def long_and(n: int) -> dict[object, object]:
    """A conjunction of so many terms."""
    return _sql(" AND ".join(f"[x] <> {number}" for number in range(n)))


def deep_parentheses(n: int) -> dict[object, object]:
    """So many parentheses."""
    return _sql("(" * n + "[x] = 1" + ")" * n)


def long_text(n: int) -> dict[object, object]:
    """One term, a text so long."""
    return _sql(f"[x] = '{'a' * n}'")


def many_entries(n: int) -> dict[object, object]:
    """So many entries of the filter map."""
    return {Symbol(f"f{number}"): Described(Symbol("amqp:true-filter"), None) for number in range(n)}


def nested_groups(n: int) -> dict[object, object]:
    """Groups within groups, so deep."""
    value: object = Described(Symbol("amqp:true-filter"), None)
    for _ in range(n):
        value = Described(Symbol("amqp:not-filter"), value)
    return {Symbol("f"): value}


def wide_groups(n: int) -> dict[object, object]:
    """Groups of groups, each with so many members."""
    member = Described(Symbol("amqp:properties-filter"), {Symbol("subject"): "a"})
    group = Described(Symbol("amqp:any-filter"), [member] * n)
    return {Symbol("f"): Described(Symbol("amqp:all-filter"), [group] * n)}


def large_query(n: int) -> dict[object, object]:
    """A query of so many items, which the index is to answer."""
    items = ",".join(f'{{"tags":["a:{number}"]}}' for number in range(n))
    return {Symbol("f"): Described(Symbol("headwater:query-filter"), f'{{"items":[{items}]}}')}


def crossed_queries(n: int) -> dict[object, object]:
    """Two queries that become the product of their items."""
    texts = ['{"items":[' + ",".join(f'{{"tags":["{key}:{each}"]}}' for each in range(n)) + "]}" for key in "ab"]
    return {Symbol(key): Described(Symbol("headwater:query-filter"), key) for key in texts}


# Requests of `$management`: messages


def _request(body: object = None, **properties: object) -> bytes:
    return encode_message(
        Message(body, VALUE, properties=Properties(reply_to="r"), application_properties={**properties})
    )


def attribute_names(n: int) -> bytes:
    """A QUERY for so many attributes."""
    return _request({"attributeNames": [f"a{number}" for number in range(n)]}, operation="QUERY")


def application_properties(n: int) -> bytes:
    """A request with so many properties."""
    return _request(operation="QUERY", **{f"p{number}": number for number in range(n)})


def nested_body(n: int) -> bytes:
    """A request whose body nests maps so deep, as far as an encoder goes."""
    value: object = None
    for _ in range(min(n, 30)):
        value = {"a": value}
    return _request(value, operation="CREATE", type="io.headwater.log", name="x")


def initial_attributes(n: int) -> bytes:
    """A CREATE with so many attributes."""
    body = {f"a{number}": "x" for number in range(n)}
    return _request(body, operation="CREATE", type="io.headwater.log", name="x")


PERFORMATIVES: Mapping[str, Callable[[int], bytes]] = {
    each.__name__: each
    for each in (
        begins, attaches, attaches_and_detaches, flows, dispositions, empty_frames, tiny_transfers, nested_types,
        nested_lists, array_of_nothing, list_of_nulls, map_of_small_entries, many_symbols,
    )
}  # fmt: skip
"""What a peer may send; those that begin with a header are all of it, the others come after `opening`."""
FILTERS: Mapping[str, Callable[[int], dict[object, object]]] = {
    each.__name__: each
    for each in (
        searching_likes, percents, many_likes, long_in, long_and, deep_parentheses, long_text, many_entries,
        nested_groups, wide_groups, large_query, crossed_queries,
    )
}  # fmt: skip
"""Filters of receivers from a log, and but for the queries from `$events`, too."""
MANAGEMENT: Mapping[str, Callable[[int], bytes]] = {
    each.__name__: each for each in (attribute_names, application_properties, nested_body, initial_attributes)
}
"""Requests to `$management`."""
EVENTS: Mapping[str, Callable[[int], dict[object, object]]] = {
    name: each for name, each in FILTERS.items() if "quer" not in name
}
"""Filters of listeners to `$events`."""
