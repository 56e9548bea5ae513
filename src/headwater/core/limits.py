"""Limits for events and appends. They are checked only here, with messages that say what was given.

`check_append` is on the hot path: it works on columns and caches the types and tags it has seen, because a log contains
few types and repeats the same tags.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import chain, repeat
from operator import is_not
from types import MappingProxyType
from typing import NoReturn, TypeVar

from .attribute_rules import ATTRIBUTE_CHARS_MAX as ATTRIBUTE_CHARS_MAX
from .attribute_rules import ATTRIBUTE_NAME as ATTRIBUTE_NAME
from .attribute_rules import RULES
from .attribute_rules import TAGS_MAX as TAGS_MAX
from .errors import InvalidEvent, InvalidInput, TooLarge
from .event import NO_ATTRIBUTES, Encoding, Event
from .identifier import uuid7s
from .message.own_event import own_event
from .message.validity import looked_through
from .message.values import DecodeError
from .quoting import show as show

SEQUENCE_NUMBER_MAX = 10**18 - 1
"""FutoIn event ids have 18 digits."""
APPEND_EVENTS_MAX = 65_536
APPEND_BYTES_MAX = 64 * 1024 * 1024
STAGED_BYTES_MAX = 16 * 1024 * 1024 * 1024
"""The maximum number of bytes that all writers of one log together may have staged."""
PARTITIONS_MAX = 1024
TYPE_CHARS_MAX = 200
ID_CHARS_MAX = 512
SOURCE_CHARS_MAX = 2048
GROUP_KEY_CHARS_MAX = 512
TAG_BYTES_MAX = 1100
"""UTF-8 bytes of a tag: more than any tag that 0.1.0 accepted, a key of 50 characters, a colon and a value of 256."""
ATTRIBUTES_MAX = 64
QUERY_ITEMS_MAX = 256
QUERY_TERMS_MAX = 256
"""Types and tags of one item."""
QUERY_TERMS_TOTAL_MAX = 16_384
"""Types and tags of all items: each is checked and looked up in one step."""
METADATA_BYTES = 64
"""The overhead counted for each event, in addition to its texts and bytes, when bytes are limited."""
_LABELS_CHARS_MAX = {"id": ID_CHARS_MAX, "source": SOURCE_CHARS_MAX, "group_key": GROUP_KEY_CHARS_MAX}
_SHORT_TAG = TAG_BYTES_MAX // 4
"""A tag of at most this many characters is never too long, whatever the characters are."""
_PLAIN_TAGS = re.compile(rf"(?:[ -~]{{1,{_SHORT_TAG}}}+\n)*+", re.ASCII)
"""Short tags of printable ASCII, one per line; all others are checked one by one."""
_UNFIT = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_RESERVED_ATTRIBUTES = frozenset({"id", "type", "source", "specversion", "data", "tags"})
_SEEN_MAX = 65_536
_SEEN_NAMES_MAX = 4096
_SEEN_NAMES_CHARS_MAX = 1024
_MAPPINGS = (dict, MappingProxyType)
_Names = tuple[str, ...]
_Payloads = Sequence[bytes]


_T = TypeVar("_T")


class EventColumns:
    """Checked events as columns of equal length: the form of an append on its way to the log.

    Created by `check_append`, `core.alike`, and `formats.arrow.events`, which applies the same rules to Arrow columns.
    """

    __slots__ = ("attributes", "bytes", "count", "data", "encodings", "envelopes", "group_keys", "ids", "is_gated",
                 "sources", "tags", "types")  # fmt: skip

    types: Sequence[str]
    data: _Payloads
    tags: Sequence[tuple[str, ...]]
    ids: Sequence[str]
    sources: Sequence[str]
    attributes: Sequence[Mapping[str, str]]
    group_keys: Sequence[str]
    envelopes: _Payloads
    encodings: Sequence[Encoding]
    count: int
    bytes: int
    """Approximate size of the events, used for admission and grouping."""
    is_gated: bool
    """Whether all events passed all checks, including those for messages: then no reader checks them again."""

    @staticmethod
    def unchecked(
        types: Sequence[str],
        data: _Payloads,
        tags: Sequence[tuple[str, ...]],
        ids: Sequence[str],
        sources: Sequence[str],
        attributes: Sequence[Mapping[str, str]],
        group_keys: Sequence[str],
        envelopes: _Payloads,
        encodings: Sequence[Encoding],
        bytes: int,
        *,
        is_gated: bool = False,
    ) -> EventColumns:
        """Columns of events that the caller has checked, as the gate or as the writer of events that no client sent."""
        made = EventColumns()
        made.types, made.data, made.tags, made.ids, made.sources = types, data, tags, ids, sources
        made.attributes, made.group_keys, made.envelopes = attributes, group_keys, envelopes
        made.encodings = encodings
        made.count = len(types)
        made.bytes = bytes
        made.is_gated = is_gated
        return made

    def take(self, indexes: Sequence[int]) -> EventColumns:
        """The events at these indexes, in that order."""

        def taken(column: Sequence[_T]) -> Sequence[_T]:
            return [column[index] for index in indexes]

        return EventColumns.unchecked(
            taken(self.types),
            taken(self.data),
            taken(self.tags),
            taken(self.ids),
            taken(self.sources),
            taken(self.attributes),
            taken(self.group_keys),
            taken(self.envelopes),
            taken(self.encodings),
            self.bytes * len(indexes) // max(self.count, 1),
            is_gated=self.is_gated,
        )

    @staticmethod
    def none() -> EventColumns:
        """No events: for a mark that ends an empty batch."""
        return EventColumns.unchecked((), (), (), (), (), (), (), (), (), 0, is_gated=True)

    @staticmethod
    def join(groups: Sequence[EventColumns]) -> EventColumns:
        """The events of several appends, one append after the other, in the form that most of them have."""
        if len(groups) == 1:
            return groups[0]
        for group in groups:
            if group.__class__ is not EventColumns:
                return group.join_all(groups)
        return EventColumns.of_objects(groups)

    @staticmethod
    def join_all(groups: Sequence[EventColumns]) -> EventColumns:
        """Called by `join` on the first group of another class, which knows its own form."""
        return EventColumns.of_objects(groups)

    @staticmethod
    def of_objects(groups: Sequence[EventColumns]) -> EventColumns:
        """Like `join`, with one Python object per value."""
        flat = chain.from_iterable
        return EventColumns.unchecked(
            list(flat([group.types for group in groups])),
            list(flat([group.data for group in groups])),
            list(flat([group.tags for group in groups])),
            list(flat([group.ids for group in groups])),
            list(flat([group.sources for group in groups])),
            list(flat([group.attributes for group in groups])),
            list(flat([group.group_keys for group in groups])),
            list(flat([group.envelopes for group in groups])),
            list(flat([group.encodings for group in groups])),
            sum([group.bytes for group in groups]),
            is_gated=all([group.is_gated for group in groups]),
        )


def check_append(events: Sequence[Event], event_bytes_max: int, *, are_messages_checked: bool = False) -> EventColumns:
    """The events as columns: each checked, tags sorted and distinct, missing ids filled with UUIDv7.

    `event_bytes_max` is the log's setting: the limit for data and envelope of one event together.
    `are_messages_checked`: messages came over AMQP and were checked when they were read.

    Raises InvalidEvent or TooLarge with the path of the first invalid part.
    """
    if len(events) == 1:  # most appends have one event without a message
        event = events[0]
        if event.__class__ is Event and not event.envelope and event.encoding is Encoding.DATA:
            size = plain_bytes(event, event_bytes_max)
            if size is not None and size <= APPEND_BYTES_MAX:
                type, data, tags, id, source, attributes, group_key, envelope, encoding = event
                if (count := len(tags)) > 2 or (count == 2 and tags[0] >= tags[1]):
                    tags = _sorted_tags(tags, 0)
                return EventColumns.unchecked(
                    (type,), (data,), (tags,), (id or uuid7s(1)[0],), (source,), (attributes,), (group_key,),
                    (envelope,), (encoding,), size, is_gated=True,
                )  # fmt: skip
    return _check_fully(events, event_bytes_max, are_messages_checked=are_messages_checked)


def _check_fully(events: Sequence[Event], event_bytes_max: int, *, are_messages_checked: bool) -> EventColumns:
    if not events:
        raise InvalidEvent("an append needs at least one event", "events")
    if len(events) > APPEND_EVENTS_MAX:
        raise TooLarge(len(events), APPEND_EVENTS_MAX, "events", "events")
    try:
        types, data, tags, ids, sources, attributes, group_keys, envelopes, encodings = zip(*events, strict=True)
    except (TypeError, ValueError):
        raise InvalidEvent("every element must be a headwater.core.Event", "events") from None
    size = METADATA_BYTES * len(events) + _check_sizes(data, envelopes, event_bytes_max)
    size += _check_types(types)
    tags, tag_chars = _check_tags(tags)
    size += tag_chars
    size += _check_labels(id=ids, source=sources, group_key=group_keys)
    if any(map(is_not, attributes, repeat(NO_ATTRIBUTES))):
        size += sum(_check_attributes(each, f"events[{index}].attributes") for index, each in enumerate(attributes))
    if any(envelopes) or any(map(is_not, encodings, repeat(Encoding.DATA))):
        _check_encodings(encodings)
        if not are_messages_checked:
            _check_messages(data, envelopes, encodings)
    if "" in ids:
        fresh = iter(uuid7s(ids.count("")))
        ids = tuple([id or next(fresh) for id in ids])
    if size > APPEND_BYTES_MAX:
        raise TooLarge(size, APPEND_BYTES_MAX, "bytes", "events")
    return EventColumns.unchecked(
        types, data, tags, ids, sources, attributes, group_keys, envelopes, encodings, size, is_gated=True
    )


def plain_bytes(event: Event, event_bytes_max: int) -> int | None:
    """The counted bytes of an event that `check_append` certainly accepts; None if only that function can decide.

    It is faster than `check_append`.
    """
    type, data, tags, id, source, attributes, group_key, envelope, encoding = event
    if (
        type.__class__ is not str
        or (type not in _seen_types and not _is_new_type(type))
        or data.__class__ is not bytes
        or envelope.__class__ is not bytes
        or len(data) + len(envelope) > event_bytes_max
        or not (id.__class__ is source.__class__ is group_key.__class__ is str)
        or len(id) > ID_CHARS_MAX
        or len(source) > SOURCE_CHARS_MAX
        or len(group_key) > GROUP_KEY_CHARS_MAX
        or not (labels := id + source + group_key).isprintable()
        or encoding.__class__ is not Encoding
        or tags.__class__ is not tuple
        or len(tags) > TAGS_MAX
    ):
        return None
    size = METADATA_BYTES + len(data) + len(envelope) + len(type) + len(labels)
    for tag in tags:
        if tag.__class__ is not str:
            return None
        chars = len(tag)
        if not (0 < chars <= _SHORT_TAG and tag.isprintable()) and tag not in _seen_tags:
            return None
        size += chars
    if attributes is NO_ATTRIBUTES:
        return size
    attribute_chars = _plain_chars(attributes)
    return None if attribute_chars is None else size + attribute_chars


def _is_new_type(type: str) -> bool:
    if check_type(type):
        return False
    _remember(_seen_types, {type})
    return True


def _plain_chars(attributes: Mapping[str, str]) -> int | None:
    """The number of characters in valid attributes; None if they need a full check."""
    if attributes.__class__ not in _MAPPINGS or len(attributes) > ATTRIBUTES_MAX:
        return None
    try:
        chars, ruled = _seen_names.get(names := tuple(attributes)) or _new_names(names)
        texts = "".join(attributes.values())
        if not texts.isprintable():
            return None
        if len(texts) > ATTRIBUTE_CHARS_MAX and max(map(len, attributes.values())) > ATTRIBUTE_CHARS_MAX:
            return None
        for name in ruled:
            if RULES[name](attributes[name]):
                return None
    except (TypeError, ValueError):
        return None  # a name or a value is not a string, or a name is invalid
    return chars + len(texts)


def _new_names(names: _Names) -> tuple[int, _Names]:
    """The number of characters in the names of an event's attributes, and the names that have a rule for their value.

    Raises ValueError, TypeError: one of the names is invalid.
    """
    if any(map(check_attribute_name, names)):
        raise ValueError("the name of an attribute is not valid")
    found = sum(map(len, names)), tuple([name for name in names if name in RULES])
    if found[0] <= _SEEN_NAMES_CHARS_MAX:
        if len(_seen_names) >= _SEEN_NAMES_MAX:
            _seen_names.clear()
        _seen_names[names] = found
    return found


def check_type(type: str) -> str | None:
    """What is wrong with an event type, or None."""
    if not isinstance(type, str):
        return f"a type must be a string, got {show(type)}"
    if not 1 <= len(type) <= TYPE_CHARS_MAX:
        return f"a type must have 1 to {TYPE_CHARS_MAX} characters, got {len(type)}"
    if found := _UNFIT.search(type):
        return f"a type must not contain control characters, got {show(found[0])}"
    return None


def check_tag(tag: str) -> str | None:
    """What is wrong with a tag of an event or a query, or None. Any short text without control characters is valid.

    This is the rule for tags everywhere except in strict mode, where the draft's own rule is applied first
    (`dcb.seed`).
    """
    if not isinstance(tag, str):
        return f"a tag must be a string, got {show(tag)}"
    if found := _UNFIT.search(tag):
        return f"a tag must not contain control characters, got {show(found[0])}"
    if not 1 <= (size := len(tag.encode())) <= TAG_BYTES_MAX:
        return f"a tag must have 1 to {TAG_BYTES_MAX} bytes of UTF-8, got {size}"
    return None


def check_tag_key(key: str) -> str | None:
    """What is wrong with a tag's key, or None. See `core.event.tag_key`."""
    if isinstance(key, str) and ":" in key:
        return f"a tag's key must not contain a colon, got {show(key)}"
    return check_tag(key)


