"""Decoding JSON that came from outside: whatever is wrong with it is an InvalidInput that says where."""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from ..core.errors import InvalidInput

T = TypeVar("T")

_PATH = re.compile(r"^(?P<problem>.*) - at `\$?(?P<path>.*)`$", re.DOTALL)
_BYTE = re.compile(r"^JSON is malformed: (?P<problem>.*) \(byte (?P<byte>\d+)\)$", re.DOTALL)


class MalformedJson(InvalidInput):
    """The text is not JSON. `line` and `column` count from 1; the column counts bytes; `offset` is both in one."""

    def __init__(self, problem: str, text: bytes, offset: int) -> None:
        self.cause, self.offset = problem, offset
        before = text[:offset]
        self.line = before.count(b"\n") + 1
        self.column = offset - (before.rfind(b"\n") + 1) + 1
        super().__init__(f"malformed JSON in line {self.line}, column {self.column}: {problem}")


def decode(decoder: msgspec.json.Decoder[T], text: bytes) -> T:
    """What the text says, as the decoder's type.

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
    """Raises MalformedJson unless the text is UTF-8 throughout (a decoder skips over what it keeps raw)."""
    if not text.isascii():
        try:
            text.decode()
        except UnicodeDecodeError:
            raise _not_utf8(text) from None


def misfit(error: msgspec.ValidationError) -> InvalidInput:
    """What does not fit its type, with its path."""
    message = str(error)
    if found := _PATH.match(message):
        return InvalidInput(_lowered(found["problem"]), found["path"].removeprefix("."))
    return InvalidInput(_lowered(message))


def _malformed(message: str, text: bytes) -> MalformedJson:
    if found := _BYTE.match(message):
        return MalformedJson(found["problem"], text, int(found["byte"]))
    return MalformedJson(_lowered(message), text, len(text))


def _not_utf8(text: bytes) -> MalformedJson:
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return MalformedJson(f"not UTF-8 ({error.reason})", text, error.start)
    return MalformedJson("a string holds half of a surrogate pair", text, len(text))


def _lowered(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]
