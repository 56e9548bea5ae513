"""The check of events that are messages of AMQP, by whichever protocol they come.

The server sets it; other programs do not. The core knows nothing of AMQP. An event with an envelope, or with the
encoding AMQP, is handed to its receivers as it is, and most of their libraries lose their connection over one that they
cannot decode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from .errors import InvalidEvent
from .event import Encoding

MessageCheck = Callable[[bytes, bytes, Encoding], str | None]
"""Gets an event's envelope, data and encoding; answers why they are no valid message, None if they are one."""
_checks: list[MessageCheck] = []


@contextmanager
def messages_checked(check: MessageCheck) -> Iterator[None]:
    """Check messages in this process by that function, as long as the context lasts."""
    _checks.append(check)
    try:
        yield
    finally:
        _checks.remove(check)


def checks_messages() -> bool:
    """Whether messages are checked in this process."""
    return bool(_checks)


def check_messages(data: Sequence[bytes], envelopes: Sequence[bytes], encodings: Sequence[Encoding]) -> None:
    """Raises InvalidEvent, with its path, for the first message that not every receiver can decode."""
    if not _checks or not (any(envelopes) or any(encodings)):
        return
    for index, (content, envelope, encoding) in enumerate(zip(data, envelopes, encodings, strict=True)):
        if envelope or encoding:
            check_message(index, content, envelope, encoding)


def check_message(index: int, data: bytes, envelope: bytes, encoding: Encoding) -> None:
    """As `check_messages`, of the event of that index, which is a message."""
    if _checks and (fault := _checks[-1](envelope, data, encoding)) is not None:
        raise InvalidEvent(f"no message of AMQP: {fault}", f"events[{index}].{'data' if encoding else 'envelope'}")
