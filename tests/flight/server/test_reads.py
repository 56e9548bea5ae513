from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from itertools import chain

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from headwater.core import Event, Extent, LogSettings, Query
from headwater.core.errors import InvalidPosition, LogNotFound, PositionOfOtherIncarnation, PositionTrimmed
from headwater.flight.client import BulkClient
from headwater.flight.schemas import SPARK_SCHEMA
from headwater.flight.server.backend import LogPlace
from headwater.flight.server.limits import StreamLimits
from headwater.flight.wire import Ticket, query_json
from headwater.formats.arrow.tables import SCHEMA, record_batch

from ...waiting import eventually
from ..conftest import Raw, refusal
from ..memory_backend import MemoryBackend, serving


def numbers(client, ticket):
    return [number for batch in client.read(ticket) for number in batch.column("sequence_number").to_pylist()]


def test_a_ticket_with_nothing_but_the_log_reads_all_of_it(raw, log):
    table = raw.get(log="orders")
    assert table.schema == SCHEMA
    assert table.equals(pa.Table.from_batches([record_batch(list(log.read()))]))


def test_bounds_are_after_exclusive_and_upto_inclusive(client):
    assert numbers(client, Ticket("orders", after=10, upto=13)) == [11, 12, 13]
    assert numbers(client, Ticket("orders", after=13, upto=13)) == []
    assert numbers(client, Ticket("orders", upto=2)) == [1, 2]
    assert numbers(client, Ticket("orders", after=98)) == [99, 100]


def test_what_is_trimmed_while_a_read_begins_is_told(raw, backend, log, monkeypatch):
    scan = backend.scan

    def trimmed_first(*arguments):
        log.trim(50)
        return scan(*arguments)

    monkeypatch.setattr(backend, "scan", trimmed_first)
    with pytest.raises(flight.FlightServerError, match="position_trimmed"):
        raw.get(log="orders", after=10)
    assert raw.get(log="orders")["sequence_number"].to_pylist() == list(range(50, 101))


@pytest.mark.parametrize(
    "query",
    [
        "type=E1 or tag=shop:2 type=E5",
        {"items": [{"types": ["E1"]}, {"types": ["E5"], "tags": ["shop:2"]}]},
        json.dumps({"items": [{"types": ["E1", "E5"]}]}),
    ],
)
def test_queries_are_texts_or_objects(raw, query):
    assert raw.get(log="orders", query=query)["sequence_number"].to_pylist() == [1, 5]


def test_a_query_of_the_core_becomes_a_ticket(client):
    query = Query.where(types=["E7"])
    assert numbers(client, Ticket("orders", query=query_json(query))) == [7]
    assert query_json(Query.all()) is None


def test_columns_come_in_the_order_asked_for(raw):
    table = raw.get(log="orders", columns=["type", "sequence_number"])
    assert table.schema == pa.schema([SCHEMA.field("type"), SCHEMA.field("sequence_number")])


def test_the_schema_for_spark_has_microseconds_and_the_log(raw, log):
    table = raw.get(log="orders", schema="spark")
    assert table.schema == SPARK_SCHEMA
    assert table["log"].unique().to_pylist() == ["orders"]
    first = next(iter(log.read()))
    assert table["recorded_at"].cast(pa.int64())[0].as_py() == first.recorded_at * 1000
    only = raw.get(log="orders", schema="spark", columns=["log"])
    assert only.num_rows == 100
    assert only.column_names == ["log"]


class Counting:
    """Passes on what one client and the server say, and counts what the server says."""

    def __init__(self, port: int) -> None:
        self.received = 0
        self._port = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"grpc://127.0.0.1:{self._listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        ours, _ = self._listening.accept()
        with ours, socket.create_connection(("127.0.0.1", self._port)) as theirs:
            back = threading.Thread(target=self._pass, args=(theirs, ours, True), daemon=True)
            back.start()
            self._pass(ours, theirs, False)
            back.join()

    def _pass(self, source: socket.socket, sink: socket.socket, counts: bool) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(65536):
                self.received += len(piece) if counts else 0
                sink.sendall(piece)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listening.close()
        self._thread.join(10)


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_batches_are_compressed_where_that_is_asked_for(server, store, compression):
    log = store.create("large")
    log.append([Event("T", b'{"what": "the same again and again"}' * 20, ("tag:1",)) for _ in range(500)])
    sizes, found = [], []
    for asked in (None, compression):
        relay = Counting(server.port)
        with BulkClient(relay.url, retries=0) as client:
            found.append(pa.Table.from_batches(client.read(Ticket("large", compression=asked))))
        relay.close()
        sizes.append(relay.received)
    assert found[0].equals(found[1]) and found[0].num_rows == 500
    assert sizes[0] > 500 * 700 and sizes[1] < sizes[0] / 10


