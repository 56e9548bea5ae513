"""A received FutoIn message, and the interface of the coders that decode it (FTN3 1.9, 1.4 and 1.5)."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from typing import Any, Protocol

from ...core.event import NO_ATTRIBUTES
from ..errors import invalid

RID_CHARS_MAX = 64
PLAIN_BYTES = 16 * 1024
"""Messages up to this size are decoded whole: all contents are built within a few ms."""
ENVELOPE_BYTES_MAX = 4 * 1024
"""The maximum size of each member of a longer message, except `p` and `r`, in bytes."""
SIGNED_BYTES_MAX = 2**20
SIGNED_VALUES_MAX = 2**16
"""The maximum number of values in a message with a message authentication code. The values are built and the code is
computed before the sender is known.
"""
VALUES_MAX = 2**20
"""The maximum number of values in a message, including member names in MessagePack. Any decoder skips that many within
some ms.
"""
PACKED_VALUES_MAX = 2**16
"""The maximum number of values in one event in MessagePack, because they are built to be written as JSON; JSON data may
have as many as a message.

Data with more values is sent as base64 in MessagePack and CBOR, because all values are built before one is written.
"""
_RID = re.compile(r"[CS][a-zA-Z0-9_-]*[0-9]", re.ASCII)


def is_rid(text: str) -> bool:
    """Whether a text is a valid request id, one that can be repeated in the reply."""
    return len(text) <= RID_CHARS_MAX and _RID.fullmatch(text) is not None


class Encoded(bytes):
    """An undecoded array parameter, to be decoded in pieces."""


class Message:
    """A request, or the reply to one. Only its envelope is decoded in advance."""

    __slots__ = ("_parameters", "_tree", "coder", "error", "f", "is_reply", "rid", "sec", "size")

    def __init__(
        self,
        coder: Coder,
        size: int,
        *,
        f: object,
        rid: object,
        sec: object,
        error: object,
        is_reply: bool,
        parameters: Callable[[Container[str], Collection[str]], dict[str, Any]],
        tree: Callable[[], object],
    ) -> None:
        self.coder, self.size = coder, size
        self.f, self.sec = f, sec
        self.rid = rid if isinstance(rid, str) and is_rid(rid) else None
        """The request's id on its connection, or None if it has none that can be repeated."""
        self.error = error
        """The name of a reply's error, or None."""
        self.is_reply = is_reply
        self._parameters, self._tree = parameters, tree

    def function_name(self) -> str:
        """The value of `f`. Raises FutoInError (InvalidRequest)."""
        if not isinstance(self.f, str) or not self.f:
            raise invalid("Missing req.f")
        return self.f

    def parameters(self, as_json: Container[str], as_encoded: Collection[str] = ()) -> dict[str, Any]:
        """`p`, decoded; parameters in `as_json` as JSON text, and those in `as_encoded` as Encoded, unless the coder
        takes only short messages. Raises FutoInError (InvalidRequest).
        """
        return self._parameters(as_json, as_encoded)

    def tree(self) -> object:
        """The whole message as plain values, to compute a signature. Raises FutoInError (InvalidRequest).

        No part is built of a message that is longer than SIGNED_BYTES_MAX, or with more than SIGNED_VALUES_MAX values.
        """
        if self.size > SIGNED_BYTES_MAX:
            allowed = f"at most {SIGNED_BYTES_MAX} are allowed in a signed message"
            raise invalid(f"got {self.size} bytes, {allowed}; send less at once")
        return self._tree()


class Coder(Protocol):
    """One encoding of messages."""

    media_type: bytes
    """The part after `application/` or `application/vnd.`."""

    def decode(self, body: bytes) -> Message:
        """Decode a message. Raises FutoInError (InvalidRequest)."""

    def value(self, value: object) -> bytes:
        """A plain value, encoded."""

    def event(self, id: int, type: bytes, data: bytes, ts: bytes, trace: Mapping[str, str] = NO_ATTRIBUTES) -> bytes:
        """An event (FTN18, 3.1), encoded; its data is JSON. `trace` has the additional members of
        headwater.evt.poll."""

    def array(self, elements: Sequence[bytes]) -> bytes:
        """An array of encoded values."""

    def message(self, members: Iterable[tuple[str, bytes]]) -> bytes:
        """A whole message: the names and the encoded values of its members."""

    def tree(self, body: bytes) -> Any:
        """A message as plain values. Raises FutoInError (InvalidRequest)."""
