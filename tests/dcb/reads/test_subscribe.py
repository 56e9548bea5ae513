"""Subscriptions as Server-Sent Events, read by the rules of the HTML standard."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field

import pytest

from headwater.core import Event

EVERYTHING = {"query": "all"}


@dataclass
class EventSource:
    """What an EventSource makes of a stream (HTML standard, 9.2.6): messages, and the last event id."""

    last_event_id: str = ""
    messages: list = field(default_factory=list)
    comments: list = field(default_factory=list)

    def feed(self, stream: bytes) -> EventSource:
        for block in stream.decode().split("\n\n")[:-1]:
            data = None
            for line in block.split("\n"):
                name, _, value = line.partition(":")
                value = value.removeprefix(" ")
                if name == "id":
                    self.last_event_id = value
                elif name == "data":
                    data = value if data is None else f"{data}\n{value}"
                elif name == "":
                    self.comments.append(value)
            if data is not None:
                self.messages.append((self.last_event_id, json.loads(data)))
        return self


def source(connection):
    return EventSource().feed(connection.body)


def numbers(connection):
    return [envelope["sequence_number"] for _, envelope in source(connection).messages]


def subscribe(client, parameters=EVERYTHING, **keywords):
    return client.connect("GET", "/logs/courses/subscribe", parameters=parameters, **keywords)


def test_subscription_catches_up_then_follows(client, store):
    log = store.open("courses")
    log.append([Event("T"), Event("T")])

    async def scenario():
        connection = subscribe(client)
        await connection.until(lambda self: len(numbers(self)) == 2)
        assert connection.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert connection.headers["headwater-head"] == "2"
        log.append([Event("T")])
        await connection.until(lambda self: len(numbers(self)) == 3)
        assert [id for id, _ in source(connection).messages] == ["1", "2", "3"]
        connection.leave()
        await connection.task

    client.run(scenario())


def test_last_event_id_moves_over_what_does_not_match(client, store):
    log = store.open("courses")
    log.append([Event("A"), Event("B"), Event("B")])

    async def scenario():
        connection = subscribe(client, {"query": '{"items":[{"types":["A"]}]}', "heartbeat": "0.1"})
        await connection.until(lambda self: source(self).last_event_id == "3")
        assert numbers(connection) == [1]
        log.append([Event("B")])
        await connection.until(lambda self: source(self).last_event_id == "4")
        assert numbers(connection) == [1]
        connection.leave()
        await connection.task

    client.run(scenario())


def test_heartbeat_is_sent_where_nothing_happens(client):
    async def scenario():
        connection = subscribe(client, EVERYTHING | {"heartbeat": "0.1"})
        await connection.until(lambda self: source(self).comments.count("heartbeat") == 2)
        assert source(connection).last_event_id == "0"
        connection.leave()
        await connection.task

    client.run(scenario())


@pytest.mark.parametrize(("parameters", "headers", "expected"), [
    ({"from": 3}, {}, [3, 4]),
    ({"after": 3}, {}, [4]),
    ({"from": 1}, {"last-event-id": "2"}, [3, 4]),
    ({"after": 0}, {"last-event-id": ""}, [1, 2, 3, 4]),
])  # fmt: skip
def test_subscription_begins_where_it_is_told_and_last_event_id_wins(client, store, parameters, headers, expected):
    store.open("courses").append([Event("T") for _ in range(4)])

    async def scenario():
        connection = subscribe(client, EVERYTHING | parameters, headers=headers)
        await connection.until(lambda self: source(self).last_event_id == "4")
        assert numbers(connection) == expected
        connection.leave()
        await connection.task

    client.run(scenario())


def test_subscription_to_one_partition(client, store):
    client.put("/logs/courses2", {"partitions": 2})
    log = store.open("courses2")
    log.append([Event("T")], partition=0)
    log.append([Event("T")], partition=1)

    async def scenario():
        connection = client.connect("GET", "/logs/courses2/subscribe", parameters=EVERYTHING | {"partition": 1})
        await connection.until(lambda self: source(self).messages)
        assert [(each["sequence_number"], each["partition"]) for _, each in source(connection).messages] == [(2, 1)]
        connection.leave()
        await connection.task

    client.run(scenario())


@pytest.mark.parametrize(("parameters", "headers", "parameter"), [
    ({}, {}, "query"),
    ({"query": "some"}, {}, "query"),
    ({"query": "{"}, {}, "query"),
    ({"query": '{"items":[]}'}, {}, "query"),
    ({"query": '{"items":[{"types":[""]}]}'}, {}, "query"),
    (EVERYTHING | {"from": "x"}, {}, "from"),
    (EVERYTHING | {"from": "0"}, {}, "from"),
    (EVERYTHING | {"from": "1", "after": "1"}, {}, "from"),
    (EVERYTHING | {"partition": "1"}, {}, "partition"),
    (EVERYTHING | {"heartbeat": "0"}, {}, "heartbeat"),
    (EVERYTHING | {"heartbeat": "nan"}, {}, "heartbeat"),
    (EVERYTHING | {"heartbeat": "soon"}, {}, "heartbeat"),
    (EVERYTHING | {"pace": "1"}, {}, "pace"),
    (EVERYTHING, {"last-event-id": "abc"}, "Last-Event-ID"),
])  # fmt: skip
def test_bad_parameter_is_refused_by_name(client, parameters, headers, parameter):
    answer = client.get("/logs/courses/subscribe", parameters=parameters, headers=headers)
    assert (answer.status, answer.code, answer.json["parameter"]) == (400, "invalid_request", parameter)


def test_wrong_position_is_refused_before_the_stream_begins(client, store):
    store.open("courses").append([Event("T") for _ in range(4)])
    store.open("courses").trim(3)
    answer = client.get("/logs/courses/subscribe", parameters=EVERYTHING | {"from": 2})
    assert (answer.status, answer.code, answer.json["first_retained"]) == (410, "position_trimmed", 3)
    answer = client.get("/logs/courses/subscribe", parameters=EVERYTHING, headers={"last-event-id": "1"})
    assert (answer.status, answer.code) == (410, "position_trimmed")
    client.ask("DELETE", "/logs/courses")
    client.put("/logs/courses")
    answer = client.get("/logs/courses/subscribe", parameters=EVERYTHING, headers={"last-event-id": "3"})
    assert (answer.status, answer.code) == (410, "position_of_other_incarnation")


def test_slow_client_holds_back_the_subscription(client, store):
    log = store.open("courses")
    log.append([Event("T") for _ in range(5000)])
    pages = []
    read_page = log.read_page
    log.read_page = lambda *arguments, **keywords: pages.append(1) or read_page(*arguments, **keywords)

    async def scenario():
        connection = subscribe(client, takes=3)
        await connection.until(lambda self: len(self.messages) == 3)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(pages) <= 2
        connection.take(100)
        await connection.until(lambda self: source(self).last_event_id == "5000")
        assert len(numbers(connection)) == 5000
        connection.leave()
        await connection.task

    client.run(scenario())


def test_subscription_ends_in_order_when_the_server_stops(client):
    async def scenario():
        connection = subscribe(client)
        await connection.until(lambda self: len(self.messages) >= 2)
        client.app.stop()
        await connection.end()
        assert connection.is_complete
        late = await subscribe(client).end()
        assert (late.status, late.code) == (503, "stopping")
        assert "retry-after" in late.headers

    client.run(scenario())


def test_subscription_ends_when_its_log_is_deleted(client):
    async def scenario():
        connection = subscribe(client)
        await connection.until(lambda self: len(self.messages) >= 2)
        assert (await client.connect("DELETE", "/logs/courses").end()).status == 204
        await connection.end()
        assert connection.is_complete

    client.run(scenario())


def test_subscription_goes_on_when_settings_change(client, store):
    async def scenario():
        connection = subscribe(client)
        await connection.until(lambda self: len(self.messages) >= 2)
        assert (await client.connect("PUT", "/logs/courses").end()).status == 200
        assert (await client.connect("PATCH", "/logs/courses", {"retention_ms": 10**9}).end()).status == 200
        store.open("courses").append([Event("T")])
        await connection.until(lambda self: numbers(self) == [1])
        connection.leave()
        await connection.task

    client.run(scenario())


def test_reader_overtaken_by_a_trim_is_ended_and_then_told(client, store):
    log = store.open("courses")
    log.append([Event("T") for _ in range(1500)])

    async def scenario():
        connection = subscribe(client, takes=3)
        await connection.until(lambda self: len(self.messages) == 3)
        log.trim(1400)
        connection.take(100)
        await connection.end()
        assert connection.is_complete
        return source(connection)

    seen = client.run(scenario())
    assert [envelope["sequence_number"] for _, envelope in seen.messages] == list(range(1, 1001))
    answer = client.get("/logs/courses/subscribe", parameters=EVERYTHING, headers={"last-event-id": seen.last_event_id})
    assert (answer.status, answer.json["first_retained"]) == (410, 1400)


def test_subscription_that_nobody_reads_any_more_lets_go_of_the_log(client, store):
    async def scenario():
        connections = [subscribe(client) for _ in range(3)]
        for connection in connections:
            await connection.until(lambda self: len(self.messages) >= 2)
            connection.leave()
            await connection.end()
        return len([task for task in asyncio.all_tasks() if task is not asyncio.current_task()])

    assert client.run(scenario()) == 0
