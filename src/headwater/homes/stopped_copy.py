"""The copy of a server that is stopped, compared with its home: for commands, after the home went back."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path

from ..core.closing import Closing
from ..core.errors import StorageUnavailable
from ..storage import Engine
from ..storage.catalog.directories import LOG_KIND, known_logs
from ..storage.home.copy_file import read_mark
from ..storage.home.port import JOURNAL_KEY
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

    def _logs(self) -> dict[str, ReplicatedLog]:
        return {name: _replicated(self.engine.open(name).frames) for name in known_logs(self.engine.state)}

    def _surplus(self, journal: Surplus | None, unknown: Container[str]) -> list[Surplus]:
        heads = self.home.heads()
        found = [
            surplus_of(name, frames, None if name in unknown else heads.get(frames.key))
            for name, frames in self._logs().items()
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