def check_attribute_name(name: str) -> str | None:
    """What is wrong with the name of an attribute, or None."""
    if not isinstance(name, str) or not ATTRIBUTE_NAME.fullmatch(name):
        return f"an attribute's name must match {ATTRIBUTE_NAME.pattern}, got {show(name)}"
    if name in _RESERVED_ATTRIBUTES:
        return f"{name} is a field of its own, not an attribute"
    return None


def check_attribute_value(name: str, value: str) -> str | None:
    """Why an attribute of that name may not have this value, or None."""
    if not isinstance(value, str) or len(value) > ATTRIBUTE_CHARS_MAX or _UNFIT.search(value):
        problem = f"expected a string of at most {ATTRIBUTE_CHARS_MAX} characters without control characters"
        return f"{problem}, got {show(value)}"
    rule = RULES.get(name)
    return None if rule is None else rule(value)


def has_controls(text: str) -> bool:
    """Whether a text has control characters (or lone surrogates), which no label of an event may have."""
    return not text.isprintable() and _UNFIT.search(text) is not None


_seen_types: set[str] = set()
_seen_tags: set[str] = set()
_seen_names: dict[_Names, tuple[int, _Names]] = {}
"""By the names of an event's attributes: the result of `_new_names`."""


def _check_sizes(data: Sequence[bytes], envelopes: Sequence[bytes], allowed: int) -> int:
    for name, column in (("data", data), ("envelope", envelopes)):
        if set(map(type, column)) != {bytes}:
            index = next(i for i, value in enumerate(column) if type(value) is not bytes)
            raise InvalidEvent(f"expected bytes, got {show(column[index])}", f"events[{index}].{name}")
    total = sum(map(len, data)) + sum(map(len, envelopes))
    if total > allowed:
        for index, (payload, envelope) in enumerate(zip(data, envelopes, strict=True)):
            if (size := len(payload) + len(envelope)) > allowed:
                raise TooLarge(size, allowed, "bytes", f"events[{index}].data")
    return total


