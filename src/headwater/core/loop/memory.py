"""One memory budget for everything that peers make this process hold, on one event loop.

A connection holds bytes for its peer: unread input, requests until they are answered, answers that the peer does not
read. The account bounds the total, so a server in a container of 512 MiB stays within that limit, whatever its peers
do.

| holder | limit |
| --- | --- |
| any connection | `FREE_BYTES`, outside of the budget: a head, a login, a health check always fit |
| a peer before its login | nothing more |
| a peer whose protocol says who it is inside the message | a part of `strangers`, which has an eighth for all of them |
| a user, or an address where there are no users | at most half of what others leave: one peer cannot take all |
| an administrator | also the `KEPT` part that others leave free |

Two ways to count bytes:

- `Share.take` asks before the bytes exist, and is refused if there is no room. It never waits: two requests that each
  wait for the other's half would wait forever.
- `Share.hold` counts bytes that exist already, such as a write buffer. It may exceed the budget by one piece of an
  answer for each reader; `piece_bytes` keeps these pieces small while memory is short.

Everything happens on the event loop, without a lock. Charges change in steps of `STEP_BYTES`, so most calls compare two
numbers. What threads hold is counted elsewhere (`core.shared_bytes`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from ..errors import EventLogError
from ..shared_bytes import FREE_BYTES, STEP_BYTES, charge_of, largest_within, refusal_of

STRANGERS = 8
"""Peers whose messages are not verified yet share 1/`STRANGERS` of the budget."""
KEPT = 16
"""1/`KEPT` of the budget is for administrators only."""
SHORT = 4
"""Memory is short while less than 1/`SHORT` of it is free."""
PIECE_BYTES_MIN, PIECE_BYTES_MAX = 16 * 1024, 256 * 1024
"""Bounds of one piece of a streamed answer."""
STALLED_S = 60.0
"""While memory is short, a peer that reads nothing for this long is disconnected."""
CHECK_S = 1.0
"""How often stalled peers are checked for while memory is short."""


class Reader(Protocol):
    """A connection whose peer may stop reading. Its methods are called on the event loop."""

    def unsent_bytes(self) -> int:
        """Bytes waiting to be written to the peer."""

    def end_stalled(self, reason: str) -> None:
        """Disconnect the peer at once and free its memory: it read nothing for `STALLED_S` while memory is short."""


class Owner:
    """A user, or an address without a user, and the bytes that its connections hold together."""

    __slots__ = ("bytes", "bytes_max", "grants", "is_administrator", "name", "shares")

    def __init__(self, name: str, bytes_max: int | None = None, *, is_administrator: bool = False) -> None:
        """`bytes_max` is a fixed limit; without it the owner may hold half of what others leave."""
        self.name, self.bytes_max, self.is_administrator = name, bytes_max, is_administrator
        self.grants: object = None
        """The grants that make the user an administrator; checked again if the user's grants have changed."""
        self.bytes = self.shares = 0
        """Charged bytes, and the shares that belong to it."""


