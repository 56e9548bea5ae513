"""One stream: what goes on, what happens, and the newest events; for whom, and how much of it."""

from __future__ import annotations

import asyncio
import itertools
import json
import time

import pytest

from headwater.console import server as console
from headwater.console import stream
from headwater.console.history import SERIES_ASKED_MAX
from headwater.console.lag_series import LAG_SERIES
from headwater.console.live import LOGS_SHOWN, Live, Stats
from headwater.console.series import LOG_PEAKS, LOG_SERIES, SERVER_GAUGES, SERVER_PEAKS, SERVER_SERIES
from headwater.core import Event, OpenGuard
from headwater.core.access import ANYBODY, Grant, Right, User
from headwater.core.followers import Lag
from headwater.core.watch.notification_types import NotificationType
from headwater.storage.memory import MemoryStore
from tests.dcb.conftest import Client

from .hosting import console_host, sample

READER = User("alice", (Grant("orders*", frozenset({Right.READ})),))


class OneUser(OpenGuard):
    """A guard to whom everybody is one user."""

    is_open = False

    def __init__(self, user):
        self.alice, self.sealed = user, "seal"

    async def authenticate(self, credentials, peer):
        return self.alice

    def trusted(self, name, peer):
        return self.alice

    def session_user(self, secret, peer):
        return None

    def seal(self, name):
        return self.sealed

    def authorize(self, user, right, log):
        if not user.may(right, log):
            from headwater.core.access import Forbidden

            raise Forbidden(user.name, right, log)


class Setting:
    """A console over logs in memory."""

    def __init__(self, user=None):
        self.guard = OpenGuard() if user is None else OneUser(user)
        self.store = MemoryStore()
        self.orders, self.secret = self.store.create("orders"), self.store.create("secret")
        self.live = Live(lambda: sample(0.0))
        self.client = Client(console.Application(console_host(self.store, self.guard, self.live)))

    def run(self, scenario, **parameters):
        async def run():
            connection = self.client.connect("GET", "/console/stream", parameters=parameters)
            await connection.until(lambda each: each.messages and len(each.messages) > 1)
            try:
                return await scenario(connection)
            finally:
                connection.leave()
                async with asyncio.timeout(10):
                    await asyncio.gather(connection.task, return_exceptions=True)

        return self.client.run(run())


def told(connection, kind):
    """The data of all messages of a kind, so far."""
    blocks = connection.body.decode().split("\n\n")
    return [json.loads(each.partition("\ndata: ")[2]) for each in blocks if each.startswith(f"event: {kind}\n")]


@pytest.fixture
def setting_of():
    made = []

    def make(user=None):
        made.append(Setting(user))
        return made[-1]

    yield make
    for each in made:
        each.client.close()


def counts(value):
    return (value,) * len(LOG_SERIES)


def test_a_stream_tells_what_goes_on(setting_of):
    setting = setting_of()

    async def scenario(connection):
        assert connection.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert connection.headers["cache-control"] == "no-store"
        setting.live.add(sample(1000.0, 7, orders=counts(5)))
        await connection.until(lambda each: told(each, "stats"))
        [stats] = told(connection, "stats")
        assert stats["at"] == 1_000_000
        assert stats["logs"] == {"orders": {"head": 5, **dict.fromkeys(LOG_SERIES, 5), "commit_seconds_max": 0.0}}
        assert stats["server"] == dict.fromkeys([*SERVER_SERIES, *SERVER_GAUGES], 7)
        setting.live.add(sample(1001.0, 8))
        await connection.until(lambda each: len(told(each, "stats")) == 2)
        assert setting.live.watchers == 1

    setting.run(scenario)
    assert setting.live.watchers == 0


def test_who_may_less_is_told_less(setting_of):
    setting = setting_of(READER)

    async def scenario(connection):
        setting.live.add(sample(1000.0, 7, orders=counts(5), secret=counts(6)))
        await connection.until(lambda each: told(each, "stats"))
        [stats] = told(connection, "stats")
        assert set(stats) == {"at", "logs"} and set(stats["logs"]) == {"orders"}
        setting.store.bus.emit(NotificationType.LOG_TRIMMED, log="secret", firstRetained=5, previousFirstRetained=1)
        setting.store.bus.emit(NotificationType.LOG_TRIMMED, log="orders", firstRetained=5, previousFirstRetained=1,
                               user="bob")  # fmt: skip
        await connection.until(lambda each: told(each, "happening"))
        [happening] = told(connection, "happening")
        assert happening["log"] == "orders" and "user" not in happening

    setting.run(scenario)


