"""The answer to outcomes that the receiver leaves to this side to settle (2.6.12), given by the owner of the link."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .performatives import DeliveryState, Disposition
from .types import Described

if TYPE_CHECKING:
    from .link import Sender
    from .session import Session


class Settlement:
    """One disposition of the receiver, which is answered when every link that it is about has settled it."""

    __slots__ = ("_first", "_last", "_session", "_state", "_waiting")

    def __init__(
        self,
        session: Session,
        first: int,
        last: int,
        state: DeliveryState | Described | None,
        waiting: dict[Sender, int],
    ) -> None:
        """Of the deliveries `first` to `last`; `waiting`: how many of them each link has to settle."""
        self._session, self._first, self._last, self._state, self._waiting = session, first, last, state, waiting

    def settle(self, link: Sender) -> None:
        """That link has done what the outcomes ask for. Until then its deliveries count as unsettled."""
        link.unsettled -= self._waiting.pop(link)
        if not self._waiting:
            self._session.send(
                Disposition(role=False, first=self._first, last=self._last, settled=True, state=self._state)
            )
