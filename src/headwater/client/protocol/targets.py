"""The HTTP addresses of one server: which is in use, which rest after a failure, which is the primary. No I/O.

A server that is not the primary names it in `Headwater-Primary`, in its refusal (421 or 307) or in an answer that it
forwarded: that address is in use from then on.
Everything else is shared with all clients: `formats.clients.endpoints`.
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress
from typing import Generic, TypeVar

from ...core.errors import Closed, EventLogError, InvalidInput, StorageUnavailable
from ...core.limits import show
from ...formats.clients.answer import Answer
from ...formats.clients.endpoints import Endpoint, Endpoints
from ...formats.clients.retry import Attempts, ServerUnreachable
from .address import Address
from .problems import GatewayFailed
from .request import Heads
from .terms import CONNECT_S_MAX, ConnectionLost, Terms

C = TypeVar("C")
"""A connection, as the client defines it."""

HOPS_MAX = 4
"""How many servers in a row may name another one as the primary."""
NAMED_MAX = 16
"""How many primaries are known besides the given addresses; a further one replaces the oldest."""
FORWARDED_BY = b"headwater-primary"
"""The header field that names the primary."""
_NAMES_PRIMARY = (307, 421)
_GOES_ELSEWHERE = (OSError, Closed, StorageUnavailable)
"""Errors for which to try another address. A busy server is healthy: it is asked again."""


class PrimaryAway(ConnectionLost):
    """A server names a primary that is currently unreachable."""


class Target(Endpoint, Generic[C]):
    """One address, and its idle connections."""

    def __init__(self, address: Address) -> None:
        super().__init__(address.url)
        self.address = address
        self.heads = Heads(address)
        self.idle: deque[C] = deque()


class Targets(Endpoints[Target[C]]):
    """All addresses of one server. Safe to use from any thread."""

    def __init__(self, terms: Terms) -> None:
        super().__init__([Target[C](address) for address in terms.addresses])
        self._terms = terms
        self._given = len(terms.addresses)

    @property
    def connect_s(self) -> float:
        """How long connecting may take: shorter if there is another address."""
        return self._terms.timeout_s if self.is_single else min(self._terms.timeout_s, CONNECT_S_MAX)

    def failed(self, target: Target[C], error: OSError | EventLogError) -> None:
        """A target has not answered: if it was current, use the next one, if that may do better."""
        if isinstance(error, _GOES_ELSEWHERE):
            super().failed(target, error)

    def lost(self, target: Target[C], error: OSError, hopeless: str | None) -> None:
        """The connection to a target broke; `hopeless` is a problem that retrying cannot fix.

        Raises ServerUnreachable with that if there is only one address. With several, the target counts as away.
        """
        if hopeless is not None and self.is_single:
            raise ServerUnreachable(target.address.url, hopeless) from error
        self.failed(target, ConnectionLost(hopeless) if hopeless is not None else error)

    def named_by(self, target: Target[C], answer: Answer) -> Target[C] | None:
        """The primary that an answer names, which is current from now on; None for any other answer.

        Raises PrimaryAway if that one rests, or may not be followed.
        """
        if answer.status not in _NAMES_PRIMARY or (name := answer.fields.get(FORWARDED_BY)) is None:
            return None
        url = _url_in(name)
        with self._changing:
            primary = self._known_as(target, url)
            if primary is target:
                raise PrimaryAway(f"{url} names itself as the primary, but refuses the call")
            if primary.problem is not None and primary.rests_until > time.monotonic():
                raise PrimaryAway(f"{target.address.url} names {url} as the primary: {primary.problem}")
            self.current = primary
        return primary

    def forwarded_by(self, target: Target[C], answer: Answer) -> None:
        """A replica passed this answer on from the primary that it names: that is asked from now on.

        Not if it failed since it last answered, or may not be followed: the replica continues to forward.
        """
        with self._changing, suppress(PrimaryAway):
            primary = self._known_as(target, _url_in(answer.fields[FORWARDED_BY]))
            if primary.problem is None:
                self.current = primary

    def pause_s(self, attempts: Attempts, error: OSError | EventLogError) -> float:
        """How long to wait before the next attempt, in seconds; raises the error if none is left."""
        known = self.known(error)
        if self.is_single or isinstance(error, PrimaryAway) or not isinstance(error, _GOES_ELSEWHERE):
            return attempts.pause_s(known)
        return self.turn_s(attempts, known)

    def known(self, error: OSError | EventLogError) -> EventLogError:
        """The error that reports a failed attempt: ServerUnreachable if the server did not answer, with the problem of
        each address."""
        if not isinstance(error, OSError | GatewayFailed):
            return error
        problem = str(error) or type(error).__name__
        if not self.is_single and not isinstance(error, PrimaryAway):
            problem = self.problems() or problem
        unreachable = ServerUnreachable(self._terms.url, problem)
        unreachable.__cause__ = error
        return unreachable

    def idle(self) -> list[C]:
        """Take all idle connections."""
        taken = []
        for target in list(self._all):
            with suppress(IndexError):  # no more left; other threads may take some meanwhile
                while True:
                    taken.append(target.idle.pop())
        return taken

    def _known_as(self, namer: Target[C], url: str) -> Target[C]:
        """The target of that URL, which a server named as the primary. Raises PrimaryAway as `_added`."""
        found = next((each for each in self._all if each.address.url == url), None)
        return found or self._added(namer.address, url)

    def _added(self, namer: Address, url: str) -> Target[C]:
        """A primary that is not among the given addresses: it gets the same credentials as the server that named it."""
        try:
            address = self._terms.address_at(url)
        except InvalidInput as error:
            raise PrimaryAway(f"{namer.url} names {show(url)} as the primary: {error.problem}") from None
        if namer.tls is not None and address.tls is None:
            raise PrimaryAway(f"{namer.url} names {url} as the primary, which does not use TLS")
        if len(self._all) - self._given >= NAMED_MAX:
            del self._all[self._given]
        added = Target[C](address)
        self._all.append(added)
        self.is_single = False
        return added


def _url_in(name: bytes) -> str:
    return name.decode("latin-1").rstrip("/")
