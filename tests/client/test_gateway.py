"""Clients behind a proxy. While the server is away it answers 502, 503 or 504, and does not say what was done."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.client.application import LOG, Application
from tests.client.gateway import Failure, Framing, Gateway
from tests.client.served_memory import ServedMemory
from tests.server.running import RunningServer, headwater

from headwater.client import RemoteLog, Server, ServerUnreachable, UnexpectedAnswer, aio, connect
from headwater.client.protocol import follow
from headwater.client.sync import subscription as subscription_module
from headwater.core import AppendCondition, AppendResult, Event, Query, errors
from headwater.core.log import PAGE_EVENTS
from headwater.core.settings import LogSettings
from headwater.dcb.reads import subscribe as server_subscribe
from headwater.decisions import Decision, decide, event

WAIT_S = 60.0
IDLE_S = 2.5
"""So long a subscription is idle: twice as long as it awaits a sign of life."""
STOPPING = Failure(503, body=json.dumps({"type": "urn:headwater:problem:stopping", "detail": "stopping"}).encode())
STARTING = Failure(503, body=b'{"type": "urn:headwater:problem:unready", "detail": "the server is starting"}')
FAILURES = (
    Failure(502), Failure(504), Failure(504, is_after=True), Failure(502, is_after=True), Failure(503), Failure(408),
    Failure(520, is_after=True), Failure(526),
)  # fmt: skip
FOR_EVER = 1000
RESTARTS = 2
CUTS = [0, 10_000, 50_000, 70_000] * 10
"""Of the last bodies before a restart so many bytes are passed on, as if they were whole."""


def named(failure: Failure) -> str:
    """What is read in a report."""
    return f"{failure.status} {'after' if failure.is_after else 'before'}"


@pytest.fixture
def gateway(served: ServedMemory) -> Iterator[Gateway]:
    with Gateway(served.port) as gateway:
        yield gateway


@event
class Registered:
    """What a decision leads to."""

    form: str


@pytest.mark.parametrize("failure", FAILURES, ids=named)
def test_what_is_asked_is_repeated(gateway: Gateway, log: RemoteLog, failure: Failure) -> None:
    with connect(gateway.url, retry_s=WAIT_S) as client:
        orders = client.log("orders")
        gateway.failures += [failure, failure]
        assert orders.append([Event("A"), Event("B")]) == AppendResult(1, 2, failure.is_after)
        gateway.failures.append(failure)
        assert [each.event.type for each in orders.read()] == ["A", "B"]
        gateway.failures.append(failure)
        assert client.logs() == ["orders"]
    assert log.head() == 2


@pytest.mark.parametrize("failure", FAILURES, ids=named)
def test_what_is_asked_by_a_task_is_repeated(gateway: Gateway, log: RemoteLog, failure: Failure) -> None:
    async def scenario() -> None:
        async with asyncio.timeout(WAIT_S), aio.connect(gateway.url, retry_s=WAIT_S) as client:
            orders = client.log("orders")
            gateway.failures += [failure, failure]
            assert await orders.append([Event("A"), Event("B")]) == AppendResult(1, 2, failure.is_after)
            gateway.failures.append(failure)
            assert len(await (await orders.read()).rest()) == 2

    asyncio.run(scenario())
    assert log.head() == 2


def test_a_decision_whose_answers_are_lost_is_taken_once(gateway: Gateway, log: RemoteLog) -> None:
    with connect(gateway.url, retry_s=WAIT_S) as client:
        gateway.failures += [Failure(502), Failure(504, is_after=True)]
        decided = decide(client.log("orders"), Decision(lambda: [Registered("form-1")]))
    assert (decided.first, decided.last, log.head()) == (1, 1, 1)


FOREIGN = tuple(
    Failure(503, True, b'{"type": "%b", "title": "Upstream is away"}' % type)
    for type in (b"https://gateway.example/unavailable", b"about:blank", b"stopping")
)
"""Problem documents, and none of ours."""


@pytest.mark.parametrize("failure", [Failure(502), Failure(504, is_after=True), Failure(503), *FOREIGN], ids=named)
def test_an_append_that_is_given_up_is_not_called_failed(gateway: Gateway, log: RemoteLog, failure: Failure) -> None:
    events = [Event("A", id="1"), Event("B", id="2")]
    with connect(gateway.url, retry_s=0) as client:
        orders = client.log("orders")
        gateway.failures.append(failure)
        told = f"'orders': .*a proxy answered {failure.status}: .*; append them again"
        with pytest.raises(errors.OutcomeUnknown, match=told):
            orders.append(events)
        assert log.head() == (2 if failure.is_after else 0)
        assert orders.append(events) == AppendResult(1, 2, failure.is_after)
        gateway.failures.append(failure)
        with pytest.raises(ServerUnreachable, match=f"a proxy answered {failure.status}"):
            orders.read()
        gateway.failures.append(failure)
        with pytest.raises(ServerUnreachable, match=f"a proxy answered {failure.status}"):
            client.logs()


@pytest.mark.parametrize("failure", [Failure(502), Failure(504, is_after=True)], ids=named)
def test_an_append_of_a_task_that_is_given_up_is_not_called_failed(
    gateway: Gateway, log: RemoteLog, failure: Failure
) -> None:
    async def scenario() -> None:
        async with asyncio.timeout(WAIT_S), aio.connect(gateway.url, retry_s=0) as client:
            gateway.failures.append(failure)
            with pytest.raises(errors.OutcomeUnknown, match="append them again"):
                await client.log("orders").append([Event("A")])

    asyncio.run(scenario())
    assert log.head() == int(failure.is_after)


def test_a_refusal_says_nothing_of_an_attempt_before_it(gateway: Gateway, log: RemoteLog) -> None:
    with connect(gateway.url, retry_s=0.5) as client:
        gateway.failures += [Failure(504, is_after=True), *[STOPPING] * FOR_EVER]
        with pytest.raises(errors.OutcomeUnknown, match="stopping"):
            client.log("orders").append([Event("A")])
    assert log.head() == 1


def _refusal(status: int, code: str, **members: object) -> Failure:
    problem = {"type": f"urn:headwater:problem:{code}", "detail": f"it is {code}", **members}
    return Failure(status, body=json.dumps(problem).encode())


REFUSALS = (
    _refusal(401, "unauthenticated"), _refusal(403, "forbidden", right="append", log="orders"),
    _refusal(507, "disk_full", free_bytes=1, needed_bytes=2), _refusal(400, "of_a_later_version"),
)  # fmt: skip
OTHERS = (
    Failure(500, True), Failure(530, True), Failure(499, True), Failure(429, True), Failure(302, True),
    Failure(200, True, b"{}"), _refusal(500, "internal")._replace(is_after=True),
)  # fmt: skip
"""Neither an acknowledgement nor a refusal."""


@pytest.mark.parametrize("failure", OTHERS, ids=named)
def test_an_answer_that_is_neither_of_the_servers_leaves_the_append_in_doubt(
    gateway: Gateway, log: RemoteLog, failure: Failure
) -> None:
    with connect(gateway.url, retry_s=WAIT_S) as client:
        gateway.failures.append(failure)
        with pytest.raises(
            errors.OutcomeUnknown,
            match=r"it is unknown whether the events are in .*; append " r"them again with the same ids",
        ) as it:
            client.log("orders").append([Event("A"), Event("B")])
        assert f"({', '.join(it.value.ids)})" in str(it.value)
        again = [Event(type, id=id) for type, id in zip("AB", it.value.ids, strict=True)]
        assert client.log("orders").append(again) == AppendResult(1, 2, was_stored=True)


def test_a_connection_that_ends_leaves_the_append_in_doubt(gateway: Gateway, log: RemoteLog) -> None:
    async def scenario() -> None:
        async with aio.connect(gateway.url, retry_s=0) as client:
            gateway.failures.append(Failure(0, is_after=True))
            with pytest.raises(errors.OutcomeUnknown, match=r"with the same ids \(`ids` of this error\)") as caught:
                await client.log("orders").append([Event("A")] * 9)
            assert len(set(caught.value.ids)) == 9

    asyncio.run(scenario())
    with connect(gateway.url, retry_s=0.5) as client:
        gateway.failures += [Failure(502, is_after=True), *[Failure(0)] * FOR_EVER]
        with pytest.raises(errors.OutcomeUnknown, match="with the same ids"):
            client.log("orders").append([Event("A")])
    assert log.head() == 10


def test_a_batch_that_is_left_in_doubt_has_its_ids(gateway: Gateway, log: RemoteLog) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    batch = pyarrow.record_batch({"type": ["A", "B"], "data": [b"", b""]})
    with connect(gateway.url) as client:
        gateway.failures.append(Failure(500, is_after=True))
        with pytest.raises(errors.OutcomeUnknown) as caught:
            client.log("orders").append_batch(batch)
    assert list(caught.value.ids) == [each.event.id for each in log.read()] and log.head() == 2


def test_an_append_that_was_never_sent_is_not_in_doubt() -> None:
    with connect("http://127.0.0.1:1", retry_s=0) as client, pytest.raises(ServerUnreachable):
        client.log("orders").append([Event("A")])


def test_an_import_that_is_in_doubt_says_what_to_do(gateway: Gateway, log: RemoteLog, tmp_path: Path) -> None:
    (tmp_path / "orders.csv").write_text("type,id\nA,1\nA,2\n")
    gateway.failures.append(Failure(500, is_after=True))
    arguments = ("import", "orders.csv", "orders", "--type-column", "type", "--url", gateway.url)
    done = headwater(*arguments, cwd=tmp_path)
    assert (done.returncode, log.head()) == (3, 2), done.stderr
    assert (
        "500: " in done.stderr and "it is unknown whether the events are in log 'orders'; run it again" in done.stderr
    )
    assert headwater(*arguments, cwd=tmp_path).returncode == 0
    assert log.head() == 2


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda failure: f"{failure.status}")
def test_a_refusal_after_a_lost_answer_leaves_the_append_in_doubt(
    gateway: Gateway, log: RemoteLog, refusal: Failure
) -> None:
    with connect(gateway.url, retry_s=WAIT_S) as client:
        gateway.failures += [Failure(504, is_after=True), refusal]
        with pytest.raises(
            errors.OutcomeUnknown,
            match=r"it is unknown whether the events are in .*; " r"append them again with the same ids",
        ):
            client.log("orders").append([Event("A")])
        gateway.failures.append(refusal)
        with pytest.raises(errors.EventLogError) as caught:
            client.log("orders").append([Event("A")])
        assert not isinstance(caught.value, errors.OutcomeUnknown), "no answer was lost"
    assert log.head() == 1


def test_a_refusal_of_a_task_after_a_lost_answer_leaves_the_append_in_doubt(gateway: Gateway, log: RemoteLog) -> None:
    async def scenario() -> None:
        async with asyncio.timeout(WAIT_S), aio.connect(gateway.url, retry_s=WAIT_S) as client:
            gateway.failures += [Failure(502, is_after=True), Failure(500)]
            with pytest.raises(errors.OutcomeUnknown, match="append them again"):
                await client.log("orders").append([Event("A")])

    asyncio.run(scenario())
    assert log.head() == 1


def test_a_condition_that_fails_after_a_lost_answer_settles_the_append(gateway: Gateway, log: RemoteLog) -> None:
    log.append([Event("A")])
    with connect(gateway.url, retry_s=WAIT_S) as client:
        gateway.failures.append(Failure(504))
        with pytest.raises(errors.AppendConditionFailed):
            client.log("orders").append([Event("A")], AppendCondition(Query.where(types=["A"]), 0))
    assert log.head() == 1


def test_a_repeated_deletion_leaves_a_log_that_was_made_meanwhile(gateway: Gateway, server: Server) -> None:
    def make_anew() -> None:
        server.create("orders").append([Event("Precious")])

    server.create("orders")
    gateway.meanwhile = make_anew
    with connect(gateway.url, retry_s=WAIT_S) as client:
        gateway.failures += [None, Failure(502, is_after=True)]
        client.delete("orders")
    assert server.log("orders").head() == 1


def test_a_repeated_deletion_of_a_task_leaves_a_log_that_was_made_meanwhile(gateway: Gateway, server: Server) -> None:
    async def scenario() -> None:
        async with aio.connect(gateway.url, retry_s=WAIT_S) as client:
            gateway.failures += [None, Failure(502, is_after=True)]
            await client.delete("orders")

    server.create("orders")
    gateway.meanwhile = lambda: server.create("orders").append([Event("Precious")]).last
    asyncio.run(scenario())
    assert server.log("orders").head() == 1


def test_a_log_that_is_gone_after_a_lost_answer_is_deleted(gateway: Gateway, server: Server, tmp_path: Path) -> None:
    server.create("orders")
    gateway.failures += [None, None, Failure(504, is_after=True)]  # the command looks at it first
    done = headwater("logs", "delete", "orders", "--yes", "--url", gateway.url, cwd=tmp_path)
    assert (done.returncode, done.stdout, server.logs()) == (0, "deleted orders\n", [])


def test_what_may_undo_the_work_of_others_is_sent_once(gateway: Gateway, server: Server) -> None:
    log = server.create("orders")
    log.append([Event("A")] * 9)
    log.register_consumer("me", "mine", after=2)
    with connect(gateway.url, retry_s=WAIT_S) as client:
        orders, loss = client.log("orders"), Failure(502, is_after=True)
        gateway.meanwhile = lambda: log.reset_consumer("me", "mine", 7)
        gateway.failures.append(loss)
        with pytest.raises(errors.OutcomeUnknown, match=r"the outcome is unknown: .*; check, and repeat"):
            orders.reset_consumer("me", "mine", 4)
        assert [each.acknowledged for each in log.consumers()] == [7]
        gateway.meanwhile = lambda: log.register_consumer("me", "mine", after=2)
        gateway.failures.append(loss)
        with pytest.raises(errors.OutcomeUnknown):
            orders.unregister_consumer("me", "mine")
        assert len(log.consumers()) == 1
        gateway.meanwhile = lambda: server.change("orders", LogSettings(event_bytes_max=2000))
        gateway.failures.append(loss)
        with pytest.raises(errors.OutcomeUnknown):
            client.change("orders", LogSettings(event_bytes_max=3000))
        assert log.info().settings.event_bytes_max == 2000
        for change in (
            lambda: client.management.create("user", "alice", {}),
            lambda: client.management.update("user", "alice", {}),
            lambda: client.management.delete("user", "alice"),
        ):
            gateway.failures.append(Failure(502))
            with pytest.raises(errors.OutcomeUnknown):
                change()


@pytest.mark.parametrize("failure", [STOPPING, STARTING], ids=["stopping", "starting"])
def test_an_append_that_the_server_refused_is_not_in_doubt(gateway: Gateway, log: RemoteLog, failure: Failure) -> None:
    with connect(gateway.url, retry_s=0.2) as client:
        gateway.failures += [failure] * FOR_EVER
        with pytest.raises(errors.Closed):
            client.log("orders").append([Event("A")])
    assert log.head() == 0


def test_the_command_line_repeats_and_tells_when_it_does_not_know(
    gateway: Gateway, log: RemoteLog, tmp_path: Path
) -> None:
    append = ("append", "orders", "--url", gateway.url, "--type", "A", "--data", "{}")
    gateway.failures += [Failure(502), Failure(504)]
    done = headwater(*append, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    gateway.failures.append(Failure(504, is_after=True))
    done = headwater(*append, "--retry-s", "0", cwd=tmp_path)
    assert (done.returncode, log.head()) == (3, 2)
    [id] = re.findall(
        r"it is unknown whether the events are in log 'orders'; run it again with --id (\S+);", done.stderr
    )
    done = headwater(*append, "--id", id, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "event 2 already existed\n")
    (tmp_path / "events.ndjson").write_text('{"type":"A","id":"1"}\n{"type":"B"}\n')
    gateway.failures.append(Failure(500, is_after=True))
    done = headwater("append", "orders", "--url", gateway.url, "--events", "events.ndjson", cwd=tmp_path)
    assert (done.returncode, log.head()) == (3, 4)
    stored = [each.event.id for each in log.read(after=2)]
    told = "; run it again with these ids, one for each line of its input; the events are stored only once:"
    assert done.stderr.endswith("\n".join((told, *stored, "")))


def test_what_a_gateway_compresses_is_said_with_what_helps(gateway: Gateway, log: RemoteLog) -> None:
    def told(asked: str, came: str) -> str:
        return f"expected .*{asked}, got {came}.* compressed by gzip: .* have it pass Accept, Accept-Encoding"

    json_told, problem = (
        told("application/json", "application/json"),
        told("application/json", "application/problem.json"),
    )
    log.append([Event("A")])
    with connect(gateway.url, retry_s=WAIT_S) as client:
        orders = client.log("orders")
        gateway.compresses = "/logs"
        for ask in (client.logs, orders.head, orders.info):
            with pytest.raises(UnexpectedAnswer, match=json_told):
                ask()
        with pytest.raises(UnexpectedAnswer, match=told("msgpack;end=page", "application/vnd.msgpack")):
            list(orders.read())
        with pytest.raises(errors.OutcomeUnknown, match=json_told):
            orders.append([Event("B")])
        with pytest.raises(UnexpectedAnswer, match=f"404: {problem}"):
            client.log("missing").head()
        gateway.compresses = "/subscribe"
        with (
            orders.subscribe(after=0) as subscription,
            pytest.raises(UnexpectedAnswer, match=told("text/event-stream", "")),
        ):
            list(subscription)
    assert log.head() == 2


def test_a_poll_behind_a_proxy_that_holds_streams_back_ends_at_its_deadline(
    served: ServedMemory, log: RemoteLog
) -> None:
    async def scenario() -> None:
        async with aio.connect(gateway.url, timeout_s=5, retry_s=0) as client:
            subscription = await client.log("orders").subscribe(after=0)
            assert len(await subscription.poll(0.05)) == 2
            for _ in range(2):
                assert await subscription.poll(0.05) == ()
            await client.log("orders").append([Event("C")])
            assert len(await subscription.poll(0.05)) == 1
            subscription.close()

    log.append([Event("A")])
    with Gateway(served.port, framing=Framing.LENGTH) as gateway:
        with (
            connect(gateway.url, timeout_s=5, retry_s=0) as client,
            client.log("orders").subscribe(after=0) as subscription,
        ):
            assert len(subscription.poll(0.05)) == 1
            for _ in range(2):
                assert subscription.poll(0.05) == ()
            log.append([Event("B")])
            assert len(subscription.poll(0.05)) == 1
        asyncio.run(scenario())


EVENT_STREAM = "text/event-stream"
STREAMS = (
    (Failure(502), "a proxy answered 502: .*Bad day"),
    (Failure(200, body=b"", content_type=EVENT_STREAM), "the subscription ended"),
    (Failure(200, body=b"retry: 1000\n\n", content_type=EVENT_STREAM), "the subscription ended"),
    (Failure(204, body=b""), "answer 204: expected text/event-stream, got no media type"),
    (Failure(200), "answer 200: expected text/event-stream, got text/html"),
    (Failure(200, body=b"retry: 1000\n\n"), "answer 200: expected text/event-stream, got text/html"),
)
"""None of them ever brings an event; and what is said of each."""


@pytest.mark.parametrize(("failure", "told"), STREAMS)
def test_a_subscription_whose_stream_never_works_says_so(
    gateway: Gateway, log: RemoteLog, failure: Failure, told: str
) -> None:
    async def scenario() -> None:
        async with asyncio.timeout(WAIT_S), aio.connect(gateway.url, retry_s=0.3) as client:
            subscription = await client.log("orders").subscribe(after=0)
            with pytest.raises(ServerUnreachable, match=told):
                async for _ in subscription:
                    pass

    log.append([Event("A")] * 3)
    gateway.to_streams = failure
    with connect(gateway.url, retry_s=0.3) as client, client.log("orders").subscribe(after=0) as subscription:
        closing = threading.Timer(10, subscription.close)
        closing.start()
        assert [event.sequence_number for event in itertools.islice(subscription, 3)] == [1, 2, 3]
        for _ in range(2):  # it has patience again
            with pytest.raises(ServerUnreachable, match=told):
                list(subscription)
        closing.cancel()
        gateway.to_streams = None
        log.append([Event("B")])
        assert next(iter(subscription)).sequence_number == 4
    gateway.to_streams = failure
    asyncio.run(scenario())


def test_a_stream_that_a_proxy_ends_before_the_first_heartbeat_has_worked(
    gateway: Gateway, log: RemoteLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription_module, "LASTING_S", 0.0)
    gateway.to_streams = Failure(200, body=b"retry: 1000\n\n", content_type=EVENT_STREAM)
    with connect(gateway.url, retry_s=0.1) as client, client.log("orders").subscribe(after=0) as subscription:
        closing = threading.Timer(1, subscription.close)
        closing.start()
        assert list(subscription) == []
        closing.join()


def _is_idle(gateway: Gateway, **terms: float) -> None:
    """A subscription to a log that gets nothing waits, by a thread and by a task at once, until it is closed."""

    def by_a_thread() -> None:
        with connect(gateway.url, **terms) as client, client.log("orders").subscribe() as subscription:
            closing = threading.Timer(IDLE_S, subscription.close)
            closing.start()
            assert list(subscription) == []
            closing.join()

    async def by_a_task() -> None:
        async with aio.connect(gateway.url, **terms) as client:
            subscription = await client.log("orders").subscribe()
            asyncio.get_running_loop().call_later(IDLE_S, subscription.close)
            assert [event async for event in subscription] == []

    _together(by_a_thread, by_a_task)


def _together(by_a_thread: Callable[[], None], by_a_task: Callable[[], Awaitable[None]]) -> None:
    """Both wait for time more than they work."""

    async def both() -> None:
        await asyncio.gather(asyncio.to_thread(by_a_thread), by_a_task())

    asyncio.run(both())


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize("endless", [b"", b"data: x"], ids=["heartbeats", "an event that comes slowly"])
def test_an_idle_subscription_goes_on_however_short_an_answer_is_awaited(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, endless: bytes
) -> None:
    monkeypatch.setattr(server_subscribe, "CURSOR_INTERVAL_S", 0.0)
    monkeypatch.setattr(follow, "HEARTBEAT_S_MIN", 0.4)
    monkeypatch.setattr(follow, "UNASKED_SILENCE_S", 0.0)
    gateway.to_streams_for_ever = endless
    _is_idle(gateway, timeout_s=1, retry_s=0)


@pytest.mark.usefixtures("log")
def test_it_goes_on_where_its_server_is_not_told_how_often_it_wants_a_heartbeat(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_subscribe, "HEARTBEAT_S", 1.5)  # and not 15
    monkeypatch.setattr(follow, "HEARTBEAT_S_MIN", 0.1)
    monkeypatch.setattr(follow, "UNASKED_SILENCE_S", 20.0)
    gateway.passes_heartbeats = False
    _is_idle(gateway, timeout_s=1, retry_s=0)


@pytest.mark.parametrize("endless", [b": x\r\n", b": x\n\n", b": x\n" * 10_000])
def test_comments_without_a_number_are_no_sign_of_life(
    gateway: Gateway, log: RemoteLog, monkeypatch: pytest.MonkeyPatch, endless: bytes
) -> None:
    told = "neither events nor heartbeats"

    def by_a_thread() -> None:
        with connect(gateway.url, timeout_s=1, retry_s=0) as client, client.log("orders").subscribe() as subscription:
            closing = threading.Timer(10, subscription.close)
            closing.start()
            with pytest.raises(ServerUnreachable, match=told):
                next(iter(subscription))
            closing.cancel()

    async def by_a_task() -> None:
        async with aio.connect(gateway.url, timeout_s=1, retry_s=0) as client:
            subscription = await client.log("orders").subscribe()
            asyncio.get_running_loop().call_later(10, subscription.close)
            with pytest.raises(ServerUnreachable, match=told):
                await anext(aiter(subscription))

    monkeypatch.setattr(follow, "HEARTBEAT_S_MIN", 0.1)
    monkeypatch.setattr(follow, "UNASKED_SILENCE_S", 0.0)
    gateway.to_streams_for_ever = endless
    _together(by_a_thread, by_a_task)


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize("held", ["/subscribe", "/read"])
def test_closing_wakes_whoever_waits_for_the_head_of_a_stream(gateway: Gateway, held: str) -> None:
    async def scenario() -> None:
        async with aio.connect(gateway.url) as client:
            subscription = await client.log("orders").subscribe()
            gateway.holds = held
            iterating = asyncio.ensure_future(anext(aiter(subscription), None))
            assert await asyncio.to_thread(gateway.is_paused.wait, 20)
            subscription.close()
            async with asyncio.timeout(10):
                assert await iterating is None
            assert client._transport.targets.current.problem is None, "the address is well"

    try:
        with connect(gateway.url) as client:
            subscription = client.log("orders").subscribe()
            gateway.holds = held
            thread = threading.Thread(target=lambda: list(subscription), daemon=True)
            thread.start()
            assert gateway.is_paused.wait(20)
            subscription.close()
            thread.join(10)
            assert not thread.is_alive()
            assert client._transport.targets.current.problem is None, "the address is well"
        gateway.is_paused.clear()
        gateway.holds = "nothing"
        asyncio.run(scenario())
    finally:
        gateway.go.set()


def test_every_way_in_goes_on_through_restarts(tmp_path: Path) -> None:
    with ExitStack() as ending, Gateway(0) as gateway:
        gateway.away = itertools.cycle([Failure(502), Failure(503), Failure(504), *FOREIGN])

        def start() -> RunningServer:
            server = ending.enter_context(RunningServer("--data", "data", cwd=tmp_path))
            gateway.upstream_port = int(server.url.rpartition(":")[2])
            return server

        server = start()
        with connect(gateway.url) as client:
            client.create(LOG).append([Event("There")] * (PAGE_EVENTS + 1))  # so that reads come in pieces
        application = Application(gateway.url)
        ending.callback(application.give_up)
        for _ in range(RESTARTS):
            application.goes_on()
            unknown = application.counts["unknown"]
            gateway.cuts += CUTS
            application.wait_for(lambda: not gateway.cuts)
            server.process.kill()
            server.process.wait()
            application.wait_for(lambda unknown=unknown: application.counts["unknown"] > unknown)
            server = start()
        application.goes_on()
        application.end()
        with connect(server.url) as client:
            reading = client.log(LOG).read()
            application.check(list(reading), reading.head)
