"""Each rule of the seed for what is appended, with one test that breaks it and one that the default form takes it."""

from __future__ import annotations

import uuid

import pytest

SEED = {"query": {"version": "1.0", "criteria": []}, "expected_highest_sequence_number": "ANY"}


def refused_at(answer, path):
    assert (answer.status, answer.code) == (400, "invalid_request")
    assert answer.json["path"] == path
    return answer.json["detail"]


def test_event_id_must_satisfy_the_seeds_expression(client, event):
    for id in ("a b", "ü", "a:b", "x" * 101, "id\n"):
        answer = client.append(event(id=id), condition=SEED)
        assert answer.status == 400, id
    assert "expected ^[\\w\\-]{1,100}$" in refused_at(client.append(event(id="a b"), condition=SEED), "$.events[0].id")
    assert client.append(event(id="15aaa216-4179-46d9-999a-75516e21a1c6"), condition=SEED).status == 200
    assert client.append(event(id="a b")).status == 200


def test_event_type_must_satisfy_the_seeds_expression(client, event):
    detail = refused_at(client.append(event("Some Type"), condition=SEED), "$.events[0].type")
    assert "got 'Some Type'" in detail and "expected" in detail
    assert client.append(event("a.b:c-d_E1"), condition=SEED).status == 200
    assert client.append(event("Some Type")).status == 200


def test_event_must_contain_at_least_one_tag(client, event):
    refused_at(client.append(event(), event() | {"tags": []}, condition=SEED), "$.events[1].tags")
    assert client.append(event() | {"tags": []}).status == 200


def test_tag_key_must_satisfy_the_seeds_expression(client, event):
    refused_at(client.append(event("T", "a:1", "b.c:1"), condition=SEED), "$.events[0].tags[1]")
    refused_at(client.append(event("T", "k" * 51 + ":1"), condition=SEED), "$.events[0].tags[0]")


def test_tag_value_must_satisfy_the_seeds_expression(client, event):
    refused_at(client.append(event("T", "mail:a@b.c"), condition=SEED), "$.events[0].tags[0]")
    refused_at(client.append(event("T", "a:b:c"), condition=SEED), "$.events[0].tags[0]")
    refused_at(client.append(event("T", "a:" + "1" * 51), condition=SEED), "$.events[0].tags[0]")
    assert client.append(event("T", "mail:a@b.c", "a:b:c")).status == 200


def test_tag_may_have_no_value(client, event):
    assert client.append(event("T", "urgent"), condition=SEED).status == 200


def test_tags_may_repeat_a_value_and_repeated_tags_are_kept_once(client, event):
    assert client.append(event("T", "a:1", "b:1", "a:1"), condition=SEED).status == 200
    assert client.read()[0]["event"]["tags"] == ["a:1", "b:1"]


def test_events_must_not_be_empty(client):
    refused_at(client.append(condition=SEED), "$.events")


def test_event_data_may_be_an_empty_string(client, event):
    assert client.append(event(data=""), condition=SEED).status == 200
    assert client.read()[0]["event"]["data"] == ""


def test_expected_sequence_number_has_a_minimum_of_1(client, event):
    zero = SEED | {"expected_highest_sequence_number": 0}
    refused_at(client.append(event(), condition=zero), "$.condition.expected_highest_sequence_number")
    assert client.append(event(), condition=zero, strict=False).status == 200


@pytest.mark.parametrize("condition", [
    SEED,
    {"query": {"items": [{"types": ["T"]}]}, "expectedHighestSequenceNumber": "NONE"},
    {"failIfEventsMatch": {"criteria": [{"type": "EventTypes", "properties": {"event_types": ["T"]}}]}},
])  # fmt: skip
def test_strict_is_the_default_for_the_seeds_form(client, event, condition):
    assert client.append(event(id="a b"), condition=condition).status == 400
    assert client.append(event(id="a b"), condition=condition, strict=False).status == 200


@pytest.mark.parametrize("condition", [None, {"failIfEventsMatch": {"items": [{"types": ["T"]}]}, "after": 0}])
def test_strict_is_an_option_of_todays_form(client, event, condition):
    assert client.append(event(id="a b"), condition=condition, strict=True).status == 400
    assert client.append(event(id="a b"), condition=condition).status == 200


def test_parameter_strict_overrules_the_field(client, event):
    body = {"events": [event(id="a b")], "strict": True}
    assert client.post("/logs/courses/append", body, parameters={"strict": "false"}).status == 200
    body = {"events": [event(id="c d")], "strict": False}
    assert client.post("/logs/courses/append", body, parameters={"strict": "true"}).status == 400
    answer = client.post("/logs/courses/append", body, parameters={"strict": "yes"})
    assert (answer.code, answer.json["parameter"]) == ("invalid_request", "strict")


def test_reads_and_queries_never_fail_on_strict_rules(client, event):
    client.append(event("Some Type", "mail:a@b.c", id="a b"))
    criteria = [{"type": "EventTypesAndTags", "properties": {"event_types": ["Some Type"], "tags": ["mail:a@b.c"]}}]
    [found] = client.read({"version": "1.0", "criteria": criteria})
    assert found["event"]["type"] == "Some Type"


def test_id_that_does_not_fit_is_shown_as_uuid5_in_the_seeds_form_only(client, event):
    client.append(event(id="a b", source="/s"), event(id="fits"))
    first, second = client.read({"version": "1.0", "criteria": []})
    assert first["event"]["id"] == str(uuid.uuid5(uuid.uuid5(uuid.NAMESPACE_URL, "/s"), "a b"))
    assert first["event"]["id"] == client.read({"criteria": []})[0]["event"]["id"]
    assert second["event"]["id"] == "fits"
    assert client.read("all")[0]["event"]["id"] == "a b"
