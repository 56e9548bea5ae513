"""The answer to outcomes that the receiver leaves for this side to settle (2.6.12). The owner of the link gives it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from .performatives import Disposition


class Sending(Protocol):
    """A link with deliveries that received an outcome."""

    unsettled: int


class Settlement:
    """One disposition from the receiver. It is answered when every link has settled the deliveries that it names."""

    __slots__ = ("_answer", "_send", "_waiting")

    def __init__(self, send: Callable[[Disposition], None], answer: Disposition, waiting: dict[Sending, int]) -> None:
        """`waiting`: how many deliveries each link must settle before the answer is sent."""
        self._send, self._answer, self._waiting = send, answer, waiting

    def settle(self, link: Sending) -> None:
        """Settle a link's deliveries, whose outcomes have taken effect. Until then they count as unsettled."""
        link.unsettled -= self._waiting.pop(link)
        if not self._waiting:
            self._send(self._answer)
