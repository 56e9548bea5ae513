"""Closes Flight connections whose peers send more than the server accepts, so that the process does not have to exit.

gRPC reads messages of any size before it calls any code, and pyarrow cannot set a limit. But Linux reports how many
bytes a peer has sent, and Flight's server reports when it has accepted them all (`took`); gRPC holds the difference.
Connections before their login have a part of the share, all together; all connections have the share and
`SLACK_BYTES`. If more is held, the largest are ended.

New connections and data wake the thread by SIGIO: an epoll does not report what gRPC has accepted, or read, first.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection
from select import poll

from ...core.shared_bytes import FREE_BYTES, MIB
from ...flight.server.authentication import address_of
from ..process.log_lines import fields
from ..process.memory_return import malloc_trim
from .sockets import OwnSocket, Place, sockets

logger = logging.getLogger("headwater.server")

STRANGERS, STRANGERS_BYTES_MIN = 8, 8 * MIB
"""Before their login, all peers together may use this fraction of the share, and at least this many bytes. Each counts
`FREE_BYTES` for its thread, and the bytes it sent.
"""
SLACK_BYTES = 32 * MIB
CUT_BYTES = 4096
"""The TCP segment size before a login, so that little data arrives between two checks. The peer resends the rest."""
TURN_S, TURN_S_MAX = 0.25, 5.0
"""One unauthenticated peer at a time may send long segments. The next one may do so after TURN_S, or after TURN_S_MAX
if the previous one is still sending. """
KEPT = 4
"""If peers hold too much, connections are closed until they hold only this fraction of the bound."""
LOOK_S, PAUSE_S = 0.5, 0.005
"""The interval between checks when nothing arrives, and the pause after each check while more may arrive."""
PAUSES = 20
"""A pause is this many times as long as the check before it, so that checks use at most a twentieth of a core."""
TELL_S = 10.0
"""The minimum time between log lines about closed connections."""


class Connection:
    """A connection of gRPC."""

    __slots__ = ("is_cut", "is_known", "peer", "received", "socket", "taken")

    def __init__(self, its: OwnSocket, peer: Place) -> None:
        self.socket, self.peer = its, peer
        self.received = self.taken = 0
        """Bytes sent by the peer so far; and the value when the server last accepted data."""
        self.is_known = False
        """Whether a call on it has logged in."""
        self.is_cut = True
        """Whether its segments are limited."""

    @property
    def held(self) -> int:
        """The maximum number of bytes that gRPC may hold for it."""
        return self.received - self.taken

    def uncut(self) -> None:
        """Stop limiting its segments."""
        if self.is_cut:
            self.is_cut = False
            self.socket.uncut()


class Connections:
    """The connections of one Flight server. Thread-safe. Does nothing except on Linux."""

    def __init__(self, bytes_max: int, ended: Callable[[int], None], address_of: Callable[[str], str]) -> None:
        """Create it before the server, because existing sockets do not belong to the server. `bytes_max` is the share
        of the process. `ended` is called with the number of connections each time some were closed. `address_of`: see
        BulkServer."""
        self._strangers_bytes_max = max(bytes_max // STRANGERS, STRANGERS_BYTES_MIN)
        self._bytes_max = bytes_max + SLACK_BYTES
        self._ended, self._address_of = ended, address_of
        self._others = {cookie for cookie, _ in sockets()}
        """Sockets that are not, or are no longer, Flight connections."""
        self._known: dict[int, Connection] = {}
        """By cookie, the oldest first."""
        self._by_peer: dict[Place, Connection] = {}
        self._here: list[OwnSocket] = []
        """The listening sockets."""
        self._port = self._thread = 0
        self._lock = threading.Lock()
        self._trim: Callable[[], object] = malloc_trim() or (lambda: None)
        self._told_at, self._untold = -TELL_S, 0
        self._turn_at = -TURN_S_MAX

    def watch(self, port: int) -> None:
        """Watch the connections of the server on that port from now on, in its own thread."""
        self._port = port
        if sys.platform == "linux":
            threading.Thread(target=self._run, name="headwater-connections", daemon=True).start()

    def took(self, peer: str) -> None:
        """The server has accepted all data from a logged-in peer, given by gRPC's name for it."""
        place = _place_of(peer)
        with self._lock:
            if place not in self._by_peer and self._thread:
                self._find()
            if (its := self._by_peer.get(place)) is not None:
                its.is_known = True
                its.uncut()
                its.received = its.taken = its.socket.received or its.received

    def share(self) -> None:
        """Allow another process of this user to listen on the port, in addition to this one, from now on."""
        for its in tuple(self._here):
            its.share()

    def end_largest(self) -> bool:
        """Close the connection that holds the most, starting with unauthenticated peers. Returns whether one holds more
        than `FREE_BYTES`.
        """
        with self._lock:
            self._look()
            most = max(self._known.values(), key=_rank, default=None)
            if most is None or most.held <= FREE_BYTES:
                return False
            most.socket.end()
            self._forget(most)
        self._tell([most])
        return True

    def _run(self) -> None:
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGIO})
            self._thread = threading.get_native_id()
            waiting = self._listening()
            pause_s = 0.0
            has_ended = False
            while True:
                has_come = signal.sigtimedwait({signal.SIGIO}, pause_s) is not None or bool(waiting.poll(0))
                began = time.thread_time()
                with self._lock:
                    self._find()
                    self._look()
                    ended = self._bound()
                    self._take_turns()
                if ended:
                    self._tell(ended)
                elif has_ended:
                    self._trim()
                has_ended = bool(ended)
                time.sleep(max(PAUSE_S, PAUSES * (time.thread_time() - began)))
                pause_s = 0.0 if has_come or has_ended else LOOK_S  # it may be accepted just after the check
        except BaseException:
            logger.exception("watching the Arrow Flight connections failed")
            for its in (*self._here, *(each.socket for each in self._known.values())):
                its.uncut()

    def _listening(self) -> poll:
        """A poll object that reports connections to be accepted."""
        waiting = poll()
        for cookie, fd in list(sockets()):
            its = OwnSocket(fd)
            if cookie not in self._others and its.is_listening and self._is_here(its) and its.wake(self._thread):
                its.cut(CUT_BYTES)
                waiting.register(its.fd)
                self._here.append(its)
            else:
                its.close()
        return waiting

    def _is_here(self, its: OwnSocket) -> bool:
        return (name := its.name) is not None and name[1] == self._port

    def _find(self) -> None:
        """Find new connections."""
        present = dict(sockets())
        self._others.intersection_update(present)
        for cookie in sorted(present.keys() - self._known.keys() - self._others):
            its = OwnSocket(present[cookie])
            if its.cookie != cookie:  # closed in the meantime, or no descriptor is left
                its.close()
                continue
            peer = its.peer if self._is_here(its) else None
            if peer is None or its.received is None:
                self._others.add(cookie)
                its.close()
                continue
            its.wake(self._thread)
            self._known[cookie] = self._by_peer[peer] = Connection(its, peer)

    def _look(self) -> None:
        for each in list(self._known.values()):
            if (received := each.socket.received) is None:
                self._forget(each)
            else:
                each.received = received

    def _bound(self) -> Collection[Connection]:
        """Close the largest connections above a bound, and return them."""
        strangers = [each for each in self._known.values() if not each.is_known]
        beyond = _beyond(strangers, self._strangers_bytes_max, FREE_BYTES) or _beyond(
            self._known.values(), self._bytes_max, 0
        )
        for each in beyond:
            each.socket.end()
        for each in beyond:
            self._forget(each)
        return beyond

    def _take_turns(self) -> None:
        """Let the oldest unauthenticated peer with more data send it, unless the turn of another peer has not ended."""
        strangers = [each for each in self._known.values() if not each.is_known]
        is_taken = any(not each.is_cut for each in strangers)
        if (now := time.monotonic()) - self._turn_at < (TURN_S_MAX if is_taken else TURN_S):
            return
        for each in strangers:
            if each.is_cut and each.received >= CUT_BYTES:
                each.uncut()
                self._turn_at = now
                return

    def _forget(self, its: Connection) -> None:
        self._others.add(its.socket.cookie)
        del self._known[its.socket.cookie]
        if self._by_peer.get(its.peer) is its:
            del self._by_peer[its.peer]
        its.socket.close()

    def _tell(self, ended: Collection[Connection]) -> None:
        self._ended(len(ended))
        self._untold += len(ended)
        if (now := time.monotonic()) - self._told_at >= TELL_S:
            its = next(iter(ended))
            peer = self._address_of("ip:[{}]:{}".format(*its.peer))
            about = fields(peer=peer, bytes=its.held, logged_in=its.is_known, ended=self._untold)
            logger.warning("Arrow Flight connections were closed: they sent more than was accepted", extra=about)
            self._told_at, self._untold = now, 0


def _rank(its: Connection) -> tuple[bool, int]:
    return not its.is_known and its.held > FREE_BYTES, its.held


def _beyond(those: Collection[Connection], bytes_max: int, each_bytes: int) -> list[Connection]:
    """The largest connections, to be closed if all connections together hold more than that many bytes, so that the
    rest hold only a fraction of it.
    """
    held, found = sum(each_bytes + each.held for each in those), list[Connection]()
    for each in sorted(those, key=lambda each: -each.held) if held > bytes_max else ():
        if held <= bytes_max // KEPT:
            break
        held -= each_bytes + each.held
        found.append(each)
    return found


def _place_of(peer: str) -> Place:
    """The peer, by gRPC's name for it."""
    port = peer.rpartition(":")[2]
    return address_of(peer).partition("%")[0].removeprefix("::ffff:"), int(port) if port.isdigit() else 0
