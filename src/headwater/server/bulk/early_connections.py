"""Connections made before Flight was served. Their port was held, and they are relayed to Flight until they end.

gRPC cannot take over a listening socket or share a port (Arrow forbids it), so earlier clients are connected to it from
here. Later clients connect to Flight directly.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

from ...flight.server.authentication import address_of

PIECE_BYTES = 256 * 1024
"""The maximum amount of data held here for each direction of a connection. A side that does not read pauses the
other.
"""


class EarlyConnections:
    """Takes the connections of a listening socket once, then relays them. Thread-safe."""

    def __init__(self, listening: socket.socket, *accepted: socket.socket) -> None:
        """`accepted` contains the connections that were accepted from it earlier."""
        self._listening = listening
        self._clients: list[socket.socket] = list(accepted)
        self._addresses: dict[tuple[str, str], str] = {}
        """The client addresses behind our connections to Flight."""

    def take(self) -> None:
        """Take all waiting connections, and release the port: from now on another process can listen on it."""
        self._listening.setblocking(False)
        with self._listening, suppress(BlockingIOError):
            while True:
                try:
                    self._clients.append(self._listening.accept()[0])
                except ConnectionError:  # it has already disconnected
                    continue

    def relay_to(self, host: str, port: int) -> None:
        """Begin to relay the taken connections to the current listener there."""
        clients, self._clients = self._clients, []
        for client in clients:
            threading.Thread(target=self._relay, args=(client, (host, port)), name="flight-relay", daemon=True).start()

    def address_of(self, peer: str) -> str:
        """The client's address, by gRPC's name for a peer; see `flight.server.authentication.address_of`."""
        address = address_of(peer)
        return self._addresses.get((address, peer.rpartition(":")[2]), address)

    def _relay(self, client: socket.socket, to: tuple[str, int]) -> None:
        with (
            client,
            suppress(OSError),
            socket.create_connection(to) as flight,
        ):  # the connection was refused, and closing it tells the client
            address = str(client.getpeername()[0]).removeprefix(
                "::ffff:"
            )  # IPv4 on a dual-stack socket, as gRPC names it
            for end in (client, flight):
                end.setblocking(True)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                end.setsockopt(
                    socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1
                )  # so that a client that disappeared does not stay
            ours = flight.getsockname()
            place = (str(ours[0]), str(ours[1]))
            self._addresses[place] = address
            back = threading.Thread(target=_pump, args=(flight, client), name="flight-relay-back", daemon=True)
            back.start()
            _pump(client, flight)
            back.join()
            del self._addresses[place]


def _pump(source: socket.socket, sink: socket.socket) -> None:
    """Pass on data up to its end, and the end itself. If one side breaks, the other is closed too."""
    piece = memoryview(bytearray(PIECE_BYTES))
    try:
        while count := source.recv_into(piece):
            sink.sendall(piece[:count])
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
