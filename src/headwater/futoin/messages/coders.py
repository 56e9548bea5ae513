"""The three coders of FutoIn messages: JSON, MessagePack (`MPCK`) and CBOR, recognised by a message's first bytes.

A reply is assembled from encoded pieces, so that a page of a thousand events is never built as a tree of values.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import cbor2
import msgspec
from msgspec import UNSET, Raw, Struct

from ...core.event import NO_ATTRIBUTES
from ...core.limits import show
from ...formats.budget.values import holds_more, packed_holds_more
from ..errors import FutoInError, invalid
from .json_values import checked_json, json_text, portable
from .message import ENVELOPE_BYTES_MAX, PLAIN_BYTES, SIGNED_VALUES_MAX, Coder, Encoded, Message

CBOR_BYTES_MAX = 64 * 1024
"""CBOR is decoded whole before the sender is known, so only the default size is accepted."""
_MAGIC_BYTES = 4
_UNDEFINED = b"\xf7"
"""`undefined` in CBOR (RFC 8949, 3.3); JavaScript clients send it for missing values."""


def coder_of(body: bytes) -> Coder:
    """The coder of a message. Raises FutoInError (InvalidRequest) if its beginning does not match any coder."""
    magic = body[:_MAGIC_BYTES]
    if magic == MPCK.magic:
        return MPCK
    if magic == CBOR.magic:
        return CBOR
    if body[:1] == b"{" or body.lstrip()[:1] == b"{":
        return JSON
    raise invalid("Missing req.f")


class _Envelope(Struct):
    f: Any = UNSET
    p: Raw = Raw()
    rid: Any = None
    sec: Any = None
    r: Raw = Raw()
    e: Any = None


class _Raw(Struct):
    """The envelope of a long message."""

    f: Raw = Raw()
    p: Raw = Raw()
    rid: Raw = Raw()
    sec: Raw = Raw()
    r: Raw = Raw()
    e: Raw = Raw()


def _checked(raw: _Raw, decode: Callable[[bytes], Any]) -> _Envelope:
    """The decoded envelope; members longer than any valid one are not built."""
    envelope = _Envelope(p=raw.p, r=raw.r)
    for name in ("f", "rid", "sec", "e"):
        value = bytes(getattr(raw, name))
        if len(value) > ENVELOPE_BYTES_MAX:
            raise invalid(f"Invalid req.{name}: {len(value)} bytes, at most {ENVELOPE_BYTES_MAX} are allowed")
        if value:
            setattr(envelope, name, decode(value))
    return envelope


@lru_cache
def _fields(names: Collection[str]) -> type[Struct]:
    """A type for the possible parameters of a long message, all undecoded."""
    return msgspec.defstruct("p", [(name, Raw, Raw()) for name in names], forbid_unknown_fields=True)


def _raw_fields(decode: Callable[..., Struct], text: Raw, names: Collection[str]) -> dict[str, Any]:
    """The parameters that are present. Raises the same errors as the decoder."""
    given = decode(text, type=_fields(frozenset(names)))
    return {name: Encoded(raw) for name in names if len(raw := getattr(given, name))}


_MALFORMED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def _message(coder: Coder, size: int, envelope: _Envelope, parameters: Any, tree: Callable[[], object]) -> Message:
    return Message(
        coder,
        size,
        f=envelope.f,
        rid=envelope.rid,
        sec=envelope.sec,
        error=envelope.e,
        is_reply=envelope.f is UNSET and (bool(bytes(envelope.r)) or envelope.e is not None),
        parameters=parameters,
        tree=tree,
    )


def _misfit(error: Exception) -> FutoInError:
    """The error for malformed parameters; in long messages, this includes unknown parameters."""
    return invalid(
        f"Invalid req.p: {show(str(error), 200)}" if isinstance(error, msgspec.ValidationError) else "Invalid req.p"
    )


def _too_many_values() -> FutoInError:
    return invalid(f"expected at most {SIGNED_VALUES_MAX} values in a signed message; send fewer at once")


def _malformed(coder: str) -> FutoInError:
    return invalid(f"the message is not well-formed {coder}")


class JsonCoder(Coder):
    """JSON text; event data is passed through as written."""

    media_type = b"futoin+json"

    def __init__(self) -> None:
        self._envelope = msgspec.json.Decoder(_Envelope)
        self._raw_envelope = msgspec.json.Decoder(_Raw)
        self._raw_parameters = msgspec.json.Decoder(dict[str, Raw])
        self._encoder = msgspec.json.Encoder()

    def decode(self, body: bytes) -> Message:
        size = len(body)
        try:
            if not body.isascii():
                body.decode()  # the decoder does not check values that it keeps raw
            if size > PLAIN_BYTES:
                envelope = _checked(self._raw_envelope.decode(body), msgspec.json.decode)
            else:
                envelope = self._envelope.decode(body)
        except _MALFORMED:
            raise _malformed("JSON") from None

        def parameters(as_json: Container[str], as_encoded: Collection[str]) -> dict[str, Any]:
            try:
                if as_encoded and len(envelope.p) > PLAIN_BYTES:
                    return _raw_fields(msgspec.json.decode, envelope.p, as_encoded)
                given = self._raw_parameters.decode(envelope.p) if bytes(envelope.p) else {}
                return {
                    name: Encoded(raw)
                    if name in as_encoded
                    else checked_json(bytes(raw))
                    if name in as_json
                    else msgspec.json.decode(raw)
                    for name, raw in given.items()
                }
            except _MALFORMED as error:
                raise _misfit(error) from None

        def tree() -> Any:
            if holds_more(body, SIGNED_VALUES_MAX):
                raise _too_many_values()
            return self.tree(body)

        return _message(self, size, envelope, parameters, tree)

    def value(self, value: object) -> bytes:
        return self._encoder.encode(value)

    def event(self, id: int, type: bytes, data: bytes, ts: bytes, trace: Mapping[str, str] = NO_ATTRIBUTES) -> bytes:
        one = b'{"id":"%d","type":"%b","data":%b,"ts":"%b"}' % (id, type, data, ts)
        return one if not trace else b"%b,%b" % (one[:-1], self._encoder.encode(trace)[1:])

    def array(self, elements: Sequence[bytes]) -> bytes:
        return b"[%b]" % b",".join(elements)

    def message(self, members: Iterable[tuple[str, bytes]]) -> bytes:
        pieces, before = list[bytes](), b"{"
        for name, value in members:
            pieces += (b'%b"%b":' % (before, name.encode()), value)  # it may be long, and is copied once
            before = b","
        return b"".join([*(pieces or [before]), b"}"])

    def tree(self, body: bytes) -> Any:
        try:
            return msgspec.json.decode(body)
        except _MALFORMED:
            raise _malformed("JSON") from None


class MessagePackCoder(Coder):
    """`MPCK`, then MessagePack."""

    media_type = b"futoin+msgpack"
    magic = b"MPCK"

    def __init__(self) -> None:
        self._envelope = msgspec.msgpack.Decoder(_Envelope)
        self._raw_envelope = msgspec.msgpack.Decoder(_Raw)
        self._parameters = msgspec.msgpack.Decoder(dict[str, Any])
        self._encoder = msgspec.msgpack.Encoder()

    def decode(self, body: bytes) -> Message:
        content, size = body[_MAGIC_BYTES:], len(body)
        try:
            if size > PLAIN_BYTES:
                envelope = _checked(self._raw_envelope.decode(content), msgspec.msgpack.decode)
            else:
                envelope = self._envelope.decode(content)
        except (*_MALFORMED, OverflowError, ValueError):
            raise _malformed("MessagePack") from None

        def parameters(as_json: Container[str], as_encoded: Collection[str]) -> dict[str, Any]:
            try:
                if as_encoded and len(envelope.p) > PLAIN_BYTES:
                    return _raw_fields(msgspec.msgpack.decode, envelope.p, as_encoded)
                given = self._parameters.decode(envelope.p) if bytes(envelope.p) else {}
            except (*_MALFORMED, OverflowError, ValueError) as error:
                raise _misfit(error) from None
            return _with_json(given, as_json, size)

        def tree() -> Any:
            if packed_holds_more(content, SIGNED_VALUES_MAX):
                raise _too_many_values()
            return self.tree(body)

        return _message(self, size, envelope, parameters, tree)

    def value(self, value: object) -> bytes:
        try:
            return self._encoder.encode(value)
        except OverflowError:
            return self._encoder.encode(portable(value))

    def event(self, id: int, type: bytes, data: bytes, ts: bytes, trace: Mapping[str, str] = NO_ATTRIBUTES) -> bytes:
        return self.value({**_event(id, type, data, ts), **trace})

    def array(self, elements: Sequence[bytes]) -> bytes:
        return b"".join([_length(len(elements), 0x90, 0xDC), *elements])

    def message(self, members: Iterable[tuple[str, bytes]]) -> bytes:
        pieces = [piece for name, value in members for piece in (self._encoder.encode(name), value)]
        return b"".join([self.magic, _length(len(pieces) // 2, 0x80, 0xDE), *pieces])

    def tree(self, body: bytes) -> Any:
        try:
            return msgspec.msgpack.decode(body[_MAGIC_BYTES:])
        except (*_MALFORMED, OverflowError, ValueError):
            raise _malformed("MessagePack") from None


class CborCoder(Coder):
    """`CBOR`, then CBOR."""

    media_type = b"futoin+cbor"
    magic = b"CBOR"

    def decode(self, body: bytes) -> Message:
        if len(body) > CBOR_BYTES_MAX:
            raise invalid(f"got {len(body)} bytes of CBOR, at most {CBOR_BYTES_MAX} are allowed; use JSON or MPCK")
        given = self.tree(body)
        if not isinstance(given, dict):
            raise _malformed("CBOR")

        def parameters(as_json: Container[str], as_encoded: Collection[str]) -> dict[str, Any]:
            taken = given.get("p", {})
            if not isinstance(taken, dict) or not all(isinstance(name, str) for name in taken):
                raise invalid("Invalid req.p")
            return _with_json(taken, as_json, len(body))

        return Message(
            self,
            len(body),
            f=given.get("f", UNSET),
            rid=given.get("rid"),
            sec=given.get("sec"),
            error=given.get("e"),
            is_reply="f" not in given and ("r" in given or "e" in given),
            parameters=parameters,
            tree=lambda: given,
        )

    def value(self, value: object) -> bytes:
        try:
            _packer.encode(value)  # finds integers that are too large much faster than `portable`
        except (OverflowError, TypeError):
            value = portable(value)
        return cbor2.dumps(value)

    def event(self, id: int, type: bytes, data: bytes, ts: bytes, trace: Mapping[str, str] = NO_ATTRIBUTES) -> bytes:
        return self.value({**_event(id, type, data, ts), **trace})

    def array(self, elements: Sequence[bytes]) -> bytes:
        return b"".join([_cbor_length(len(elements), 0x80), *elements])

    def message(self, members: Iterable[tuple[str, bytes]]) -> bytes:
        pieces = [piece for name, value in members for piece in (cbor2.dumps(name), value)]
        return b"".join([self.magic, _cbor_length(len(pieces) // 2, 0xA0), *pieces])

    def tree(self, body: bytes) -> Any:
        try:
            given = cbor2.loads(
                body[_MAGIC_BYTES:], semantic_decoders=_AS_TAGS, strict_hashable_types=True, max_depth=200
            )
            return _defined(given) if _UNDEFINED in body else given
        except Exception:  # the library documents CBORDecodeError, but raises others too
            raise _malformed("CBOR") from None


def _defined(value: Any) -> Any:
    """The value without `undefined`, as JavaScript writes JSON: members are dropped, and elements become null."""
    if isinstance(value, dict):
        return {name: _defined(member) for name, member in value.items() if member is not cbor2.undefined}
    if isinstance(value, list):
        return [_defined(element) for element in value]
    return None if value is cbor2.undefined else value


def _with_json(given: dict[str, Any], as_json: Container[str], size: int) -> dict[str, Any]:
    return {name: json_text(value, size) if name in as_json else value for name, value in given.items()}


def _event(id: int, type: bytes, data: bytes, ts: bytes) -> dict[str, object]:
    return {"id": str(id), "type": type.decode(), "data": msgspec.json.decode(data), "ts": ts.decode()}


def _length(count: int, fixed: int, long: int) -> bytes:
    return bytes([fixed | count]) if count < 16 else struct.pack(">BH", long, count)


def _cbor_length(count: int, kind: int) -> bytes:
    if count < 24:
        return bytes([kind | count])
    return struct.pack(">BB", kind | 24, count) if count < 256 else struct.pack(">BH", kind | 25, count)


def _tagged(value: object, immutable: bool) -> object:
    """Tags represent values that JSON lacks (such as dates). They are refused when the value is used, so that the `rid`
    is known.
    """
    return cbor2.CBORTag(0, value)


_AS_TAGS: dict[int, Any] = dict.fromkeys(
    (0, 1, 4, 5, 25, 28, 29, 30, 35, 36, 37, 52, 54, 100, 256, 258, 260, 261, 1004), _tagged
)
"""Tags that the library interprets. Some are far more expensive than their size."""

_packer = msgspec.msgpack.Encoder()
JSON, MPCK, CBOR = JsonCoder(), MessagePackCoder(), CborCoder()
