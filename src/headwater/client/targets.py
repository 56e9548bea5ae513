"""The addresses of one server: which is in use, which rest after a failure, and who is the primary. No I/O.

One address is in use until it fails; then the next one that does not rest is, and stays so. Each address rests after a
failure, twice as long after each further one, with jitter, so that none of them is hammered. A server that is not the
primary names it (421 or 307, with `Headwater-Primary`): that address is in use from then on.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from contextlib import suppress
from typing import Generic, TypeVar

from ..core.errors import Closed, EventLogError, InvalidInput, StorageUnavailable
from ..core.limits import show
from ..formats.answer import Answer
from ..formats.retrying import PAUSE_S_MAX, PAUSE_S_MIN, Attempts
from ..formats.unreachable import ServerUnreachable
from .address import Address
from .heads import Heads
from .terms import ConnectionLost, Terms

C = TypeVar("C")
"""A connection, of whoever waits for it."""

HOPS_MAX = 4
"""How many servers in a row may name another one as the primary."""
NAMED_MAX = 16
"""Primaries that are known besides the addresses that were given; a further one takes the place of the oldest."""
_NAMES_PRIMARY = (307, 421)
_GOES_ELSEWHERE = (OSError, Closed, StorageUnavailable)
"""What another address may do better. A server that is busy is well: it is asked again."""


class PrimaryAway(ConnectionLost):
    """A server names a primary that cannot be asked now."""


class Target(Generic[C]):
    """One address, its connections that wait for their next request, and how it has fared."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.heads = Heads(address)
        self.idle: deque[C] = deque()
        self.has_answered = False
        self.problem: str | None = None
        """Why it does not answer; None if it did when it was last asked, or was not asked yet."""
        self.failures = 0
        """Ever: who counted fewer has not seen what stands there now."""
        self.rests_until = 0.0
        self.rest_s = PAUSE_S_MIN

    def succeeded(self) -> None:
        """It has answered."""
        self.has_answered = True
        if self.problem is not None:
            self.problem, self.rests_until, self.rest_s = None, 0.0, PAUSE_S_MIN

    def failed(self, problem: str, now: float) -> None:
        """It has not. Failures while it rests are of requests that were under way, and count as one."""
        self.failures += 1
        self.problem = problem
        if now >= self.rests_until:
            self.rests_until = now + self.rest_s * random.uniform(0.5, 1.0)
            self.rest_s = min(2 * self.rest_s, PAUSE_S_MAX)


class Targets(Generic[C]):
    """All addresses of one server. Safe to use from any thread."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._all = [Target[C](address) for address in terms.addresses]
        self._given = len(self._all)
        self._changing = threading.Lock()
        self.current = self._all[0]
        self.is_single = self._given == 1
        """Whether there was never more than one address: then nothing but the patience of its clients counts."""

    def best(self) -> Target[C]:
        """The one to ask: the current one, if it rests one that does not, if all do the one that rested longest."""
        current = self.current
        return current if current.problem is None or self.is_single else self._rested(time.monotonic())

    def failed(self, target: Target[C], error: OSError | EventLogError) -> None:
        """A target has not answered: the next one is current, if it was."""
        if not isinstance(error, _GOES_ELSEWHERE):
            return
        now = time.monotonic()
        with self._changing:
            target.failed(str(error) or type(error).__name__, now)
            if target is self.current:
                self.current = self._rested(now)

    def lost(self, target: Target[C], error: OSError, hopeless: str | None) -> None:
        """The connection to a target broke; `hopeless` is what no further try mends.

        Raises ServerUnreachable with that where there is one address only. With several, it is as good as away.
        """
        if hopeless is not None and self.is_single:
            raise ServerUnreachable(target.address.url, hopeless) from error
        self.failed(target, ConnectionLost(hopeless) if hopeless is not None else error)

    def named_by(self, target: Target[C], answer: Answer) -> Target[C] | None:
        """The primary that an answer names, which is current from now on; None for any other answer.

        Raises PrimaryAway where that one rests, or may not be followed.
        """
        if answer.status not in _NAMES_PRIMARY or (name := answer.fields.get(b"headwater-primary")) is None:
            return None
        url = name.decode("latin-1").rstrip("/")
        with self._changing:
            primary = next((each for each in self._all if each.address.url == url), None)
            primary = primary or self._added(target.address, url)
            if primary is target:
                raise PrimaryAway(f"{url} names itself as the primary, and refuses to be it")
            if primary.problem is not None and primary.rests_until > time.monotonic():
                raise PrimaryAway(f"{target.address.url} names {url} as the primary: {primary.problem}")
            self.current = primary
        return primary

    def pause_s(self, attempts: Attempts, error: OSError | EventLogError) -> float:
        """How long to wait before the next attempt, in seconds; where there is none left, raises the error."""
        known = self.known(error)
        if self.is_single or isinstance(error, PrimaryAway) or not isinstance(error, _GOES_ELSEWHERE):
            return attempts.pause_s(known)
        now = time.monotonic()
        rest_s = min(each.rests_until for each in self._all) - now
        if rest_s <= 0 and attempts.elsewhere < len(self._all) - 1:
            attempts.turned()
            return 0.0
        return attempts.pause_s(known, wait_s=rest_s * random.uniform(1.0, 1.5) if rest_s > 0 else 0.0)

    def known(self, error: OSError | EventLogError) -> EventLogError:
        """What a failed attempt is to be told as: ServerUnreachable for an OSError, with what each address said."""
        if not isinstance(error, OSError):
            return error
        problem = str(error) or type(error).__name__
        if not self.is_single and not isinstance(error, PrimaryAway):
            away = [f"{each.address.url}: {each.problem}" for each in self._all if each.problem is not None]
            problem = "; ".join(away) or problem
        unreachable = ServerUnreachable(self._terms.url, problem)
        unreachable.__cause__ = error
        return unreachable

    def idle(self) -> list[C]:
        """Take all connections that wait."""
        taken = []
        for target in list(self._all):
            with suppress(IndexError):  # that is all of them; requests of other threads take some meanwhile
                while True:
                    taken.append(target.idle.pop())
        return taken

    def _rested(self, now: float) -> Target[C]:
        start = self._all.index(self.current) if self.current in self._all else 0
        in_turn = self._all[start:] + self._all[:start]
        return next((each for each in in_turn if each.rests_until <= now), min(in_turn, key=_rests_until))

    def _added(self, namer: Address, url: str) -> Target[C]:
        """A primary that is none of the addresses given: it gets the credentials that its namer got."""
        try:
            address = self._terms.address_at(url)
        except InvalidInput as error:
            raise PrimaryAway(f"{namer.url} names {show(url)} as the primary: {error.problem}") from None
        if namer.tls is not None and address.tls is None:
            raise PrimaryAway(f"{namer.url} names {url} as the primary, which has no TLS")
        if len(self._all) - self._given >= NAMED_MAX:
            del self._all[self._given]
        added = Target[C](address)
        self._all.append(added)
        self.is_single = False
        return added


def _rests_until(target: Target[C]) -> float:
    return target.rests_until
