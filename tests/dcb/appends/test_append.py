"""Appends: what comes back, what is kept, and every way to get it wrong."""

from __future__ import annotations

import asyncio

import pytest

from headwater.core import Encoding, Event, errors
from headwater.formats import packed


def test_append_answers_first_and_last_sequence_number(client, event):
    client.append(event())
    answer = client.append(event(), event(), event())
    assert answer.status == 200
    assert answer.json == {"sequence_number": 4, "first_sequence_number": 2, "was_stored": False}


def test_repeated_append_is_recognised_by_its_ids(client, event):
    first = client.append(event(id="a"), event(id="b"))
    again = client.append(event(id="a"), event(id="b"))
    assert again.json == first.json | {"was_stored": True}


def test_all_fields_are_kept(client, store):
    given = {
        "id": "1", "type": "T", "data": "@", "tags": ["a:1", {"key": "b"}, {"key": "c", "value": "2"}],
        "source": "/s", "attributes": {"subject": "x"}, "group_key": "g", "envelope_base64": "AFN3", "encoding": "amqp",
    }  # fmt: skip
    assert client.append(given).status == 200
    [stored] = store.open("courses").read()
    assert stored.tags == ("a:1", "b", "c:2")
    assert stored.data == b"@"
    assert (stored.attributes, stored.envelope, stored.encoding) == ({"subject": "x"}, b"\0Sw", Encoding.AMQP)
    assert client.read()[0]["event"] == given | {"tags": ["a:1", "b", "c:2"]}


def test_events_may_come_as_messagepack(client, store):
    def append(**body):
        headers = {"content-type": packed.MEDIA_TYPE}
        return client.post("/logs/courses/append", packed.encode(body), headers=headers)

    answer = append(events=[("T", b"\xff", ("b", "a:1"), "1"), ("T",)], condition={"failIfEventsMatch": "all"})
    assert answer.json == {"sequence_number": 2, "first_sequence_number": 1, "was_stored": False}
    first, second = store.open("courses").read()
    assert first.event == Event("T", b"\xff", ("a:1", "b"), "1")
    assert second.id[14] == "7"
    assert append(events=[("T",)], condition={"failIfEventsMatch": "all"}).code == "append_condition_failed"
    assert append(events=[("T",), ("T", "text")]).json["path"] == "$.events[1][1]"
    assert append(events=[("T",), ("T", b"", ("no\ntag",))]).json["path"] == "$.events[1].tags[0]"
    assert append(events=[("T",)], conditon=None).code == "invalid_request"
    malformed = client.post("/logs/courses/append", b"{}", headers={"content-type": packed.MEDIA_TYPE})
    assert (malformed.status, malformed.code) == (400, "invalid_request")


def test_data_that_is_not_utf8_travels_as_base64(client, store):
    assert client.append({"type": "T", "data_base64": "//8="}).status == 200
    assert next(store.open("courses").read()).data == b"\xff\xff"
    found = client.read()[0]["event"]
    assert found["data_base64"] == "//8=" and "data" not in found


def test_id_is_a_uuid7_where_none_is_given(client, event):
    client.append(event(), event(id=None))
    ids = [each["event"]["id"] for each in client.read()]
    assert len(set(ids)) == 2
    assert all(id[14] == "7" for id in ids)


def test_partition_can_be_named(client, store, event):
    client.put("/logs/p", {"partitions": 4})
    client.post("/logs/p/append", {"events": [event()], "partition": 3})
    [found] = client.post("/logs/p/read", {"query": "all"}).lines
    assert found["partition"] == 3
    answer = client.post("/logs/p/append", {"events": [event()], "partition": 4})
    assert (answer.status, answer.json["path"]) == (400, "$.partition")
    assert client.post("/logs/p/read", {"query": "all", "partition": 2}).lines == []


@pytest.mark.parametrize(("body", "path", "said"), [
    ({"events": []}, "$.events", "at least one"),
    ({"events": [{}]}, "$.events[0]", "required field `type`"),
    ({"events": [{"type": ""}]}, "$.events[0].type", "1 to 200"),
    ({"events": [{"type": "T"}, {"type": 7}]}, "$.events[1].type", "expected `str`, got `int`"),
    ({"events": [{"type": "T", "data": {}}]}, "$.events[0].data", "expected `str | null`, got `object`"),
    ({"events": [{"type": "T", "data": "", "data_base64": ""}]}, "$.events[0].data_base64", "not both"),
    ({"events": [{"type": "T", "data_base64": "%"}]}, "$.events[0].data_base64", "base64"),
    ({"events": [{"type": "T", "tags": ["a:1", "b\nc:1"]}]}, "$.events[0].tags[1]", "not contain control characters"),
    ({"events": [{"type": "T", "tags": ["a:1", 1]}]}, "$.events[0].tags[1]", "got `int`"),
    ({"events": [{"type": "T", "id": ""}]}, "$.events[0].id", "not be empty"),
    ({"events": [{"type": "T", "encoding": "xml"}]}, "$.events[0].encoding", "got 'xml'"),
    ({"events": [{"type": "T", "attributes": {"time": 1}}]}, "$.events[0].attributes[...]", "expected `str`"),
    ({"events": [{"type": "T", "attributes": {"Time": "1"}}]}, "$.events[0].attributes", "got 'Time'"),
    ({"events": [{"type": "T", "tipe": "U"}]}, "$.events[0]", "unknown field `tipe`"),
    ({"event": []}, "$", "unknown field `event`"),
    ({"events": [{"type": "T"}], "condition": {"failIfEventsMatch": "all", "after": -1}}, "$.condition.after", "-1"),
    ([], "$", "expected `object`, got `array`"),
])  # fmt: skip
def test_bad_append_is_refused_with_path_and_reason(client, body, path, said):
    answer = client.post("/logs/courses/append", body)
    assert (answer.status, answer.code, answer.json["path"]) == (400, "invalid_request", path)
    assert said in answer.json["detail"]