def test_rights_are_those_of_the_moment_and_a_login_that_ends_ends_it(setting_of):
    setting = setting_of(READER)

    async def scenario(connection):
        setting.guard.alice = User("alice", ())
        setting.orders.append([Event("T", b"")])
        await asyncio.sleep(0)
        setting.live.add(sample(1000.0, 7, orders=counts(5)))
        await connection.until(lambda each: told(each, "stats"))
        assert told(connection, "stats")[-1]["logs"] == {} and not told(connection, "tail")
        setting.guard.sealed = "another"
        await connection.until(lambda each: each.is_complete)

    setting.run(scenario, log="orders")


def test_the_newest_events_are_told_and_how_many_are_not(setting_of, monkeypatch):
    monkeypatch.setattr(stream, "TAIL_S", 0.01)
    setting = setting_of()
    setting.orders.append([Event("Before", b"")])
    hostile = Event("\u202e'; rm -rf ~", b"\xff" * 1000, ("<script>", "a\u2028b"))

    async def scenario(connection):
        setting.orders.append([hostile, Event("T", b'{"n":9223372036854775807}')])
        await connection.until(lambda each: told(each, "tail"))
        [tail] = told(connection, "tail")
        first, second = tail["events"]
        assert (tail["log"], tail["head"], tail["left_out"]) == ("orders", 3, 0)
        assert (first["sequence_number"], first["type"], first["tags"]) == (2, hostile.type, list(hostile.tags))
        assert first["data_bytes"] == 1000 and len(first["data_base64"]) == 344 and "data" not in first
        assert second["data"] == '{"n":9223372036854775807}'
        setting.orders.append([Event("T", b"x" * 100)] * 1000)
        await connection.until(lambda each: len(told(each, "tail")) > 1)
        later = told(connection, "tail")[1:]
        assert sum(len(each["events"]) + each["left_out"] for each in later) == 1000
        assert later[-1]["events"][-1]["sequence_number"] == 1003
        assert len(later[-1]["events"]) <= stream.TAIL_EVENTS

    setting.run(scenario, log="orders,secret")


def test_a_message_of_events_with_many_tags_is_not_long(setting_of):
    tags = tuple(f"{number}:{'x' * 1000}" for number in range(100))
    events = [event for event in _stored(setting_of().orders, [Event("T", b"", tags)] * 5)]
    assert len(stream._shortened(reversed(events))) == 1


def _stored(log, events):
    log.append(events)
    return log.read()


def test_a_log_that_is_deleted_ends_its_tail_alone(setting_of, monkeypatch):
    monkeypatch.setattr(stream, "TAIL_S", 0.01)
    setting = setting_of()

    async def scenario(connection):
        setting.store.delete("orders")
        setting.secret.append([Event("T", b"")])
        await connection.until(lambda each: told(each, "tail"))
        assert [each["log"] for each in told(connection, "tail")] == ["secret"]

    setting.run(scenario, log="orders,secret")


def test_a_log_that_is_made_anew_is_followed_from_its_first_event_on(setting_of, monkeypatch):
    monkeypatch.setattr(stream, "TAIL_S", 0.01)
    setting = setting_of()
    setting.orders.append([Event("Before", b"")] * 3)

    async def scenario(connection):
        setting.store.delete("orders")
        setting.live.add(sample(1000.0))
        await connection.until(lambda each: told(each, "stats"))
        await asyncio.to_thread(lambda: setting.store.create("orders").append([Event("Anew", b"")]))
        for second in itertools.count(1):
            setting.live.add(sample(1000.0 + second))
            await connection.until(lambda each, second=second: len(told(each, "stats")) > second)
            if tails := told(connection, "tail"):
                break
        assert [(tail["log"], [each["type"] for each in tail["events"]], tail["left_out"]) for tail in tails] == [
            ("orders", ["Anew"], 0)
        ]

    setting.run(scenario, log="orders")


@pytest.mark.parametrize("log", ["", ",", "a,a", "a,,b", ",".join(f"l{n}" for n in range(9))])
def test_bad_names_of_logs_are_refused(setting_of, log):
    answer = setting_of().client.get("/console/stream", parameters={"log": log})
    assert (answer.status, answer.json["parameter"]) == (400, "log")


def test_logs_that_are_not_there_or_not_for_the_user_are_refused(setting_of):
    assert setting_of().client.get("/console/stream", parameters={"log": "none"}).code == "log_not_found"
    reader = setting_of(READER).client
    assert reader.get("/console/stream", parameters={"log": "orders,secret"}).code == "forbidden"


def test_so_many_streams_and_no_more(setting_of):
    setting = setting_of()
    setting.live.watchers = stream.STREAMS_MAX
    answer = setting.client.get("/console/stream")
    assert answer.status == 503 and answer.headers["retry-after"] == "5"


