"""The copy of a stopped server, compared with its home by commands."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path

from ..core.closing import Closing
from ..core.errors import StorageUnavailable
from ..storage import Engine
from ..storage.catalog.directories import LOG_KIND, known_logs
from ..storage.home.copy_file import read_mark
from ..storage.home.port import JOURNAL_KEY, History
from ..storage.home.replicated_log import LEFT_UNCHANGED, CopyOutlived, ReplicatedLog
from ..storage.home.surplus import Surplus, surplus_of
from ..storage.home.witness import Witness
from ..storage.state.journal import NAME, EntryRecord, written_in
from .postgres.home import PostgresHome


class StoppedCopy(Closing):
    """A copy opened by a command while its server is stopped, as a replica that may be ahead of its home."""

    def __init__(self, home: PostgresHome, directory: Path) -> None:
        """Raises StorageUnavailable if it is not a copy of that home, a server runs on it, or it cannot follow the home
        without moving data aside; StorageCorrupted.
        """
        self.id = id_of(directory, home)
        """The copy's ID as a member of the home."""
        self.witness = Witness(directory)
        self.home = home
        try:
            self.engine = Engine(
                directory, home=home, follows=True, maintains=False, scrub_ms=0, witness=self.witness, keeps_all=True,
                on_lost=lambda _: None,  # `surplus` says how far it is ahead
            )  # fmt: skip
        except CopyOutlived as error:  # of the journal
            raise StorageUnavailable(f"{error}; {LEFT_UNCHANGED}") from None

    @property
    def server(self) -> str | None:
        """The name of its server in the home; None if the copy is not a member."""
        return next((each.name for each in self.home.members() if each.evidence.id == self.id), None)

    def frames(self) -> dict[str, ReplicatedLog]:
        """All logs by name, with the journal last. Raises StorageCorrupted, StorageUnavailable."""
        logs = {name: _replicated(self.engine.open(name).frames) for name in known_logs(self.engine.state)}
        return {**logs, NAME: _replicated(self.engine.state.journal.frames)}

    def newest_epoch(self) -> int:
        """The highest term of the last frames of all logs. Raises as `frames`."""
        newest = [each.frame_below(2**63 - 1) for each in self.frames().values()]
        return max((frame.epoch for frame in newest if frame is not None), default=0)

    def end(self, *, takes_over: bool) -> History:
        """Compare the copy with the home, which now has the same events. Returns the history it was compared with.

        `takes_over`: do so in the term of this process, which may change the state afterwards.
        """
        follower = self.engine.follower
        assert follower is not None
        if takes_over:
            self.engine.begin_term()
        else:
            follower.follow(takes_over=True)  # without waiting for the index
        return follower.compared

    def surplus(self) -> list[Surplus]:
        """The events of each log that the home lacks; the journal, which lists the logs, comes last.

        Raises StorageCorrupted, StorageUnavailable.
        """
        return self._surplus(self._journal(), set())

    def given_up(self) -> list[Surplus]:
        """Like `surplus`, but by the home's journal: all events of a log that it does not list are included."""
        journal = self._journal()
        return self._surplus(journal, set() if journal is None else _made_in(journal))

    def close(self) -> None:
        """Close the copy and unlock the directory."""
        self.engine.close()

    def _surplus(self, journal: Surplus | None, unknown: Container[str]) -> list[Surplus]:
        heads = self.home.heads()
        found = [
            surplus_of(name, frames, None if name in unknown else heads.get(frames.key))
            for name, frames in self.frames().items()
            if name != NAME
        ]
        return [each for each in (*found, journal) if each is not None]

    def _journal(self) -> Surplus | None:
        return surplus_of(NAME, _replicated(self.engine.state.journal.frames), self.home.heads()[JOURNAL_KEY])


def id_of(directory: Path, home: PostgresHome) -> str:
    """The ID of the copy in that directory as a member of a home. Raises StorageUnavailable if it is not its copy."""
    mark = read_mark(directory)
    if mark is None or mark.home != home.incarnation:
        problem = f"{directory} is not a copy of this home; pass the data directory of one of its servers with --data"
        raise StorageUnavailable(problem)
    return mark.id


def _replicated(frames: object) -> ReplicatedLog:
    assert isinstance(frames, ReplicatedLog), "the logs of a copy are replicated"
    return frames


def _made_in(journal: Surplus) -> set[str]:
    """The logs that are created in the surplus of the copy's journal."""
    records = [each.record for frame in journal.frames.read(journal.after) for each in written_in(frame)]
    entries = [each for each in records if isinstance(each, EntryRecord) and each.kind == LOG_KIND]
    return {each.key for each in entries if each.version == 1}
