"""Queries and append conditions: the seed's form and today's, in every spelling, on one log."""

from __future__ import annotations

import pytest

BY_TAG = {"criteria": [{"type": "Tags", "properties": {"tags": ["course:c1"]}}]}


def seed(expected, query=BY_TAG):
    return {"query": query, "expected_highest_sequence_number": expected}


def conflict(answer):
    assert (answer.status, answer.code) == (409, "append_condition_failed")
    return answer.json["reason"], answer.json.get("sequence_number")


def test_any_appends_whatever_matches(client, event):
    assert client.append(event(), condition=seed("ANY")).status == 200
    assert client.append(event(), condition=seed("ANY")).status == 200


def test_none_appends_where_nothing_matches(client, event):
    client.append(event("T", "course:c2"))
    assert client.append(event(), condition=seed("NONE")).json == {
        "sequence_number": 2, "first_sequence_number": 2, "was_stored": False
    }  # fmt: skip


def test_none_fails_where_an_event_matches(client, event):
    client.append(event("T", "course:c2"), event())
    assert conflict(client.append(event(), condition=seed("NONE"))) == ("no_match_expected", 2)


def test_number_appends_where_the_last_match_is_not_above_it(client, event):
    client.append(event(), event("T", "course:c2"))
    assert client.append(event(), condition=seed(1)).status == 200
    assert client.append(event(), condition=seed(123)).status == 200


def test_number_fails_where_a_newer_event_matches(client, event):
    client.append(event(), event(), event())
    assert conflict(client.append(event(), condition=seed(1))) == ("newer_match", 2)


def test_number_fails_where_nothing_matches(client, event):
    client.append(event("T", "course:c2"))
    assert conflict(client.append(event(), condition=seed(1))) == ("no_match_found", None)


def test_after_appends_where_nothing_matches(client, event):
    condition = {"failIfEventsMatch": {"items": [{"tags": ["course:c1"]}]}, "after": 123}
    assert client.append(event(), condition=condition).status == 200


def test_failed_condition_appends_none_of_the_events(client, event):
    client.append(event())
    client.append(event("T", "course:c2"), event("T", "course:c3"), condition=seed("NONE"))
    assert client.get("/logs/courses/head").json["head"] == 1


def test_condition_must_have_a_query_and_an_expected_number(client, event):
    answer = client.append(event(), condition={"query": BY_TAG})
    assert answer.json["path"] == "$.condition.expected_highest_sequence_number"
    answer = client.append(event(), condition={"expected_highest_sequence_number": "NONE"})
    assert (answer.status, answer.json["path"]) == (400, "$.condition")
    assert client.append(event(), condition={}).status == 400
    assert client.append(event(), condition={"after": 3}).status == 400


def test_forms_do_not_mix(client, event):
    assert client.append(event(), condition=seed("NONE") | {"after": 3}).status == 400
    assert client.append(event(), condition=seed("NONE") | {"failIfEventsMatch": "all"}).status == 400


@pytest.mark.parametrize("expected", ["none", -1, 10**18, "5"])
def test_expected_number_is_a_number_none_or_any(client, event, expected):
    answer = client.append(event(), condition=seed(expected), strict=False)
    assert answer.status == 400
    assert '"NONE" or "ANY"' in answer.json["detail"]


@pytest.mark.parametrize("query", [
    {"items": [{"types": ["A"], "tags": ["t:1"]}]},
    {"items": [{"event_types": ["A"], "tags": ["t:1"]}]},
    {"items": [{"eventTypes": ["A"], "tags": [{"key": "t", "value": "1"}]}]},
    {"criteria": [{"type": "EventTypesAndTags", "properties": {"event_types": ["A"], "tags": ["t:1"]}}]},
    {"version": "1.0", "criteria": [{"properties": {"eventTypes": ["A"], "tags": ["t:1"]}}]},
    {"criterias": [{"event_types": ["A"], "tags": ["t:1"]}]},
    {"criteria": [{"properties": {"types": ["A"], "tags": ["t:1"]}}]},
])  # fmt: skip
@pytest.mark.parametrize("name", ["fail_if_events_match", "failIfEventsMatch"])
def test_every_spelling_asks_the_same(client, event, query, name):
    client.append(event("A", "t:2"), event("B", "t:1"), event("A", "t:1", "u:1"))
    assert [each["sequence_number"] for each in client.read(query)] == [3]
    assert conflict(client.append(event(), condition={name: query, "after": 2}, strict=False)) == ("newer_match", 3)
    assert client.append(event(), condition={name: query, "after": 3}, strict=False).status == 200


def test_criteria_are_alternatives_and_tags_of_one_are_all_needed(client, event):
    client.append(event("A", "t:1"), event("B", "t:1", "u:1"), event("C", "u:1"), event("D", "v:1"))
    both = {"criteria": [{"type": "Tags", "properties": {"tags": ["t:1", "u:1"]}}]}
    either = {"criteria": [{"type": "EventTypes", "properties": {"event_types": ["A", "D"]}},
                           {"type": "Tags", "properties": {"tags": ["u:1", "t:1"]}}]}  # fmt: skip
    assert [each["sequence_number"] for each in client.read(both)] == [2]
    assert [each["sequence_number"] for each in client.read(either)] == [1, 2, 4]