def _check_types(column: Sequence[str]) -> int:
    try:
        unknown = set(column) - _seen_types
    except TypeError:  # not even hashable, so not a string
        unknown = set()
        _raise_first_fault(column)
    if unknown:
        if any(map(check_type, unknown)):
            _raise_first_fault(column)
        _remember(_seen_types, unknown)
    return sum(map(len, column))


def _raise_first_fault(column: Sequence[str]) -> None:
    for index, value in enumerate(column):
        if fault := check_type(value):
            raise InvalidEvent(fault, f"events[{index}].type")


def _check_tags(column: tuple[tuple[str, ...], ...]) -> tuple[tuple[tuple[str, ...], ...], int]:
    """The column with tags sorted and distinct, and their approximate number of characters."""
    try:
        flat = list(chain.from_iterable(column))
        lines = "\n".join(flat) + "\n" if flat else ""
        if flat and (lines.count("\n") != len(flat) or _PLAIN_TAGS.fullmatch(lines) is None):
            _check_unusual_tags(column, set(flat))
        for tags in column:
            if type(tags) is not tuple or (count := len(tags)) > 2 or (count == 2 and tags[0] >= tags[1]):
                column = tuple([_sorted_tags(tags, index) for index, tags in enumerate(column)])
                break
    except TypeError:  # not a collection, not even hashable, or not a string
        _raise_first_tag_fault(column)
        raise
    return column, len(lines) - len(flat)


