"""What filters of `$events` mean: selector and SQL over all attributes, in three values; and narrowing by type."""

from __future__ import annotations

import itertools

import pytest
from tests.every import every

from headwater.amqp.filters import InvalidFilter
from headwater.amqp.management.event_filter import EventFilter, read_event_filter
from headwater.amqp.management.transformation import Transformation
from headwater.amqp.protocol.types import Described, Symbol, ULong
from headwater.core.watch.bus import Notification, Value
from headwater.core.watch.notification_types import EVERY_TYPE, NotificationType
from headwater.management.notifications.catalog import CATALOG

from .listening import CHANGED, CREATED, DELETED, SELECTOR, SQL, transformation

TOPIC, DIRECT, HEADERS = (
    f"apache.org:legacy-amqp-{name}"
    for name in ("topic-binding:string", "direct-binding:string", "headers-binding:map")
)


def filter_of(*filters: tuple[str, object]) -> EventFilter:
    return read_event_filter(
        {Symbol(f"f{n}"): Described(Symbol(name), value) for n, (name, value) in enumerate(filters)}
    )


def event(type: NotificationType = CREATED, **attributes: Value) -> Notification:
    return Notification(type, 1000, {"eventType": type.value, "time": 1000, **attributes})


def passes(name: str, value: object, notification: Notification) -> bool:
    found = filter_of((name, value))
    is_match = found.matches is None or found.matches(notification)
    if is_match:  # narrowing is sound: what matches is of a type that was thought possible
        assert notification.type in found.types
    return is_match


def truth(name: str, text: str, notification: Notification) -> str:
    """Whether a predicate is true, false or unknown of a notification."""
    if passes(name, text, notification):
        return "true"
    return "false" if passes(name, f"NOT ({text})", notification) else "unknown"


GIVEN = event(log="orders", partitions=3, incarnation="0b")
TABLE = [
    ("log = 'orders'", "true"),
    ("log = 'Orders'", "false"),
    ("log <> 'orders'", "false"),
    ("nothing = 'orders'", "unknown"),
    ("nothing <> 'orders'", "unknown"),
    ("nothing IS NULL", "true"),
    ("nothing IS NOT NULL", "false"),
    ("log IS NULL", "false"),
    ("nothing = 1 OR log = 'orders'", "true"),
    ("nothing = 1 OR log = 'x'", "unknown"),
    ("nothing = 1 AND log = 'orders'", "unknown"),
    ("nothing = 1 AND log = 'x'", "false"),
    ("NOT nothing = 1", "unknown"),
    ("partitions = 3", "true"),
    ("partitions = 3.0", "true"),
    ("partitions > 2 AND partitions <= 3", "true"),
    ("partitions + 1 > nothing", "unknown"),
    ("partitions * 2 - 1 = 5", "true"),
    ("partitions = '3'", "false"),
    ("log > 5", "false"),
    ("log LIKE 'ord%'", "true"),
    ("log LIKE 'o_ders'", "true"),
    ("log LIKE 'x%'", "false"),
    ("nothing LIKE 'x%'", "unknown"),
    ("log NOT LIKE 'x%'", "true"),
    ("log IN ('a', 'orders')", "true"),
    ("log IN ('a', 'b')", "false"),
    ("nothing IN ('a')", "unknown"),
    ("log NOT IN ('a')", "true"),
    ("eventType = 'io.headwater.log.created'", "true"),
    ("eventType LIKE 'io.headwater.log.%'", "true"),
    ("eventType = 'io.headwater.log.deleted'", "false"),
    ("time >= 1000", "true"),
    ("time > 1000", "false"),
    ("TRUE", "true"),
    ("FALSE", "false"),
]