def test_another_compression_is_refused_by_name(raw):
    kind, told = refusal(lambda: raw.get(log="orders", compression="brotli"))
    assert issubclass(kind, flight.FlightError) and "compression" in json.dumps(told)
    assert raw.get(log="orders", compression="lz4").equals(raw.get(log="orders"))


def test_a_partition_alone_can_be_read(store, client):
    log = store.create("parted", LogSettings(partitions=4))
    log.append([Event("A", group_key=f"g{number}") for number in range(100)])
    found = [numbers(client, Ticket("parted", partition=each)) for each in range(4)]
    assert sorted(chain.from_iterable(found)) == list(range(1, 101))
    assert [len(each) for each in found] == list(log.info().partition_events)
    assert client.count("parted", partition=1) == len(found[1])
    with pytest.raises(InvalidPosition, match="partition: expected 0 to 3, got 4"):
        numbers(client, Ticket("parted", partition=4))


def test_positions_that_cannot_be_read_from_are_refused(client, log):
    incarnation = client.head("orders").incarnation
    for ticket, error in [
        (Ticket("orders", after=101), InvalidPosition("expected 0 to 100 (the head), got 101", "after")),
        (Ticket("orders", upto=101), InvalidPosition("expected 0 to 100 (the head), got 101", "upto")),
        (Ticket("orders", after=9, upto=8), InvalidPosition("expected 9 (`after`) or more, got 8", "upto")),
        (Ticket("orders", incarnation="other"), PositionOfOtherIncarnation(0, incarnation, 1)),
        (Ticket("nothing"), LogNotFound("nothing")),
    ]:
        with pytest.raises(type(error)) as caught:
            numbers(client, ticket)
        assert str(caught.value) == str(error)
        assert vars(caught.value) == vars(error)


def test_a_given_position_below_the_first_retained_event_is_refused_but_none_is_not(client, log):
    log.trim(51)
    with pytest.raises(PositionTrimmed) as caught:
        numbers(client, Ticket("orders", after=0))
    assert caught.value.first_retained == 51
    assert numbers(client, Ticket("orders", after=50))[0] == 51
    assert numbers(client, Ticket("orders"))[0] == 51
    assert numbers(client, Ticket("orders", upto=20)) == []
    assert client.head("orders").first_retained == 51
    [split] = client.plan(Ticket("orders"))
    assert split.ticket.after == 50


def test_a_trimmed_empty_log_reads_as_empty(client, log):
    log.trim(101)
    assert numbers(client, Ticket("orders")) == []
    assert client.plan(Ticket("orders")) == []


@pytest.mark.parametrize(
    ("ticket", "code", "text"),
    [
        (b"", "malformed_json", "ticket: malformed JSON in line 1"),
        (b"{", "malformed_json", "ticket: malformed JSON"),
        (b"[]", "invalid_request", "ticket: expected `object`, got `array`"),
        (b'{"log":1}', "invalid_request", "ticket.log: expected `str`, got `int`"),
        (b'{"log":"orders","from":1}', "invalid_request", "ticket: object contains unknown field `from`"),
        (b'{"log":"orders","after":-1}', "invalid_request", "ticket.after: expected `int` >= 0"),
        (
            b'{"log":"orders","query":"typ=x"}',
            "invalid_query",
            "query: expected type=TYPE, tag=TAG, exact_tag=TAG, or, all",
        ),
        (b'{"log":"orders","query":{}}', "invalid_query", 'query: expected {"items": [...]} or {"all": true}'),
        (
            b'{"log":"orders","query":{"items":[{"types":["a"]},{"tags":["\\u0007"]}]}}',
            "invalid_query",
            "query.items[1].tags[0]: a tag must not contain control characters",
        ),
        (
            b'{"log":"orders","columns":["typ"]}',
            "invalid_request",
            "columns[0]: got 'typ', expected one of sequence_number",
        ),
        (
            b'{"log":"orders","columns":["log"]}',
            "invalid_request",
            "columns[0]: got 'log', expected one of sequence_number",
        ),
        (b'{"log":"orders","columns":["type","type"]}', "invalid_request", "columns[1]: 'type' occurs twice"),
        (b'{"log":"orders","columns":[]}', "invalid_request", "columns: expected at least one column"),
        (b'{"log":"orders","schema":"us"}', "invalid_request", "ticket.schema: invalid enum value 'us'"),
        (b" " * (1024 * 1024 + 1), "too_large", "ticket: 1048577 bytes given, at most 1048576 are allowed"),
    ],
)
def test_a_ticket_that_does_not_fit_is_refused_with_its_place(raw, ticket, code, text):
    kind, told = refusal(lambda: raw.client.do_get(flight.Ticket(ticket)).read_all())
    assert (kind, told["error"]) == (flight.FlightServerError, code)
    assert told["message"].startswith(text)