def _check_unusual_tags(column: tuple[tuple[str, ...], ...], tags: set[str]) -> None:
    unknown = tags - _seen_tags
    if any(map(check_tag, unknown)):
        _raise_first_tag_fault(column)
    _remember(_seen_tags, unknown)


def _raise_first_tag_fault(column: Sequence[tuple[str, ...]]) -> None:
    for index, tags in enumerate(column):
        if not isinstance(tags, Collection) or isinstance(tags, str):
            raise InvalidEvent(f"tags must be a tuple of strings, got {show(tags)}", f"events[{index}].tags")
        for place, tag in enumerate(tags):
            if fault := check_tag(tag):
                raise InvalidEvent(fault, f"events[{index}].tags[{place}]")


def _sorted_tags(tags: tuple[str, ...], index: int) -> tuple[str, ...]:
    count = len(tags)
    if type(tags) is tuple and (count < 2 or (count == 2 and tags[0] < tags[1])):
        return tags
    if isinstance(tags, str):
        raise InvalidEvent(f"tags must be a tuple of strings, got {show(tags)}", f"events[{index}].tags")
    if count > TAGS_MAX:
        raise InvalidEvent(f"{count} tags given, at most {TAGS_MAX} are allowed", f"events[{index}].tags")
    return tuple(sorted(set(tags)))


