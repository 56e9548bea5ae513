"""Checks that all addresses have the same log, because a number is meaningless in another incarnation of it. No I/O."""

from __future__ import annotations

from ...core.errors import PositionOfOtherIncarnation
from ...formats.clients.answer import Answer


def incarnation_of(answer: Answer) -> str | None:
    """The incarnation that the header of a read or a subscription names."""
    value = answer.fields.get(b"headwater-incarnation")
    return None if value is None else value.decode("latin-1")


def check_same(log: str, position: int, expected: str | None, found: str | None) -> None:
    """Raises PositionOfOtherIncarnation if both are known and differ."""
    if expected is None or found is None or expected == found:
        return
    error = PositionOfOtherIncarnation(position, found, position + 1)
    error.args = (
        f"log {log} has the incarnation {found}, but this client has used the incarnation {expected}, "
        "whose positions are no longer valid. Open the log again to use the current incarnation",
    )
    raise error


class Identity:
    """The incarnation that one handle of a log works with, and the servers that have it.

    If a server has several addresses, each is checked before use, because a condition with a number of another
    incarnation could hold by accident. Safe to use from any thread."""

    def __init__(self, log: str) -> None:
        self.log = log
        self._incarnation: str | None = None
        self._proved: dict[object, int] = {}
        """The failure count of each target when it was checked. After another failure, another server may be at that
        address.
        """

    def is_proved(self, target: object, failures: int) -> bool:
        """Whether it has been checked since its last failure."""
        return self._proved.get(target) == failures

    def prove(self, target: object, failures: int, head: int, found: str | None) -> None:
        """Check the incarnation in its answer; None if it has none. Raises PositionOfOtherIncarnation."""
        check_same(self.log, head, self._incarnation, found)
        self._incarnation = found or self._incarnation
        self._proved[target] = failures
