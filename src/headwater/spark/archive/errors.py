"""The errors of logs and their archives.

ArchiveError (an EventLogError)
├── ArchiveUnreadable   the table, or a file that it names, cannot be read
│   └── NotAnArchive    there is something else at the path, or the archive of another log
├── ArchiveFenced       a newer archiver of the log has claimed the table
├── ArchiveIncomplete   the staged events are not exactly the log's next events
├── CompactionOvertaken another compaction ran at the same time
├── ConsumerAhead       the consumer has acknowledged events missing from this table
└── EventsMissing       the log no longer has the events that the table needs next
"""

from __future__ import annotations

from ...core.errors import EventLogError

RESTORE_FILE = "restore this file from a backup, or archive the log into a new table while the log has these events"
"""The remedy for a damaged file of an archive."""


class ArchiveError(EventLogError):
    """An archive cannot be written or read."""


class ArchiveUnreadable(ArchiveError):
    """The table, or a file that it names, cannot be read."""

    def __init__(self, path: str, problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(f"{path}: {problem}")


class NotAnArchive(ArchiveUnreadable):
    """The path does not contain the requested archive. Nothing was changed there."""


class ArchiveFenced(ArchiveError):
    """Another archiver has claimed the table since. No part of this commit is in it."""

    def __init__(self, path: str, claim: int, newest: int) -> None:
        self.path, self.claim, self.newest = path, claim, newest
        super().__init__(f"{path}: another archiver has taken over (claim {newest}; this one's is {claim})")


class ArchiveIncomplete(ArchiveError):
    """The staged events after `after` are not exactly the log's next events; none was committed."""

    def __init__(self, path: str, after: int, problem: str) -> None:
        self.path, self.after, self.problem = path, after, problem
        super().__init__(f"{path}: the events staged after {after} cannot be committed: {problem}")


class CompactionOvertaken(ArchiveError):
    """Another compaction changed the table in the meantime. That date was left alone. Run the compaction again."""

    def __init__(self, path: str, date: str) -> None:
        self.path, self.date = path, date
        super().__init__(
            f"{path}: another compaction ran at the same time, and {date} was left unchanged; run it again"
        )


class ConsumerAhead(ArchiveError):
    """The archiver's consumer has acknowledged events that this table does not contain."""

    def __init__(self, path: str, log: str, owner: str, component: str, acknowledged: int) -> None:
        self.path, self.log, self.owner, self.component = path, log, owner, component
        self.acknowledged = acknowledged
        super().__init__(
            f"{path} lacks events that its consumer has acknowledged (up to {acknowledged}): is this the right table? "
            f"If so, start again with the log's current events: `headwater consumers "
            f"unregister {log} {owner} {component}`"
        )


class EventsMissing(ArchiveError):
    """The log cannot provide the events that follow those in the table."""

    def __init__(self, path: str, archived: int, problem: str) -> None:
        self.path, self.archived, self.problem = path, archived, problem
        super().__init__(
            f"{path} contains the events up to {archived}, but {problem}; "
            "set accept_gap to continue with a gap in the table"
        )
