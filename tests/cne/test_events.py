"""Events on their way into the log: what is kept, what is recognised as sent before, and strict mode."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.cne.notifications import writer
from headwater.cne.notifications.notification import Notification, Opaque, Value
from headwater.core import Event, Query, SequencedEvent
from headwater.storage.memory import MemoryLog
from tests.every import every

from .builders import EXAMPLE_REDFISH, NODE_SYNC_STATE, SYNC_STATE, bare, redfish, text, v1_value, v2_value, wrapped
from .world import V1, V2, Answer, World

STRUCTURED = {"content-type": "application/cloudevents+json"}
BATCH = {"content-type": "application/cloudevents-batch+json"}


def stored(world: World) -> list[SequencedEvent]:
    return list(world.store.open("cne").read())


def test_original_bytes_are_kept_and_the_attributes_are_read_from_them(play):
    async def scenario(world: World) -> None:
        id = await world.publisher(NODE_SYNC_STATE)
        original = b"  " + text(bare(id=id, vendor={"kept": 1}, dataSchema="urn:s", time="2024-05-06T09:08:09+02:00"))
        assert (await world.ask("POST", f"{V1}/create/event", original)).status == 202
        (event,) = stored(world)
        assert event.data == original
        assert event.type == "event.sync.sync-status.synchronization-state-change"
        assert event.source == "/cluster/node/worker-0/ptp"
        assert event.attributes == {
            "time": "2024-05-06T07:08:09Z",
            "datacontenttype": "application/json",
            "dataschema": "urn:s",
            "cnepublisher": id,
            "cneaddress": NODE_SYNC_STATE,
        }

    play(scenario)


def test_event_is_tagged_by_cluster_site_node_and_resource(play):
    async def scenario(world: World) -> None:
        id = await world.publisher(f"/east/site1/worker-0{SYNC_STATE}")
        await world.publish(id, "LOCKED", resource=SYNC_STATE)
        (event,) = stored(world)
        assert set(event.tags) >= {"cluster:east", "site:site1", "node:worker-0", f"resource:{SYNC_STATE}"}

    play(scenario)


def test_every_event_of_a_publisher_is_a_new_one(play):
    async def scenario(world: World) -> None:
        id = await world.publisher(NODE_SYNC_STATE)
        for _ in range(3):
            assert (await world.ask("POST", f"{V2}/create/event", bare(v2_value(), id=id))).status == 202
        events = stored(world)
        assert len({event.id for event in events}) == 3 and id not in {event.id for event in events}
        assert [event.attributes["cnepublisher"] for event in events] == [id] * 3

    play(scenario)


@pytest.mark.parametrize("headers", [STRUCTURED, {"content-type": "application/json"}, {}])
def test_cloudevent_is_taken_once_by_source_and_id(play, headers):
    async def scenario(world: World) -> None:
        for document in (wrapped(), wrapped(), wrapped(source="/other"), wrapped()):
            answer = await world.ask("POST", f"{V2}/create/event", document, headers=headers)
            assert (answer.status, answer.json) == (202, {"status": "Event sent"})
        events = stored(world)
        assert [(event.id, event.source) for event in events] == [
            ("ce-1", "/cluster/node/worker-0/ptp"),
            ("ce-1", "/other"),
        ]
        assert events[0].data == text(wrapped())
        assert events[0].attributes["datacontenttype"] == "application/cloudevents+json"

    play(scenario)


@pytest.mark.parametrize("version", ["0.3", "v1.0"])
def test_binary_mode_is_taken_in_every_version_that_structured_mode_is(play, version):
    async def scenario(world: World) -> None:
        document = wrapped(v2_value(ResourceAddress=NODE_SYNC_STATE), specversion=version, subject="/the/source")
        assert (await send(world, document, is_binary=True)).status == 202
        state = (await world.ask("GET", f"{V2}{NODE_SYNC_STATE}/CurrentState")).json
        assert state["source"] == ("/the/source" if version == "0.3" else document["source"])
        assert (await send(world, wrapped(specversion="2.0"), is_binary=True)).status == 400

    play(scenario)


def test_event_of_the_largest_size_as_it_is_sent_is_taken_and_delivered(play):
    async def scenario(world: World) -> None:
        value = v1_value(resource=NODE_SYNC_STATE, value="")
        first = wrapped(value, id="0")
        assert (await send(world, wrapped(v1_value(resource=NODE_SYNC_STATE), id="a"))).status == 202
        subscriber = await world.subscriber()
        await world.subscribe(subscriber.uri(), NODE_SYNC_STATE)
        room = 65_536 - len(text(first))
        largest = wrapped(value | {"value": "x" * room}, id="1")
        assert len(text(largest)) == 65_536
        assert (await send(world, largest)).status == 202
        await subscriber.got("LOCKED", "x" * room)
        assert len(subscriber.calls[-1].body) > 65_536
        assert (await send(world, wrapped(value | {"value": "x" * room + "x"}, id="2"))).status == 413

    play(scenario)


@pytest.mark.parametrize("mode", ["structured", "binary"])
def test_extensions_are_forwarded_with_their_types(play, mode):
    async def scenario(world: World) -> None:
        extensions = {"flag": True, "count": -5, "name": "5", "big": 2**31, "half": 1.5}
        assert (await send(world, wrapped(id="0"))).status == 202
        subscriber = await world.subscriber()
        await world.subscribe(subscriber.uri(), "/sync", DeliveryMode=mode)
        log = world.store.open("cne")
        log.append(
            [Event("t", text(wrapped(id="1", **extensions)), id="1", attributes={"count": "-5", "flag": "true"})]
        )
        assert (await send(world, wrapped(id="2", **extensions))).status == 202
        await subscriber.until(lambda it: len(it.calls) == 3)
        wanted = {"flag": True, "count": -5, "name": "5", "big": str(2**31), "half": "1.5"}
        others, own = subscriber.calls[1:]
        if mode == "binary":
            assert {name: own.headers[f"ce-{name}"] for name in wanted} == {
                "flag": "true", "count": "-5", "name": "5", "big": str(2**31), "half": "1.5",
            }  # fmt: skip
            assert others.headers["ce-flag"] == "true"
        else:
            assert {name: own.json[name] for name in wanted} == wanted and own.json["flag"] is True
            assert (others.json["flag"], others.json["count"]) == (True, -5)
            assert own.json["count"] is not True and type(own.json["count"]) is int

    play(scenario)


T0, T1, T2 = "2024-05-06T07:08:09Z", "2024-05-06T07:08:09.5Z", "2024-05-06T09:08:10+02:00"
LOCKED, FREERUN = v2_value(ResourceAddress=NODE_SYNC_STATE), v2_value(ResourceAddress=NODE_SYNC_STATE, value="FREERUN")


async def send(world: World, document: Any, *, is_binary: bool = False) -> Answer:
    path = f"{V2}/create/event"
    if not is_binary:
        return await world.ask("POST", path, document, headers=STRUCTURED)
    headers = {f"ce-{name}": value for name, value in document.items() if name != "data"}
    return await world.ask("POST", path, document["data"], headers={"content-type": "application/json"} | headers)


@pytest.mark.parametrize("is_binary", [False, True])
def test_producer_that_counts_from_1_again_is_heard(play, is_binary):
    async def scenario(world: World) -> None:
        told = [wrapped(LOCKED, time=T0), wrapped(FREERUN, time=T1), wrapped(LOCKED, time=T2)]
        for document in [*told, *told, told[0]]:
            assert (await send(world, document, is_binary=is_binary)).status == 202
        ids = [(event.id, event.attributes.get("cneid")) for event in stored(world)]
        assert ids == [("ce-1", None), (f"ce-1@{T1}", "ce-1"), ("ce-1@2024-05-06T07:08:10Z", "ce-1")]
        state = (await world.ask("GET", f"{V2}{NODE_SYNC_STATE}/CurrentState")).json
        assert (state["id"], state["data"]["values"][0]["value"]) == ("ce-1@2024-05-06T07:08:10Z", "LOCKED")
        assert "cneid" not in state

    play(scenario)


@every(
    "document",
    [
        wrapped(FREERUN, time=T0),
        wrapped(FREERUN, time="2023-01-01T00:00:00Z"),
        wrapped(FREERUN, time=...),
        wrapped(LOCKED, time=...),
        wrapped(LOCKED, time=T0, type="another.type"),
        wrapped(LOCKED, time=T0, priority="high"),
    ],
)
def test_another_event_of_a_used_id_without_a_later_time_is_refused(play, document):
    async def scenario(world: World) -> None:
        await send(world, wrapped(LOCKED, time=T0))
        before = len(stored(world))
        answer = await send(world, document)
        assert (answer.status, answer.json["path"]) == (409, "$.id")
        batch = await world.ask("POST", f"{V2}/create/event", [wrapped(LOCKED, id="new"), document], headers=BATCH)
        assert (batch.status, batch.json["path"]) == (409, "$[1].id")
        assert len(stored(world)) == before

    play(scenario)


@pytest.mark.parametrize("is_binary", [False, True])
def test_another_event_of_an_id_whose_first_event_is_being_stored_is_stored_or_refused(play, is_binary):
    async def scenario(world: World) -> None:
        await send(world, wrapped(LOCKED, id="other", time=T0))
        times = T1, T2, T0
        sent = (send(world, wrapped(LOCKED, time=time), is_binary=is_binary) for time in times)
        assert [answer.status for answer in await asyncio.gather(*sent)] == [202, 202, 409]
        ids = [event.id for event in stored(world)]
        assert ids == ["other", "ce-1", "ce-1@2024-05-06T07:08:10Z"]

    play(scenario)


def test_repeat_is_known_however_it_is_written_and_whatever_time_it_was_given(play):
    async def scenario(world: World) -> None:
        document = wrapped(LOCKED, time=...)
        for each in (document, document, dict(reversed(document.items()))):
            assert (await send(world, each)).status == 202
        assert len(stored(world)) == 1
        again = [wrapped(FREERUN, time=T1), wrapped(FREERUN, time=T1), wrapped(LOCKED, id="other")]
        batch = [wrapped(LOCKED, time=T0, source="/b"), *({**each, "source": "/b"} for each in again)]
        for _ in range(2):
            assert (await world.ask("POST", f"{V2}/create/event", batch, headers=BATCH)).status == 202
        assert [event.id for event in stored(world)[1:]] == ["ce-1", f"ce-1@{T1}", "other"]

    play(scenario)


def test_cloudevent_with_the_id_of_a_publisher_is_that_publishers(play):
    async def scenario(world: World) -> None:
        id = await world.publisher(NODE_SYNC_STATE)
        for _ in range(2):
            assert (await world.ask("POST", f"{V2}/create/event", wrapped(id=id))).status == 202
        assert len(stored(world)) == 2

    play(scenario)


def test_batch_is_taken_whole_or_not_at_all(play):
    async def scenario(world: World) -> None:
        path = f"{V2}/create/event"
        broken = [wrapped(), wrapped(v2_value(value=None), id="b")]
        answer = await world.ask("POST", path, broken, headers=BATCH)
        assert (answer.status, answer.json["path"]) == (400, "$[1].data.values[0].value")
        assert (await world.ask("POST", path, [wrapped(), {}], headers=BATCH)).status == 400
        assert (await world.ask("POST", path, [wrapped(), 5], headers=BATCH)).json["path"] == "$[1]"
        assert world.store.names() == []
        whole = [wrapped(id="a"), wrapped(id="b"), wrapped(id="a")]
        assert (await world.ask("POST", path, whole, headers=BATCH)).status == 202
        assert [event.id for event in stored(world)] == ["a", "b"]
        assert stored(world)[1].data == text(wrapped(id="b"))
        assert (await world.ask("POST", path, [], headers=BATCH)).status == 202
        assert (await world.ask("POST", path, [5] * 1001, headers=BATCH)).status == 413

    play(scenario)


def test_what_a_batch_repeats_is_left_out_in_one_go(play, monkeypatch):
    submitted = []

    def submit(log, request):
        submitted.append(request)
        return submit_as_ever(log, request)

    submit_as_ever = MemoryLog.submit
    monkeypatch.setattr(MemoryLog, "submit", submit)

    async def scenario(world: World) -> None:
        path = f"{V2}/create/event"
        batch = [wrapped(id=f"a{number}") for number in range(50)]
        assert (await world.ask("POST", path, batch, headers=BATCH)).status == 202
        assert (await world.ask("POST", path, batch, headers=BATCH)).status == 202
        longer = [*batch, wrapped(id="new"), wrapped(id="new")]
        assert (await world.ask("POST", path, longer, headers=BATCH)).status == 202
        assert [event.id for event in stored(world)] == [*(f"a{number}" for number in range(50)), "new"]

    play(scenario)
    assert len(submitted) <= 5  # and not one for each event that is repeated


def test_binary_mode_is_taken(play):
    async def scenario(world: World) -> None:
        headers = {"ce-specversion": "1.0", "ce-id": "b1", "ce-source": "/s", "ce-type": "t", "ce-trace": "x",
                   "content-type": "application/json"}  # fmt: skip
        body = text(wrapped()["data"])
        assert (await world.ask("POST", f"{V2}/create/event", body, headers=headers)).status == 202
        (event,) = stored(world)
        assert (event.id, event.source, event.type, event.data) == ("b1", "/s", "t", body)
        assert event.attributes["trace"] == "x"
        state = await world.ask("GET", f"{V2}{SYNC_STATE}/CurrentState")
        assert (state.json["id"], state.json["trace"]) == ("b1", "x")

    play(scenario)


IN_BINARY = {
    "ce-specversion": "1.0",
    "ce-id": "b1",
    "ce-source": "/s",
    "ce-type": "t",
    "content-type": "application/json",
}
DATA = {"version": "1.0", "values": [v2_value()]}
BROKEN_DATA = {
    "$.data.version": DATA | {"version": "v1.0"},
    "$.data.values": DATA | {"values": []},
    "$.data.values[0].value_type": DATA | {"values": [v2_value(value_type="other")]},
}


@pytest.mark.parametrize("path", BROKEN_DATA)
def test_strict_mode_holds_binary_mode_to_the_same_rules(play, path):
    async def scenario(world: World) -> None:
        async def sent(data: object, query: str) -> Answer:
            headers = IN_BINARY | {"ce-id": query}
            return await world.ask("POST", f"{V2}/create/event", text(data), headers=headers, query=query)

        refused = await sent(BROKEN_DATA[path], "strict=true")
        assert (refused.status, refused.json["path"]) == (400, path)
        wrong_type = await world.ask("POST", f"{V2}/create/event", text(DATA | {"values": [v1_value()]}),
                                     headers=IN_BINARY, query="strict=true")  # fmt: skip
        assert wrong_type.status == 400, "of the other dialect"
        assert (await sent(DATA, "strict=true")).status == 202
        assert (await sent(BROKEN_DATA[path], "strict=false")).status == 202

    play(scenario)


@pytest.mark.parametrize("mode", ["structured", "binary"])
def test_tags_of_a_cloudevent_are_tags_of_the_event(play, mode):
    async def scenario(world: World) -> None:
        if mode == "structured":
            await world.ask("POST", f"{V2}/create/event", wrapped(tags="rack:7,urgent", partitionkey="k"))
        else:
            headers = IN_BINARY | {"ce-tags": "rack:7,urgent", "ce-partitionkey": "k"}
            await world.ask("POST", f"{V2}/create/event", text(DATA), headers=headers)
        assert {"rack:7", "urgent"} < set(stored(world)[0].tags)
        assert stored(world)[0].group_key == "k"

    play(scenario)


def test_missing_time_is_stamped_and_marked(play):
    async def scenario(world: World) -> None:
        id = await world.publisher(NODE_SYNC_STATE)
        assert (await world.ask("POST", f"{V1}/create/event", bare(id=id, time=...))).status == 202
        (event,) = stored(world)
        assert event.attributes["cnestamped"] == "true" and event.attributes["time"].endswith("Z")

    play(scenario)


def test_missing_source_is_the_publishers_resource(play):
    async def scenario(world: World) -> None:
        id = await world.publisher(NODE_SYNC_STATE)
        assert (await world.ask("POST", f"{V1}/create/event", bare(id=id, source=...))).status == 202
        assert stored(world)[0].source == NODE_SYNC_STATE

    play(scenario)


def test_refusal_names_the_json_path(play):
    async def scenario(world: World) -> None:
        id = await world.publisher(NODE_SYNC_STATE)
        cases = {
            "$.data.values[0].value": bare(v1_value(value=5), id=id),
            "$.type": bare(id=id, type="x" * 201),
            "$.time": bare(id=id, time="1620000000"),
            "$.data": bare(id=id, data=...),
        }
        for path, document in cases.items():
            answer = await world.ask("POST", f"{V1}/create/event", document)
            assert (answer.status, answer.json.get("path")) == (400, path), answer.body

    play(scenario)


def test_strict_mode_refuses_what_breaks_the_specification(play):
    async def scenario(world: World) -> None:
        id = await world.publisher(NODE_SYNC_STATE)
        loose = bare(v1_value(dataType="alarm"), id=id)
        refused = await world.ask("POST", f"{V1}/create/event", loose)
        assert (refused.status, refused.json["path"]) == (400, "$.data.values[0].dataType")
        taken = await world.ask("POST", f"{V1}/create/event", loose, query="strict=false")
        assert taken.status == 202
        assert (await world.ask("POST", f"{V1}/create/event", bare(id=id))).status == 202
        assert (await world.ask("POST", f"{V1}/create/event", bare(id=id), query="strict=maybe")).status == 400

    play(scenario, strict=True)


def test_strict_may_be_asked_for_by_one_request(play):
    async def scenario(world: World) -> None:
        id = await world.publisher(NODE_SYNC_STATE)
        answer = await world.ask("POST", f"{V2}/create/event", bare(id=id), query="strict=true")
        assert (answer.status, answer.json["path"]) == (400, "$.data.values[0].ResourceAddress")

    play(scenario)


def test_redfish_events_pass_strict_mode_as_the_specification_shows_them(play):
    async def scenario(world: World) -> None:
        id = await world.publisher(NODE_SYNC_STATE)

        async def sent(event: dict[str, Any]) -> Answer:
            document = bare(v1_value(valueType="redfish-event", value=event), id=id)
            return await world.ask("POST", f"{V1}/create/event", document, query="strict=true")

        for event in (redfish(), EXAMPLE_REDFISH):
            assert (await sent(event)).status == 202
        broken = await sent({name: value for name, value in EXAMPLE_REDFISH.items() if name != "Id"})
        assert (broken.status, broken.json["path"]) == (400, "$.data.values[0].value.Id")

    play(scenario)


def test_redfish_event_is_carried_verbatim(play):
    async def scenario(world: World) -> None:
        id = await world.publisher("/cluster/node/worker-0/redfish/v1/Systems")
        value = v1_value(resource="/redfish/v1/Systems", valueType="redfish-event", value=redfish())
        raw = text(bare(value, id=id)).replace(b"12.5}", b"12.50}")
        assert b"12.50" in raw
        assert (await world.ask("POST", f"{V1}/create/event", raw)).status == 202
        state = await world.ask("GET", f"{V2}/cluster/node/worker-0/redfish/v1/Systems/CurrentState")
        assert state.json["data"]["values"][0]["value"] == redfish()
        assert b'"reading":12.50' in state.body

    play(scenario)


def test_metric_of_a_number_is_delivered_as_its_text(play):
    async def scenario(world: World) -> None:
        id = await world.publisher(NODE_SYNC_STATE)
        raw = text(bare(v1_value(valueType="decimal64.3", value="@"), id=id)).replace(b'"@"', b"100.300")
        assert (await world.ask("POST", f"{V1}/create/event", raw)).status == 202
        state = await world.ask("GET", f"{V2}{NODE_SYNC_STATE}/CurrentState")
        assert state.json["data"]["values"][0]["value"] == "100.300"

    play(scenario)


def test_event_without_values_is_stored_and_is_no_state(play):
    async def scenario(world: World) -> None:
        id = await world.publisher(NODE_SYNC_STATE)
        empty = bare(id=id, data={"version": "1.0", "values": []})
        assert (await world.ask("POST", f"{V1}/create/event", empty)).status == 202
        assert len(stored(world)) == 1
        assert (await world.ask("GET", f"{V2}{NODE_SYNC_STATE}/CurrentState")).status == 404

    play(scenario)


def test_events_are_there_for_every_other_protocol(play):
    async def scenario(world: World) -> None:
        id = await world.publisher(NODE_SYNC_STATE)
        await world.publish(id, "LOCKED")
        log = world.store.open("cne")
        assert len(list(log.read(Query.where(types=["event.sync"], tags=["node:worker-0", "resource"])))) == 1
        assert json.loads(stored(world)[0].data)["data"]["values"][0]["value"] == "LOCKED"

    play(scenario)


_any = st.text(max_size=20)


@given(st.lists(_any, min_size=4, max_size=4), st.dictionaries(st.from_regex("[a-z]{1,9}", fullmatch=True), _any), _any)
def test_an_event_is_never_larger_than_is_said(texts: list[str], extensions: dict[str, str], value: str) -> None:
    id, type, source, schema = (each.encode(errors="replace").decode() for each in texts)
    kept = {name: value.encode(errors="replace").decode() for name, value in extensions.items()}
    values = (Value("/a", "metric", "enumeration", "\x00" * 9), Value("/b", "metric", "x", Opaque(text([1, id]))))
    made = Notification(id, type, source, "", "1", values, data_schema=schema, extensions=kept)
    assert len(writer.structured(made, 10**18 - 1)) <= writer.size_at_most(made)