def test_tag_without_value_matches_all_tags_of_the_key(client, event):
    client.append(event("A", "product:1"), event("A", "product"), event("A", "products:1"))
    assert [each["sequence_number"] for each in client.read({"items": [{"tags": ["product"]}]})] == [1, 2]
    assert [each["sequence_number"] for each in client.read({"items": [{"tags": [{"key": "product"}]}]})] == [1, 2]


@pytest.mark.parametrize("items", [
    {"items": [{"exact_tags": ["product"]}]},
    {"items": [{"exact_tags": [{"key": "product"}]}]},
    {"criteria": [{"type": "Tags", "properties": {"exact_tags": ["product"]}}]},
    {"items": [{"types": ["T"], "tags": ["product"], "exact_tags": ["product"]}]},
])  # fmt: skip
def test_exact_tag_matches_no_other_tag_of_the_key(client, event, items):
    assert client.append(event("T", "product:7"), event("T", "product")).status == 200
    assert [each["sequence_number"] for each in client.read(items)] == [2]
    refused = client.append(event("T"), condition={"failIfEventsMatch": items, "after": 1})
    assert refused.json["sequence_number"] == 2
    assert client.append(event("T"), condition={"failIfEventsMatch": items, "after": 2}).status == 200


def test_no_criteria_are_every_event_in_the_seeds_form(client, event):
    client.append(event())
    for query in ({"criteria": []}, {"version": "1.0"}, {"version": "1.0", "criteria": []}):
        assert len(client.read(query)) == 1
        assert conflict(client.append(event(), condition=seed("NONE", query))) == ("no_match_expected", 1)


def test_every_event_is_said_explicitly_in_todays_form(client, event):
    client.append(event())
    assert len(client.read({"all": True})) == len(client.read("all")) == 1
    assert len(client.read({"all": True, "items": []})) == 1, "clients that generators make send lists that are empty"
    refused = (
        ({"items": []}, "$.query.items"), ({}, "$.query"), ({"all": False}, "$.query.all"),
        ({"all": False, "items": []}, "$.query.all"), ({"all": True, "items": [{"types": ["A"]}]}, "$.query"),
    )  # fmt: skip
    for query, path in refused:
        answer = client.post("/logs/courses/read", {"query": query})
        assert (answer.status, answer.json["path"]) == (400, path)
    assert client.post("/logs/courses/read", {}).status == 400


@pytest.mark.parametrize(("query", "path"), [
    ({"items": [{"types": ["A"]}, {}]}, "$.query.items[1]"),
    ({"items": [{"types": [], "tags": []}]}, "$.query.items[0]"),
    ({"items": [{"types": ["A", ""]}]}, "$.query.items[0].types[1]"),
    ({"items": [{"eventTypes": ["A", ""]}]}, "$.query.items[0].eventTypes[1]"),
    ({"items": [{"types": ["A"], "event_types": ["A"]}]}, "$.query.items[0]"),
    ({"items": [{"tags": ["a:1", ""]}]}, "$.query.items[0].tags[1]"),
    ({"items": [{"tags": [{"key": "a:b", "value": "c"}]}]}, "$.query.items[0].tags[0].key"),
    ({"items": [{"exact_tags": ["a", "b\n"]}]}, "$.query.items[0].exact_tags[1]"),
    ({"criteria": [{"properties": {"exact_tags": [""]}}]}, "$.query.criteria[0].properties.exact_tags[0]"),
    ({"criteria": [{"exact_tags": ["a"], "properties": {"tags": ["b"]}}]}, "$.query.criteria[0]"),
    ({"criteria": [{"type": "Tags", "properties": {"tags": ["a:1", ""]}}]}, "$.query.criteria[0].properties.tags[1]"),
    ({"criteria": [{"type": "Tags", "properties": {"event_types": ["A"]}}]}, "$.query.criteria[0]"),
    ({"criteria": [{"type": "Tags", "tags": ["a"], "properties": {"tags": ["b"]}}]}, "$.query.criteria[0]"),
    ({"criteria": [{"type": "Nonsense", "properties": {"tags": ["a:1"]}}]}, "$.query.criteria[0].type"),
    ({"criteria": [], "items": []}, "$.query"),
    ({"version": "1.0", "criteria": None}, "$.query.criteria"),
    ({"version": "2.0", "criteria": []}, "$.query.version"),
    ("everything", "$.query"),
    ({"items": [{"types": "A"}]}, "$.query.items[0].types"),
    ({"items": [{"onlyLastEvent": True, "types": ["A"]}]}, "$.query.items[0]"),
])  # fmt: skip
def test_malformed_query_is_refused_with_its_path(client, query, path):
    answer = client.post("/logs/courses/read", {"query": query})
    assert (answer.status, answer.code, answer.json["path"]) == (400, "invalid_request", path)
    answer = client.post("/logs/courses/append", {"events": [], "condition": {"failIfEventsMatch": query}})
    assert answer.json["path"] == path.replace("$.query", "$.condition.failIfEventsMatch", 1)
