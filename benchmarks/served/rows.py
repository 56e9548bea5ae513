"""The rows of the table: what a client does again and again, and how many clients there are.

A command moves something between two accounts drawn at random: it reads the events of both (20 at first, whole), and
appends one event tagged with both, unless either account has an event above the head that the read answered. After a
conflict it reads and appends again, so each command counts once, and the head must move by one for each.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..measure import CPU, Aim, expect
from ..stores.served import Remote
from ..stores.store import Conflict, Extent
from ..workload import COMMON_TYPES, DATA_BYTES, MATCHES_PER_ACCOUNT, RARE_TYPE, Workload

BATCH = 1000
LIMIT = 100
UMADB = "umadb over gRPC"
CLIENT_EVENTS = 10**8
"""No client appends more."""


class Source:
    """What one client takes its work from: the same for every contender, and events that no other client has."""

    def __init__(self, total: int, client: int) -> None:
        self.workload = Workload(total, fresh_from=client * CLIENT_EVENTS)
        self._random = random.Random(client)

    def account(self) -> str:
        """One drawn at random."""
        return f"account:{self._random.randrange(self.workload.accounts)}"


@dataclass(frozen=True, slots=True)
class Row:
    """One piece of work. `prepare` is not timed; `do` checks its answer and says how many units of work it was."""

    name: str
    title: str
    unit: str
    prepare: Callable[[Remote, Source], Any]
    do: Callable[[Remote, Any], int]
    clients: int = 1
    appended: int = 0
    """Events that each step appends."""
    aims: Sequence[Aim] = ()
    is_apart: bool = False
    """Clients are on other cores than servers."""


def nothing(remote: Remote, source: Source) -> None:
    """What needs no preparation."""


def head(remote: Remote, _: None) -> int:
    """The smallest request."""
    expect("a head", True, remote.head() >= MATCHES_PER_ACCOUNT)
    return 1


def prepare_tag(remote: Remote, source: Source) -> object:
    """A query for an account."""
    return remote.prepare_query([source.account()])


def read_tag(remote: Remote, query: object) -> int:
    """The 10 events of an account, and those that commands added."""
    payloads = remote.read(query).payloads
    expect("all events of a tag, whole", True, len(payloads) >= MATCHES_PER_ACCOUNT and _are_whole(payloads))
    return 1


def prepare_command(remote: Remote, source: Source) -> tuple[object, object]:
    """A query for two accounts, and the event that has both as tags."""
    pair = first, second = source.account(), source.account()
    while first == second:
        pair = first, second = source.account(), source.account()
    return remote.prepare_query(pair), remote.prepare(source.workload.fresh(1, pair))


def command(remote: Remote, prepared: tuple[object, object]) -> int:
    """Read, decide, append; again after a conflict."""
    query, event = prepared
    while True:
        facts = remote.read(query)
        are_all = len(facts.payloads) >= 2 * MATCHES_PER_ACCOUNT and _are_whole(facts.payloads)
        expect("all events of two tags, whole", True, are_all)
        try:
            remote.append_if(event, query, facts.head)
        except Conflict:
            continue
        return 1


def prepare_rare(remote: Remote, source: Source) -> tuple[str, int]:
    """The rare type, and how many events it has."""
    return RARE_TYPE, min(LIMIT, source.workload.rare_count())


def prepare_common(remote: Remote, source: Source) -> tuple[str, int]:
    """A common type; the limit is reached."""
    return COMMON_TYPES[7], LIMIT


def read_type(remote: Remote, prepared: tuple[str, int]) -> int:
    """The newest events of a type."""
    type, matches = prepared
    expect(f"events of {type}", matches, remote.read_type(type, LIMIT))
    return 1


def scan(remote: Remote, _: None) -> int:
    """Every event, whole; counted in events."""
    extent = remote.scan()
    expect("a scan", Extent(extent.last, extent.last * DATA_BYTES, extent.last), extent)
    return extent.events


def prepare_batch(remote: Remote, source: Source) -> object:
    """A batch."""
    return remote.prepare(source.workload.fresh(BATCH))


def append_batch(remote: Remote, batch: object) -> int:
    """Append it; counted in events."""
    remote.append(batch)
    return BATCH


def _are_whole(payloads: Sequence[bytes]) -> bool:
    return all(len(payload) == DATA_BYTES for payload in payloads)


def _clients(count: int) -> str:
    return f"{count} client{'s' * (count > 1)}"


def _commands(clients: int, bound: float) -> Row:
    aims = Aim(UMADB, bound), Aim(CPU, 260)
    title = f"commands, {_clients(clients)}"
    return Row(f"command-{clients}", title, "commands/s", prepare_command, command, clients, 1, aims)


def _tags(clients: int) -> Row:
    title = f"10 events by a tag, {_clients(clients)}"
    return Row(f"tag-{clients}", title, "reads/s", prepare_tag, read_tag, clients, aims=(Aim(UMADB, 1.2),))


def _batches(clients: int) -> Row:
    title = f"batches of 1000, {_clients(clients)}"
    aims = (Aim(UMADB, 6),)
    return Row(f"batch-{clients}", title, "events/s", prepare_batch, append_batch, clients, BATCH, aims)


def _types(name: str, prepare: Callable[[Remote, Source], tuple[str, int]]) -> Row:
    title = f"the newest 100 of a {name} type, 1 client"
    return Row(f"type-{name}", title, "reads/s", prepare, read_type, aims=(Aim(UMADB, 1),))


_APART = "commands, 64 clients on other cores than the server"

ROWS = {
    row.name: row
    for row in (
        _commands(1, 2),
        _commands(8, 1.5),
        _commands(64, 1.5),
        Row("command-64-apart", _APART, "commands/s", prepare_command, command, 64, 1, is_apart=True),
        _tags(1),
        _tags(8),
        Row("head", "the head of the log, 1 client", "requests/s", nothing, head, aims=(Aim(CPU, 25),)),
        _types("rare", prepare_rare),
        _types("common", prepare_common),
        Row("scan", "a full scan, 1 client", "events/s", nothing, scan, aims=(Aim(UMADB, 1),)),
        _batches(1),
        _batches(8),
    )
}
"""By name, in the order in which they run: batches make the log grow, so they come last."""
