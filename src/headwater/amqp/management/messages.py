"""Requests and answers of `$management` as messages (AMQP Management 3.1, 3.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ...management.operations import Answer
from ...management.ports import Time
from ..errors import MessageFault
from ..protocol import conditions
from ..protocol.codec import DecodeError
from ..protocol.message import VALUE, Message, Properties, decode_message, encode_message
from ..protocol.types import Int, Timestamp, ULong

LONG_MAX = 2**63 - 1


class RequestMessage(NamedTuple):
    """A received request."""

    reply_to: str | None
    correlation_id: object
    """The correlation-id of the response: the request's correlation-id, or its message-id if it has none."""
    properties: Mapping[str, object]
    """All application-properties."""
    body: object
    """The value of an amqp-value section, or the parts of any other body. None if there is no body."""


def read_request(message: bytes) -> RequestMessage:
    """Parse the request in a message. Raises MessageFault if it is malformed."""
    try:
        found = decode_message(message)
    except DecodeError as error:
        raise MessageFault(conditions.DECODE_ERROR, str(error)) from None
    properties = found.properties or Properties()
    correlation_id = properties.message_id if properties.correlation_id is None else properties.correlation_id
    return RequestMessage(properties.reply_to, correlation_id, found.application_properties or {}, found.body)


def answer_message(answer: Answer, request: RequestMessage) -> bytes:
    """The message of an answer; the status has both spellings that clients look for."""
    status: dict[str, object] = {
        "statusCode": Int(answer.status),
        "status-code": Int(answer.status),
        "statusDescription": answer.description,
        "status-description": answer.description,
    }
    if answer.count is not None:
        status["count"] = Int(answer.count)
    properties = Properties(to=request.reply_to, correlation_id=request.correlation_id)
    return encode_message(Message(amqp_value(answer.body), VALUE, properties=properties, application_properties=status))


def amqp_number(value: object) -> object:
    """A number as an AMQP type. Integers are longs. An epoch, which may be any ulong, is a ulong only if necessary."""
    return ULong(value) if isinstance(value, int) and value > LONG_MAX else value


def amqp_value(value: object) -> object:
    """A value of a response as an AMQP type. A time is a timestamp; a number beyond the range of long is a ulong."""
    if isinstance(value, Time):
        return Timestamp(value)
    if isinstance(value, int):
        return amqp_number(value)
    if isinstance(value, dict):
        return {key: amqp_value(each) for key, each in value.items()}
    return [amqp_value(each) for each in value] if isinstance(value, list) else value
