"""The operations of a management node: on itself, and what holds for all entities."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core.errors import Closed, ConsumerNotFound, EventLogError, LogNotFound
from headwater.core.watch.notification_types import NotificationType
from headwater.management.entities import LOG, NODE_TYPE, TYPES
from headwater.management.logs import Logs
from headwater.management.notifications.catalog import CATALOG
from headwater.management.ports import Attributes, Time
from headwater.management.statuses import Status

from .asking import CONSUMER_TYPE, LOG_TYPE, PARTITION_TYPE, Node, user

SERVED = [NODE_TYPE, LOG_TYPE, PARTITION_TYPE, CONSUMER_TYPE]


@pytest.fixture
def node() -> Node:
    node = Node()
    for name in ("orders", "audit"):
        node.store.create(name)
    return node


# What it tells of itself


def test_get_types_lists_all_types_none_of_which_extends_another(node: Node) -> None:
    answer = node.ask("GET-TYPES")
    assert (answer.status, answer.body) == (200, {name: [] for name in SERVED})


def test_get_attributes_lists_what_can_be_read(node: Node) -> None:
    body: Any = node.ask("GET-ATTRIBUTES").body
    assert list(body) == SERVED
    assert body[LOG_TYPE] == LOG.attribute_names
    assert body[LOG_TYPE][:3] == ["name", "identity", "type"]
    assert body[NODE_TYPE] == ["name", "identity", "type"]


def test_get_operations_lists_operations_with_their_arguments(node: Node) -> None:
    body: Any = node.ask("GET-OPERATIONS").body
    assert list(body) == SERVED
    assert set(body[LOG_TYPE]) == {"CREATE", "READ", "UPDATE", "DELETE"}
    assert body[PARTITION_TYPE] == {"READ": []}
    assert body[NODE_TYPE]["QUERY"] == ["entityType", "offset", "count", "filter"]
    assert body[NODE_TYPE]["GET-EVENTS"] == ["eventType"]


def test_every_operation_that_the_node_lists_of_itself_is_there(node: Node) -> None:
    body: Any = node.ask("GET-OPERATIONS", entityType=NODE_TYPE).body
    for operation in body[NODE_TYPE]:
        assert node.ask(operation, type=NODE_TYPE, name="self").status == 200


def test_get_annotations_knows_none(node: Node) -> None:
    assert node.ask("GET-ANNOTATIONS").body == {name: [] for name in SERVED}


def test_get_mgmt_nodes_knows_no_other_node(node: Node) -> None:
    answer = node.ask("GET-MGMT-NODES")
    assert (answer.status, answer.body) == (200, [])


@pytest.mark.parametrize("operation", ["GET-TYPES", "GET-ATTRIBUTES", "GET-OPERATIONS", "GET-ANNOTATIONS"])
def test_discovery_can_be_asked_for_one_type(node: Node, operation: str) -> None:
    body: Any = node.ask(operation, entityType=LOG_TYPE).body
    assert list(body) == [LOG_TYPE]
    assert node.ask(operation, entityType="io.headwater.nothing").status == Status.NOT_FOUND


@pytest.mark.parametrize("body", [None, "text", 5, [1], {"attributeNames": 3}])
def test_discovery_ignores_its_body(node: Node, body: object) -> None:
    assert node.ask("GET-TYPES", body).status == 200
    assert node.ask("GET-EVENTS", body).status == 200


@pytest.mark.parametrize("operation", ["REGISTER", "DEREGISTER", "PURGE", "read", "", "get-types"])
def test_an_operation_that_is_not_there_is_not_implemented(node: Node, operation: str) -> None:
    answer = node.ask(operation)
    assert answer.status == Status.NOT_IMPLEMENTED
    assert "GET-TYPES" in answer.description


def test_an_operation_must_be_named(node: Node) -> None:
    assert node.ask(None).status == Status.BAD_REQUEST
    assert node.ask(5).status == Status.BAD_REQUEST


def test_the_node_is_an_entity_too(node: Node) -> None:
    answer = node.ask("READ", type=NODE_TYPE, name="self")
    assert answer.body == {"name": "self", "identity": "management/self", "type": NODE_TYPE}
    assert node.ask("READ", type=NODE_TYPE, name="other").status == Status.NOT_FOUND


def test_an_operation_of_the_node_may_name_the_node(node: Node) -> None:
    assert node.ask("QUERY", type=NODE_TYPE, name="self").status == 200
    assert node.ask("QUERY", name="orders").status == Status.NOT_FOUND
    assert node.ask("QUERY", identity="management/self").status == Status.BAD_REQUEST
    assert node.ask("QUERY", type=LOG_TYPE).status == Status.NOT_IMPLEMENTED
    assert node.ask("QUERY", type="io.headwater.nothing").status == Status.NOT_FOUND


# GET-EVENTS


def test_get_events_maps_every_event_type_to_the_names_of_its_attributes(node: Node) -> None:
    answer = node.ask("GET-EVENTS")
    body: Any = answer.body
    assert answer.status == 200
    assert set(body) == {each.value for each in NotificationType}
    for type, names in body.items():
        assert isinstance(names, list) and all(isinstance(name, str) for name in names)
        assert names == list(CATALOG[NotificationType(type)].names)
        assert "eventType" in names


def test_get_events_may_ask_for_one_type(node: Node) -> None:
    body: Any = node.ask("GET-EVENTS", eventType="io.headwater.log.created").body
    assert list(body) == ["io.headwater.log.created"]


def test_get_events_of_a_type_that_is_not_there_is_not_found(node: Node) -> None:
    assert node.ask("GET-EVENTS", eventType="io.headwater.log.Created").status == Status.NOT_FOUND
    assert node.ask("GET-EVENTS", eventType=5).status == Status.BAD_REQUEST


# Which entity is meant


@pytest.mark.parametrize("operation", ["READ", "UPDATE", "DELETE"])
def test_exactly_one_of_name_and_identity_is_given(node: Node, operation: str) -> None:
    both = node.ask(operation, type=LOG_TYPE, name="orders", identity="log/orders")
    neither = node.ask(operation, type=LOG_TYPE)
    assert (both.status, neither.status) == (Status.BAD_REQUEST, Status.BAD_REQUEST)
    assert "both" in both.description and "neither" in neither.description
    assert node.store.names() == ["audit", "orders"]


def test_an_identity_needs_no_type(node: Node) -> None:
    body: Any = node.ask("READ", identity="log/orders").body
    assert (body["name"], body["identity"], body["type"]) == ("orders", "log/orders", LOG_TYPE)
    assert node.ask("READ", identity="log/orders", type=LOG_TYPE).body == body
    assert node.ask("READ", identity="log/orders", type=PARTITION_TYPE).status == Status.NOT_FOUND


@pytest.mark.parametrize(
    "identity", ["orders", "nothing/orders", "", "/", "log/", "log/none", "log/orders/", "LOG/orders"]
)
def test_an_identity_of_nothing_is_not_found(node: Node, identity: str) -> None:
    assert node.ask("READ", identity=identity).status == Status.NOT_FOUND


def test_a_name_needs_a_type(node: Node) -> None:
    assert node.ask("READ", name="orders").status == Status.BAD_REQUEST
    assert node.ask("READ", name="orders", type="io.headwater.nothing").status == Status.NOT_FOUND


@pytest.mark.parametrize("key", ["operation", "type", "name", "identity", "entityType", "eventType"])
@pytest.mark.parametrize("value", [5, True, b"x", ["a"], {"a": 1}, 1.5])
def test_what_is_to_be_a_string_must_be_one(node: Node, key: str, value: Any) -> None:
    properties: dict[str, Any] = {"type": LOG_TYPE, "name": "orders"} if key in ("type", "name") else {}
    operation = {"entityType": "GET-TYPES", "eventType": "GET-EVENTS", "operation": value}.get(key, "READ")
    if key != "operation":
        properties[key] = value
    answer = node.ask(operation, **properties)
    assert answer.status == Status.BAD_REQUEST
    assert key in answer.description


def test_every_identity_that_is_told_is_found(node: Node) -> None:
    node.store.open("orders").register_consumer("o/w%n", "c/1")
    for identity, name, type in node.query("identity", "name", "type"):
        by_identity, by_name = node.ask("READ", identity=identity), node.ask("READ", type=type, name=name)
        assert by_identity.status == 200
        assert by_identity.body == by_name.body


# QUERY


def test_a_query_without_type_answers_all_entities_type_by_type(node: Node) -> None:
    assert node.query("type", "name") == [
        [NODE_TYPE, "self"],
        [LOG_TYPE, "audit"],
        [LOG_TYPE, "orders"],
        [PARTITION_TYPE, "audit/0"],
        [PARTITION_TYPE, "orders/0"],
    ]


def test_a_query_for_a_type_answers_its_entities_only(node: Node) -> None:
    assert node.query("name", entityType=LOG_TYPE) == [["audit"], ["orders"]]
    assert node.query("name", entityType=CONSUMER_TYPE) == []
    assert node.ask("QUERY", entityType="io.headwater.nothing").status == Status.NOT_FOUND


@pytest.mark.parametrize("body", [None, {}, {"attributeNames": []}, {"attributeNames": None}])
def test_a_query_without_attributes_answers_all_of_them(node: Node, body: Any) -> None:
    answer: Any = node.ask("QUERY", body, entityType=LOG_TYPE)
    log: Any = node.log("orders").body
    assert answer.body["attributeNames"] == LOG.attribute_names
    assert answer.body["results"][1] == list(log.values())
    everything: Any = node.ask("QUERY", body)
    names = everything.body["attributeNames"]
    assert set(names) == {name for type in SERVED for name in TYPES[type].attribute_names}
    assert len(set(names)) == len(names)


def test_attributes_come_in_the_order_that_was_asked_for_and_null_where_a_type_has_none(node: Node) -> None:
    assert node.query("partitions", "name", "noSuchThing", entityType=LOG_TYPE) == [
        [1, "audit", None], [1, "orders", None],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("text", "map"),
        ([["name"]], "map"),
        ({"attributeNames": "name"}, "list of strings"),
        ({"attributeNames": ["name", 5]}, "list of strings"),
        ({"attributeNames": ["name", "name"]}, "twice"),
        ({"attributeNames": [f"a{n}" for n in range(1001)]}, "1000"),
    ],
)
def test_a_query_with_a_wrong_body_is_a_bad_request(node: Node, body: Any, problem: str) -> None:
    answer = node.ask("QUERY", body)
    assert answer.status == Status.BAD_REQUEST
    assert problem in answer.description


def test_pages_by_offset_and_count_make_the_whole(node: Node) -> None:
    for number in range(9):
        node.store.create(f"log-{number}")
    whole = node.query("identity")
    for size in (1, 2, 3, 7, 100):
        pages = [node.query("identity", offset=at, count=size) for at in range(0, len(whole), size)]
        assert [row for page in pages for row in page] == whole
    assert node.query("identity", offset=len(whole)) == []
    assert node.query("identity", offset=10**18, count=5) == []
    assert node.query("identity", count=0) == []
    assert node.query("identity", offset=3) == whole[3:]


@pytest.mark.parametrize("key", ["offset", "count"])
@pytest.mark.parametrize("value", [-1, "1", 1.0, True, b"1", [1]])
def test_offset_and_count_are_whole_numbers_from_0_on(node: Node, key: str, value: Any) -> None:
    answer = node.ask("QUERY", **{key: value})
    assert answer.status == Status.BAD_REQUEST
    assert key in answer.description


def test_a_query_for_too_much_is_refused_and_not_cut(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.management.operations.RESULTS_MAX", 3)
    answer = node.ask("QUERY")
    assert answer.status == Status.BAD_REQUEST
    assert "offset and count" in answer.description
    assert len(node.query("name", count=3)) == 3


def test_a_query_for_too_many_values_is_refused_and_not_cut(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.management.operations.VALUES_MAX", 3)
    body = {"attributeNames": ["name", "nothing", "either"]}
    answer = node.ask("QUERY", body, entityType=LOG_TYPE)
    assert answer.status == Status.BAD_REQUEST
    assert "2 results of 3 attributes are 6 values" in answer.description
    assert node.ask("QUERY", body, entityType=LOG_TYPE, count=1).status == Status.OK


@pytest.mark.parametrize("error", [LogNotFound("gone"), Closed("gone"), ConsumerNotFound("a", "b")])
def test_what_goes_away_during_a_query_is_left_out(
    node: Node, error: EventLogError, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Logs._read

    def read(self: Logs, name: str) -> Attributes:
        if name == "audit":
            raise error
        return whole(self, name)

    assert ["audit"] in node.query("name", entityType=LOG_TYPE)
    monkeypatch.setattr(Logs, "_read", read)
    assert [name for name, _ in node.query("name", "partitions", entityType=LOG_TYPE)] == ["orders"]


def test_a_query_may_answer_many_rows(node: Node) -> None:
    for number in range(200):
        node.store.create(f"log-{number:03}")
    assert len(node.query("name", entityType=LOG_TYPE)) == 202


def test_a_user_sees_only_what_it_may(node: Node) -> None:
    reader, manager, nobody = user("r", read="orders"), user("m", manage="audit"), user("n")
    assert node.query("name", by=reader, entityType=LOG_TYPE) == [["orders"]]
    assert node.query("name", by=manager, entityType=LOG_TYPE) == [["audit"]]
    assert node.query("identity", by=nobody) == [["management/self"]]
    assert node.query("name", by=reader, entityType=PARTITION_TYPE) == [["orders/0"]]


# Whatever a request holds


@pytest.mark.parametrize("name", ["", "../x", "a/b", "x" * 65, "\x00", "*", "$system", "é"])
@pytest.mark.parametrize("type", [LOG_TYPE, PARTITION_TYPE, CONSUMER_TYPE])
def test_a_name_that_nothing_can_have_is_not_found(node: Node, type: str, name: str) -> None:
    for operation in TYPES[type].operations:
        if operation != "CREATE":
            assert node.ask(operation, type=type, name=name).status == Status.NOT_FOUND


def test_an_answer_tells_times_from_numbers(node: Node) -> None:
    body: Any = node.log("orders").body
    assert type(body["createdAt"]) is Time
    assert type(body["head"]) is int


def test_a_fault_of_ours_is_answered_as_one(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise RuntimeError("something of ours")

    monkeypatch.setattr(node.store, "names", broken)
    answer = node.ask("QUERY")
    assert answer.status == Status.INTERNAL_ERROR
    assert "something of ours" not in answer.description


def test_event_types_have_a_reversed_domain_name_and_are_no_types_of_entities(node: Node) -> None:
    entity_types: Any = node.ask("GET-OPERATIONS").body
    for type in NotificationType:
        assert type.value.startswith("io.headwater.")
        assert type.value not in entity_types
    assert node.ask("GET-EVENTS", eventType="IO.HEADWATER.LOG.CREATED").status == Status.NOT_FOUND


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8) | st.integers(), inner, max_size=4),
    max_leaves=10,
)
_WORDS = st.sampled_from(
    ["CREATE", "READ", "UPDATE", "DELETE", "QUERY", "GET-TYPES", "GET-EVENTS", *SERVED, "self", "orders", "log/orders",
     "orders/0", "orders/a/b", "io.headwater.log.created"]
)  # fmt: skip
_KEYS = ("operation", "type", "name", "identity", "entityType", "eventType", "offset", "count", "locales")
_ATTRIBUTES = st.dictionaries(
    st.sampled_from([*LOG.attribute_names, "acknowledged", "attributeNames"]), _VALUES, max_size=5
)


@settings(max_examples=300, deadline=None)
@given(
    properties=st.fixed_dictionaries({}, optional={key: _WORDS | _VALUES for key in _KEYS}), body=_VALUES | _ATTRIBUTES
)
def test_any_request_is_answered_and_none_is_our_fault(properties: dict[str, Any], body: Any) -> None:
    node = Node()
    node.store.create("orders")
    answer = node.ask(properties.pop("operation", None), body, **properties)
    assert answer.status in set(Status) - {Status.INTERNAL_ERROR}, answer
    assert answer.description
