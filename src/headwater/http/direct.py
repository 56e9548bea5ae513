"""Messages of a WebSocket without a wait: an extension of ASGI, which a server may offer and an application may use.

By `receive` and `send` a message costs a queue, a turn of the event loop and two coroutines. Where the application can
deal with one as soon as it is read, and answers in few bytes, that is more than the message itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from .asgi import Scope

DIRECT = "headwater.direct"
"""In `extensions` of the scope of a WebSocket: a `Direct`."""
Listener = Callable[[bytes], bool]
"""Takes a message at once, and without waiting; False if it is to come by `receive`, as ever."""


class Direct(Protocol):
    """The short way to and from one peer, beside `receive` and `send`, once the WebSocket is accepted."""

    def hear(self, listener: Listener | None) -> None:
        """Binary messages go to this listener first, unless one that came before waits for `receive`; None: to none."""

    def trust(self, is_known: Callable[[], bool]) -> None:
        """Set the function that says whether the peer is known; it is called as each large message begins.

        Only a known peer may send large messages. Until this is called, the peer is not known.
        """

    def say(self, body: bytes) -> bool:
        """Send a binary message, unless the peer does not take what it is sent, or is gone; whether it was sent."""


def direct_of(scope: Scope) -> Direct | None:
    """The short way, if the server offers one."""
    direct: Direct | None = (scope.get("extensions") or {}).get(DIRECT)
    return direct
