"""A management node over logs in memory, and those who ask it."""

from __future__ import annotations

import asyncio
from typing import Any

from headwater.core.access import ANYBODY, Forbidden, Grant, OpenGuard, Right, User
from headwater.core.store import LogStore
from headwater.management.entities import CONSUMER, LOG, PARTITION
from headwater.management.logs import Consumers, LogRights, Logs, Partitions
from headwater.management.operations import Answer, Management, Request
from headwater.storage.memory import MemoryStore

LOG_TYPE, PARTITION_TYPE, CONSUMER_TYPE = LOG.name, PARTITION.name, CONSUMER.name


class StrictGuard(OpenGuard):
    """Everybody is known, and may do what their grants say."""

    def authorize(self, user: User, right: Right, log: str) -> None:
        if not user.may(right, log):
            raise Forbidden(user.name, right, log)


def user(name: str, **rights: str) -> User:
    """A user with rights on patterns: `user("alice", read="orders-*")`."""
    return User(name, tuple(Grant(logs, frozenset({Right(right)})) for right, logs in rights.items()))


class Node:
    """A management node with what needs no AMQP."""

    def __init__(self, store: LogStore | None = None) -> None:
        self.store = store or MemoryStore()

    def ask(self, operation: Any, body: Any = None, *, by: User = ANYBODY, **properties: Any) -> Answer:
        """What it answers."""
        return self.ask_all([(operation, body, properties)], by=by)[0]

    def ask_all(self, requests: list[tuple[Any, Any, dict[str, Any]]], *, by: User = ANYBODY) -> list[Answer]:
        """What it answers to requests that come at the same time."""

        async def run() -> list[Answer]:
            management = self.management()
            return await asyncio.gather(
                *(
                    management.perform(Request(by, {"operation": operation, **properties}, body))
                    for operation, body, properties in requests
                )
            )

        return asyncio.run(run())

    def log(self, name: str, body: Any = None, *, by: User = ANYBODY, operation: str = "READ") -> Answer:
        """An operation on a log."""
        return self.ask(operation, body, by=by, type=LOG_TYPE, name=name)

    def query(self, *names: str, by: User = ANYBODY, **properties: Any) -> list[list[Any]]:
        """The results of a successful QUERY for these attributes."""
        answer = self.ask("QUERY", {"attributeNames": list(names)}, by=by, **properties)
        assert answer.status == 200, answer
        assert isinstance(answer.body, dict)
        assert answer.count == len(answer.body["results"])
        assert answer.body["attributeNames"] == list(names)
        results: list[list[Any]] = answer.body["results"]
        return results

    def management(self) -> Management:
        """The node itself."""
        management = Management()
        rights = LogRights(self.store, StrictGuard())
        management.serve(LOG, Logs(rights))
        management.serve(PARTITION, Partitions(rights))
        management.serve(CONSUMER, Consumers(rights))
        return management
