"""Decoders of msgspec for types that are known when they are asked for, made by one thread at a time.

What msgspec (0.22) knows of a Struct is made with the first decoder of it, or with the first `decode(..., type=...)`,
and is there for other threads before it is whole: two that begin at once end the process by a segmentation fault. So
what several threads decode has its decoder here, or at the top of its module.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_lock = threading.Lock()
_of_json: dict[Any, msgspec.json.Decoder[Any]] = {}
_of_msgpack: dict[Any, msgspec.msgpack.Decoder[Any]] = {}


def json_decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    """The decoder of that type, of which there are few; always the same."""
    return _of_json.get(kind) or _made(_of_json, kind, msgspec.json.Decoder)


def msgpack_decoder(kind: type[T]) -> msgspec.msgpack.Decoder[T]:
    """The same for MessagePack."""
    return _of_msgpack.get(kind) or _made(_of_msgpack, kind, msgspec.msgpack.Decoder)


def _made(decoders: dict[Any, Any], kind: type[T], make: Callable[[type[T]], Any]) -> Any:
    with _lock:
        if kind not in decoders:
            decoders[kind] = make(kind)
        return decoders[kind]
