"""Connections that came before Flight served: their port was held, and they are relayed to Flight while they last.

gRPC takes over no socket that listens, nor shares a port (Arrow forbids it), so that whoever came before it is
connected to it from here. Who comes later is Flight's alone.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

from ...flight.server.authentication import address_of

PIECE_BYTES = 256 * 1024
"""So much of each direction of a connection is here at most; a side that takes nothing holds up the other."""


class EarlyConnections:
    """The connections of a socket that listens, taken from it once, and then relayed. Safe to use from any thread."""

    def __init__(self, listening: socket.socket, *accepted: socket.socket) -> None:
        """`accepted` were taken from it before."""
        self._listening = listening
        self._clients: list[socket.socket] = list(accepted)
        self._addresses: dict[tuple[str, str], str] = {}
        """Of our connections to Flight: from which address they come really."""

    def take(self) -> None:
        """Take all connections that wait, and let go of the port: from now on another can listen on it."""
        self._listening.setblocking(False)
        with self._listening, suppress(BlockingIOError):
            while True:
                try:
                    self._clients.append(self._listening.accept()[0])
                except ConnectionError:  # it has gone already
                    continue

    def relay_to(self, host: str, port: int) -> None:
        """Begin to relay what was taken to whoever listens there now."""
        clients, self._clients = self._clients, []
        for client in clients:
            threading.Thread(target=self._relay, args=(client, (host, port)), name="flight-relay", daemon=True).start()

    def address_of(self, peer: str) -> str:
        """The client's address, by gRPC's name of a peer; see `flight.server.authentication.address_of`."""
        address = address_of(peer)
        return self._addresses.get((address, peer.rpartition(":")[2]), address)

    def _relay(self, client: socket.socket, to: tuple[str, int]) -> None:
        with (
            client,
            suppress(OSError),
            socket.create_connection(to) as flight,
        ):  # refused: the client is told by its end
            address = str(client.getpeername()[0]).removeprefix(
                "::ffff:"
            )  # IPv4 on a socket for both, as gRPC names it
            for end in (client, flight):
                end.setblocking(True)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # a client that is lost does not stay
            ours = flight.getsockname()
            place = (str(ours[0]), str(ours[1]))
            self._addresses[place] = address
            back = threading.Thread(target=_pump, args=(flight, client), name="flight-relay-back", daemon=True)
            back.start()
            _pump(client, flight)
            back.join()
            del self._addresses[place]


def _pump(source: socket.socket, sink: socket.socket) -> None:
    """Pass on what comes until its end, and that too; where one side breaks, so does the other."""
    piece = memoryview(bytearray(PIECE_BYTES))
    try:
        while count := source.recv_into(piece):
            sink.sendall(piece[:count])
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
