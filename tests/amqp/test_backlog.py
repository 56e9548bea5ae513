"""Where the index does not keep up, producers get no credit, and the connection goes on with all else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.amqp.protocol.message import encode_message
from headwater.amqp.protocol.performatives import Accepted
from headwater.amqp.settings import AmqpSettings
from headwater.core import Event, local
from headwater.core.errors import Overloaded
from headwater.core.limits import check_append
from headwater.storage import Engine, StoredLog
from headwater.storage.maintenance.worker import IndexWorker, do
from tests.waiting import eventually

from .asking import EARLIEST, message, numbers, payloads
from .served import Served

CEILING = 20_000
CREDIT = 100


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """An engine that indexes when a test says so."""
    monkeypatch.setattr(local, "INDEX_WAIT_S", 0.0)
    monkeypatch.setattr(IndexWorker, "run", lambda self, job: do(job).problem)
    with Engine(tmp_path / "data", maintains=False, reserve_bytes=0, unindexed_bytes_max=CEILING) as engine:
        yield engine


def fill(log: StoredLog) -> None:
    """Append until nothing passes any more."""
    with pytest.raises(Overloaded):
        while True:
            events = [Event("T", b"%d" % number) for number in range(log.head(), log.head() + 10)]
            log.append_columns(check_append(events, 1000))


def test_credit_is_withheld_while_the_index_is_behind_and_the_connection_is_read(store: Engine) -> None:
    log, other = store.create("orders"), store.create("others")
    fill(log)
    head = log.head()
    with Served(store=store, settings=AmqpSettings(credit=CREDIT)) as served, served.client() as client:
        sender = client.sender("orders")
        client.wait(lambda: sender.link.credit == CREDIT)
        body = encode_message(message(b"1000"))
        for number in range(CREDIT):
            sender.link.send(body, number, number)
        client.flush()
        eventually(lambda: log.statistics.refused >= 2)
        receiver = client.receiver("orders", credit=10, filter=EARLIEST)  # the same connection
        assert numbers(receiver.take(10)) == list(range(10))
        assert client.manage("READ", name="orders", type="io.headwater.log").status == 200
        assert sender.link.credit == 0 and not sender.states
        assert log.head() == head and other.head() == 0
        store.maintain()  # the index wakes who waits: nothing is committed meanwhile
        client.wait(lambda: len(sender.states) == CREDIT)
        client.wait(lambda: sender.link.credit > 0)
        assert set(map(type, sender.states.values())) == {Accepted}
        assert [event.data for event in log.read(after=head)] == [b"1000"] * CREDIT
        assert payloads([client.receiver("orders", credit=1, filter=EARLIEST).take(1)[0]]) == [b"0"]
