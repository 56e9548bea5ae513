"""CREATE, READ, UPDATE and DELETE of logs, partitions and registered consumers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headwater.core import Event
from headwater.core.errors import LogNotFound, StorageCorrupted
from headwater.core.settings import LogSettings
from headwater.management.entities import LOG
from headwater.management.logs import SETTINGS
from headwater.management.statuses import Status
from headwater.storage.engine import Engine

from ..storage.builders import without_identities
from .asking import CONSUMER_TYPE, LOG_TYPE, PARTITION_TYPE, Node, user


@pytest.fixture
def node() -> Node:
    node = Node()
    node.store.create("orders", LogSettings(partitions=2))
    return node


# Logs


def test_create_answers_the_attributes_of_the_new_log(node: Node) -> None:
    answer: Any = node.log("new", {"partitions": 3, "retentionMs": 5000}, operation="CREATE")
    assert answer.status == Status.CREATED
    assert answer.body == node.log("new").body
    assert (answer.body["partitions"], answer.body["retentionMs"], answer.body["head"]) == (3, 5000, 0)
    assert node.store.open("new").settings == LogSettings(partitions=3, retention_ms=5000)


@pytest.mark.parametrize("body", [None, {}])
def test_create_without_attributes_takes_the_defaults(node: Node, body: Any) -> None:
    assert node.log("new", body, operation="CREATE").status == Status.CREATED
    assert node.store.open("new").settings == LogSettings()


def test_create_may_repeat_name_and_type(node: Node) -> None:
    assert node.log("new", {"name": "new", "type": LOG_TYPE}, operation="CREATE").status == Status.CREATED
    assert node.log("other", {"name": "new"}, operation="CREATE").status == Status.BAD_REQUEST


def test_create_of_what_is_there_is_a_conflict(node: Node) -> None:
    assert node.log("orders", {"partitions": 2}, operation="CREATE").status == Status.CONFLICT
    assert node.log("orders", operation="CREATE").status == Status.CONFLICT


def test_create_takes_no_identity(node: Node) -> None:
    answer = node.ask("CREATE", type=LOG_TYPE, identity="log/new")
    assert answer.status == Status.BAD_REQUEST
    assert node.ask("CREATE", type=LOG_TYPE, name="new", identity="log/new").status == Status.BAD_REQUEST


@pytest.mark.parametrize("name", ["", "a/b", "$system", "x" * 65, ".hidden", "new\n"])
def test_create_with_a_name_that_no_log_may_have_is_a_bad_request(node: Node, name: str) -> None:
    assert node.log(name, operation="CREATE").status == Status.BAD_REQUEST
    assert node.store.names() == ["orders"]


@pytest.mark.parametrize(
    ("attribute", "text", "value"),
    [
        ("retentionMs", "5000", 5000),
        ("retentionMs", "5e3", 5000),
        ("partitions", " 4 ", 4),
        ("keepsHistory", "false", False),
        ("retentionUntilAcknowledged", "true", True),
        ("partitionBy", "source", "source"),
    ],
)
def test_strings_are_converted_to_the_type_that_is_needed(node: Node, attribute: str, text: str, value: object) -> None:
    answer: Any = node.log("new", {attribute: text}, operation="CREATE")
    assert answer.status == Status.CREATED, answer
    assert answer.body[attribute] == value
    assert type(answer.body[attribute]) is type(value)


@pytest.mark.parametrize(
    "body",
    [
        {"retentionMs": "soon"},
        {"retentionMs": 1.5},
        {"retentionMs": "1.5"},
        {"retentionMs": True},
        {"retentionMs": "true"},
        {"retentionMs": 0},
        {"retentionMs": 2**63},
        {"retentionMs": "1e400"},
        {"retentionMs": "9" * 5000},
        {"retentionMs": "[" * 5000},
        {"retentionMs": [5]},
        {"keepsHistory": 1},
        {"keepsHistory": "yes"},
        {"keepsHistory": None},
        {"partitions": None},
        {"partitions": 1025},
        {"partitionBy": 5},
        {"partitionBy": "colour"},
        {"eventBytesMax": 1},
        {"head": 5},
        {"retention_ms": 5},
        {"": 5},
        {5: 5},
        [],
        "text",
        {"retentionMs": 5000, "noSuchThing": None},
    ],
)
def test_attributes_that_do_not_fit_are_a_bad_request_and_change_nothing(node: Node, body: Any) -> None:
    before = node.store.open("orders").settings
    created, updated = node.log("new", body, operation="CREATE"), node.log("orders", body, operation="UPDATE")
    assert (created.status, updated.status) == (Status.BAD_REQUEST, Status.BAD_REQUEST)
    assert node.store.names() == ["orders"]
    assert node.store.open("orders").settings == before


def test_a_refusal_names_the_attribute(node: Node) -> None:
    assert "retentionMs" in node.log("orders", {"retentionMs": 0}, operation="UPDATE").description
    assert "consumerAgeMsMax" in node.log("orders", {"consumerAgeMsMax": -1}, operation="UPDATE").description


def test_update_sets_retention_and_null_takes_it_away(node: Node) -> None:
    answer: Any = node.log("orders", {"retentionMs": 5000, "retentionBytes": 10**9}, operation="UPDATE")
    assert answer.status == 200
    assert (answer.body["retentionMs"], answer.body["retentionBytes"]) == (5000, 10**9)
    answer = node.log("orders", {"retentionMs": None}, operation="UPDATE")
    assert (answer.body["retentionMs"], answer.body["retentionBytes"]) == (None, 10**9)
    assert node.store.open("orders").settings == LogSettings(partitions=2, retention_bytes=10**9)


def test_update_is_atomic(node: Node) -> None:
    answer = node.log("orders", {"retentionMs": 5000, "partitions": 3}, operation="UPDATE")
    assert answer.status == Status.BAD_REQUEST
    assert node.store.open("orders").settings == LogSettings(partitions=2)


def test_update_with_all_that_was_read_changes_nothing(node: Node) -> None:
    present: Any = node.log("orders").body
    assert node.log("orders", present, operation="UPDATE").body == present
    assert node.log("orders", {**present, "retentionMs": 5}, operation="UPDATE").status == 200


def test_updates_at_the_same_time_do_not_lose_each_other(node: Node) -> None:
    bodies = [{"retentionMs": 5000}, {"retentionBytes": 10**9}, {"idHorizon": 100}, {"keepsHistory": False}]
    answers = node.ask_all([("UPDATE", body, {"type": LOG_TYPE, "name": "orders"}) for body in bodies])
    assert {answer.status for answer in answers} == {Status.OK}
    wanted = LogSettings(partitions=2, retention_ms=5000, retention_bytes=10**9, id_horizon=100, keeps_history=False)
    assert node.store.open("orders").settings == wanted


def test_delete_answers_an_empty_map(node: Node) -> None:
    answer = node.log("orders", operation="DELETE")
    assert (answer.status, answer.body) == (Status.NO_CONTENT, {})
    assert node.store.names() == []
    assert node.log("orders", operation="DELETE").status == Status.NOT_FOUND
    assert node.log("orders").status == Status.NOT_FOUND
    assert node.log("orders", {"retentionMs": 1}, operation="UPDATE").status == Status.NOT_FOUND


def test_every_setting_of_a_log_is_an_attribute() -> None:
    given = {attribute.name for attribute in LOG.own if attribute.is_initial}
    assert given == set(SETTINGS)
    assert set(SETTINGS.values()) == set(LogSettings.__slots__)
    defaults = LogSettings()
    for attribute in LOG.own:
        if attribute.name in SETTINGS:
            assert attribute.is_removable == (getattr(defaults, SETTINGS[attribute.name]) is None), attribute.name


def test_a_log_tells_what_is_in_it(node: Node) -> None:
    node.store.open("orders").append([Event("T", b"one"), Event("T", b"two")])
    body: Any = node.log("orders").body
    assert (body["head"], body["firstRetained"], body["events"], body["eventsAppended"]) == (2, 1, 2, 2)
    assert body["allocatedBytes"] >= 0
    assert body["problem"] is None
    assert list(body) == LOG.attribute_names


def test_a_log_that_cannot_be_opened_says_so_and_the_others_are_told(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.store.create("whole")
    opened = node.store.open

    def open_(name: str) -> Any:
        if name == "orders":
            raise StorageCorrupted("/secret/path", "a bad frame", "restore it")
        return opened(name)

    monkeypatch.setattr(node.store, "open", open_)
    (hurt, whole) = node.query("name", "problem", "head", entityType=LOG_TYPE)
    assert hurt[0] == "orders" and hurt[1] and hurt[2] is None and "/secret" not in hurt[1]
    assert whole == ["whole", None, 0]
    assert node.query("name", entityType=PARTITION_TYPE) == [["whole/0"]]
    answer = node.log("orders", {"retentionMs": 5}, operation="UPDATE")
    assert answer.status == Status.INTERNAL_ERROR and "/secret" not in answer.description


# Rights


@pytest.mark.parametrize(
    ("operation", "allowed"),
    [("READ", {"reader", "manager"}), ("CREATE", {"manager"}), ("UPDATE", {"manager"}), ("DELETE", {"manager"})],
)
def test_who_may_do_what_with_a_log(operation: str, allowed: set[str]) -> None:
    for name, by in {
        "reader": user("reader", read="orders"),
        "appender": user("appender", append="orders"),
        "manager": user("manager", manage="orders"),
        "stranger": user("stranger", manage="others-*", read="others"),
    }.items():
        node = Node()
        if operation != "CREATE":
            node.store.create("orders")
        before = node.store.names()
        answer = node.log("orders", by=by, operation=operation)
        assert (answer.status == Status.FORBIDDEN) == (name not in allowed), (name, answer)
        if name not in allowed:
            assert node.store.names() == before


def test_who_may_not_is_told_the_same_whether_there_is_such_a_log_or_not(node: Node) -> None:
    stranger = user("stranger")
    for operation in ("READ", "UPDATE", "DELETE", "CREATE"):
        for name in ("orders", "nothing"):
            assert node.log(name, by=stranger, operation=operation).status == Status.FORBIDDEN


# Partitions


def test_a_partition_tells_where_its_events_lie(node: Node) -> None:
    log = node.store.open("orders")
    for partition in (1, 0, 1):
        log.append([Event("T", b"x")], partition=partition)
    body: Any = node.ask("READ", type=PARTITION_TYPE, name="orders/1").body
    assert (body["log"], body["number"], body["events"], body["first"], body["last"]) == ("orders", 1, 2, 1, 3)
    assert body["firstAt"] <= body["lastAt"]


def test_an_empty_partition_has_no_first_event(node: Node) -> None:
    body: Any = node.ask("READ", identity="partition/orders/0").body
    assert (body["events"], body["first"], body["last"], body["firstAt"]) == (0, None, None, None)


@pytest.mark.parametrize("number", ["2", "-1", "00", "x", ""])
def test_a_partition_that_is_not_there_is_not_found(node: Node, number: str) -> None:
    assert node.ask("READ", type=PARTITION_TYPE, name=f"orders/{number}").status == Status.NOT_FOUND


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE", "DELETE"])
def test_a_partition_can_only_be_read(node: Node, operation: str) -> None:
    answer = node.ask(operation, type=PARTITION_TYPE, name="orders/0")
    assert answer.status == Status.NOT_IMPLEMENTED
    assert "READ" in answer.description


# Consumers


def consumer(node: Node, operation: str, name: str = "orders/spark/archiver", body: Any = None, **more: Any) -> Any:
    return node.ask(operation, body, type=CONSUMER_TYPE, name=name, **more)


def test_a_consumer_is_created_moved_and_deleted(node: Node) -> None:
    log = node.store.open("orders")
    log.append([Event("T", b"%d" % n) for n in range(5)])
    made = consumer(node, "CREATE", body={"acknowledged": 2})
    assert made.status == Status.CREATED
    assert (made.body["log"], made.body["owner"], made.body["component"]) == ("orders", "spark", "archiver")
    assert (made.body["acknowledged"], made.body["lag"], made.body["epoch"]) == (2, 3, 1)
    assert consumer(node, "READ").body | {"lagMs": 0} == made.body | {"lagMs": 0}
    for position in (5, 0):
        moved = consumer(node, "UPDATE", body={"acknowledged": position})
        assert (moved.status, moved.body["acknowledged"]) == (Status.OK, position)
    assert consumer(node, "DELETE").status == Status.NO_CONTENT
    assert log.consumers() == []
    for operation in ("READ", "UPDATE", "DELETE"):
        assert consumer(node, operation).status == Status.NOT_FOUND


def test_what_was_read_of_a_consumer_may_be_written_back_though_it_is_further_behind_by_then(node: Node) -> None:
    log = node.store.open("orders")
    log.append([Event("T", b"x")] * 2)
    read = consumer(node, "CREATE", body={"acknowledged": 0}).body
    log.append([Event("T", b"x")])
    moved = consumer(node, "UPDATE", body={**read, "lagMs": read["lagMs"] - 1, "acknowledged": 1})
    assert (moved.status, moved.body["acknowledged"], moved.body["lag"]) == (Status.OK, 1, 2)


def test_a_new_consumer_begins_at_the_head(node: Node) -> None:
    node.store.open("orders").append([Event("T", b"x")])
    assert consumer(node, "CREATE").body["acknowledged"] == 1
    assert consumer(node, "CREATE").status == Status.CONFLICT


@pytest.mark.parametrize("position", [-1, 1, "x", None, 1.5])
def test_a_consumer_is_not_moved_to_where_nothing_is(node: Node, position: object) -> None:
    consumer(node, "CREATE")
    answer = consumer(node, "UPDATE", body={"acknowledged": position})
    assert answer.status == Status.BAD_REQUEST
    assert "acknowledged" in answer.description
    assert consumer(node, "CREATE", "orders/other/one", {"acknowledged": position}).status == Status.BAD_REQUEST


def test_an_update_that_says_nothing_changes_nothing(node: Node) -> None:
    made = consumer(node, "CREATE")
    assert consumer(node, "UPDATE").body == made.body
    assert consumer(node, "UPDATE", body={"epoch": 7}).status == Status.BAD_REQUEST


@pytest.mark.parametrize(
    ("owner", "component"), [("a/b", "c"), ("a", "b/c"), ("100%", "%2F"), ("é", "ü n"), ("*", "?")]
)
def test_any_owner_and_component_can_be_named(node: Node, owner: str, component: str) -> None:
    node.store.open("orders").register_consumer(owner, component)
    ((name, told_owner, told_component),) = node.query("name", "owner", "component", entityType=CONSUMER_TYPE)
    assert (told_owner, told_component) == (owner, component)
    assert consumer(node, "DELETE", name).status == Status.NO_CONTENT


@pytest.mark.parametrize("name", ["orders", "orders/spark", "orders/a/b/c", "nothing/a/b", "//"])
def test_a_consumer_of_no_such_name_is_not_found(node: Node, name: str) -> None:
    assert consumer(node, "READ", name).status == Status.NOT_FOUND


def test_who_may_read_a_log_sees_its_consumers_and_who_may_manage_it_moves_them(node: Node) -> None:
    node.store.open("orders").register_consumer("spark", "archiver")
    reader, manager = user("r", read="orders"), user("m", manage="orders")
    assert consumer(node, "READ", by=reader).status == 200
    for operation in ("UPDATE", "DELETE", "CREATE"):
        assert consumer(node, operation, by=reader).status == Status.FORBIDDEN
    assert consumer(node, "DELETE", by=manager).status == Status.NO_CONTENT


def test_to_list_what_there_is_opens_no_log(tmp_path: Path) -> None:
    with Engine(tmp_path) as store:
        for number in range(20):
            log = store.create(f"log-{number:02}", LogSettings(partitions=2))
        log.register_consumer("alice", "billing", after=0)
    with Engine(tmp_path, maintains=False) as store:
        node = Node(store)
        found = [name for (name,) in node.query("name")]
        assert {"log-00", "log-19", "log-00/1", "log-19/alice/billing"} <= set(found)
        assert len(node.query("name", "identity", "type", entityType=PARTITION_TYPE)) == 40
        assert store.opened() == []
        page = node.query("log", "number", entityType=PARTITION_TYPE, offset=4, count=2)
        assert page == [["log-02", 0], ["log-02", 1]]
        assert [log.name for log in store.opened()] == ["log-02"]
        assert [consumer.component for consumer in store.consumers_of("log-19")] == ["billing"]
        with pytest.raises(LogNotFound):
            store.settings_of("absent")
        with pytest.raises(LogNotFound):
            store.consumers_of("absent")


def test_of_a_log_that_cannot_be_opened_there_is_its_problem_alone(tmp_path: Path) -> None:
    with Engine(tmp_path) as store:
        directory = store.create("hurt").directory
        store.create("sound")
    without_identities(tmp_path)
    (directory / "META.json").write_bytes(b"{")
    with Engine(tmp_path, maintains=False) as store:
        node = Node(store)
        assert [name for name, _ in node.query("name", "log", entityType=PARTITION_TYPE)] == ["sound/0"]
        assert node.query("name", entityType=CONSUMER_TYPE) == []
