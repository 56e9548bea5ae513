"""The copy of a server that is stopped, compared with its home: for commands, after the home went back."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path

from ..core.closing import Closing
from ..core.errors import StorageUnavailable
from ..storage import Engine
from ..storage.catalog.directories import LOG_KIND, known_logs
from ..storage.home.copy_file import read_mark
from ..storage.home.port import JOURNAL_KEY, History
from ..storage.home.replicated_log import CopyOutlived, ReplicatedLog
from ..storage.home.surplus import Surplus, surplus_of
from ..storage.home.witness import Witness
from ..storage.state.journal import NAME, EntryRecord, written_in
from .postgres.home import PostgresHome


class StoppedCopy(Closing):
    """A data directory that this process has, and no server: opened as a replica that is ahead of its home."""

    def __init__(self, home: PostgresHome, directory: Path) -> None:
        """Raises StorageUnavailable: it is no copy of that home, a server runs on it, or it cannot be followed without
        setting something aside; StorageCorrupted.
        """
        self.id = id_of(directory, home)
        """By which the home knows it as a member."""
        self.witness = Witness(directory)
        self.home = home
        try:
            self.engine = Engine(
                directory, home=home, follows=True, maintains=False, scrub_ms=0, witness=self.witness, keeps_all=True,
                on_lost=lambda _: None,  # `surplus` tells more than that it is ahead
            )  # fmt: skip
        except CopyOutlived as error:  # the journal, at this moment
            raise StorageUnavailable(f"{error}; it was left as it is") from None

    @property
    def server(self) -> str | None:
        """The name of its server, as the home knows it; None: it is no member."""
        return next((each.name for each in self.home.members() if each.evidence.id == self.id), None)

    def frames(self) -> dict[str, ReplicatedLog]:
        """All logs by name, and the journal, which comes last. Raises StorageCorrupted, StorageUnavailable."""
        logs = {name: _replicated(self.engine.open(name).frames) for name in known_logs(self.engine.state)}
        return {**logs, NAME: _replicated(self.engine.state.journal.frames)}

    def newest_epoch(self) -> int:
        """The highest term in which the last frame of a log was written. Raises as `frames`."""
        newest = [each.frame_below(2**63 - 1) for each in self.frames().values()]
        return max((frame.epoch for frame in newest if frame is not None), default=0)

    def end(self, *, takes_over: bool) -> History:
        """Compare the copy with the home, which is like it now; answers with which history of the home.

        `takes_over`: in the term of this process, which may change the state from then on.
        """
        follower = self.engine.follower
        assert follower is not None
        if takes_over:
            self.engine.begin_term()
        else:
            follower.follow(takes_over=True)  # it waits for no index
        return follower.compared

    def surplus(self) -> list[Surplus]:
        """What each log has beyond the home; the journal, which says which logs there are, comes last.

        Raises StorageCorrupted, StorageUnavailable.
        """
        return self._surplus(self._journal(), set())

    def given_up(self) -> list[Surplus]:
        """The same, if the journal of the home is believed: a log that it does not know is given up whole."""
        journal = self._journal()
        return self._surplus(journal, set() if journal is None else _made_in(journal))

    def close(self) -> None:
        """Let others have the directory."""
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
    """By which a home knows the copy in that directory as a member. Raises StorageUnavailable: it is none of it."""
    mark = read_mark(directory)
    if mark is None or mark.home != home.incarnation:
        problem = f"{directory} is no copy of this home; name the data directory of one of its servers with --data"
        raise StorageUnavailable(problem)
    return mark.id


def _replicated(frames: object) -> ReplicatedLog:
    assert isinstance(frames, ReplicatedLog), "the logs of a copy are replicated"
    return frames


def _made_in(journal: Surplus) -> set[str]:
    """The logs that the journal of the copy makes, and that of the home does not."""
    records = [each.record for frame in journal.frames.read(journal.after) for each in written_in(frame)]
    entries = [each for each in records if isinstance(each, EntryRecord) and each.kind == LOG_KIND]
    return {each.key for each in entries if each.version == 1}
