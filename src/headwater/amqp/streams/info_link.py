"""A link from `LOG/$info`: one message per credit, with a pause between them (event streams, 6)."""

from __future__ import annotations

import asyncio

from ...core.errors import EventLogError
from ..connections.link_end import Ending, LinkEnd
from ..connections.transport import Transport
from ..errors import refusal_of
from ..protocol.conditions import LinkFault
from ..protocol.link import Sender
from ..protocol.performatives import Source
from .node import EventLogNode


class InfoSource(LinkEnd):
    """Sends the current information on the log to a receiver."""

    def __init__(self, transport: Transport, link: Sender, node: EventLogNode) -> None:
        self._transport, self._link, self._node, self.log = transport, link, node, node.log
        self._pause: asyncio.TimerHandle | None = None
        self._is_busy = False

    @staticmethod
    def attach(transport: Transport, link: Sender, node: EventLogNode) -> None:
        """Answer a receiver's attach."""
        assert link.remote is not None and isinstance(link.remote.source, Source)
        given = link.remote.source
        source = Source(address=given.address, outcomes=given.outcomes)
        link.accept(source=source, target=link.remote.target)
        end = InfoSource(transport, link, node)
        transport.adopt(link, end)
        end.on_ready()

    def on_ready(self) -> None:
        if self._pause is None and not self._is_busy and self._link.sendable > 0:
            self._is_busy = True
            self._transport.spawn(self._send())
        elif self._link.is_draining and not self._is_busy:
            self._link.drained()

    def on_detached(self, ending: Ending) -> None:
        if self._pause is not None:
            self._pause.cancel()

    async def _send(self) -> None:
        try:
            message = await self._node.information()
        except EventLogError as error:
            refusal = refusal_of(error)
            self._transport.expel(self._link, refusal.condition, refusal.description)
            return
        finally:
            self._is_busy = False
        try:
            self._link.check_size(len(message))
            is_sendable = self._link.sendable > 0
            if is_sendable:
                self.deliveries += 1
                self._link.send(message, self.deliveries, is_settled=self._link.sends_settled)
        except LinkFault as fault:
            self._transport.expel(self._link, fault.condition, fault.description)
            return
        if is_sendable:
            self._pause = self._node.loop.call_later(self._node.settings.info_pause_ms / 1000, self._resume)
        if self._link.is_draining:
            self._link.drained()
        self._transport.flush_soon()

    def _resume(self) -> None:
        self._pause = None
        self.on_ready()