def test_one_user_does_not_take_all_places(setting_of):
    setting = setting_of(READER)
    for _ in range(stream.STREAMS_OF_USER_MAX):
        setting.live.look(READER.name)
    answer = setting.client.get("/console/stream")
    assert answer.status == 503 and "of alice" in answer.json["detail"]
    setting.guard.alice = User("bob", READER.grants)

    async def scenario(connection):
        assert connection.status == 200 and setting.live.watchers_of("bob") == 1

    setting.run(scenario)
    assert setting.live.watchers_of("bob") == 0
    setting.live.leave(READER.name)
    setting.guard.alice = READER
    setting.run(lambda connection: asyncio.sleep(0))


def test_a_place_is_taken_before_anything_is_waited_for(setting_of, monkeypatch):
    monkeypatch.setattr(stream, "STREAMS_MAX", 3)
    setting = setting_of()

    async def scenario():
        connections = [setting.client.connect("GET", "/console/stream") for _ in range(6)]
        for each in connections:
            await each.until(lambda one: one.messages)
        statuses = sorted(each.status for each in connections)
        for each in connections:
            each.leave()
        async with asyncio.timeout(10):
            await asyncio.gather(*(each.task for each in connections), return_exceptions=True)
        return statuses

    assert setting.client.run(scenario()) == [200] * 3 + [503] * 3
    assert setting.live.watchers == 0


def test_who_takes_nothing_is_dropped(setting_of, monkeypatch):
    monkeypatch.setattr(stream, "TAKE_S", 0.05)
    setting = setting_of()

    async def scenario():
        connection = setting.client.connect("GET", "/console/stream", takes=2)
        await connection.until(lambda each: len(each.messages) == 2)
        setting.live.add(sample(1000.0))
        async with asyncio.timeout(10):
            await connection.task
        assert len(connection.messages) == 2 and not connection.is_complete

    setting.client.run(scenario())
    assert setting.live.watchers == 0


def test_stats_are_of_the_busiest_logs():
    logs = {f"l{number:03}": counts(number) for number in range(LOGS_SHOWN + 5)}
    before = sample(1000.0, **dict.fromkeys(logs, counts(0)))
    seen = json.loads(Stats(sample(1001.0, **logs), before).seen_by(ANYBODY))
    assert len(seen["logs"]) == LOGS_SHOWN and seen["other_logs"] == 5
    assert next(iter(seen["logs"])) == "l104" and "l004" not in seen["logs"]


def test_a_log_that_was_not_there_before_did_all_that_it_counts():
    busy, idle = {"busy": counts(5)}, {"idle": counts(0)}
    seen = json.loads(Stats(sample(1001.0, **idle, **busy), sample(1000.0, **idle)).seen_by(ANYBODY))
    assert list(seen["logs"]) == ["busy", "idle"]
    both = sample(1001.0, a=counts(9), b=counts(5))
    assert list(json.loads(Stats(both, sample(1000.0, a=counts(9))).seen_by(ANYBODY))["logs"]) == ["b", "a"]


def test_nobody_who_looks_costs_a_measurement_every_five_seconds_and_one_each_second():
    live = Live(lambda: sample(0.0))
    for second in range(11):
        live.add(sample(1000.0 + second))
    assert live.stats is None
    assert [value for value in live.series.values("streams", None, 5, 1010.0) if value is not None] == [0.0] * 3


def test_history_goes_on_where_the_clock_is_set_back():
    live = Live(lambda: sample(0.0))
    for at in (90_000.0, 90_005.0, 1000.0, 1005.0, 1010.0):
        live.add(sample(at, at))
    for name, of_each in (("streams", [1000.0, 1005.0, 1010.0]), ("requests", [None, 1.0, 1.0])):
        assert live.series.values(name, None, 5, 1010.0)[-3:] == of_each
        assert set(live.series.values(name, None, 5, 1010.0)[:-3]) == {None}


def test_the_measuring_task_measures_at_once_for_who_begins_to_look():
    taken = []

    def measure():
        taken.append(len(taken))
        return sample(1000.0 + len(taken))

    async def scenario():
        live = Live(measure)
        running = asyncio.ensure_future(live.run())
        await live.next
        assert live.stats is None
        live.look()
        async with asyncio.timeout(4):  # and not five seconds later
            await live.next
        assert live.stats is not None
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(scenario())
    assert len(taken) >= 2


# History