def test_a_log_is_planned_as_one_by_its_path(raw, log):
    info = raw.client.get_flight_info(flight.FlightDescriptor.for_path("orders"))
    [endpoint] = info.endpoints
    assert endpoint.locations == []
    assert info.schema == SCHEMA
    assert info.total_records == 100
    told = json.loads(info.app_metadata)
    assert told == {"head": 100, "first_retained": 1, "incarnation": log.info().incarnation}
    assert raw.client.do_get(endpoint.ticket).read_all().num_rows == 100


def test_splits_cover_a_ticket_in_order_without_gaps(client):
    ticket = Ticket("orders", after=3, upto=90, query="tag=shop:1", columns=("sequence_number",))
    splits = client.plan(ticket, splits_min=5)
    assert len(splits) == 5
    assert [split.ticket.after for split in splits] == [3, *[split.ticket.upto for split in splits[:-1]]]
    assert splits[-1].ticket.upto == 90
    assert sum(split.events for split in splits) == 87
    found = [numbers(client, split.ticket) for split in splits]
    assert list(chain.from_iterable(found)) == numbers(client, ticket)
    assert {split.ticket.incarnation for split in splits} == {client.head("orders").incarnation}
    assert len(client.plan(ticket, split_bytes=1000)) == 4


def test_plans_and_schemas_refuse_as_reads_do(raw):
    assert refusal(lambda: raw.plan(log="orders", after=101))[1]["error"] == "invalid_position"
    assert refusal(lambda: raw.plan(log="orders", splits_min=0))[1]["error"] == "invalid_request"
    path = flight.FlightDescriptor.for_path("orders", "more")
    assert refusal(lambda: raw.client.get_flight_info(path))[1]["error"] == "invalid_request"
    with pytest.raises(pa.ArrowInvalid, match="log_not_found: there is no log 'nothing'") as refused:
        raw.client.get_schema(flight.FlightDescriptor.for_path("nothing"))
    assert "Traceback" not in str(refused.value) and ".py" not in str(refused.value)


def test_an_exchange_is_refused_without_a_traceback(raw):
    writer, reader = raw.client.do_exchange(flight.FlightDescriptor.for_path("orders"), raw.options)
    writer.done_writing()
    kind, told = refusal(reader.read_chunk)
    assert (kind, told["error"]) == (flight.FlightServerError, "invalid_request")
    assert told["message"] == "method: DoExchange is not supported; use DoGet, DoPut or DoAction"
    with pytest.raises(flight.FlightServerError) as refused:
        writer.close()
    assert "Traceback" not in str(refused.value) and ".py" not in str(refused.value)


def test_the_schema_can_be_asked_for(raw, client):
    assert raw.client.get_schema(flight.FlightDescriptor.for_path("orders")).schema == SCHEMA
    ticket = Ticket("orders", schema="spark", columns=("log", "recorded_at"))
    command = flight.FlightDescriptor.for_command(b'{"log":"orders","schema":"spark","columns":["log","recorded_at"]}')
    assert raw.client.get_schema(command).schema == client.schema(ticket)


def test_all_logs_are_listed(raw, store):
    store.create("other")
    listed = {info.descriptor.path[0]: info.total_records for info in raw.client.list_flights()}
    assert listed == {b"orders": 100, b"other": 0}
    assert refusal(lambda: list(raw.client.list_flights(b"ord")))[1]["error"] == "invalid_request"


class Endless(MemoryBackend):
    """Its scans never end; it counts the batches that were asked of it, and the scans that were closed."""

    made = closed = 0
    fails_at: int | None = None

    def scan(self, log, span, query, columns, batch_bytes=None):
        rows = record_batch(list(self.store.open(log).read()))
        wide = pa.concat_batches([rows] * 100).select(list(columns))
        try:
            while True:
                self.made += 1
                if self.made == self.fails_at:
                    raise ZeroDivisionError
                yield wide
        finally:
            self.closed += 1


