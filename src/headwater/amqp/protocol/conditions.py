"""The standard's error conditions (from part 2, section 2.8.15, and part 4, section 4.5.9), and faults with a
condition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from .types import Symbol

INTERNAL_ERROR: Final = Symbol("amqp:internal-error")
NOT_FOUND: Final = Symbol("amqp:not-found")
UNAUTHORIZED_ACCESS: Final = Symbol("amqp:unauthorized-access")
DECODE_ERROR: Final = Symbol("amqp:decode-error")
RESOURCE_LIMIT_EXCEEDED: Final = Symbol("amqp:resource-limit-exceeded")
NOT_ALLOWED: Final = Symbol("amqp:not-allowed")
INVALID_FIELD: Final = Symbol("amqp:invalid-field")
NOT_IMPLEMENTED: Final = Symbol("amqp:not-implemented")
RESOURCE_LOCKED: Final = Symbol("amqp:resource-locked")
PRECONDITION_FAILED: Final = Symbol("amqp:precondition-failed")
RESOURCE_DELETED: Final = Symbol("amqp:resource-deleted")
ILLEGAL_STATE: Final = Symbol("amqp:illegal-state")
FRAME_SIZE_TOO_SMALL: Final = Symbol("amqp:frame-size-too-small")

CONNECTION_FORCED: Final = Symbol("amqp:connection:forced")
CONNECTION_FRAMING_ERROR: Final = Symbol("amqp:connection:framing-error")
CONNECTION_REDIRECT: Final = Symbol("amqp:connection:redirect")

SESSION_WINDOW_VIOLATION: Final = Symbol("amqp:session:window-violation")
SESSION_HANDLE_IN_USE: Final = Symbol("amqp:session:handle-in-use")
SESSION_UNATTACHED_HANDLE: Final = Symbol("amqp:session:unattached-handle")

LINK_DETACH_FORCED: Final = Symbol("amqp:link:detach-forced")
LINK_TRANSFER_LIMIT_EXCEEDED: Final = Symbol("amqp:link:transfer-limit-exceeded")
LINK_MESSAGE_SIZE_EXCEEDED: Final = Symbol("amqp:link:message-size-exceeded")
LINK_REDIRECT: Final = Symbol("amqp:link:redirect")
LINK_STOLEN: Final = Symbol("amqp:link:stolen")


class AmqpError(Exception):
    """An error with a condition that is sent to the peer. The subclass determines what ends.

    `info` is the error's map of further facts, or None.
    """

    scope: ClassVar[str] = ""

    def __init__(self, condition: Symbol, description: str = "", info: Mapping[Symbol, object] | None = None) -> None:
        self.condition = condition
        self.description = description
        self.info = info
        super().__init__(f"{condition}: {description}" if description else condition)


class ConnectionFault(AmqpError):
    """The connection ends: a `close` with this error."""

    scope = "connection"


class SessionFault(AmqpError):
    """The session ends: an `end` with this error."""

    scope = "session"


class LinkFault(AmqpError):
    """The link ends: a `detach` with this error."""

    scope = "link"
