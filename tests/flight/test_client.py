from __future__ import annotations

import contextlib
import pickle
import socket
import subprocess
import sys
import threading
import time

import pyarrow as pa
import pytest

from headwater.core.errors import Closed, InvalidInput, Overloaded
from headwater.flight.calls.address import BulkAddress
from headwater.flight.calls.connection import FlightConnection
from headwater.flight.client import BulkClient
from headwater.flight.errors import ServerFault
from headwater.flight.server.limits import StreamLimits
from headwater.flight.wire import Ticket
from headwater.formats.arrow.tables import record_batch
from headwater.formats.clients.retry import ServerUnreachable

from .conftest import batch
from .memory_backend import MemoryBackend, serving


class Breaking(MemoryBackend):
    """Its scans give three small batches, and then break; five times."""

    breaks = 0

    def scan(self, log, span, query, columns, batch_bytes=None):
        for index, number in enumerate(range(span.after + 1, span.upto + 1)):
            if index == 3 and self.breaks < 5:
                self.breaks += 1
                raise Closed(log)
            [event] = self.store.open(log).read(from_=number, limit=1)
            yield record_batch([event]).select(list(columns))


def test_a_read_that_breaks_goes_on_after_the_last_number(store, log):
    backend = Breaking(store)
    with serving(backend) as server, BulkClient(f"grpc://127.0.0.1:{server.port}", retries=2) as client:
        batches = list(client.read(Ticket("orders", columns=("type",))))
    assert backend.breaks == 5
    assert pa.Table.from_batches(batches).to_pydict() == {"type": [f"E{number}" for number in range(1, 101)]}


def test_a_read_keeps_to_the_head_at_its_begin(client, log):
    batches = client.read(Ticket("orders"))
    first = next(batches)
    client.append("orders", batch("late"))
    assert first.num_rows + sum(each.num_rows for each in batches) == 100