@every(("text", "expected"), TABLE)
@every("language", [SELECTOR, SQL])
def test_both_languages_evaluate_attributes_in_three_values(language: str, text: str, expected: str) -> None:
    assert truth(language, text, GIVEN) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("partitions BETWEEN 1 AND 3", "true"),
        ("partitions NOT BETWEEN 1 AND 3", "false"),
        ("nothing BETWEEN 1 AND 3", "unknown"),
        ("amqp.subject = 'io.headwater.log.created'", "true"),
        ("JMSType = 'io.headwater.log.created'", "true"),
        ("amqp.reply_to IS NULL", "true"),
        ("JMSPriority = 4", "true"),
    ],
)
def test_selectors_have_their_own_forms(text: str, expected: str) -> None:
    assert truth(SELECTOR, text, GIVEN) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("p.subject = 'io.headwater.log.created'", "true"),
        ("properties.subject LIKE '%.created'", "true"),
        ("application_properties.log = 'orders'", "true"),
        ("EXISTS(log)", "true"),
        ("EXISTS(nothing)", "false"),
        ("m.nothing = 1", "unknown"),
        ("UPPER(log) = 'ORDERS'", "true"),
        ("time < UTC()", "true"),
        ("h.priority = 4", "true"),
    ],
)
def test_sql_reaches_every_section(text: str, expected: str) -> None:
    assert truth(SQL, text, GIVEN) == expected


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        (DIRECT, "io.headwater.log.created", True),
        (DIRECT, "io.headwater.log", False),
        (TOPIC, "io.headwater.log.*", True),
        (TOPIC, "io.headwater.*", False),
        (TOPIC, "#.created", True),
        (TOPIC, "#", True),
        (HEADERS, {"log": "orders", "partitions": 3}, True),
        (HEADERS, {"log": "orders", "partitions": 4}, False),
        (HEADERS, {"x-match": "any", "log": "orders", "partitions": 4}, True),
        (HEADERS, {"log": None}, True),
        (HEADERS, {"nothing": None}, False),
    ],
)
def test_bindings_of_older_amqp_select_too(name: str, value: object, expected: bool) -> None:
    assert passes(name, value, GIVEN) is expected


def test_property_filters_and_groups_select_too() -> None:
    properties = Described(ULong(0x174), {"log": "&p:ord"})
    either = Described(ULong(0x101), [Described(ULong(0x173), {"subject": "x"}), properties])
    assert passes("amqp:application-properties-filter", {"log": "orders"}, GIVEN)
    assert passes("amqp:any-filter", either.value, GIVEN)
    assert not passes("amqp:not-filter", [properties], GIVEN)


def test_there_is_one_transformation_at_most() -> None:
    found = read_event_filter(transformation("a", "b"))
    assert found.transformation == Transformation(("a", "b"), True)
    assert found.matches is None and found.types == EVERY_TYPE


@pytest.mark.parametrize(
    "text", ["d.event-streams-offset > '1'", "d.event-streams-timestamp > 5", "d.[event-streams-offset] IS NULL"]
)
def test_positions_of_logs_are_refused(text: str) -> None:
    with pytest.raises(InvalidFilter, match="neither an offset nor a timestamp"):
        filter_of((SQL, text))


# Narrowing by type


