"""msgspec decoders for types known only on use, created by one thread at a time.

msgspec (0.22) builds its data about a Struct with its first decoder, or with the first `decode(..., type=...)`, and
other threads see it before it is complete: two that begin at once crash the process with a segmentation fault. So types
that several threads decode have their decoder here, or at the top of their module.
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
    """The decoder of that type, always the same one. Use it for few types only."""
    return _of_json.get(kind) or _made(_of_json, kind, msgspec.json.Decoder)


def msgpack_decoder(kind: type[T]) -> msgspec.msgpack.Decoder[T]:
    """The same for MessagePack."""
    return _of_msgpack.get(kind) or _made(_of_msgpack, kind, msgspec.msgpack.Decoder)


def _made(decoders: dict[Any, Any], kind: type[T], make: Callable[[type[T]], Any]) -> Any:
    with _lock:
        if kind not in decoders:
            decoders[kind] = make(kind)
        return decoders[kind]
