"""CloudEvents over HTTP: structured, batch and binary mode in, batch out."""

from __future__ import annotations

import json

import pytest

CLOUDEVENT = {
    "specversion": "1.0", "id": "A-1", "source": "/shop", "type": "order.placed", "time": "2026-02-03T04:05:06Z",
    "subject": "order 7", "tags": "order:7,note:a%2Cb", "partitionkey": "7", "data": {"total": 3},
}  # fmt: skip
STRUCTURED = {"content-type": "application/cloudevents+json; charset=utf-8"}
BATCH = {"content-type": "application/cloudevents-batch+json"}


def cloudevents(client):
    headers = {"accept": "application/cloudevents+json"}
    return client.post("/logs/courses/read", {"query": "all"}, headers=headers).json


def test_structured_mode_comes_back_as_it_went_in(client):
    answer = client.post("/logs/courses/events", json.dumps(CLOUDEVENT).encode(), headers=STRUCTURED)
    assert (answer.status, answer.json["sequence_number"]) == (200, 1)
    [found] = cloudevents(client)
    assert found.pop("sequence") == "000000000000000001"
    assert found | {"tags": ""} == CLOUDEVENT | {"tags": ""}
    assert sorted(found["tags"].split(",")) == ["note:a%2Cb", "order:7"]
    [envelope] = client.read({"items": [{"tags": ["note:a,b"]}]})
    assert envelope["event"]["group_key"] == "7"
    assert json.loads(envelope["event"]["data"]) == {"total": 3}


def test_batch_mode_appends_all_or_none(client):
    batch = [CLOUDEVENT, CLOUDEVENT | {"id": "A-2"}]
    answer = client.post("/logs/courses/events", json.dumps(batch).encode(), headers=BATCH)
    assert answer.json == {"sequence_number": 2, "first_sequence_number": 1, "was_stored": False}
    batch = [CLOUDEVENT | {"id": "A-3"}, CLOUDEVENT | {"id": "A-1", "type": "other"}]
    assert client.post("/logs/courses/events", json.dumps(batch).encode(), headers=BATCH).code == "duplicate_event_id"
    assert client.get("/logs/courses/head").json["head"] == 2


def test_binary_mode_keeps_any_payload(client):
    headers = {
        "content-type": "image/png", "ce-specversion": "1.0", "ce-id": "B-1", "ce-source": "/camera",
        "ce-type": "picture.taken", "ce-subject": "caf%C3%A9", "ce-tags": "camera:1,place:a%252Cb",
    }  # fmt: skip
    assert client.post("/logs/courses/events", b"\x89PNG\xff", headers=headers).status == 200
    [found] = cloudevents(client)
    assert (found["datacontenttype"], found["data_base64"]) == ("image/png", "iVBOR/8=")
    assert found["subject"] == "café"
    assert found["tags"] == "camera:1,place:a%2Cb"


def test_repeated_cloudevent_is_recognised(client):
    for expected in (False, True):
        answer = client.post("/logs/courses/events", json.dumps(CLOUDEVENT).encode(), headers=STRUCTURED)
        assert answer.json["was_stored"] is expected


@pytest.mark.parametrize(("change", "path"), [
    ({"specversion": "0.3"}, "specversion"), ({"id": ""}, "id"), ({"id": None}, "id"), ({"type": ""}, "type"),
    ({"time": "yesterday"}, "time"), ({"subject": ""}, "subject"), ({"extra": 1.5}, "extra"), ({"extra": {}}, "extra"),
    ({"tags": "a:1,,b"}, "tags"), ({"tags": "x,a%FFb"}, "tags"), ({"tags": "%E4"}, "tags"),
    ({"data_base64": "AA=="}, "data_base64"),
    ({"partitionkey": "k" * 513}, "partitionkey"), ({"type": "t" * 201}, "type"),
])  # fmt: skip
def test_bad_cloudevent_is_refused_with_its_path(client, change, path):
    answer = client.post("/logs/courses/events", json.dumps(CLOUDEVENT | change).encode(), headers=STRUCTURED)
    assert (answer.status, answer.code, answer.json["path"]) == (400, "invalid_request", f"$.{path}")
    batch = [CLOUDEVENT | {"id": "other"}, CLOUDEVENT | change]
    answer = client.post("/logs/courses/events", json.dumps(batch).encode(), headers=BATCH)
    assert answer.json["path"] == f"$[1].{path}"


def test_bad_binary_cloudevent_is_refused_by_its_header(client):
    headers = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/s", "ce-type": "t"}
    for change, parameter in (
        ({"ce-time": "now"}, "ce-time"), ({"ce-tags": "a%0Ab"}, "ce-tags"), ({"ce-subject": "%FF"}, "ce-subject"),
        ({"ce-tags": "a%25FFb"}, "ce-tags"),
        ({"ce-specversion": "2"}, "ce-specversion"),
    ):  # fmt: skip
        answer = client.post("/logs/courses/events", b"", headers=headers | change)
        assert (answer.status, answer.json["parameter"]) == (400, parameter)
    del headers["ce-type"]
    assert client.post("/logs/courses/events", b"", headers=headers).json["parameter"] == "ce-type"


def test_a_fault_names_what_was_sent(client):
    text = json.dumps(CLOUDEVENT).encode()
    answer = client.post("/logs/courses/events", text[:-1] + b',"extra":1e400}', headers=STRUCTURED)
    assert answer.json["path"] == "$.extra"
    assert "expected a string, a whole number, true or false, got '1e400'" in answer.json["detail"]
    answer = client.post("/logs/courses/events", json.dumps(CLOUDEVENT | {"Bad": "x"}).encode(), headers=STRUCTURED)
    assert "got 'Bad'" in answer.json["detail"] and "events[0]" not in answer.json["detail"]
    assert answer.json["path"] == "$"
    answer = client.post("/logs/courses/events", text[:-1] + b',"extra":"\\ud83d"}', headers=STRUCTURED)
    assert "a string contains half of a surrogate pair, \\ud83d" in answer.json["detail"]
    headers = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/s", "ce-type": "t"}
    answer = client.post("/logs/courses/events", b"1", headers=headers | {"content-type": ""})
    assert answer.json["parameter"] == "content-type"
    answer = client.post("/logs/courses/events", b"1", headers=headers | {"ce-datacontenttype": ""})
    assert answer.json["parameter"] == "ce-datacontenttype"
    answer = client.post("/logs/courses/events", b"1", headers=headers | {"content-type": "a/b", "ce-bad_name": "x"})
    assert (answer.status, answer.json["parameter"]) == (400, "ce-bad_name")


def test_malformed_cloudevents_are_refused(client):
    for headers, text in ((STRUCTURED, b"{"), (BATCH, b"[{")):
        assert client.post("/logs/courses/events", text, headers=headers).code == "malformed_json"
        assert client.post("/logs/courses/events", b"1", headers=headers).code == "invalid_request"
    assert client.post("/logs/courses/events", b"[]", headers=BATCH).status == 400
    assert client.post("/logs/courses/events", b"{}", headers={"content-type": "text/plain"}).status == 415
    assert client.post("/logs/courses/events", b'{"a":"\xff"}', headers=STRUCTURED).code == "malformed_json"


def test_event_without_source_is_shown_with_the_logs(client, event):
    client.append(event())
    [found] = cloudevents(client)
    assert found["source"] == "/logs/courses"
    assert found["time"].endswith("Z")
