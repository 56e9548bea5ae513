"""How a sender learns that a message was refused: by the outcome `rejected`, or by an error on the link."""

from __future__ import annotations

from ...core.limits import show
from ..errors import MessageFault
from ..protocol.conditions import AmqpError
from ..protocol.link import Delivery, Receiver
from ..protocol.performatives import ErrorCondition, Rejected, Source
from ..protocol.types import Symbol
from .transport import Transport

REJECTED = "amqp:rejected:list"
DELIVERY_TAG = Symbol("delivery-tag")


def refuse(transport: Transport, link: Receiver, delivery: Delivery, fault: AmqpError | MessageFault) -> None:
    """Reject a delivery. If the sender would not see the outcome, end the link with the fault and the delivery's tag.

    A sender does not see it if it has already settled the delivery, or lists outcomes without `rejected` (the anonymous
    terminus extension, 2.2.2; core 2.7.3). Messages that arrived on the link before are still stored.
    """
    info = dict(fault.info or {}) if isinstance(fault, AmqpError) else {}
    if delivery.is_settled or not may_reject(link):
        description = f"delivery {show(delivery.tag)} was refused: {fault.description}"
        transport.expel(link, fault.condition, description, {**info, DELIVERY_TAG: delivery.tag})
    else:
        error = ErrorCondition(fault.condition, fault.description, info or None)
        link.settle(delivery.id, delivery.id, Rejected(error))


def may_reject(link: Receiver) -> bool:
    """Whether the sender accepts the outcome `rejected`: its source lists it, or lists no outcomes at all.

    Most clients send no list, and they all accept it.
    """
    source = link.remote.source if link.remote is not None else None
    return not isinstance(source, Source) or not source.outcomes or REJECTED in source.outcomes
