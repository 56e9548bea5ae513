"""Bodies of about n bytes that are made to be dear: each the worst that somebody thought of for some way of reading."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

Shape = Callable[[int], bytes]


def repeated(head: str, unit: str, tail: str, joint: str = ",") -> Shape:
    """Something that goes on and on: `unit`, in which {} is a number, between a head and a tail."""

    def shape(size: int) -> bytes:
        width = len(unit.format(1_000_000)) + len(joint)
        count = max(size - len(head) - len(tail), 0) // width
        return (head + joint.join([unit.format(1_000_000 + number) for number in range(count)]) + tail).encode()

    return shape


def filled(head: str, unit: str, tail: str) -> Shape:
    """A head, a tail, and the same in between."""

    def shape(size: int) -> bytes:
        return (head + unit * (max(size - len(head) - len(tail), 0) // len(unit)) + tail).encode()

    return shape


def nested(opening: str, closing: str) -> Shape:
    """As deep as there are bytes for."""

    def shape(size: int) -> bytes:
        depth = size // (len(opening) + len(closing))
        return (opening * depth + closing * depth).encode()

    return shape


ANY_JSON: Mapping[str, Shape] = {
    "members": repeated("{", '"m{}":0', "}"),
    "the same member": filled("{", '"m":0,', '"m":0}'),
    "small arrays": repeated("[", "[]", "]"),
    "small numbers": repeated("[", "1", "]"),
    "nested arrays": nested("[", "]"),
    "nested objects": nested('{"a":', "}"),
    "one text": filled('"', "x", '"'),
    "one text of escapes": filled('"', "\\u00e9", '"'),
    "one number": filled("", "9", ""),
    "white space": filled("[", " ", "]"),
    "not ended": filled("[", "[", ""),
}
"""JSON that no front end asks for."""

EVENT = '{"type":"A","data":"e30=","tags":["t:{}"]}'
ITEM = '{"types":["A{}"]}'


def _braces(text: str) -> str:
    """For `format`: braces stand for themselves, but for `{}`."""
    return text.replace("{", "{{").replace("}", "}}").replace("{{}}", "{}")


def json_list(before: str, unit: str, after: str) -> Shape:
    """A list of JSON values in what is otherwise a good document."""
    return repeated(before, _braces(unit), after)


def cloudevents(size: int) -> bytes:
    """A batch."""
    unit = {"specversion": "1.0", "id": "{}", "source": "/s", "type": "A", "data": {"a": 1}, "tags": "t:{}"}
    text = _braces(json.dumps(unit)).replace("{}", "{0}")
    return repeated("[", text, "]")(size)
