"""What one protocol has just written, another decides on; and the same event twice is one, whoever repeats it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import google_crc32c
import pyarrow as pa
import pytest

from headwater.amqp.protocol.message import DATA, Message, Properties
from headwater.amqp.protocol.performatives import Accepted
from headwater.core import AppendCondition, Event, Query
from headwater.core.errors import AppendConditionFailed

from .cases import CASES, Case
from .world import CNE, LOG, PARTITIONS, Refused, World
from .writers import COLUMNS, WRITERS, row

pytestmark = pytest.mark.timeout(180)

BY_NAME = {case.name: case for case in CASES}
WRITER = {writer.name: writer for writer in WRITERS}
FREE = ["dcb", "cloudevents_binary", "cloudevents_structured", "amqp", "flight"]
"""Writers that give id and source as they like, and the payload as it is."""


def case_of(writer: str, name: str, **more: Any) -> Case:
    """An event that the writer can say, and no other test has."""
    return replace(BY_NAME["notification" if writer.startswith("cne") else "plain"], name=name, **more)


def batch_of(*cases: Case) -> pa.RecordBatch:
    """Rows for the bulk plane."""
    return pa.RecordBatch.from_pylist([row(case, "flight") for case in cases], COLUMNS)


@pytest.mark.parametrize("name", WRITER)
def test_dcb_condition_sees_what_was_just_written(world: World, name: str) -> None:
    """By type, and by tag where the protocol has tags: the append is refused, and told which event is in the way."""
    case = case_of(name, f"condition-{name}", type="SEEN_" + name.replace("cloudevents", "CE").upper()[-11:])
    before = world.log.head()
    number = world.write(WRITER[name], case)
    world.look()
    questions = [Query.where(types=[case.type])]
    questions += [Query.where(types=[case.type], tags=[tag]) for tag in world.events[number].tags]
    assert len(questions) > 1 or name.startswith("futoin")
    for question in questions:
        with pytest.raises(AppendConditionFailed) as failed:
            world.log.append([Event("Decided")], AppendCondition(question, before))
        assert failed.value.conflict == number
        assert world.log.append([Event("Decided")], AppendCondition(question, number)).first == world.log.head()


def test_two_protocols_that_race_for_one_seat_never_both_get_it(world: World) -> None:
    """An AMQP producer and a node have written: a decision made on what was there before is refused."""
    seen = world.write(WRITER["amqp"], case_of("amqp", "before"))
    amqp = world.write(WRITER["amqp"], case_of("amqp", "race", tags=("seat:12A",)))
    node = world.write(WRITER["cne"], case_of("cne", "race"))
    for tag, number in (("seat:12A", amqp), ("node:cne-race", node)):
        condition = {"failIfEventsMatch": {"items": [{"tags": [tag]}]}, "after": seen}
        asked = {"events": [{"type": "SeatBooked", "tags": [tag]}], "condition": condition}
        answer = world.post(f"/logs/{LOG}/append", asked)
        assert answer.status == 409
        assert (answer.json["reason"], answer.json["sequence_number"]) == ("newer_match", number)


@pytest.mark.parametrize("second", FREE)
@pytest.mark.parametrize("first", FREE)
def test_event_that_is_there_is_recognised_whoever_repeats_it(world: World, first: str, second: str) -> None:
    case = case_of(first, f"{first}-{second}", id_form="repeated-{case}")
    number = world.write(WRITER[first], case)
    WRITER[second].write(world, case)
    assert world.log.head() == number


@pytest.mark.parametrize("second", FREE)
@pytest.mark.parametrize("first", FREE)
def test_another_event_under_an_id_that_is_there_is_refused(world: World, first: str, second: str) -> None:
    case = case_of(first, f"{first}-not-{second}", id_form="taken-{case}")
    number = world.write(WRITER[first], case)
    for other in (replace(case, data=b"13"), replace(case, type="ORDER_PAID"), replace(case, tags=("order:1",))):
        with pytest.raises(Refused):
            WRITER[second].write(world, other)
    assert world.log.head() == number


def test_key_of_futoin_is_an_id_for_all(world: World) -> None:
    case = case_of("futoin", "key", tags=())
    number = world.write(WRITER["futoin"], case)
    WRITER["futoin"].write(world, case)
    with pytest.raises(Refused, match="KeyReused"):
        WRITER["futoin"].write(world, replace(case, data=b"13"))
    event = {"type": case.type, "data": case.data.decode(), "id": "futoin-key", "source": "/futoin/alice"}
    again = world.post(f"/logs/{LOG}/append", {"events": [event]})
    assert again.json == {"sequence_number": number, "first_sequence_number": number, "was_stored": True}


def test_futoin_event_without_a_key_is_a_new_one_each_time(world: World) -> None:
    case = replace(BY_NAME["anonymous"], name="twice")
    assert world.write(WRITER["futoin"], case) + 1 == world.write(WRITER["futoin"], case)


def test_node_is_told_that_all_is_well_when_it_repeats_itself(world: World) -> None:
    """A CloudEvent is taken once by source and id, whatever it says; an event of a publisher is a new one each time."""
    case = case_of("cne_cloudevent", "node-repeats")
    number = world.write(WRITER["cne_cloudevent"], case)
    WRITER["cne_cloudevent"].write(world, case)
    WRITER["cne_cloudevent"].write(world, replace(case, tags=("changed",)))
    assert world.log.head() == number
    bare = case_of("cne", "node-repeats")
    assert world.write(WRITER["cne"], bare) + 1 == world.write(WRITER["cne"], bare)


def test_batch_with_some_events_that_are_there_goes_without_them_where_that_is_asked_for(world: World) -> None:
    known = case_of("amqp", "known", id_form="skip-{case}")
    number = world.write(WRITER["amqp"], known)
    [appended] = world.bulk.append(LOG, [batch_of(known, replace(known, name="new"))], on_duplicate="skip")
    assert (appended.first, appended.last, appended.skipped) == (number + 1, number + 1, 1)


def test_batch_of_each_protocol_is_in_its_order_and_nothing_comes_between(world: World) -> None:
    before = world.log.head()
    events = [{"type": f"T{index}", "id": f"dcb-batch-{index}", "source": "/shop"} for index in range(5)]
    assert world.post(f"/logs/{LOG}/append", {"events": events}).status == 200
    batch = [{"specversion": "1.0", **each, "id": f"ce-{each['id']}"} for each in events]
    headers = {"content-type": "application/cloudevents-batch+json"}
    assert world.call("POST", f"/logs/{LOG}/events", json.dumps(batch).encode(), headers).status == 200
    messages = [Message([b""], DATA, properties=Properties(subject=each["type"])) for each in events]
    assert world.amqp.sender(LOG).send_all(messages) == [Accepted()] * 5
    given = [{"type": "T" * (index + 1), "data": index} for index in range(5)]
    call = {"f": "headwater.evt.gen:1.0:addEvents", "p": {"events": given}}
    ids = world.post(f"/futoin/{LOG}", call).json["r"]
    assert ids == [str(before + 16 + index) for index in range(5)]
    nodes = [each | {"id": f"cne-{each['id']}", "data": {"version": "1.0", "values": []}} for each in batch]
    assert world.call("POST", f"{CNE}/create/event", json.dumps(nodes).encode(), headers).status == 202
    [appended] = world.bulk.append(
        LOG, [pa.record_batch({"type": [f"T{index}" for index in range(5)], "data": [b""] * 5})]
    )
    assert (appended.first, appended.last) == (before + 26, before + 30)
    types = [event.type for event in world.log.read(after=before)]
    numbered, futoin = [f"T{index}" for index in range(5)], ["T", "TT", "TTT", "TTTT", "TTTTT"]
    assert types == [*numbered * 3, *futoin, *numbered * 2]


@pytest.mark.parametrize("name", sorted(WRITER.keys() - {"futoin", "futoin_websocket", "cne"}))
def test_group_key_has_one_partition_whoever_writes(world: World, name: str) -> None:
    """All who can say it: FutoIn has no group key, and a publisher's bare event has none."""
    keys = ("Z\u00fcrich", "customer 7", "k")
    numbers = [world.write(WRITER[name], case_of(name, f"group-{key}", group_key=key)) for key in keys]
    world.look()
    for key, number in zip(keys, numbers, strict=True):
        event = world.events[number]
        assert (event.group_key, event.partition) == (key, google_crc32c.value(key.encode()) % PARTITIONS)
