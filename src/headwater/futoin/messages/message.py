"""One FutoIn message as it came in, and what a coder is that makes it of bytes (FTN3 1.9, 1.4 and 1.5)."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from typing import Any, Protocol

from ...core.event import NO_ATTRIBUTES
from ..errors import invalid

RID_CHARS_MAX = 64
PLAIN_BYTES = 16 * 1024
"""A message so short is decoded as it is: whatever it holds is built within a few ms."""
ENVELOPE_BYTES_MAX = 4 * 1024
"""Of each member of a longer message but `p` and `r`."""
SIGNED_BYTES_MAX = 2**20
SIGNED_VALUES_MAX = 2**16
"""Of a message with a message authentication code, which is built and computed before it is known who sent it."""
VALUES_MAX = 2**20
"""Of a message, names of members in MessagePack included: any decoder steps over so many within some ms."""
PACKED_VALUES_MAX = 2**16
"""Of one event in MessagePack, which are made to be written as JSON; data in JSON may have as many as a message.

Data of more values goes out as base64 in MessagePack and CBOR, since all of them are made before one is written."""
_RID = re.compile(r"[CS][a-zA-Z0-9_-]*[0-9]", re.ASCII)


def is_rid(text: str) -> bool:
    """Whether a text is the identity of a request: one that can be repeated in its reply."""
    return len(text) <= RID_CHARS_MAX and _RID.fullmatch(text) is not None


class Encoded(bytes):
    """A parameter as it came: an array that is decoded in pieces."""


class Message:
    """A request, or the reply to one. Nothing but its envelope is decoded until somebody asks."""

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
        """The request's identity on its connection, or None where there is none that could be repeated."""
        self.error = error
        """Of a reply: the name of the error, or None."""
        self.is_reply = is_reply
        self._parameters, self._tree = parameters, tree

    def function_name(self) -> str:
        """What `f` says. Raises FutoInError (InvalidRequest)."""
        if not isinstance(self.f, str) or not self.f:
            raise invalid("Missing req.f")
        return self.f

    def parameters(self, as_json: Container[str], as_encoded: Collection[str] = ()) -> dict[str, Any]:
        """`p`, decoded; those named by `as_json` as the text of their JSON, and those by `as_encoded` as Encoded,
        unless the coder takes only short messages. Raises FutoInError (InvalidRequest).
        """
        return self._parameters(as_json, as_encoded)

    def tree(self) -> object:
        """The whole message as plain values: what a signature is computed of. Raises FutoInError (InvalidRequest).

        Nothing is built of one that is longer than SIGNED_BYTES_MAX, or holds more than SIGNED_VALUES_MAX.
        """
        if self.size > SIGNED_BYTES_MAX:
            allowed = f"at most {SIGNED_BYTES_MAX} are taken with a signature"
            raise invalid(f"{self.size} bytes given, {allowed}; send less at once")
        return self._tree()


class Coder(Protocol):
    """One encoding of messages."""

    media_type: bytes
    """Behind `application/` or `application/vnd.`."""

    def decode(self, body: bytes) -> Message:
        """The message in those bytes. Raises FutoInError (InvalidRequest)."""

    def value(self, value: object) -> bytes:
        """A plain value, encoded."""

    def event(self, id: int, type: bytes, data: bytes, ts: bytes, trace: Mapping[str, str] = NO_ATTRIBUTES) -> bytes:
        """An event (FTN18, 3.1), encoded; its data is JSON. `trace` are members of headwater.evt.poll besides."""

    def array(self, elements: Sequence[bytes]) -> bytes:
        """An array of encoded values."""

    def message(self, members: Iterable[tuple[str, bytes]]) -> bytes:
        """A whole message: the names and the encoded values of its members."""

    def tree(self, body: bytes) -> Any:
        """A message as plain values. Raises FutoInError (InvalidRequest)."""
