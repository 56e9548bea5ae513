"""Event formats of several rooms, for viewing an event: this module may import several rooms."""

from __future__ import annotations

import msgspec

from ...amqp.messages.outbound import Outbound
from ...amqp.messages.readable import readable
from ...core.event import SequencedEvent
from ...dcb.reads.one_event import BYTES, EventForms, Shown
from ...futoin import settings as futoin
from ...futoin.functions.events import encode_event
from ...futoin.messages.coders import JSON as FUTOIN_JSON
from ...futoin.naming import Naming
from ...http import JSON

_ANY_BYTES = 2**31
"""The limit for an event in FutoIn form: a poll replaces larger events with a stub."""


def event_forms(settings: futoin.Settings) -> EventForms:
    """By name: `amqp` is the message that a receiver gets, decoded; `amqp_bytes` is that message; `futoin` is the
    pollEvents form, by the aliases of these settings.
    """

    def message(event: SequencedEvent, log: str, partitions: int) -> bytes:
        return Outbound(partitions, f"/logs/{log}").message(event)

    def amqp(event: SequencedEvent, log: str, partitions: int) -> Shown:
        return Shown(JSON, msgspec.json.encode(readable(message(event, log, partitions))))

    def amqp_bytes(event: SequencedEvent, log: str, partitions: int) -> Shown:
        return Shown(BYTES, message(event, log, partitions))

    def of_futoin(event: SequencedEvent, log: str, partitions: int) -> Shown:
        naming = Naming.of_log(log, settings.aliases, settings.without_other)
        return Shown(JSON, encode_event(event, FUTOIN_JSON, naming, _ANY_BYTES, is_traced=True))

    return {"amqp": amqp, "amqp_bytes": amqp_bytes, "futoin": of_futoin}
