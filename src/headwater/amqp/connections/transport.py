"""One connection over asyncio: bytes to the engine, events to the ends of links, bytes back, in one write per read."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from enum import Flag, auto
from functools import partial
from itertools import islice
from typing import Any, Protocol, cast

from ...core.access import Right, User
from ...core.client_subnet import place_of
from ...core.clocks import wall_clock_ms
from ...core.errors import EventLogError
from ...core.local import LocalLog
from ...core.loop.memory import PIECE_BYTES_MIN, Share
from ...core.loop.scheduler import BatchSizer, Flow
from ...core.loop.slices import Slices
from ...core.loop.turn_reads import READ_BYTES
from ...core.shared_bytes import FREE_BYTES
from ..errors import link_fault
from ..protocol import conditions
from ..protocol.conditions import AmqpError, ConnectionFault
from ..protocol.connection import Connection
from ..protocol.events import (
    ConnectionClosed,
    ConnectionOpened,
    CreditChanged,
    DeliveriesSettled,
    Event,
    LinkAttached,
    LinkDetached,
    MechanismChosen,
    MessagesReceived,
    OutcomesReceived,
    SaslResponded,
    SessionEnded,
    WindowOpened,
)
from ..protocol.link import Link
from ..protocol.negotiation import Stage
from ..protocol.performatives import ErrorCondition
from ..protocol.session import Session
from ..protocol.types import Described, Symbol
from .link_end import Ending, LinkEnd
from .login import Login
from .notifications import ConnectionNotifier
from .shared import TICK_S, LinkKey, Shared

_logger = logging.getLogger("headwater.amqp")

TURN_BYTES = 64 * 1024
"""The maximum input from one peer that is processed before other peers get their turn. A tiny frame may take as long as
a large one.
"""
TURN_BYTES_FIRST, TURN_BYTES_MIN = 16 * 1024, 4096
"""The initial size of a turn, and the size that it falls back to if every frame is expensive."""
TURN_S = 0.01
"""Target CPU time of a turn: longer than a scanning step, so that input that arrives together is appended together."""
WRITE_BYTES_MAX = FREE_BYTES
"""The amount of unwritten output at which consumers of the connection pause; one more piece may be pending
(`Share.piece_bytes`)."""
ANSWERS_BYTES_MAX = 2**20
"""The amount of unwritten output at which reading from the peer stops: the peer does not read the answers."""
LINGERING_MAX = 1000
"""Detached links of one connection with state that is kept until the connection is over."""
ATTACH_BYTES = 128 * 1024
"""The maximum memory for an attach whose log is being opened. More attaches are read after some have been answered."""
LINKS_IN_A_TURN = 64
"""The number of links of one connection that are handled in one step, for example when the connection ends."""
CLOSE_S = 5.0
"""The time limit for a peer to answer our close, and to read the output that precedes it."""


_DOING = "amqp", "frames"


class _Pause(Flag):
    """Why reading from a peer is paused."""

    LOGIN = auto()
    """Its login is being checked; further input waits."""
    HELD = auto()
    """Its messages have not reached the disk yet."""
    UNREAD = auto()
    """It does not read the responses."""
    STOPPING = auto()
    TURN = auto()
    """Other peers get their turn before its pending input is processed."""


_NOT_PAUSED = _Pause(0)


class Owner(Protocol):
    """The owner of the connections: the container."""

    shared: Shared

    def admit(self, transport: Transport) -> str | None:
        """Admit one more connection; returns the reason if it is refused, None if it is admitted."""

    def forget(self, transport: Transport) -> None:
        """Forget a connection that is over."""

    def sent_away(self, transport: Transport) -> ConnectionFault | None:
        """The fault with which a connection is closed as soon as it is open; None if it is served."""


Origin = tuple[str, int]
"""The address and port of a client."""
Attach = Callable[["Transport", Link], Awaitable[None]]
"""Answers a peer's attach. Raises AmqpError or EventLogError if it is refused."""


_buffer = memoryview(bytearray(READ_BYTES))
"""The read buffer of all connections: its content is consumed at once."""


