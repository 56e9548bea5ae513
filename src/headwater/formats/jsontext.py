"""Decodes JSON from outside: every error is an InvalidInput with its location."""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from ..core.errors import InvalidInput

T = TypeVar("T")

_PATH = re.compile(r"^(?P<problem>.*?) - at (?P<key>`key` in )?`\$?(?P<path>.*)`$", re.DOTALL)
_HALF = re.compile(rb"(?<!\\)(?:\\\\)*(\\u[dD][89abAB][0-9a-fA-F]{2})(?!\\u[dD][c-fC-F])")
"""The first half of a surrogate pair without the second."""
_HALF_PROBLEM = "a string contains half of a surrogate pair"
_BYTE = re.compile(r"^JSON is malformed: (?P<problem>.*) \(byte (?P<byte>\d+)\)$", re.DOTALL)


class MalformedJson(InvalidInput):
    """The text is not JSON. `line` and `column` count from 1; the column counts bytes; `offset` is both in one."""

    def __init__(self, problem: str, text: bytes, offset: int) -> None:
        self.cause, self.offset = problem, offset
        self.line = text.count(b"\n", 0, offset) + 1
        self.column = offset - (text.rfind(b"\n", 0, offset) + 1) + 1
        super().__init__(f"malformed JSON in line {self.line}, column {self.column}: {problem}")


def decode(decoder: msgspec.json.Decoder[T], text: bytes) -> T:
    """The decoded text, as the decoder's type.

    Raises MalformedJson, or InvalidInput with the path of what does not fit the type.
    """
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as error:
        raise misfit(error) from None
    except msgspec.DecodeError as error:
        raise _malformed(str(error), text) from None
    except UnicodeDecodeError:
        raise _not_utf8(text) from None
    except RecursionError:
        raise InvalidInput("the JSON is nested too deeply") from None


def check_utf8(text: bytes) -> None:
    """Raises MalformedJson unless the whole text is UTF-8 (a decoder skips text that it keeps raw)."""
    if not text.isascii():
        try:
            text.decode()
        except UnicodeDecodeError:
            raise _not_utf8(text) from None


def misfit(error: msgspec.ValidationError) -> InvalidInput:
    """The error for what does not fit its type, with its path."""
    message = str(error)
    if found := _PATH.match(message):
        of_key = " as the key of an object" if found["key"] else ""
        return InvalidInput(_lowered(found["problem"]) + of_key, found["path"].removeprefix("."))
    return InvalidInput(_lowered(message))


def half_pair(message: str, text: bytes) -> MalformedJson | None:
    """The error of a text, if a decoder's message is about a lone surrogate; the message may call it truncated."""
    if ("truncated" in message or "surrogate" in message) and (half := _HALF.search(text)):
        return MalformedJson(f"{_HALF_PROBLEM}, {half[1].decode()}", text, half.start(1))
    return None


def _malformed(message: str, text: bytes) -> MalformedJson:
    if half := half_pair(message, text):
        return half
    if found := _BYTE.match(message):
        return MalformedJson(found["problem"], text, int(found["byte"]))
    return MalformedJson(_lowered(message), text, len(text))


def _not_utf8(text: bytes) -> MalformedJson:
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return MalformedJson(f"not UTF-8 ({error.reason})", text, error.start)
    return MalformedJson(_HALF_PROBLEM, text, len(text))


def _lowered(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]
