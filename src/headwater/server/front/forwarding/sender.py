"""The sender of a request: a client, or a server of the same home, which may speak for a client."""

from __future__ import annotations

from enum import Enum, auto

from ....homes.home_secret import SECRET_HEADER, HomeSecret
from ....http import Scope
from .fields import PEER_HEADER, client_in


class Sender(Enum):
    """The sender of a request."""

    CLIENT = auto()
    SERVER = auto()
    """A server of this home that sends its own request."""
    REPLICA = auto()
    """A server of this home that forwards a client's request, after the checks of its own gate."""


class Senders:
    """Recognises servers of this home by its secret."""

    def __init__(self, secret: HomeSecret) -> None:
        self._secret = secret

    def of(self, scope: Scope) -> Sender:
        """The sender. For a forwarded request, `client` and `scheme` of the scope become those of the client.

        A client that claims to forward a request is treated like any other client, and its claim is dropped.
        """
        given = peer = None
        for name, value in scope["headers"]:
            if name == SECRET_HEADER:
                given = value
            elif name == PEER_HEADER:
                peer = value
        if given is None and peer is None:
            return Sender.CLIENT
        is_known = given is not None and self._secret.is_known(given)
        if peer is None:
            return Sender.SERVER if is_known else Sender.CLIENT
        own = (PEER_HEADER, SECRET_HEADER) if is_known else (PEER_HEADER,)
        scope["headers"] = [field for field in scope["headers"] if field[0] not in own]
        if not is_known or (found := client_in(peer)) is None:
            return Sender.CLIENT
        scheme, scope["client"] = found
        scope["scheme"] = scheme.replace("http", "ws") if scope["type"] == "websocket" else scheme
        return Sender.REPLICA
