"""The answer to outcomes that the receiver leaves to this side to settle (2.6.12), given by the owner of the link."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from .performatives import Disposition


class Sending(Protocol):
    """A link whose deliveries the receiver gave an outcome."""

    unsettled: int


class Settlement:
    """One disposition of the receiver, which is answered when every link with deliveries in it has settled them."""

    __slots__ = ("_answer", "_send", "_waiting")

    def __init__(self, send: Callable[[Disposition], None], answer: Disposition, waiting: dict[Sending, int]) -> None:
        """`waiting`: how many deliveries each link has to settle before the answer is sent."""
        self._send, self._answer, self._waiting = send, answer, waiting

    def settle(self, link: Sending) -> None:
        """The outcomes have taken effect on that link. Until then its deliveries count as unsettled."""
        link.unsettled -= self._waiting.pop(link)
        if not self._waiting:
            self._send(self._answer)
