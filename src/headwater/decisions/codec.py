"""How events become bytes: JSON or MessagePack by msgspec, or a codec of one's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import msgspec

from ..formats.decoders import json_decoder, msgpack_decoder

E = TypeVar("E")


class Codec(Protocol):
    """What turns an event into bytes and back. Each method raises ValueError or TypeError for what it cannot turn."""

    def encode(self, event: object) -> bytes:
        """The data of an event."""

    def decoder(self, kind: type[E]) -> Callable[[bytes], E]:
        """What makes an event of that class of its data; asked for once."""

    def fields(self, data: bytes) -> dict[str, Any]:
        """The fields of data of an old shape: what upcasters are given."""

    def build(self, fields: dict[str, Any], kind: type[E]) -> E:
        """The event of that class, of what upcasters made."""


class _ByMsgspec:
    """What the two codecs share: msgspec checks the types of all fields when it decodes."""

    def build(self, fields: dict[str, Any], kind: type[E]) -> E:
        """See Codec. Dates, UUIDs and bytes may still be the text that JSON has for them."""
        return msgspec.convert(fields, kind)


class JsonCodec(_ByMsgspec):
    """JSON, which readers by other protocols can read, too. The codec of an event class unless it names another."""

    def encode(self, event: object) -> bytes:
        """See Codec."""
        return msgspec.json.encode(event)

    def decoder(self, kind: type[E]) -> Callable[[bytes], E]:
        """See Codec."""
        return json_decoder(kind).decode

    def fields(self, data: bytes) -> dict[str, Any]:
        """See Codec."""
        return json_decoder(dict[str, Any]).decode(data)


class MsgpackCodec(_ByMsgspec):
    """MessagePack: smaller, and bytes stay bytes."""

    def encode(self, event: object) -> bytes:
        """See Codec."""
        return msgspec.msgpack.encode(event)

    def decoder(self, kind: type[E]) -> Callable[[bytes], E]:
        """See Codec."""
        return msgpack_decoder(kind).decode

    def fields(self, data: bytes) -> dict[str, Any]:
        """See Codec."""
        return msgpack_decoder(dict[str, Any]).decode(data)


JSON = JsonCodec()
MSGPACK = MsgpackCodec()