def test_a_server_that_is_slow_to_answer_a_connection_is_reached_all_the_same(url):
    """As it is while the machine is busy: gRPC gives up a connection whose first frame does not come in time."""
    port = int(url.rpartition(":")[2])
    ends = []

    def pass_on(source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def answer_late(listener):
        near, _ = listener.accept()
        time.sleep(2.5)
        far = socket.create_connection(("127.0.0.1", port))
        ends.extend((near, far))
        threading.Thread(target=pass_on, args=(near, far), daemon=True).start()
        pass_on(far, near)

    with socket.create_server(("127.0.0.1", 0)) as slow:
        answering = threading.Thread(target=answer_late, args=(slow,), daemon=True)
        answering.start()
        with BulkClient(f"grpc://127.0.0.1:{slow.getsockname()[1]}", retries=0) as client:
            assert client.logs() == ["orders"]
        answering.join(30)
    for each in ends:
        each.close()


def test_calls_wait_for_a_server_that_is_away(store, log):
    backend = MemoryBackend(store)
    with serving(backend) as server:
        port = server.port
        client = BulkClient(f"grpc://127.0.0.1:{port}")
        client.logs()
    found = []
    waiting = threading.Thread(target=lambda: found.append(client.logs()))
    waiting.start()
    time.sleep(0.3)
    assert found == []
    with serving(backend, f"grpc://127.0.0.1:{port}"):
        waiting.join(30)
        assert found == [["orders"]]
        assert client.append("orders", batch("A"))[0].first == 101
    client.close()


def test_a_server_that_is_not_there_is_unreachable():
    with BulkClient("grpc://127.0.0.1:1", retries=1) as client:
        for call in (
            client.logs,
            lambda: list(client.read(Ticket("orders"))),
            lambda: client.append("orders", batch("A")),
            lambda: client.stage("orders", "w", 0, 0, 0, iter([batch("A")])),
            lambda: client.plan(Ticket("orders")),
        ):
            with pytest.raises(ServerUnreachable, match=r"no answer from grpc://127\.0\.0\.1:1: "):
                call()


def test_a_client_that_was_closed_says_so(url):
    client = BulkClient(url, retries=0)
    client.logs()
    client.close()
    client.close()
    with pytest.raises(ServerUnreachable, match="this client was closed"):
        client.logs()


def test_a_busy_server_is_asked_again(store, log):
    with serving(MemoryBackend(store), limits=StreamLimits(puts=1)) as server:
        with BulkClient(f"grpc://127.0.0.1:{server.port}") as client:
            table = pa.table({"type": ["A"] * 2000, "data": [b"x"] * 2000})
            stages = []
            threads = [
                threading.Thread(target=lambda part=part: stages.append(client.stage("orders", "w", 0, part, 0, table)))
                for part in range(8)
            ] + [threading.Thread(target=lambda: stages.extend(client.append("orders", table))) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert len(stages) == 10


def test_a_commit_that_the_index_cannot_keep_up_with_is_repeated(store, log, monkeypatch):
    """It goes a bit further each time: more often than a call is repeated that fails."""
    act, refusals = MemoryBackend.act, iter([Overloaded(2, 1, 0.0)] * 5)

    def refusing(*arguments):
        if arguments[2:3] == ("commit",) and (refusal := next(refusals, None)) is not None:
            raise refusal
        return act(*arguments)

    monkeypatch.setattr(MemoryBackend, "act", refusing)
    with serving(MemoryBackend(store)) as server, BulkClient(f"grpc://127.0.0.1:{server.port}", retries=1) as client:
        stage = client.stage("orders", "w", 1, 0, 0, batch("A")).stage
        assert client.commit("orders", "w", 1, [stage]).events == 1
    assert next(refusals, None) is None


def test_one_client_serves_many_threads(client, log):
    found = []

    def work():
        for _ in range(20):
            found.append(sum(each.num_rows for each in client.read(Ticket("orders", upto=100))))
            client.append("orders", batch("A"))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [100] * 160
    assert log.head() == 260


def test_what_is_no_batch_is_refused_before_anything_is_sent(client, log):
    for given in ([], ["x"], iter(())):
        with pytest.raises(InvalidInput, match="batches: "):
            client.append("orders", given)
    reader = pa.RecordBatchReader.from_batches(batch("A").schema, [batch("A")])
    assert client.append("orders", reader)[0].first == 101


def test_the_server_of_something_else_is_a_fault(client):
    with pytest.raises(ServerFault):
        raise FlightConnection(client.address).error_of(pa.ArrowException("what"))


def test_an_address_is_a_value_that_hides_its_secrets():
    address = BulkAddress("grpc+tls://host", user="alice", password="secret", ca_file="/ca.pem", retries=3)
    assert pickle.loads(pickle.dumps(address)) == address
    assert len({address, BulkAddress("grpc+tls://host", "alice", "secret", ca_file="/ca.pem", retries=3)}) == 1
    assert "secret" not in repr(address)
    assert address.location == "grpc+tls://host:8815"
    assert BulkClient.of(address).address == address
    assert BulkAddress("grpc://[::1]:5").location == "grpc://[::1]:5"


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"url": "http://x"}, "url"),
        ({"url": "grpc://"}, "url"),
        ({"url": "grpc://x:y"}, "url"),
        ({"url": "grpc://x/orders"}, "url"),
        ({"url": "grpc://a:b@x"}, "url"),
        ({"url": "grpc://x", "user": "a"}, "user"),
        ({"url": "grpc://x", "token": "a", "user": "b", "password": "c"}, "token"),
        ({"url": "grpc://x", "token": "a\n"}, "token"),
        ({"url": "grpc://x", "timeout_s": 0}, "timeout_s"),
        ({"url": "grpc://x", "retries": -1}, "retries"),
    ],
)
def test_an_address_that_does_not_go_together_is_refused(options, where):
    with pytest.raises(InvalidInput) as caught:
        BulkAddress(**options)
    assert caught.value.where == where


def test_a_ca_file_that_is_not_there_is_refused():
    with BulkClient("grpc+tls://127.0.0.1:1", ca_file="/nowhere") as client, pytest.raises(InvalidInput) as caught:
        client.logs()
    assert str(caught.value).startswith("ca_file: '/nowhere' cannot be read: ")


def test_the_client_is_light():
    code = "import sys, headwater.flight.client; print(*sorted(sys.modules))"
    loaded = set(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout.decode().split())
    rooms = {name.split(".")[1] for name in loaded if name.startswith("headwater.")}
    assert rooms == {"core", "flight", "formats", "speedups"}
    ours = {name for name in loaded if name.startswith("headwater.flight.")}
    assert ours.isdisjoint(f"headwater.flight.{name}" for name in ("server", "reading", "writing", "actions"))
    assert loaded.isdisjoint({"pandas", "uvloop", "google_crc32c"})
