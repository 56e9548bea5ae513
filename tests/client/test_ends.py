"""Behind a proxy that ends what broke off as if it were whole, a reader gets all, or an error: never a part of it."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from http.client import HTTPConnection, IncompleteRead
from typing import Any

import pyarrow as pa
import pytest
from tests.client.gateway import Framing, Gateway
from tests.client.served_memory import ServedMemory

from headwater.client import RemoteLog, ServerUnreachable, aio, connect
from headwater.core import Event, Query, reading
from headwater.formats.clients import retry
from headwater.formats.packed import PageParser

EVENTS, PAGE_EVENTS = 10, 3
ALL = list(range(1, EVENTS + 1))
WHOLE = 1 << 30
"""More than any body has."""
WAYS = [(http, framing) for http in ("1.0", "1.1") for framing in Framing]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small pages, and short pauses."""
    monkeypatch.setattr(reading, "PAGE_EVENTS", PAGE_EVENTS)
    monkeypatch.setattr(retry, "PAUSE_S_MIN", 0.001)


@pytest.fixture
def filled(log: RemoteLog) -> RemoteLog:
    log.append([Event("AB"[number % 2], b"%d" % number, (f"n:{number}",)) for number in ALL])
    return log


def cuts_of(url: str, accept: str) -> list[int]:
    """Every border between two pieces of a read, one place within each piece, and the last byte."""
    connection = HTTPConnection(url.removeprefix("http://"))
    fields = {"accept": accept, "content-type": "application/json"}
    connection.request("POST", "/logs/orders/read", b'{"query": "all"}', fields)
    answer = connection.getresponse()
    assert answer.chunked
    cuts, sent = [], 0
    while piece := answer.read1():  # one chunk at most
        cuts += [sent, sent + len(piece) // 2]
        sent += len(piece)
    connection.close()
    assert len(cuts) >= 2 * EVENTS // PAGE_EVENTS
    return [*cuts, sent - 1]


def numbers_of(events: Any) -> list[int]:
    return [each.sequence_number for each in events]


def in_part(events: Iterator[Any]) -> list[int] | None:
    """The numbers of what came; None where an error says that it is not all."""
    try:
        return numbers_of(events)
    except ServerUnreachable:
        return None


@pytest.mark.parametrize(
    ("http", "framing", "demands_end"),
    [(*way, True) for way in WAYS] + [("1.1", framing, False) for framing in (Framing.CHUNKED, Framing.CONNECTION)],
)
def test_a_read_that_is_cut_goes_on_or_fails(
    served: ServedMemory, filled: RemoteLog, http: str, framing: Framing, demands_end: bool
) -> None:
    cuts = cuts_of(served.url, "application/vnd.msgpack" + (";end=page" if demands_end else ""))
    with (
        Gateway(served.port, http=http, framing=framing) as gateway,
        connect(gateway.url, retry_s=10) as patient,
        connect(gateway.url, retry_s=0) as impatient,
    ):
        gateway.demands_end = demands_end
        for cut in cuts:
            gateway.cuts.append(cut)
            assert numbers_of(patient.log("orders").read()) == ALL, cut
            gateway.cuts.append(cut)
            assert in_part(impatient.log("orders").read()) in (ALL, None), cut
            gateway.cuts.clear()
        is_said = demands_end or framing is not Framing.CONNECTION
        assert in_part(impatient.log("orders").read()) == (ALL if is_said else None)


CONTENT_TYPES: dict[str, Callable[[str], str | None]] = {
    "space": lambda given: given.replace(";", "; "),
    "quoted": lambda given: given.replace("end=page", 'end="page"'),
    "upper": str.upper,
    "charset": lambda given: f"{given}; charset=utf-8",
    "stripped": lambda given: given.partition(";")[0],
    "other": lambda _: "application/octet-stream",
    "gone": lambda _: None,
}


@pytest.mark.parametrize("content_type", CONTENT_TYPES.values(), ids=CONTENT_TYPES)
def test_a_gateway_that_changes_the_media_type_makes_no_read_short(
    served: ServedMemory, filled: RemoteLog, content_type: Callable[[str], str | None]
) -> None:
    cuts = cuts_of(served.url, "application/vnd.msgpack;end=page")

    async def in_a_task(gateway: Gateway) -> list[int]:
        async with aio.connect(gateway.url, retry_s=10) as client:
            return numbers_of(await (await client.log("orders").read()).rest())

    with (
        Gateway(served.port, http="1.1", framing=Framing.LENGTH) as gateway,
        connect(gateway.url, retry_s=10) as patient,
        connect(gateway.url, retry_s=0) as impatient,
    ):
        gateway.content_type = content_type
        for cut in [*cuts[:4], WHOLE]:
            gateway.cuts.append(cut)
            assert numbers_of(patient.log("orders").read()) == ALL, cut
            gateway.cuts.append(cut)
            assert in_part(impatient.log("orders").read()) in (ALL, None), cut
            gateway.cuts.clear()
        gateway.cuts.append(cuts[2])
        assert asyncio.run(in_a_task(gateway)) == ALL


@pytest.mark.parametrize("demands_end", [True, False], ids=["end", "0.1"])
@pytest.mark.parametrize("bounds", [
    {"backwards": True}, {"limit": 7}, {"after": 2, "limit": 3}, {"query": Query.where(types=["B"])}, {"limit": 0},
    {"query": Query.where(tags=["n:5"])}, {"query": Query.where(tags=["n:0"])}, {"upto": 8}, {"after": EVENTS},
], ids=str)  # fmt: skip
def test_whatever_is_read_and_however_often_it_is_cut(
    served: ServedMemory, filled: RemoteLog, bounds: dict[str, Any], demands_end: bool
) -> None:
    expected = numbers_of(filled.read(**bounds))
    with Gateway(served.port) as gateway, connect(gateway.url, retry_s=10) as client:
        gateway.demands_end = demands_end
        for cut in (0, 90, 200, 300, 400):
            gateway.cuts += [cut, cut, cut + 100, cut]
            assert numbers_of(client.log("orders").read(**bounds)) == expected, cut
            gateway.cuts.clear()


@pytest.mark.parametrize("bounds", [{}, {"backwards": True}, {"limit": 5}], ids=str)
def test_a_server_of_0_1_proves_that_nothing_is_left(
    served: ServedMemory, filled: RemoteLog, bounds: dict[str, Any]
) -> None:
    with Gateway(served.port, http="1.1") as gateway, connect(gateway.url, retry_s=0) as client:
        gateway.demands_end = gateway.passes_lengths = False
        log = client.log("orders")
        assert numbers_of(log.read(Query.where(tags=["n:0"]), **bounds)) == []
        assert numbers_of(log.read(Query.where(tags=["n:5"]), **bounds)) == [5]
        for cut in range(3):
            gateway.cuts += [0, cut]  # an answer that seems to bring nothing, and the array that is to prove it
            assert in_part(log.read(Query.where(tags=["n:5"]), **bounds)) in ([5], None)
            gateway.cuts.clear()


def test_an_iteration_that_failed_fails_again_or_goes_on_and_never_looks_finished(
    served: ServedMemory, filled: RemoteLog
) -> None:
    with Gateway(served.port) as gateway, connect(gateway.url, retry_s=0) as client:
        gateway.cuts += [300, 0, 0]
        iteration, seen = iter(client.log("orders").read()), []
        for fails in (True, True, True, False):
            with pytest.raises(ServerUnreachable if fails else StopIteration):
                while True:
                    seen.append(next(iteration).sequence_number)
        assert seen == ALL


@pytest.mark.parametrize("http", ["1.0", "1.1"])
def test_a_subscription_whose_stream_is_cut_anywhere_goes_on(served: ServedMemory, log: RemoteLog, http: str) -> None:
    with Gateway(served.port, http=http) as gateway, connect(gateway.url, retry_s=10) as client:
        for cut in range(0, 1200, 150):
            gateway.cuts += [WHOLE, WHOLE, cut]  # two reads come first
            with client.log("orders").subscribe(after=(head := log.head())) as subscription:
                assert subscription.poll(0.02) == ()
                log.append([Event("A", id=f"{cut}-{number}") for number in range(4)])
                found: list[int] = []
                while len(found) < 4:
                    found += numbers_of(subscription.poll(None))
            assert found == list(range(head + 1, head + 5)), cut
            gateway.cuts.clear()


def test_an_iteration_over_a_subscription_that_failed_never_looks_finished(
    served: ServedMemory, filled: RemoteLog
) -> None:
    async def scenario(gateway: Gateway) -> None:
        async with aio.connect(gateway.url, retry_s=0) as client, await client.log("orders").subscribe() as following:
            gateway.cuts += [0, 0]
            iteration = aiter(following)
            for _ in range(2):
                with pytest.raises(ServerUnreachable):
                    await anext(iteration)
            assert [(await anext(iteration)).sequence_number for _ in ALL] == ALL

    with Gateway(served.port) as gateway, connect(gateway.url, retry_s=0) as client:
        with client.log("orders").subscribe() as subscription:
            gateway.cuts += [0, 0]
            iteration = iter(subscription)
            for _ in range(2):
                with pytest.raises(ServerUnreachable):
                    next(iteration)
            assert [next(iteration).sequence_number for _ in ALL] == ALL
        asyncio.run(scenario(gateway))


def test_a_whole_answer_that_is_cut_is_asked_for_again(served: ServedMemory, filled: RemoteLog) -> None:
    with (
        Gateway(served.port, http="1.1", framing=Framing.CONNECTION) as gateway,
        connect(gateway.url, retry_s=10) as client,
    ):
        for cut in (0, 1, 10):
            gateway.cuts += [cut, cut]
            assert client.logs() == ["orders"]
            gateway.cuts += [cut, cut]
            assert client.log("orders").append([Event("once", id=str(cut))]).was_stored


def test_a_log_that_grows_does_not_lengthen_a_read(served: ServedMemory, filled: RemoteLog) -> None:
    with Gateway(served.port) as gateway, connect(gateway.url, retry_s=10) as client:
        for gateway.demands_end in (True, False):
            gateway.cuts.append(300)
            whole = client.log("orders").read()
            filled.append([Event("later")] * 10)
            assert numbers_of(whole) == list(range(1, whole.head + 1))


@pytest.mark.parametrize(("http", "framing"), WAYS)
def test_a_read_of_a_task_that_is_cut_goes_on_or_fails(
    served: ServedMemory, filled: RemoteLog, http: str, framing: Framing
) -> None:
    cuts = cuts_of(served.url, "application/vnd.msgpack;end=page")

    async def scenario(gateway: Gateway) -> None:
        async with aio.connect(gateway.url, retry_s=10) as patient, aio.connect(gateway.url, retry_s=0) as impatient:
            for cut in cuts:
                gateway.cuts.append(cut)
                assert numbers_of(await (await patient.log("orders").read()).rest()) == ALL, cut
                gateway.cuts.append(cut)
                with pytest.raises(ServerUnreachable):
                    await (await impatient.log("orders").read()).rest()

    with Gateway(served.port, http=http, framing=framing) as gateway:
        asyncio.run(scenario(gateway))


def _whole_pages(body: bytes, content_type: str) -> list[int]:
    parser = PageParser()
    events = parser.receive_data(body)
    if content_type != "application/vnd.msgpack;end=page" or not parser.has_ended:
        raise ValueError("not whole")
    return numbers_of(events)


def _whole_lines(body: bytes, content_type: str) -> list[int]:
    assert content_type == "application/x-ndjson;end=line"
    *events, end = [json.loads(line) for line in body.splitlines()]
    if end != {"end": EVENTS}:
        raise ValueError("not whole")
    return [each["sequence_number"] for each in events]


class _Ending(io.BytesIO):
    """A stream that knows the last eight bytes that were read of it."""

    last = b""

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self.last = (self.last + data)[-8:]
        return data


def _whole_batches(body: bytes, _: str) -> list[int]:
    stream = _Ending(body)
    numbers = [number for batch in pa.ipc.open_stream(stream) for number in batch["sequence_number"].to_pylist()]
    if stream.last != b"\xff\xff\xff\xff\0\0\0\0":
        raise EOFError("not whole")
    return numbers


READERS: dict[str, Callable[[bytes, str], list[int]]] = {
    "application/vnd.msgpack;end=page": _whole_pages,
    "application/x-ndjson;end=line": _whole_lines,
    "application/json": lambda body, _: [each["sequence_number"] for each in json.loads(body)],
    "application/cloudevents-batch+json": lambda body, _: [int(each["sequence"]) for each in json.loads(body)],
    "application/vnd.apache.arrow.stream": _whole_batches,
}


@pytest.mark.parametrize(("http_version", "framing"), WAYS)
@pytest.mark.parametrize("accept", READERS)
def test_every_form_says_where_it_ends(
    served: ServedMemory, filled: RemoteLog, accept: str, http_version: str, framing: Framing
) -> None:
    cuts = cuts_of(served.url, accept)
    with Gateway(served.port, http=http_version, framing=framing) as gateway:
        for cut in [*cuts, WHOLE]:
            gateway.cuts.append(cut)
            try:
                body, content_type = _read(gateway.url, accept)
                found = READERS[accept](body, content_type)
            except (ValueError, EOFError, pa.ArrowInvalid, IncompleteRead):
                found = None
            assert found == ALL or (found is None and cut != WHOLE), cut


def _read(url: str, accept: str) -> tuple[bytes, str]:
    connection = HTTPConnection(url.removeprefix("http://"))
    fields = {"accept": accept, "content-type": "application/json", "connection": "close"}
    connection.request("POST", "/logs/orders/read", b'{"query": "all"}', fields)
    with closing(connection), connection.getresponse() as answer:
        assert answer.status == 200
        return answer.read(), answer.headers["content-type"]