def test_batches_are_made_only_as_the_client_takes_them(store, log):
    backend = Endless(store)
    with serving(backend) as server, BulkClient(f"grpc://127.0.0.1:{server.port}") as client:
        batches = client.read(Ticket("orders"))
        next(batches)
        time.sleep(0.3)
        assert backend.made < 30  # each has about 700 KB
        batches.close()
        eventually(lambda: backend.closed == 1 and server.gets.taken == 0)


def test_a_client_that_vanishes_leaves_nothing_behind(store, log):
    backend = Endless(store)
    with serving(backend) as server:
        raw = Raw(f"grpc://127.0.0.1:{server.port}")
        reader = raw.client.do_get(flight.Ticket(b'{"log":"orders"}'))
        reader.read_chunk()
        assert server.gets.taken == 1
        del reader
        raw.close()
        eventually(lambda: backend.closed == 1 and server.gets.taken == 0)


def test_a_stopping_server_ends_its_streams(store, log):
    backend = Endless(store)
    with serving(backend) as server, BulkClient(f"grpc://127.0.0.1:{server.port}", retries=0) as client:
        batches = client.read(Ticket("orders"))
        next(batches)
        stopped = threading.Thread(target=server.stop)
        stopped.start()
        with pytest.raises(Exception, match=r"log 'orders' is closed"):
            list(batches)
        stopped.join(30)
        assert not stopped.is_alive()


def test_a_client_that_takes_nothing_holds_a_stop_up_and_is_told_of(store, log):
    backend = Endless(store)
    with serving(backend) as server:
        raw = Raw(f"grpc://127.0.0.1:{server.port}")
        reader = raw.client.do_get(flight.Ticket(b'{"log":"orders"}'))
        reader.read_chunk()
        made = -1
        while made < backend.made:  # what the network takes by itself
            made = backend.made
            time.sleep(0.3)
        has_stopped = server.stop(timeout_s=0.3)
        reader.cancel()
        assert not has_stopped
        raw.close()


def test_a_fault_of_the_server_is_logged_and_not_told(store, log, caplog):
    backend = Endless(store)
    backend.fails_at = 2
    with serving(backend) as server:
        raw = Raw(f"grpc://127.0.0.1:{server.port}")
        kind, told = refusal(lambda: raw.get(log="orders"))
        raw.close()
    assert kind is flight.FlightInternalError
    assert told == {"error": "internal", "message": "internal error; see the server's log"}
    assert "a read of 'orders' failed" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_reads_beyond_the_limit_are_told_to_try_again(store, log):
    backend = Endless(store)
    with serving(backend, limits=StreamLimits(gets=2)) as server:
        raw = Raw(f"grpc://127.0.0.1:{server.port}")
        reader = raw.client.do_get(flight.Ticket(b'{"log":"orders"}'))
        reader.read_chunk()
        kind, told = refusal(lambda: raw.get(log="orders"))
        assert (kind, told["error"]) == (flight.FlightUnavailableError, "busy")
        assert told["message"] == "1 reads of one user are already open, the maximum; try again"
        reader.cancel()
        eventually(lambda: server.gets.taken == 0)
        raw.close()


class Large(MemoryBackend):
    """A log of a million events, all slices of the same batch."""

    rows, count = 8_192, 123

    def __init__(self, store):
        super().__init__(store)
        whole = record_batch([event._replace(data=b"x" * 100) for event in store.open("orders").read()])
        self.batch = pa.concat_batches([whole] * 82).slice(0, self.rows)

    def place(self, log):
        return LogPlace(Extent(self.rows * self.count, 1, "i"), LogSettings())

    def scan(self, log, span, query, columns, batch_bytes=None):
        for index in range(span.after // self.rows, span.upto // self.rows):
            numbers = pa.array(range(index * self.rows + 1, (index + 1) * self.rows + 1), pa.int64())
            yield self.batch.set_column(0, SCHEMA.field(0), numbers).select(list(columns))


def test_four_readers_read_a_million_events_each(store, log):
    backend = Large(store)
    with serving(backend) as server, BulkClient(f"grpc://127.0.0.1:{server.port}") as client:
        found = []

        def read():
            last = 0
            for batch in client.read(Ticket("orders", schema="spark", columns=("log", "sequence_number", "data"))):
                found.append(batch.num_rows)
                assert batch.column("sequence_number")[0].as_py() == last + 1
                last = batch.column("sequence_number")[-1].as_py()

        readers = [threading.Thread(target=read) for _ in range(4)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
    assert sum(found) == 4 * Large.rows * Large.count
