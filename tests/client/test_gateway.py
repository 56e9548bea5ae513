"""Clients behind a proxy. While the server is away it answers 502, 503 or 504, and does not say what was done."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.client.gateway import Failure, Gateway
from tests.client.served_memory import ServedMemory
from tests.server.running import RunningServer, headwater

from headwater.client import RemoteLog, ServerUnreachable, aio, connect
from headwater.core import AppendCondition, AppendResult, Event, Query, errors
from headwater.decisions import Decision, decide, event

WAIT_S = 60.0
STOPPING = Failure(503, body=json.dumps({"type": "urn:headwater:problem:stopping", "detail": "stopping"}).encode())
STARTING = Failure(503, body=b'{"type": "urn:headwater:problem:unready", "detail": "the server is starting"}')
FAILURES = (
    Failure(502), Failure(504), Failure(504, is_after=True), Failure(502, is_after=True), Failure(503), Failure(408),
    Failure(520, is_after=True), Failure(526),
)  # fmt: skip
FOR_EVER = 1000


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


class Restarting:
    """A server behind a gateway, that is killed and comes back."""

    def __init__(self, gateway: Gateway, start: Callable[[], RunningServer]) -> None:
        self.gateway, self._start = gateway, start
        self._server = start()
        gateway.upstream_port = _port(self._server)

    def restart(self) -> None:
        """Kill it, and start it again as soon as the gateway has answered in its place."""
        self._server.process.kill()
        self._server.process.wait()
        assert self.gateway.has_failed.wait(WAIT_S)
        self._server = self._start()
        self.gateway.upstream_port = _port(self._server)

    def append(self, *types: str) -> None:
        """Append at the server itself."""
        with connect(self._server.url) as client:
            client.create("orders").append([Event(each) for each in types])


@pytest.fixture
def restarting(tmp_path: Path) -> Iterator[Restarting]:
    with ExitStack() as ending, Gateway(0) as gateway:
        yield Restarting(gateway, lambda: ending.enter_context(RunningServer(cwd=tmp_path)))


def _port(server: RunningServer) -> int:
    return int(server.url.rpartition(":")[2])


def behind(restarting: Restarting, act: Callable[[], Any], after: Callable[[], None] = lambda: None) -> Any:
    """What comes of it, while the server is restarted; `after` is done when it is back."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(act()))
    thread.start()
    restarting.restart()
    after()
    thread.join(WAIT_S)
    assert found, "it ended without a result, or not at all"
    return found[0]


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
        told = f"'orders' is not known: .*a proxy answered {failure.status}: .*; append them again"
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


UNSETTLED = (
    _refusal(401, "unauthenticated"), _refusal(403, "forbidden", right="append", log="orders"),
    _refusal(500, "internal"), _refusal(507, "disk_full", free_bytes=1, needed_bytes=2), Failure(500),
)  # fmt: skip


@pytest.mark.parametrize("refusal", UNSETTLED, ids=lambda failure: f"{failure.status}")
def test_a_refusal_after_a_lost_answer_leaves_the_append_in_doubt(
    gateway: Gateway, log: RemoteLog, refusal: Failure
) -> None:
    with connect(gateway.url, retry_s=WAIT_S) as client:
        gateway.failures += [Failure(504, is_after=True), refusal]
        with pytest.raises(errors.OutcomeUnknown, match=r"is not known: .*; append them again, with the same ids"):
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
    assert "whether the events are in log 'orders' is not known" in done.stderr


def test_an_append_goes_on_through_a_restart(restarting: Restarting) -> None:
    restarting.append("A")

    def append() -> AppendResult:
        with connect(restarting.gateway.url, retry_s=WAIT_S) as client:
            log = client.log("orders")
            while not restarting.gateway.has_failed.is_set():
                log.append([Event("B")])
            return log.append([Event("C")])

    last = behind(restarting, append).last
    with connect(restarting.gateway.url) as client:
        assert [each.sequence_number for each in client.log("orders").read()] == list(range(1, last + 1))


def test_a_subscription_goes_on_through_a_restart(restarting: Restarting) -> None:
    restarting.append("A")
    with (
        connect(restarting.gateway.url, retry_s=WAIT_S) as client,
        client.log("orders").subscribe() as subscription,
    ):
        assert len(subscription.poll(WAIT_S)) == 1
        found = behind(restarting, lambda: subscription.poll(None), lambda: restarting.append("B"))
        assert [each.sequence_number for each in found] == [2]


def test_work_goes_on_through_a_restart(restarting: Restarting) -> None:
    restarting.append("A")
    with (
        connect(restarting.gateway.url, retry_s=WAIT_S) as client,
        client.log("orders").work("billing", start="earliest") as work,
    ):
        batches = iter(work)
        assert [each.sequence_number for each in next(batches)] == [1]
        restarting.restart()
        restarting.append("B")
        assert [each.sequence_number for each in next(batches)][-1] == 2


def test_tasks_go_on_through_a_restart(restarting: Restarting) -> None:
    restarting.append("A")

    async def scenario() -> list[int]:
        async with asyncio.timeout(2 * WAIT_S), aio.connect(restarting.gateway.url, retry_s=WAIT_S) as client:
            log = client.log("orders")
            async with await log.subscribe() as subscription:
                assert len(await subscription.poll(WAIT_S)) == 1
                following = asyncio.create_task(subscription.poll(None))
                await asyncio.to_thread(restarting.restart)
                await log.append([Event("B")])
                return [each.sequence_number for each in await following]

    assert asyncio.run(scenario()) == [2]