class Transport(asyncio.BufferedProtocol):
    """One connection of a peer. It is a `Reader` of its share of the memory."""

    def __init__(
        self, owner: Owner, attach: Attach, origin: Origin | None = None, fault: ConnectionFault | None = None
    ) -> None:
        """`origin` is the client if another server forwarded its connection, None otherwise.

        `fault`: the error to close the connection with once it is open; None to serve it.
        """
        self._origin, self.fault = origin, fault
        # Shared by all connections
        self.shared = owner.shared
        self._owner, self._attach = owner, attach
        self._settings, self._loop = owner.shared.settings, owner.shared.loop
        # This connection: the peer, the engine, the end
        self.peer = ""
        """The peer's address."""
        self.port: int | None = None
        self.tls: str | None = None
        """The TLS version, if TLS is used."""
        self.user: User | None = None
        """The authenticated user; None before the login."""
        self.number = 0
        """The server's number for this connection, from 1."""
        self.opened_at = 0
        """When it was accepted, in ms since 1970."""
        self.engine: Connection
        self._transport: asyncio.Transport
        self._login: Login
        self._notifier = ConnectionNotifier(owner.shared.bus)
        self._connected_at = 0.0
        self._closing_at: float | None = None
        self._is_lost = False
        self._lingers = False
        """Whether the connection is over, but the peer does not know it. The peer may still send, and then reads the
        reason.
        """
        self.share = Share(owner.shared.memory, self)
        """The memory it holds."""
        self._tasks: set[asyncio.Task[None]] = set()
        # This connection: bytes in and out
        self.bytes_received = self.bytes_sent = 0
        self.held_bytes = 0
        """Bytes from producers that have not reached the disk."""
        self._resumes_at = 0
        """If too much was held, reading resumes when no more than this is held."""
        self.has_room = True
        """Whether more may be written."""
        self._unsent_bytes = 0
        """Unwritten bytes that are counted, as they are while the peer reads too slowly."""
        self._sent_at_pause = self._least_unsent = 0
        """Unsent bytes when the peer began to read too slowly, and their minimum since then."""
        self._unread: deque[bytes] = deque()
        """Input that waits for the peer's next turn."""
        self._slices = Slices()
        self._is_last = False
        """Whether the peer has closed its side, so that nothing follows the unread input."""
        self._sizer = BatchSizer(TURN_BYTES, TURN_BYTES_FIRST, TURN_S)
        self._pauses = _NOT_PAUSED
        self._is_turn_due = False
        self._is_flushing = self._is_more_due = False
        self._flow: Flow | None = None
        # Its sessions and links
        self._ends: dict[Link, LinkEnd] = {}
        self._numbers: dict[Link, int] = {}
        """The server's numbers for the links of this connection, from 1."""
        self._by_number: dict[int, Link] = {}
        self._links_counted = self._sessions_counted = 0
        self._lingering: list[tuple[Session | None, Callable[[Ending], None]]] = []

    @property
    def container_id(self) -> str:
        """The peer's container id."""
        return self.engine.remote.container_id if self.engine.remote else ""

    @property
    def remembered_as(self) -> str:
        """The name under which the state that outlives its links is remembered: the container id and its user."""
        user = self.user.name if self.user else ""
        return f"{user}@{self.container_id}" if user else self.container_id

    @property
    def mechanism(self) -> str:
        """The SASL mechanism of the peer's login; empty without SASL."""
        return self._login.mechanism

    @property
    def flow(self) -> Flow:
        """Its share of the loop's time: that of its user, once known."""
        if self._flow is None:
            flow = self.shared.turns.flow(self.user.name if self.user else "", self.peer)
            if self.user is None:
                return flow
            self._flow = flow
        return self._flow

    @property
    def links(self) -> list[tuple[int, Link, LinkEnd]]:
        """The attached links, with their numbers, in the order of attachment."""
        return [(self._numbers[link], link, end) for link, end in self._ends.items()]

    @property
    def link_numbers(self) -> list[int]:
        """The numbers of the attached links. This is much faster than `links` if there are very many."""
        return list(self._by_number)

    @property
    def links_count(self) -> int:
        """The number of attached links."""
        return len(self._ends)

    @property
    def is_busy(self) -> bool:
        """Whether input from the peer is not on the disk yet, or output is about to be sent."""
        return self.held_bytes > 0 or any(end.has_more for end in self._ends.values())

    def link(self, number: int) -> tuple[Link, LinkEnd] | None:
        """The link with that number, if it is attached."""
        link = self._by_number.get(number)
        return None if link is None else (link, self._ends[link])

    def link_name(self, link: Link) -> str | None:
        """The server's name for a link of this connection, including the connection; None while it has no number."""
        number = self._numbers.get(link)
        return None if number is None else f"{self.number}/{self.session_number(link.session)}/{number}"

    @property
    def sessions(self) -> list[tuple[int, Session]]:
        """The sessions, with their numbers, which are assigned from 1 on first use."""
        return [(self.session_number(session), session) for session in self.engine.sessions]

    def session_number(self, session: Session) -> int:
        """The server's number for that session of this connection."""
        if session.context is None:
            self._sessions_counted += 1
            session.context = self._sessions_counted
        return int(session.context)

    # Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A peer has connected."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's server does not inherit from it
        self._transport.set_write_buffer_limits(high=WRITE_BYTES_MAX)
        address = self._origin or transport.get_extra_info("peername")
        self.peer, self.port = (str(address[0]), int(address[1])) if address else ("", None)
        self.opened_at = time.time_ns() // 1_000_000
        tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        self.tls = tls.version() if tls is not None else None
        self._login = Login(self.shared.guard, self.peer, tls)
        self.user = self._login.user
        self._connected_at = self._loop.time()
        self.engine = self.shared.engine(self._login, self.share, self._connected_at)
        self._belong()
        if (reason := self._owner.admit(self)) is not None:
            self._notifier.refused(reason)
            self._transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        """See asyncio.BufferedProtocol."""
        return _buffer

    def buffer_updated(self, nbytes: int) -> None:
        """See asyncio.BufferedProtocol."""
        self.data_received(bytes(_buffer[:nbytes]))

    def data_received(self, data: bytes) -> None:
        """Handle input from the peer."""
        self.bytes_received += len(data)
        if self.shared.reads.are_over(len(data)):
            self._pause(_Pause.TURN)
            self._take_turn_soon()
        if self._unread or len(data) > max(self._sizer.size, TURN_BYTES_MIN):
            if not self.share.take(len(data)):
                self._has_no_memory(len(data))
                return
            self._unread.append(data)
            if _Pause.TURN not in self._pauses:
                self._take_turn()
        else:
            self._receive(data)

    def eof_received(self) -> bool:
        """The peer has closed its side: close this one too, after the pending input is processed."""
        if self._transport.get_extra_info("ssl_object") is None:
            self._is_last = bool(self._unread)
            return self._is_last
        while self._unread:  # over TLS this cannot wait
            data = self._unread.popleft()
            self.share.give(len(data))
            self._receive(data)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The peer has gone."""
        self._is_lost = True
        self.share.give(sum(map(len, self._unread)) + self._unsent_bytes)
        self._unread.clear()
        self._unsent_bytes = 0
        self.engine.lost()
        self.share.close()
        for task in self._tasks:
            task.cancel()
        self._abandon(self._forget)

    def pause_writing(self) -> None:
        """The peer reads more slowly than its consumers send. Writing pauses."""
        self.has_room = False
        self._count_unsent()
        self._sent_at_pause, self._least_unsent = self.bytes_sent, self._unsent_bytes
        self.share.stalls()

    def resume_writing(self) -> None:
        """The pending output has been written."""
        self.has_room = True
        self.share.flows()
        self.share.give(self._unsent_bytes)
        self._unsent_bytes = 0
        self._resume(_Pause.UNREAD)
        if self.engine.has_large:
            self.flush()
        self._wake(iter(tuple(self._ends.values())))

    # Called by its share of the memory

    def unsent_bytes(self) -> int:
        """See `core.loop.memory.Reader`. Bytes written after the pause began, such as a heartbeat, do not count."""
        waiting = self._transport.get_write_buffer_size() - (self.bytes_sent - self._sent_at_pause)
        self._least_unsent = min(self._least_unsent, waiting)
        return self._least_unsent

    def end_stalled(self, reason: str) -> None:
        """See `core.loop.memory.Reader`."""
        self._notifier.failed(ErrorCondition(conditions.RESOURCE_LIMIT_EXCEEDED, reason))
        self._transport.abort()

    # Called by the container and the ends of links

    def flush(self) -> None:
        """Write the engine's output now. Large deliveries are written one piece at a time, as the peer accepts them."""
        if self._is_lost:
            return
        large_bytes = self.share.piece_bytes if self.engine.has_large and self.has_room else 0
        if data := self.engine.data_to_send(large_bytes):
            self.bytes_sent += len(data)
            self._transport.write(data)
            if not self.has_room:
                self._count_unsent()
                if self._transport.get_write_buffer_size() > ANSWERS_BYTES_MAX:
                    self._pause(_Pause.UNREAD)
        if events := self.engine.take_events():
            self._handle(events)
        if self.has_room and self.engine.has_large and not self._is_more_due:
            self._is_more_due = True
            self.shared.turns.soon(self.flow, self._flush_more)
        if self.engine.is_over and not self._lingers:
            self._hang_up()

    def flush_soon(self) -> None:
        """Write after the current step, or at once if there is much output, to keep `has_room` true."""
        waiting = self.engine.bytes_to_send
        if waiting > PIECE_BYTES_MIN and waiting > min(WRITE_BYTES_MAX, self.share.piece_bytes):
            self.flush()
        elif not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush)

    def key(self, link: Link) -> LinkKey:
        """Identifies a link across connections."""
        return self.user.name if self.user else "", self.container_id, link.name, link.is_sender

    def steal(self, link: Link) -> None:
        """Called before a link of this peer is attached. Detaches a link with the same name on another connection
        (2.6.1).
        """
        self.shared.steal(self.key(link), link, self.expel)

    def adopt(self, link: Link, end: LinkEnd) -> None:
        """The link is attached. From now on its end receives the link's events."""
        self.shared.statistics.links += 1
        if link.is_sender:
            self.share.begin_answer()
        link.context, end.attached_at = end, wall_clock_ms()
        self._ends[link] = end
        if link not in self._numbers:
            self._links_counted += 1
            self._numbers[link] = self._links_counted
            self._by_number[self._links_counted] = link
        self._notifier.adopted(self, link, end)

    def expel(
        self, link: Link, condition: Symbol, description: str, info: Mapping[Symbol, object] | None = None
    ) -> None:
        """Detach a link from this side, with the reason; `info` are further facts of its error."""
        error = ErrorCondition(condition, description, info and dict(info))
        if link.is_waiting:
            link.refuse(condition, description, info)
            self._notifier.link_refused(self, link, error)
        else:
            link.detach(error)
        self._let_go(link, Ending.DETACHED, error)
        self.flush_soon()

    def end(self, session: Session, condition: Symbol, description: str) -> None:
        """End a session from this side, with all its links."""
        links = tuple(session.links)
        error = ErrorCondition(condition, description)
        session.end(error)
        for link in links:
            self._let_go(link, Ending.SESSION, error)
        self._end_lingering(session)
        self.flush_soon()

    def expel_all(self, log: LocalLog, condition: Symbol, description: str) -> None:
        """Detach every link that depends on a log."""
        for link, end in tuple(self._ends.items()):
            if end.log is log:
                self.expel(link, condition, description)

    def linger(self, session: Session, on_ended: Callable[[Ending], None]) -> None:
        """A link has ended. Calls `on_ended` when its session and its connection have ended."""
        while len(self._lingering) >= LINGERING_MAX:
            self._lingering.pop(0)[1](Ending.CONNECTION)
        self._lingering.append((session, on_ended))

    def stop_reading(self) -> None:
        """Stop reading from the peer. Called before it is closed."""
        self._pause(_Pause.STOPPING)

    def spawn(self, work: Any) -> None:
        """Run a coroutine that is cancelled when the connection ends."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def hold(self, size: int) -> None:
        """Count bytes of this peer on their way to the disk; at the limit, reading pauses.

        If memory is short, the limit is lower, because bytes that reach the disk free memory.
        """
        self.held_bytes += size
        if self.held_bytes > FREE_BYTES:
            room = self.share.account.room(self.share.owner)
            if self.held_bytes > min(self._settings.held_bytes_max, max(room // 4, FREE_BYTES)):
                self._resumes_at = self.held_bytes // 2
                self._pause(_Pause.HELD)

    def release(self, size: int) -> None:
        """Count bytes that have reached the disk."""
        self.held_bytes -= size
        if self.held_bytes <= self._resumes_at:
            self._resume(_Pause.HELD)

    def tick(self, now: float) -> None:
        """Handle the passage of time: keep the connection alive, or close it after a timeout."""
        if self._closing_at is not None:
            if now >= self._closing_at:
                self._transport.abort()
            return
        if self.user is not None and self.user.expires_at is not None and time.time() >= self.user.expires_at:
            self.close(conditions.UNAUTHORIZED_ACCESS, "the token of the login has expired; connect with a newer one")
            return
        is_late = now - self._connected_at > self._settings.login_ms / 1000
        if is_late and self.engine.remote is None and _Pause.LOGIN not in self._pauses:
            self._notifier.refused("timeout")
            self._transport.abort()
            return
        due = self.engine.next_tick()
        if _Pause.HELD in self._pauses:
            self.engine.not_listening(now)
        if due is not None and due <= now + TICK_S:
            self._handle(self.engine.tick(now))
            self.flush()

    def close(self, condition: Symbol, description: str, info: Mapping[Symbol, object] | None = None) -> None:
        """Close properly; the peer is disconnected if it does not answer. `info` are further facts of the error."""
        error = ErrorCondition(condition, description, info and dict(info))
        self._notifier.failed(error)
        self.engine.close(error)
        self._closing_at = self._loop.time() + CLOSE_S
        self.flush()
        self._resume(self._pauses & ~_Pause.TURN)  # only the peer's answer matters now; other input is ignored

    def abort(self) -> None:
        """Disconnect the peer at once."""
        self._transport.abort()

    # Bytes in

    def _receive(self, data: bytes) -> None:
        turns = self.shared.turns
        turns.activity.what = _DOING
        began = turns.cpu()
        self._handle(self.engine.receive_data(data, self._loop.time()))
        self.flush()
        self._sizer.took(len(data), turns.cpu() - began)

    def _take_turn(self) -> None:
        """Process some of the pending input; the rest waits until others have had their turn."""
        self._is_turn_due = False
        if self._unread and self._pauses in (_Pause.TURN, _NOT_PAUSED):
            data, size = self._unread.popleft(), max(self._sizer.size, TURN_BYTES_MIN)
            if len(data) > size:
                self._unread.appendleft(data[size:])
            self.share.give(min(len(data), size))
            self._receive(data[:size])
        if not self._unread:
            self._resume(_Pause.TURN)
            if self._is_last:
                self._transport.close()
        else:
            self._pause(_Pause.TURN)
            self._take_turn_soon()

    def _take_turn_soon(self) -> None:
        if self._pauses == _Pause.TURN and not self._is_turn_due:
            self._is_turn_due = True
            self.shared.turns.soon(self.flow, self._take_turn)

    # Events

    def _handle(self, events: list[Event]) -> None:
        for event in events:
            kind = event.__class__
            if kind is MessagesReceived:
                if (end := event.link.context) is not None:  # type: ignore[attr-defined]
                    end.on_messages()
            elif kind is OutcomesReceived:
                if (end := event.link.context) is not None:  # type: ignore[attr-defined]
                    end.on_outcomes(event.contexts, event.state)  # type: ignore[attr-defined]
                    if event.settlement is not None:  # type: ignore[attr-defined]
                        end.on_settlement(event.settlement)  # type: ignore[attr-defined]
            elif kind is CreditChanged:
                if (end := event.link.context) is not None:  # type: ignore[attr-defined]
                    end.on_ready()
            else:
                self._handle_rare(event)

    def _handle_rare(self, event: Event) -> None:
        if isinstance(event, LinkAttached):
            if event.link.is_waiting:
                self.hold(ATTACH_BYTES)
                self.spawn(self._answer(event.link))
        elif isinstance(event, LinkDetached):
            ending = Ending.CLOSED if event.is_closed and event.is_by_peer else Ending.DETACHED
            self._let_go(event.link, ending, event.error)
        elif isinstance(event, DeliveriesSettled):
            if event.link.context is not None:
                event.link.context.on_settled(event.tags)
        elif isinstance(event, WindowOpened):
            for link in event.session.links:
                if link.context is not None:
                    link.context.on_ready()
        elif isinstance(event, SessionEnded):
            for link in event.links:
                self._let_go(link, Ending.SESSION, event.error)
            self._end_lingering(event.session)
        elif isinstance(event, ConnectionOpened):
            self.engine.open()
            self._notifier.opened(self)
            if (fault := self._owner.sent_away(self)) is not None:
                self.close(fault.condition, fault.description, fault.info)
        elif isinstance(event, ConnectionClosed):
            self._on_closed(event)
        elif isinstance(event, MechanismChosen):
            self._pause(_Pause.LOGIN)  # do this at once, because input before the verdict waits in the operating system
            self.spawn(self._authenticate(event.mechanism, event.response))
        elif isinstance(event, SaslResponded):
            self._pause(_Pause.LOGIN)
            self.spawn(self._authenticate(self._login.mechanism, event.response))

    async def _answer(self, link: Link) -> None:
        """Answer an attach, in slices of the loop's time if there are many."""
        try:
            await self._slices.pause()
            if not link.is_over:  # its connection may have ended in the meantime
                await self._attach(self, link)
        except ConnectionFault as fault:
            self.shared.statistics.links_refused += 1
            self.close(fault.condition, fault.description, fault.info)
        except AmqpError as fault:
            self._refuse(link, fault)
        except EventLogError as error:
            self._refuse(link, link_fault(error))
        except Exception:
            _logger.exception("an attach failed", extra={"fields": {"peer": self.peer}})
            self._refuse(link, AmqpError(conditions.INTERNAL_ERROR, "internal error; see the server's log"))
        finally:
            self.release(ATTACH_BYTES)
            if link not in self._ends:
                self.shared.detached(self.key(link), link)
        self.flush()

    def _refuse(self, link: Link, fault: AmqpError) -> None:
        self.shared.statistics.links_refused += 1
        self._notifier.link_refused(self, link, ErrorCondition(fault.condition, fault.description))
        if link.is_waiting:
            link.refuse(fault.condition, fault.description, fault.info)
        else:
            link.detach(ErrorCondition(fault.condition, fault.description, fault.info))
        self._let_go(link, Ending.DETACHED)

    async def _authenticate(self, mechanism: str, response: bytes | None) -> None:
        began = self._loop.time()
        try:
            await self._login.answer(self.engine, mechanism, response)
        finally:
            self._connected_at += self._loop.time() - began  # this delay is not the peer's fault
            self._resume(_Pause.LOGIN)
        self.user = self._login.user
        self._belong()
        if self._login.is_refused:
            self._notifier.refused("login")
        self._handle(self.engine.receive_data(b"", self._loop.time()))
        self.flush()

    def _belong(self) -> None:
        """Charge its bytes to the user. If there are no users, charge them to the address. Before the login they have
        no owner.
        """
        user, owner = self.user, None
        if user is not None:
            is_administrator = bool(user.name) and user.may(Right.MANAGE, "*")
            owner = self.shared.memory.owner(user.name or place_of(self.peer), is_administrator=is_administrator)
        self.share.belong(owner)

    def _has_no_memory(self, size: int) -> None:
        """The memory is exhausted, so the input cannot be processed. End the connection."""
        problem = str(self.share.refusal(size, f"the data that you sent ({size} bytes)"))
        if self.engine.remote is None:
            self._notifier.refused("limit", ErrorCondition(conditions.RESOURCE_LIMIT_EXCEEDED, problem))
            self._transport.abort()
        else:
            self.close(conditions.RESOURCE_LIMIT_EXCEEDED, problem)

    def _count_unsent(self) -> None:
        """Count the bytes that are waiting to be written."""
        unsent = self._transport.get_write_buffer_size()
        if unsent > self._unsent_bytes:
            self.share.hold(unsent - self._unsent_bytes)
        else:
            self.share.give(self._unsent_bytes - unsent)
        self._unsent_bytes = unsent

    def _flush_more(self) -> None:
        self._is_more_due = False
        self.flush()

    def _pause(self, reason: _Pause) -> None:
        if not self._pauses and not self._transport.is_closing():
            self._transport.pause_reading()
        self._pauses |= reason

    def _resume(self, reason: _Pause) -> None:
        if self._pauses != _NOT_PAUSED and reason & self._pauses:
            self._pauses &= ~reason
            self._take_turn_soon()
            if not self._pauses and not self._is_lost and not self._transport.is_closing():
                self._transport.resume_reading()

    def _let_go(self, link: Link, ending: Ending, error: ErrorCondition | Described | None = None) -> None:
        end = self._ends.pop(link, None)
        link.context = None
        self.shared.detached(self.key(link), link)
        self._notifier.link_ended(self, link, error)
        self._by_number.pop(self._numbers.pop(link, 0), None)
        if end is not None:
            if link.is_sender:
                self.share.end_answer()
            end.on_detached(ending)

    def _abandon(self, then: Callable[[], None]) -> None:
        """Release all links, some in each turn of the loop, because a peer may have tens of thousands."""
        for link in tuple(islice(self._ends, LINKS_IN_A_TURN)):
            self._let_go(link, Ending.CONNECTION)
        if self._ends:
            self.shared.turns.soon(self.flow, partial(self._abandon, then))
            return
        lingering, self._lingering = self._lingering, []
        for _, on_ended in lingering:
            on_ended(Ending.CONNECTION)
        then()

    def _wake(self, ends: Iterator[LinkEnd]) -> None:
        """Resume link ends that waited for room, some in each turn of the loop."""
        for number, end in enumerate(ends, start=1):
            end.on_ready()
            if number == LINKS_IN_A_TURN:
                self.shared.turns.soon(self.flow, partial(self._wake, ends))
                break

    def _forget(self) -> None:
        self._notifier.ended(self)
        self._owner.forget(self)

    def _end_lingering(self, session: Session) -> None:
        ended = [on_ended for lingering, on_ended in self._lingering if lingering is session]
        self._lingering = [each for each in self._lingering if each[0] is not session]
        for on_ended in ended:
            on_ended(Ending.SESSION)
            self._lingering.append((None, on_ended))

    def _hang_up(self) -> None:
        self._transport.close()
        self._closing_at = self._closing_at or self._loop.time() + CLOSE_S

    def _linger(self) -> None:
        """Hand the connection over, unless it holds so many bytes that they must still be counted."""
        if self._transport.is_closing() or self._transport.get_write_buffer_size() > FREE_BYTES:
            self._hang_up()
        else:
            self.connection_lost(None)
            self.shared.lingering.add(self._transport)

    def _on_closed(self, event: ConnectionClosed) -> None:
        if event.is_fault or self.engine.ended_in is Stage.SASL:
            self._lingers = True
            self._loop.call_soon(self._linger)  # after the reason has been written
        self._abandon(partial(self._tell_of_close, event))

    def _tell_of_close(self, event: ConnectionClosed) -> None:
        if event.is_fault and event.error is not None:
            self.shared.statistics.faults += 1
            if self.engine.ended_in is Stage.SASL:
                self._login.malformed()
            self._notifier.refused("fault", event.error)
        self._notifier.failed(event.error)

    def _flush(self) -> None:
        self._is_flushing = False
        self.flush()
