"""Archives several logs in one run, one after the other in rounds. This uses no more memory than archiving one of them.

Concurrent queries would each take a Python process or two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from ...core.errors import EventLogError
from ..pipeline.run import Ending
from .steps import events_left
from .upkeep import PASSING, Tended, Tending

if TYPE_CHECKING:
    from ...flight.client import BulkClient
    from .batches import Batches


class Rounds:
    """The logs of one run."""

    def __init__(
        self,
        client: BulkClient,
        batches: Batches,
        names: Callable[[], Iterable[str]],
        open: Callable[[str], Tended],
    ) -> None:
        """`names` returns the logs to archive now. `open` starts the archiver of one of them."""
        self._client, self._batches, self._names, self._open = client, batches, names, open
        self._run = batches.run
        self._tended: dict[str, Tended] = {}
        self._behind: dict[str, int] = {}

    def once(self) -> Ending:
        """Archive each log in turn, up to its current head. If logs failed, raises the first error after all logs had
        their turn."""

        def turn(log: str) -> Ending:
            archiver, compacting = self._begun(log)
            ending = self._follow(log)
            archiver.release()
            if compacting is not None and not self._run.stop.is_asked:
                compacting.compact(archiver.path, self._run.say)
            return ending

        return self._round(turn)

    def follow(self) -> Ending:
        """Repeat rounds until stopped, or until a log fails; see `once`. New logs may appear in the meantime."""
        with Tending(self._run) as tending:

            def turn(log: str) -> Ending:
                is_new = log not in self._tended
                tended = self._begun(log)
                if is_new:
                    tending.add(tended)
                return self._follow(log)

            ending = self._round(turn)
            while ending is Ending.DONE and self._run.pause(self._run.every_s):
                ending = self._round(turn)
        for archiver, _ in self._tended.values():
            archiver.release()
        return Ending.INTERRUPTED if self._run.stop.is_urgent else Ending.STOPPED

    @property
    def behind(self) -> int:
        """The backlog of all logs, as of each log's last check, in sequence numbers."""
        return sum(self._behind.values())

    def reached(self) -> Iterator[tuple[str, int]]:
        """The number up to which each log is archived."""
        for log, (archiver, _) in self._tended.items():
            yield log, archiver.archived

    def _round(self, turn: Callable[[str], Ending]) -> Ending:
        problems: list[EventLogError] = []
        ending = Ending.DONE
        for log in self._names():
            try:
                ending = turn(log)
            except PASSING:
                raise  # the server fails, and would fail for all logs
            except EventLogError as error:
                self._run.say(f"log {log!r}: {error}")
                problems.append(error)
            if self._run.stop.is_asked or ending is not Ending.DONE:
                break
        if problems:
            raise problems[0]
        return ending

    def _begun(self, log: str) -> Tended:
        if log not in self._tended:
            self._tended[log] = self._open(log)
        return self._tended[log]

    def _follow(self, log: str) -> Ending:
        """Archive the log's current events. The check needs one request; a query needs a Python process."""
        archiver = self._tended[log].archiver
        ending = Ending.DONE
        if (to_do := self._left(log)) > 0:
            self._run.turn_to(log)
            if self._run.is_once:
                self._run.expect(to_do, self._batches.events_max)
            ending = self._batches.follow(archiver, is_once=True)
            self._left(log)
        return ending

    def _left(self, log: str) -> int:
        self._behind[log] = events_left(self._client, log, self._tended[log].archiver.after, self._client.head(log))
        return self._behind[log]
