"""The benchmark suite of dcb.events: what its HTTP adapter sends, and what it checks in the answers."""

from __future__ import annotations

import json


def read(client, query, options=None):
    parameters = {"query": json.dumps(query)} | ({"options": json.dumps(options)} if options is not None else {})
    answer = client.get("/dcb/courses/read", parameters=parameters)
    assert answer.status == 200, answer.body
    for event in answer.json:
        assert isinstance(event["type"], str) and isinstance(event["tags"], list)
        assert isinstance(event["position"], int)
    return answer.json


def append(client, events, condition=None):
    body = {"events": events} | ({"condition": condition} if condition else {})
    answer = client.post("/dcb/courses/append", body)
    assert answer.status == 200, answer.body
    assert isinstance(answer.json["durationInMicroseconds"], int)
    return answer.json["appendConditionFailed"]


def flat(type, *tags):
    return {"type": type, "tags": list(tags), "data": "some data"}


def test_suite_reads_what_it_appended(client):
    assert append(client, [flat("A", "t:1"), flat("B"), flat("A", "t:2")]) is False
    assert read(client, {"items": [{"types": ["A"], "tags": ["t:2"]}]}) == [flat("A", "t:2") | {"position": 3}]
    assert len(read(client, {"items": []})) == 3
    assert len(read(client, {"items": [{"types": ["B"]}, {"tags": ["t:1"]}]})) == 2


def test_suite_reads_with_options(client):
    append(client, [flat("A") for _ in range(5)])
    everything = {"items": []}
    assert [event["position"] for event in read(client, everything, {"backwards": True, "limit": 1})] == [5]
    assert [event["position"] for event in read(client, everything, {"from": 4})] == [4, 5]
    assert [event["position"] for event in read(client, everything, {"from": 2, "backwards": True})] == [2, 1]


def test_suite_is_told_of_a_failed_condition_with_200(client):
    condition = {"failIfEventsMatch": {"items": [{"tags": ["t:1"]}]}}
    assert append(client, [flat("A", "t:1")], condition) is False
    assert append(client, [flat("A", "t:1")], condition) is True
    assert append(client, [flat("A", "t:1")], condition | {"after": 1}) is False
    assert append(client, [flat("A")], {"failIfEventsMatch": {"items": []}}) is True


def test_suite_gets_other_errors_as_problems(client):
    for parameters, parameter in (
        ({}, "query"), ({"query": "["}, "query"), ({"query": "{}", "options": "["}, "options"),
        ({"query": "{}", "options": '{"from":0}'}, "options"), ({"query": '{"items":[{}]}'}, "query"),
    ):  # fmt: skip
        answer = client.get("/dcb/courses/read", parameters=parameters)
        assert (answer.status, answer.json["parameter"]) == (400, parameter)
    assert client.post("/dcb/courses/append", {"events": []}).status == 400
    assert client.post("/dcb/nowhere/append", {"events": [flat("A")]}).status == 404