def test_history_is_what_was_measured(setting_of):
    setting = setting_of()
    now = time.time()
    for at, count in ((now - 5, 0), (now, 10)):
        setting.live.add(sample(at, count, orders=counts(count)))
    names = setting.client.get("/console/history").json["series"]
    of_log = [f"orders/{name}" for name in (*LOG_SERIES, *LOG_PEAKS)]
    assert names == [*SERVER_SERIES, *SERVER_GAUGES, *SERVER_PEAKS, *of_log]
    found = setting.client.get("/console/history", parameters={"series": "requests,orders/commits"}).json
    assert found["step_s"] == 5 and abs(found["newest_at"] - now * 1000) < 60_000
    assert [[value for value in values if value is not None] for values in found["series"].values()] == [[2.0], [2.0]]
    assert {len(values) for values in found["series"].values()} == {720}
    day = setting.client.get("/console/history", parameters={"series": "requests", "step": "60"}).json
    assert len(day["series"]["requests"]) == 1440


def test_history_is_of_what_one_may_see(setting_of):
    setting = setting_of(READER)
    for at in (1000.0, 1005.0):
        setting.live.add(sample(at, 0, orders=counts(0), secret=counts(0)))
    client = setting.client
    assert client.get("/console/history").json["series"] == [f"orders/{name}" for name in (*LOG_SERIES, *LOG_PEAKS)]
    assert client.get("/console/history", parameters={"series": "orders/commits"}).status == 200
    for name, log in (("secret/commits", "secret"), ("none/commits", "none"), ("requests", "*")):
        answer = client.get("/console/history", parameters={"series": name})
        assert (answer.code, answer.json["log"]) == ("forbidden", log)


def test_history_of_a_consumer_takes_the_right_to_read_its_log(setting_of):
    setting = setting_of(READER)
    now = time.time()
    lags = {f"{log}/billing/a%2Fb": Lag(5, 2500) for log in ("orders", "secret")}
    setting.live.add(sample(now), lags)
    client = setting.client
    own = "orders/billing/a%2Fb/lag_seconds"
    assert client.get("/console/history").json["series"] == ["orders/billing/a%2Fb/lag_events", own]
    found = client.get("/console/history", parameters={"series": own}).json["series"]
    assert [value for value in found[own] if value is not None] == [2.5]
    answer = client.get("/console/history", parameters={"series": "secret/billing/a%2Fb/lag_seconds"})
    assert (answer.code, answer.json["log"]) == ("forbidden", "secret")
    for name in ("orders/billing/none/lag_events", "orders/lag_events"):
        assert client.get("/console/history", parameters={"series": name}).status == 400


def test_history_of_others_takes_the_rights_to_what_they_read_and_durable_links_the_server_s(setting_of):
    now = time.time()
    names = [f"{kind}:{log}/x" for log in ("orders", "secret") for kind in ("durable", "group", "stream", "webhook")]
    reader, root = setting_of(READER), setting_of()
    for each in (reader, root):
        each.live.add(sample(now), dict.fromkeys(names, Lag(5, 2500)))
    assert reader.client.get("/console/history").json["series"] == [
        f"{kind}:orders/x/{name}" for kind in ("group", "stream", "webhook") for name in LAG_SERIES
    ]
    assert {f"{name}/lag_seconds" for name in names} < set(root.client.get("/console/history").json["series"])
    for name, log in (
        ("group:secret/x", "secret"), ("durable:orders/x", "*"), ("durable:durable:orders/x", "*"),
        ("group:secret", "secret"), ("none:secret/x", "secret"), ("orders:secret/x", "secret"), ("", ""),
    ):  # fmt: skip
        answer = reader.client.get("/console/history", parameters={"series": f"{name}/lag_seconds"})
        assert (answer.code, answer.json["log"]) == ("forbidden", log), name
    for name in ("group:orders/none", "none:orders/x", "x:durable:orders/x", "orders/x"):
        assert reader.client.get("/console/history", parameters={"series": f"{name}/lag_events"}).status == 400, name
    found = reader.client.get("/console/history", parameters={"series": "group:orders/x/lag_events"}).json["series"]
    assert [value for value in found["group:orders/x/lag_events"] if value is not None] == [5.0]


@pytest.mark.parametrize(("parameters", "name"), [
    ({"series": "none"}, "series"), ({"series": ""}, "series"), ({"series": "orders/none"}, "series"),
    ({"series": "'; rm -rf ~/\u202e"}, "series"), ({"step": "1"}, "step"), ({"step": ""}, "step"),
    ({"from": "1"}, "from"),
    ({"series": ",".join(["requests"] * (SERIES_ASKED_MAX + 1))}, "series"),
])  # fmt: skip
def test_bad_questions_for_history_are_refused(setting_of, parameters, name):
    answer = setting_of().client.get("/console/history", parameters=parameters)
    assert (answer.status, answer.json["parameter"]) == (400, name)
