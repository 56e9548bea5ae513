"""A name that only one account has, until the account is closed, and for a while after that.

python examples/unique_username.py [http://127.0.0.1:8080]
"""

import sys
import time
from typing import Annotated

from headwater.client import connect
from headwater.core import SequencedEvent
from headwater.decisions import Decision, Projection, Tag, decide, event

KEPT_MS = 3 * 24 * 60 * 60 * 1000
"""So long nobody else gets the name of a closed account."""


class Taken(Exception):
    """The name is another account's."""


@event
class AccountOpened:
    name: Annotated[str, Tag]


@event
class AccountClosed:
    name: Annotated[str, Tag]


def is_taken(name: str, now_ms: int) -> Projection[bool]:
    def closed(_: bool, account: AccountClosed, stored: SequencedEvent) -> bool:
        return now_ms < stored.recorded_at + KEPT_MS

    newest = Projection(False, tags={"name": name}, newest_only=True)
    return newest.on(AccountOpened, lambda _, account: True).on_stored(AccountClosed, closed)


def open_account(name: str, now_ms: int) -> Decision[AccountOpened]:
    def rule(taken: bool) -> AccountOpened:
        if taken:
            raise Taken(f"{name} is taken")
        return AccountOpened(name)

    return Decision(is_taken(name, now_ms), rule)


def is_open(name: str) -> Projection[bool]:
    newest = Projection(False, tags={"name": name}, newest_only=True)
    return newest.on(AccountOpened, lambda _, account: True).on(AccountClosed, lambda _, account: False)


def close_account(name: str) -> Decision[AccountClosed]:
    return Decision(is_open(name), lambda open: AccountClosed(name) if open else None)


def main(url: str) -> None:
    """Two want one name, twice; the second time the account was closed, four days ago."""
    now_ms = time.time_ns() // 1_000_000
    with connect(url) as server:
        log = server.create("accounts")
        decide(log, open_account("ann", now_ms))
        for later_ms in (0, KEPT_MS + 3_600_000):
            decide(log, close_account("ann"))
            try:
                decide(log, open_account("ann", now_ms + later_ms))
                print("ann has an account again")
            except Taken as taken:
                print(taken)


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["http://127.0.0.1:8080"]))
