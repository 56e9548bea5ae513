"""Connections of one client that several threads use: none is left when the client is closed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import pytest

from headwater.client.protocol.dispatch import Sending
from headwater.client.protocol.terms import terms_of
from headwater.formats.clients.answer import Answer


class Connection:
    def __init__(self) -> None:
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def sending() -> Iterator[Sending[Connection]]:
    yield Sending(terms_of("http://127.0.0.1:1", timeout_s=1.0, retry_s=0.0))


def complete() -> Answer:
    answer = Answer()
    answer.is_reusable = True
    return answer


def test_a_connection_given_back_while_its_client_is_closed_is_closed(sending: Sending[Connection]) -> None:
    class Closing(deque[Connection]):
        """The client is closed just before a connection is kept."""

        def append(self, connection: Connection) -> None:
            sending._is_closed = True
            super().append(connection)

    target, connection = sending.targets.current, Connection()
    target.idle = Closing()

    sending.give_back(target, connection, complete())

    assert connection.is_closed and not target.idle


def test_what_other_threads_take_meanwhile_is_not_missed(sending: Sending[Connection]) -> None:
    class Shared(deque[Connection]):
        """Another thread takes the last one just after it was seen."""

        def __bool__(self) -> bool:
            seen = len(self) > 0
            self.clear()
            return seen

        def pop(self) -> Connection:  # type: ignore[override]
            self.clear()
            return super().pop()

    sending.targets.current.idle = Shared([Connection()])

    assert sending.targets.idle() == []