class MemoryAccount:
    """The budget of one event loop."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        """The budget in bytes."""
        self.bytes = 0
        """Bytes currently charged."""
        self.readers = 0
        """Connections currently receiving a streamed answer."""
        self.refused = 0
        """Requests and messages refused so far for lack of room."""
        self.ended = 0
        """Connections ended so far because their peer read nothing while memory was short."""
        self.strangers = Owner("", bytes_max // STRANGERS)
        """The owner of messages whose sender is not verified yet."""
        self._owners: dict[str, Owner] = {}
        self._stalled: dict[Share, tuple[int, float]] = {}
        """Shares whose peer does not read: the number of unsent bytes, and the time since which it has not changed."""
        self._check: asyncio.TimerHandle | None = None
        self.on_ended: Callable[[str, int], None] = lambda owner, size: None
        """Called with the owner's name and the bytes it held, for each connection ended as stalled."""

    @property
    def free(self) -> int:
        """Uncharged bytes. Negative if answers exceed the budget."""
        return self.bytes_max - self.bytes

    @property
    def is_short(self) -> bool:
        """Whether so little memory is free that peers that do not read are disconnected."""
        return self.free < self.bytes_max // SHORT

    @property
    def largest(self) -> int:
        """The maximum number of bytes that one share can ever take."""
        return largest_within((self.bytes_max - self.bytes_max // KEPT) // 2)

    @property
    def piece_bytes(self) -> int:
        """The maximum size of the next piece of a streamed answer, in bytes."""
        piece = (self.bytes_max - self.bytes) // (self.readers or 1)
        if piece >= PIECE_BYTES_MAX:  # usually there is plenty
            return PIECE_BYTES_MAX
        return piece if piece > PIECE_BYTES_MIN else PIECE_BYTES_MIN

    def owner(self, name: str, *, is_administrator: bool = False) -> Owner:
        """The owner of that name: a user's, or the address of a peer without one."""
        found = self._owners.get(name)
        if found is None:
            found = self._owners[name] = Owner(name, is_administrator=is_administrator)
        found.is_administrator = is_administrator
        return found

    def room(self, owner: Owner | None) -> int:
        """The number of further bytes that may be charged to that owner."""
        if owner is None:
            return 0
        if owner.bytes_max is not None:
            return min(owner.bytes_max - owner.bytes, self.free - self.bytes_max // KEPT)
        if owner.is_administrator:
            return self.free
        bytes_max = self.bytes_max - self.bytes_max // KEPT
        return (bytes_max - (self.bytes - owner.bytes)) // 2 - owner.bytes

    def _charge(self, owner: Owner | None, size: int) -> None:
        self.bytes += size
        if owner is not None:
            owner.bytes += size
        if size >= 0 and self._check is None and self._stalled and self.is_short:
            self._check = asyncio.get_running_loop().call_later(CHECK_S, self._end_stalled)

    def _forget(self, owner: Owner) -> None:
        if not owner.shares and self._owners.get(owner.name) is owner:
            del self._owners[owner.name]

    def _end_stalled(self) -> None:
        """Disconnect peers that have read nothing for long, the largest first, until memory is no longer short."""
        self._check = None
        now = asyncio.get_running_loop().time()
        overdue = []
        for share, (size, since) in list(self._stalled.items()):
            if (unsent := share.reader_unsent()) != size:
                self._stalled[share] = unsent, now
            elif now - since >= STALLED_S:
                overdue.append(share)
        for share in sorted(overdue, key=lambda each: -each.bytes):
            if not self.is_short:
                break
            self.ended += 1
            self.on_ended("" if share.owner is None else share.owner.name, share.bytes)
            share.end_stalled()
        if self._stalled and self.is_short:
            self._check = asyncio.get_running_loop().call_later(CHECK_S, self._end_stalled)


class Share:
    """The bytes held by one connection. Its owner is None until the peer is known."""

    __slots__ = ("_account", "_answers", "_charged", "_covered", "_is_closed", "_reader", "bytes", "owner")

    def __init__(self, account: MemoryAccount, reader: Reader | None = None) -> None:
        """`reader` is the connection, if its peer may be disconnected for not reading."""
        self._account, self._reader = account, reader
        self.owner: Owner | None = None
        self.bytes = 0
        """The bytes that it holds, including uncharged bytes."""
        self._charged = self._answers = 0
        self._covered = FREE_BYTES
        """The bytes that it may hold at the present charge."""
        self._is_closed = False

    @property
    def account(self) -> MemoryAccount:
        """The budget it belongs to."""
        return self._account

    def serve(self, reader: Reader) -> None:
        """Change the connection: a WebSocket replaces its request's connection."""
        self._reader = reader

    def belong(self, owner: Owner | None) -> None:
        """Assign its bytes to that owner; None if the peer is not known (any more).

        A closed share that holds nothing no longer has an owner.
        """
        if self._is_closed and not self.bytes:
            owner = None
        old = self.owner
        if old is owner:
            return
        self.owner = owner
        if owner is not None:
            owner.shares += 1
            owner.bytes += self._charged
        if old is not None:
            old.shares -= 1
            old.bytes -= self._charged
            self._account._forget(old)

    def take(self, size: int) -> bool:
        """Count `size` bytes more if all of them fit; otherwise change nothing and return False."""
        if self.bytes + size > self._covered:
            step = charge_of(self.bytes + size) - self._charged
            if step > self._account.room(self.owner):
                self._account.refused += 1
                return False
            self._move(step)
        self.bytes += size
        return True

    def claim(self, size: int, what: str) -> None:
        """Like `take`; `what` is named in the error: "a body of 1000 bytes".

        Raises NoMemory if there is no room now, TooLarge if there can never be room.
        """
        if not self.take(size):
            raise self.refusal(size, what)

    def refusal(self, size: int, what: str) -> EventLogError:
        """The error for a peer that `take` refused."""
        return refusal_of(size, self.largest, self._account.room(self.owner), what)

    @property
    def largest(self) -> int:
        """The maximum number of bytes that its owner can ever take at once."""
        if self.owner is None:
            return FREE_BYTES
        if self.owner.bytes_max is not None:
            return largest_within(self.owner.bytes_max)
        return self._account.largest

    def hold(self, size: int) -> None:
        """Count `size` bytes more that already exist."""
        self.bytes += size
        if self.bytes > self._covered:
            self._move(charge_of(self.bytes) - self._charged)

    def give(self, size: int) -> None:
        """Count `size` bytes less."""
        self.bytes -= size
        assert self.bytes >= 0, f"{-self.bytes} bytes too many were given back"
        if self._charged and self.bytes <= self._covered - STEP_BYTES:
            self._move(charge_of(self.bytes) - self._charged)
        if self._is_closed and not self.bytes:
            self.belong(None)

    def close(self) -> None:
        """The connection has ended and is no longer a reader. May be called again.

        Bytes counted before must still be given back: a request that continues to run still holds its bytes.
        """
        self.flows()
        while self._answers:
            self.end_answer()
        self._reader, self._is_closed = None, True
        if not self.bytes:
            self.belong(None)

    # answers

    @property
    def piece_bytes(self) -> int:
        """The maximum size of the next piece of a streamed answer, in bytes."""
        return self._account.piece_bytes

    def begin_answer(self) -> None:
        """A streamed answer begins. The connection counts as one reader, however many answers it streams."""
        self._answers += 1
        if self._answers == 1:
            self._account.readers += 1

    def end_answer(self) -> None:
        """A streamed answer has ended. Does nothing once the share is closed."""
        if self._answers:
            self._answers -= 1
            if not self._answers:
                self._account.readers -= 1

    def stalls(self) -> None:
        """The peer stopped reading (`pause_writing`)."""
        if self._reader is not None:
            account = self._account
            account._stalled[self] = self._reader.unsent_bytes(), asyncio.get_running_loop().time()
            account._charge(None, 0)

    def flows(self) -> None:
        """The peer resumed reading (`resume_writing`)."""
        self._account._stalled.pop(self, None)

    def reader_unsent(self) -> int:
        """Bytes waiting to be written to the peer."""
        return 0 if self._reader is None else self._reader.unsent_bytes()

    def end_stalled(self) -> None:
        """Disconnect the peer: see `Reader.end_stalled`."""
        self._account._stalled.pop(self, None)
        if self._reader is not None:
            self._reader.end_stalled(f"you have read nothing for {STALLED_S:g} s, and the server is short of memory")

    def _move(self, step: int) -> None:
        if step:
            self._charged += step
            self._covered = FREE_BYTES + self._charged
            self._account._charge(self.owner, step)
