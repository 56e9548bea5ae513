"""The log in this process: reads, appends, scans, without a server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager

import pyarrow as pa

from headwater.core import AppendCondition, Event, Query, QueryItem
from headwater.storage import Engine
from headwater.storage.read.mapped_log import MappedLog

from ..clients import run_clients
from ..measure import expect
from ..stores.headwater_store import HeadwaterStore
from ..stores.store import AppendAsync
from ..workload import COMMON_TYPES, Workload
from .rows import Place, Row
from .slices import Cost, measured

CLIENTS, EACH = 64, 20
FILLED = "filled"
BATCH, ARROW_BATCH, IN_FLIGHT = 1000, 8192, 4


@contextmanager
def filled(place: Place) -> Iterator[HeadwaterStore]:
    """The store with all events of the workload; it is filled once."""
    with closing(HeadwaterStore(place.directory / FILLED)) as store:
        if not store.head():
            store.append_all(place.workload.batches(0, place.workload.total, BATCH), 8)
        yield store


def read_tag(place: Place) -> Cost:
    """Ten events of a tag drawn at random."""
    accounts = place.workload.account_numbers(100)

    def work(store: HeadwaterStore) -> Callable[[int], None]:
        def read(_: int) -> None:
            for number in accounts:
                expect("events of a tag", 10, len(store.read_tag(f"account:{number}")))

        return read

    with filled(place) as store:
        return measured(work(store), len(accounts))


def read_type(place: Place) -> Cost:
    """The newest 100 of a type."""
    with filled(place) as store:
        return measured(lambda _: [store.read_type(COMMON_TYPES[7], 100) for _ in range(20)], 20)


def scan_objects(place: Place) -> Cost:
    """Every event as an object."""
    with filled(place) as store:
        return measured(lambda _: store.scan(), place.workload.total, slices=5)


def scan_arrow(place: Place) -> Cost:
    """Every event in batches of Arrow, as another process reads the log that this one has."""
    total = place.workload.total
    with filled(place) as store, closing(MappedLog(store.log.directory)) as mapped:

        def scan(_: int) -> None:
            mapped.refresh(total)
            expect("events of a scan", total, sum(batch.num_rows for batch in mapped.scan(0, total)))

        return measured(scan, total, slices=10)


def singles(place: Place) -> Cost:
    """64 asyncio clients, one event each."""
    return _from_clients(place, lambda number: None)


def conditional(place: Place) -> Cost:
    """The same under conditions on two tags that hold."""

    def condition(number: int) -> AppendCondition:
        tags = (f"account:{number}", f"account:{number + CLIENTS}")
        return AppendCondition(Query.of(*(QueryItem(tags=(tag,)) for tag in tags)), 0)

    return _from_clients(place, condition)


def _from_clients(place: Place, condition: Callable[[int], AppendCondition | None]) -> Cost:
    async def client(append: AppendAsync, number: int) -> None:
        for events in work[number]:
            await append(events, condition(number))

    with closing(HeadwaterStore(place.directory / f"clients-{id(condition)}")) as store:
        slices = [_prepared(place.workload) for _ in range(31)]
        work = slices[0]

        def run(number: int) -> None:
            nonlocal work
            work = slices[number]
            run_clients(store, client, CLIENTS)

        return measured(run, CLIENTS * EACH)


def _prepared(workload: Workload) -> list[list[list[Event]]]:
    return [[workload.fresh(1) for _ in range(EACH)] for _ in range(CLIENTS)]


def batches(place: Place) -> Cost:
    """Batches of 1000 objects, some in flight."""
    with closing(HeadwaterStore(place.directory / "batches")) as store:
        prepared = [[place.workload.fresh(BATCH) for _ in range(8)] for _ in range(21)]
        return measured(lambda number: store.append_all(prepared[number], IN_FLIGHT), 8 * BATCH, slices=20)


def arrow_batches(place: Place) -> Cost:
    """Batches of 8192 rows of Arrow, one after the other."""
    with closing(Engine(place.directory / "arrow")) as engine:
        log = engine.create("bench")
        prepared = [_arrow(place.workload.fresh(ARROW_BATCH)) for _ in range(31)]
        return measured(lambda number: log.append_batch(prepared[number]), ARROW_BATCH)


def _arrow(events: Sequence[Event]) -> pa.RecordBatch:
    columns = {
        "type": [event.type for event in events],
        "data": [event.data for event in events],
        "tags": [list(event.tags) for event in events],
        "id": [event.id for event in events],
    }
    types = {"type": pa.string(), "data": pa.binary(), "tags": pa.list_(pa.string()), "id": pa.string()}
    return pa.record_batch([pa.array(columns[name], types[name]) for name in columns], names=list(columns))


ROWS = (
    Row("tag", "ten events of a tag, in process", read_tag, us_max=50),
    Row("type", "the newest 100 of a type, in process", read_type, us_max=180),
    Row("singles", "64 clients in process, one event each", singles, us_max=14, per_second_min=60_000),
    Row("conditional", "64 clients in process, under a condition", conditional, per_second_min=30_000),
    Row("batches", "batches of 1000 objects, per event", batches, per_second_min=230_000),
    Row("arrow", "batches of 8192 as Arrow, per event", arrow_batches, per_second_min=450_000),
    Row("scan", "a scan as objects, per event", scan_objects, per_second_min=1_200_000),
    Row("scan-arrow", "a scan as Arrow, per event", scan_arrow, per_second_min=8_000_000),
)
