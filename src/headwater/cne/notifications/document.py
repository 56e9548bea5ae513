"""Parses JSON from notification producers without loss, and refuses it if it is ambiguous.

Numbers keep their text (a decimal is data, not a float); repeated member names are refused, as is everything that the
event specification forbids in a string. This module knows nothing of notifications.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple, NoReturn

import msgspec

from ...core.errors import InvalidEvent, InvalidInput
from ...core.limits import show
from ...formats.budget import values
from ...formats.jsontext import MalformedJson

VALUES_MAX = 16_384
"""The maximum number of values in one document. They take about 10 ms to read."""
DEPTH_MAX = 32
"""The maximum nesting depth of a value, because outside input must not exhaust the stack."""

_FORBIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\ufdd0-\ufdef\ud800-\udfff"
    + "".join(f"{chr(plane * 0x10000 + 0xFFFE)}{chr(plane * 0x10000 + 0xFFFF)}" for plane in range(17))
    + "]"
)
_SURROGATE = re.compile("[\ud800-\udfff]")


class Number(NamedTuple):
    """A JSON number as written."""

    text: str


Members = dict[str, Any]
"""An object: strings, Numbers, True, False, None, lists and objects by name."""


def decode(text: bytes) -> object:
    """Decode the text.

    Raises MalformedJson (not JSON, not UTF-8), InvalidInput (a member given twice, nested too deeply, or more than
    VALUES_MAX values, in which case none is built).
    """
    values.check_values(text, VALUES_MAX)
    try:
        characters = text.decode()
    except UnicodeDecodeError as error:
        raise MalformedJson(f"not UTF-8 ({error.reason})", text, error.start) from None
    try:
        return _decoder.decode(characters)
    except json.JSONDecodeError as error:
        raise MalformedJson(error.msg, text, len(characters[: error.pos].encode())) from None
    except RecursionError:
        raise InvalidInput("the JSON is nested too deeply") from None


def encode(value: object, where: str) -> bytes:
    """The JSON of a decoded value, with its numbers as written.

    Raises InvalidEvent for an unpaired surrogate, or nesting too deep.
    """
    return msgspec.json.encode(_encodable(value, where))


def _encodable(value: object, where: str, depth: int = DEPTH_MAX) -> object:
    if depth == 0:
        raise InvalidEvent(f"nested more than {DEPTH_MAX} levels deep", where)
    if isinstance(value, Number):
        return msgspec.Raw(value.text.encode())
    if isinstance(value, str):
        if _SURROGATE.search(value):
            raise InvalidEvent("a string contains half of a surrogate pair", where)
        return value
    if isinstance(value, dict):
        return {
            _encodable(name, where, depth): _encodable(inner, f"{where}.{name}", depth - 1)
            for name, inner in value.items()
        }
    if isinstance(value, list):
        return [_encodable(inner, f"{where}[{index}]", depth - 1) for index, inner in enumerate(value)]
    return value


def check_text(text: str, where: str) -> str:
    """The text itself, if the specification's type String allows it (no control character, noncharacter, surrogate).

    Raises InvalidEvent.
    """
    if not (text.isascii() and text.isprintable()) and (found := _FORBIDDEN.search(text)):
        raise InvalidEvent(f"the character U+{ord(found[0]):04X} is not allowed", where)
    return text


def text_of(value: object, where: str) -> str:
    """A decoded value as a string, if the specification allows it: see `check_text`. Raises InvalidEvent."""
    if not isinstance(value, str):
        raise InvalidEvent(f"expected a string, got {kind_of(value)}", where)
    return check_text(value, where)


def object_of(value: object, where: str) -> Members:
    """A decoded value as an object. Raises InvalidEvent."""
    if not isinstance(value, dict):
        raise InvalidEvent(f"expected an object, got {kind_of(value)}", where)
    return value


def kind_of(value: object) -> str:
    """The kind of a decoded value, for a message."""
    if isinstance(value, Number):
        return f"the number {show(value.text)[1:-1]}"
    if isinstance(value, str):
        return f"the string {show(value)}"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "an array"
    return {None: "null", True: "true", False: "false"}[value]  # type: ignore[index]


def _object(pairs: list[tuple[str, Any]]) -> Members:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise InvalidInput(f"the member {show(twice)} occurs twice")
    return members


def _no_number(text: str) -> NoReturn:
    raise InvalidInput(f"{text} is not JSON")


_decoder = json.JSONDecoder(object_pairs_hook=_object, parse_float=Number, parse_int=Number, parse_constant=_no_number)