@every(
    ("text", "types"),
    [
        ("eventType = 'io.headwater.log.created'", {CREATED}),
        ("'io.headwater.log.created' = eventType", {CREATED}),
        ("eventType IN ('io.headwater.log.created', 'io.headwater.log.deleted', 'x')", {CREATED, DELETED}),
        ("eventType = 'io.headwater.log.created' AND log = 'a'", {CREATED}),
        ("eventType = 'io.headwater.log.created' AND eventType = 'io.headwater.log.deleted'", set()),
        ("eventType = 'io.headwater.log.created' OR eventType = 'io.headwater.log.deleted'", {CREATED, DELETED}),
        ("NOT eventType = 'io.headwater.log.created'", EVERY_TYPE - {CREATED}),
        ("eventType <> 'io.headwater.log.created'", EVERY_TYPE - {CREATED}),
        ("NOT (eventType <> 'io.headwater.log.created' OR log = 'a')", {CREATED}),
        ("eventType LIKE 'io.headwater.disk.%'", {NotificationType.DISK_LOW, NotificationType.DISK_RECOVERED}),
        ("amqp.subject = 'io.headwater.log.created'", {CREATED}),
        ("eventType = 'nothing'", set()),
        ("freeBytes > 5", {NotificationType.DISK_LOW, NotificationType.DISK_RECOVERED}),
        ("freeBytes > 5 AND lagMs > 5", set()),
        ("noSuchThing = 1", set()),
        ("FALSE", set()),
        ("TRUE", EVERY_TYPE),
        ("time > 5", EVERY_TYPE),
        ("", EVERY_TYPE),
    ],
)
def test_a_filter_that_tells_its_types_is_listened_to_for_those(text: str, types: set[NotificationType]) -> None:
    assert filter_of((SELECTOR, text)).types == types


def test_bindings_tell_their_types() -> None:
    of_logs = {each for each in NotificationType if each.value.startswith("io.headwater.log.")}
    assert filter_of((TOPIC, "io.headwater.log.*")).types == of_logs > {CREATED, CHANGED, DELETED}
    assert filter_of((DIRECT, CREATED.value)).types == {CREATED}
    assert filter_of((HEADERS, {"eventType": CREATED.value})).types == {CREATED}
    assert filter_of((SELECTOR, "log = 'a'"), (TOPIC, "#.created")).types == {CREATED}


def test_looking_at_the_clock_tells_no_type() -> None:
    assert filter_of((SQL, "UTC() > 5")).types == EVERY_TYPE


def test_narrowing_never_leaves_out_a_type_that_can_match() -> None:
    """Every combination of small predicates, against notifications with and without each attribute."""
    atoms = [
        "eventType = 'io.headwater.log.created'",
        "eventType LIKE '%.low'",
        "log = 'a'",
        "log IS NULL",
        "freeBytes = 1",
        "nothing = 1",
    ]
    notifications = [
        Notification(entry.type, 1, {"eventType": entry.type.value, "time": 1} | given)
        for entry in CATALOG.values()
        for given in (
            {},
            {"log": "a"} if "log" in entry.names else {},
            {"freeBytes": 1} if "freeBytes" in entry.names else {},
        )
    ]
    for left, right in itertools.product(atoms, repeat=2):
        for text in (f"{left} AND {right}", f"{left} OR NOT ({right})", f"NOT ({left} AND {right})"):
            found = filter_of((SELECTOR, text))
            for notification in notifications:
                if found.matches is None or found.matches(notification):
                    assert notification.type in found.types, text


@pytest.mark.parametrize(
    "expression",
    [
        " OR ".join(["log = 'a'"] * 260),
        " AND ".join(["log > peer"] * 260),
        " OR ".join(["x IN (1, 2, 3, 4, 5, 6, 7, 8)"] * 60),
        " OR ".join(["UPPER(log) = 'A'"] * 40),
        " OR ".join(["LOWER(log) LIKE 'a%'"] * 40),
        "+".join(["x"] * 501) + " = 1",
    ],
    ids=["comparisons", "conjunctions", "lists", "upper", "lower", "arithmetic"],
)
def test_what_filters_cost_of_one_event_is_bounded_whatever_they_are_made_of(expression: str) -> None:
    with pytest.raises(InvalidFilter, match="more than 1000 words, operators and members in all filters"):
        filter_of((SQL, expression))


@pytest.mark.parametrize(("text", "is_looked_at"), [("a" * 16_384, True), ("ß" * 4096, True), ("ß" * 4097, False)])
def test_of_long_texts_beyond_ascii_no_case_is_looked_at(text: str, is_looked_at: bool) -> None:
    assert passes(SQL, "UPPER(log) IS NOT NULL", event(log=text)) is is_looked_at
