"""What the event loop does now: a note that is set where work comes in, for whoever must say what has held the loop."""

from __future__ import annotations


class Doing:
    """The note of one event loop. To set it costs an attribute, so nothing is made of it before somebody asks."""

    __slots__ = ("what",)

    def __init__(self) -> None:
        self.what: object = None
        """The room and the kind of work, as two texts; or the ASGI scope of a request. It stays until the next."""