def _remember(seen: set[str], values: set[str]) -> None:
    if len(seen) > _SEEN_MAX:
        seen.clear()
    seen |= values


def _check_labels(**columns: Sequence[str]) -> int:
    """Free texts: limited in length, without control characters, usually all empty. Returns their total length."""
    total = 0
    for name, column in columns.items():
        try:
            joined = "".join(column)
            if joined and (
                max(map(len, column)) > _LABELS_CHARS_MAX[name] or (not joined.isprintable() and _UNFIT.search(joined))
            ):
                _raise_first_unfit_label(name, column)
            total += len(joined)
        except TypeError:
            _raise_first_unfit_label(name, column)
    return total


def _raise_first_unfit_label(name: str, column: Sequence[str]) -> NoReturn:
    chars_max = _LABELS_CHARS_MAX[name]
    for index, value in enumerate(column):
        if not isinstance(value, str) or len(value) > chars_max or _UNFIT.search(value):
            problem = f"expected a string of at most {chars_max} characters without control characters"
            raise InvalidEvent(f"{problem}, got {show(value)}", f"events[{index}].{name}")
    raise AssertionError("a column is not valid, but each of its values is")


def _check_messages(data: Sequence[bytes], envelopes: Sequence[bytes], encodings: Sequence[Encoding]) -> None:
    for index, (content, envelope, encoding) in enumerate(zip(data, envelopes, encodings, strict=True)):
        if envelope or encoding:
            check_message(index, content, envelope, encoding)


def check_message(index: int, data: bytes, envelope: bytes, encoding: Encoding) -> None:
    """Raises InvalidEvent if the event at that index, an AMQP message, would be refused over AMQP.

    It is delivered to receivers unchanged, and most of their libraries lose the connection over a message that they
    cannot decode. AMQP receivers also treat it as the CloudEvent that it claims to be.
    """
    where = f"events[{index}].{'data' if encoding else 'envelope'}"
    try:
        spans, places = looked_through(envelope, data, bool(encoding))
    except DecodeError as error:
        raise InvalidEvent(f"not an AMQP message: {error}", where) from None
    try:
        event = own_event(envelope + data if encoding else envelope, spans, places)
        if plain_bytes(event, 0) is None:
            check_append((event,), 0)
    except InvalidInput as error:
        raise InvalidEvent(str(error).removeprefix("events[0]."), where) from None


def _check_encodings(column: Sequence[Encoding]) -> None:
    try:
        fit = set(column) <= {Encoding.DATA, Encoding.AMQP}
    except TypeError:
        fit = False
    if not fit:
        for index, value in enumerate(column):
            if value not in (Encoding.DATA, Encoding.AMQP):
                problem = f"an encoding must be Encoding.DATA or Encoding.AMQP, got {show(value)}"
                raise InvalidEvent(problem, f"events[{index}].encoding")


def _check_attributes(attributes: Mapping[str, str], where: str) -> int:
    if (chars := _plain_chars(attributes)) is not None:
        return chars
    if not isinstance(attributes, Mapping):
        raise InvalidEvent(f"attributes must be a mapping of strings to strings, got {show(attributes)}", where)
    if len(attributes) > ATTRIBUTES_MAX:
        raise InvalidEvent(f"{len(attributes)} attributes given, at most {ATTRIBUTES_MAX} are allowed", where)
    for name, value in attributes.items():
        if fault := check_attribute_name(name):
            raise InvalidEvent(fault, where)
        if fault := check_attribute_value(name, value):
            raise InvalidEvent(fault, f"{where}.{name}")
    return sum(len(name) + len(value) for name, value in attributes.items())