@pytest.mark.parametrize(("body", "line", "column"), [
    (b'{"events": [\n  {"type": "T" "tags"', 2, 16),
    (b'{"events"', 1, 10),
    (b"", 1, 1),
    (b'{"events":[{"type":"\xff"}]}', 1, 21),
    (b"\xef\xbb\xbf{}", 1, 1),
])  # fmt: skip
def test_malformed_json_is_refused_with_line_and_column(client, body, line, column):
    answer = client.post("/logs/courses/append", body, headers={"content-type": "application/json"})
    assert (answer.status, answer.code) == (400, "malformed_json")
    assert (answer.json["line"], answer.json["column"]) == (line, column)


def test_half_a_surrogate_pair_is_refused(client):
    answer = client.post("/logs/courses/append", b'{"events":[{"type":"T","data":"\\ud800"}]}')
    assert (answer.status, answer.code) == (400, "malformed_json")


def test_duplicate_event_id_says_which_event_has_it(client, event):
    client.append(event(id="a"))
    answer = client.append(event(id="b"), event("Other", id="a"))
    assert (answer.status, answer.code) == (409, "duplicate_event_id")
    problem = answer.json
    assert (problem["id"], problem["sequence_number"], problem["path"]) == ("a", 1, "$.events[1].id")
    assert "sequence_number" not in client.append(event(id="c"), event(id="c")).json


def test_event_over_the_logs_limit_is_413(client, event):
    answer = client.append(event(data="x" * (1024 * 1024 + 1)))
    assert (answer.status, answer.code) == (413, "too_large")
    assert answer.json["path"] == "$.events[0].data"
    assert (answer.json["given"], answer.json["allowed"]) == (1024 * 1024 + 1, 1024 * 1024)


def test_body_over_the_limit_is_refused_unread(client_of, store):
    store.create("courses")
    client = client_of(body_bytes_max=100)
    answer = client.post("/logs/courses/append", b"", headers={"content-length": "101"})
    assert (answer.status, answer.code) == (413, "too_large")
    assert answer.headers["connection"] == "close"
    assert client.post("/logs/courses/append", b" " * 101).status == 413


def test_other_media_type_is_415(client):
    answer = client.post("/logs/courses/append", b"a=b", headers={"content-type": "application/x-www-form-urlencoded"})
    assert (answer.status, answer.code) == (415, "unsupported_media_type")
    assert "application/json" in answer.json["detail"]


def test_unknown_parameter_is_refused_by_name(client, event):
    answer = client.post("/logs/courses/append", {"events": [event()]}, parameters={"strikt": "true"})
    assert (answer.status, answer.json["parameter"]) == (400, "strikt")
    assert "allowed: strict" in answer.json["detail"]


@pytest.mark.parametrize(("error", "status", "code"), [
    (errors.Overloaded(10, 5, 2.5), 503, "overloaded"),
    (errors.Closed("courses"), 503, "stopping"),
    (errors.StorageUnavailable("locked"), 503, "storage_unavailable"),
    (errors.DiskFull("/secret", 1, 2), 507, "disk_full"),
    (errors.SequenceExhausted(10**18 - 1), 507, "sequence_exhausted"),
    (errors.ConditionNeedsTrimmedEvents(3, 9), 409, "condition_needs_trimmed_events"),
    (errors.StorageCorrupted("/secret", "bad", "restore"), 500, "storage_corrupted"),
])  # fmt: skip
def test_what_the_log_refuses_is_told(client, store, event, error, status, code, monkeypatch):
    def submit(request):
        raise error

    monkeypatch.setattr(store.open("courses"), "submit", submit)
    answer = client.append(event())
    assert (answer.status, answer.code) == (status, code)
    assert "secret" not in answer.json["detail"]
    if status == 503:
        assert int(answer.headers["retry-after"]) >= 2


def test_fault_of_the_server_is_a_problem_without_its_innards(client, store, event, monkeypatch, caplog):
    monkeypatch.setattr(store.open("courses"), "submit", lambda request: 1 / 0)
    answer = client.append(event())
    assert (answer.status, answer.code) == (500, "internal")
    assert "division" not in answer.json["detail"]
    assert "ZeroDivisionError" in caplog.text


def test_one_of_many_writers_wins_one_boundary(client, event):
    condition = {"query": {"criteria": []}, "expected_highest_sequence_number": "NONE"}

    async def race():
        body = {"events": [event()], "condition": condition}
        writers = [client.connect("POST", "/logs/courses/append", body) for _ in range(20)]
        return [(await writer.end()).status for writer in writers]

    assert sorted(client.run(race())) == [200] + [409] * 19


def test_client_that_leaves_before_the_body_ends_is_forgotten(client):
    async def leave():
        connection = client.connect("POST", "/logs/courses/append", b"")
        connection._request.clear()
        connection.leave()
        async with asyncio.timeout(5):
            await connection.task
        return connection.messages

    assert client.run(leave()) == []


def test_a_compressed_body_is_refused_and_never_stored_as_it_is(client, event):
    binary = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/s", "ce-type": "T", "content-encoding": "gzip"}
    for path, headers in (("append", {"content-encoding": "gzip"}), ("events", binary)):
        answer = client.post(f"/logs/courses/{path}", b"\x1f\x8b", headers=headers)
        assert (answer.status, answer.code) == (415, "unsupported_media_type")
        assert answer.headers["accept-encoding"] == "identity"
    body = {"events": [event()]}
    assert client.post("/logs/courses/append", body, headers={"content-encoding": "identity"}).status == 200
