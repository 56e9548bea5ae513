"""Clients of others at the port of a replica, which forwards them: nothing differs from a single server."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from headwater.cli.main import run
from headwater.client import connect
from headwater.core.settings import LogSettings

from ..homes.postgres_server import postgres
from ..homes.test_replicas import metrics, reads
from ..homes.test_servers import Member
from ..waiting import eventually
from .basics import Basics
from .runtimes import Proton, Rhea


class Behind:
    """Logs of a primary, and the AMQP of its replica."""

    def __init__(self, primary: Member, replica: Member) -> None:
        self.url, self.amqp = primary.url, replica.amqp
        self._numbers = itertools.count(1)

    def log(self, partitions: int = 1, event_bytes_max: int = 1024 * 1024) -> str:
        """See Broker."""
        name = f"log{next(self._numbers)}"
        with connect(self.url) as server:
            server.create(name, LogSettings(partitions=partitions, event_bytes_max=event_bytes_max))
        return name


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Behind]:
    """Two servers of one home; every client connects to the one that is not the primary."""
    directory = tmp_path_factory.mktemp("home")
    with ExitStack() as ending:
        database = ending.enter_context(postgres())
        assert run(["home", "init", "--home", database.url]) == 0
        first = ending.enter_context(closing(Member(database.url, directory / "a", lease_ms="10000")))
        eventually(first.is_primary)
        second = ending.enter_context(closing(Member(database.url, directory / "b", lease_ms="10000")))
        eventually(lambda: reads(second) and "is the primary" in second.unready())
        yield Behind(first, second)
        assert "headwater_amqp_forwarded_total" in metrics(second)
        assert "headwater_amqp_forwarded_total 0.0" not in metrics(second)


class TestProtonAtAReplica(Basics):
    """See Basics."""

    RUNTIME = Proton


class TestRheaAtAReplica(Basics):
    """See Basics."""

    RUNTIME = Rhea
