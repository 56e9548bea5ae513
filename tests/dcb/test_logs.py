"""Logs and consumers: create, look at, change, delete, trim, register, acknowledge."""

from __future__ import annotations

from dataclasses import asdict, fields

import pytest

from headwater.core import LogSettings, OpenGuard
from headwater.core.errors import StorageUnavailable
from headwater.dcb import Application
from headwater.formats.settings.logs import SettingsJson

from ..builders import fill
from ..volatile import VolatileStore
from .conftest import Client

SPARK = "/logs/courses/consumers/spark/archiver"


def test_wire_knows_every_setting():
    assert list(SettingsJson.__struct_fields__) == [field.name for field in fields(LogSettings)]


def test_empty_body_creates_a_log_with_default_settings(client):
    answer = client.put("/logs/new")
    assert answer.status == 201
    assert answer.json["settings"] == asdict(LogSettings())
    assert (answer.json["name"], answer.json["head"], answer.json["first_retained"]) == ("new", 0, 1)
    assert client.get("/logs/new").json == answer.json


def test_put_of_the_same_settings_answers_the_log(client):
    settings = {"partitions": 4, "retention_ms": 1000, "id_horizon": None}
    assert client.put("/logs/new", settings).status == 201
    assert client.put("/logs/new", settings).status == 200
    answer = client.put("/logs/new", settings | {"partitions": 5})
    assert (answer.status, answer.code, answer.json["log"]) == (409, "log_exists", "new")
    assert client.put("/logs/new").status == 409


@pytest.mark.parametrize(("settings", "path"), [
    ({"partitions": 0}, "$.partitions"), ({"partitions": "4"}, "$.partitions"),
    ({"partition_by": "x"}, "$.partition_by"),
    ({"partition": 4}, "$"), ({"retention_ms": -1}, "$.retention_ms"), ([], "$"),
])  # fmt: skip
def test_bad_settings_are_refused(client, settings, path):
    answer = client.put("/logs/new", settings)
    assert (answer.status, answer.code, answer.json["path"]) == (400, "invalid_request", path)
    assert client.get("/logs/new").status == 404


@pytest.mark.parametrize("name", ["$system", "-a", "a" * 65, "a%20b"])
def test_bad_log_name_is_refused(client, name):
    answer = client.put(f"/logs/{name}")
    assert (answer.status, answer.json["parameter"]) == (400, "log")


def test_patch_is_a_merge_patch(client):
    client.put("/logs/new", {"retention_ms": 1000, "keeps_history": False})
    answer = client.ask(
        "PATCH", "/logs/new", b'{"retention_ms":null,"retention_bytes":7}',
        headers={"content-type": "application/merge-patch+json"},
    )  # fmt: skip
    assert answer.status == 200
    assert answer.json["settings"] == asdict(LogSettings(retention_bytes=7, keeps_history=False))
    answer = client.ask("PATCH", "/logs/new", {"partitions": 2})
    assert (answer.status, answer.json["path"]) == (400, "$.partitions")
    assert client.ask("PATCH", "/logs/nowhere", {"retention_ms": 5}).status == 404


def test_deleted_log_is_gone_and_its_successor_goes_on_above_it(client, event):
    client.append(event(), event())
    assert client.ask("DELETE", "/logs/courses").status == 204
    assert client.get("/logs/courses").status == 404
    assert client.append(event()).status == 404
    assert client.ask("DELETE", "/logs/courses").status == 404
    client.put("/logs/courses")
    assert client.append(event()).json["sequence_number"] == 3


def test_only_the_incarnation_that_is_meant_is_deleted(client, event):
    client.append(event())
    head = client.get("/logs/courses/head")
    incarnation = head.headers["headwater-incarnation"]
    assert incarnation == head.json["incarnation"]
    answer = client.ask("DELETE", "/logs/courses", parameters={"incarnation": "another"})
    assert (answer.status, answer.json["type"]) == (404, "urn:headwater:problem:log_not_found")
    assert "of incarnation 'another'" in answer.json["detail"]
    assert client.get("/logs/courses/head").json["head"] == 1
    assert client.ask("DELETE", "/logs/courses", parameters={"incarnation": incarnation}).status == 204
    assert client.get("/logs/courses").status == 404


def test_log_deleted_elsewhere_is_noticed(client, store, event):
    client.append(event())
    store.delete("courses")
    assert client.get("/logs/courses/head").status == 404
    store.create("courses")
    assert client.append(event()).status == 200


def test_logs_are_listed_by_name(client):
    client.put("/logs/b")
    client.put("/logs/a")
    assert client.get("/logs").json == {"logs": ["a", "b", "courses"]}


def test_trim_stops_at_the_slowest_consumer(client, event):
    client.append(*[event() for _ in range(5)])
    client.put(SPARK, {"after": 2})
    assert client.post("/logs/courses/trim", {"below": 5}).json == {"first_retained": 3}
    answer = client.post("/logs/courses/trim", {"below": 7})
    assert (answer.status, answer.json["path"]) == (400, "$.below")


def test_consumer_is_registered_taken_over_moved_and_forgotten(client, event):
    client.append(*[event() for _ in range(5)])
    first = client.put(SPARK, {"after": 1})
    assert (first.status, first.json["acknowledged"], first.json["epoch"]) == (201, 1, 1)
    second = client.put(SPARK)
    assert (second.status, second.json["acknowledged"], second.json["epoch"]) == (200, 1, 2)
    assert client.post(f"{SPARK}/acknowledge", {"sequence_number": 4, "epoch": 2}).json["acknowledged"] == 4
    assert client.post(f"{SPARK}/acknowledge", {"sequence_number": 3}).json["acknowledged"] == 4
    assert client.post(f"{SPARK}/reset", {"after": 0}).json["acknowledged"] == 0
    [consumer] = client.get("/logs/courses/consumers").json["consumers"]
    assert (consumer["owner"], consumer["component"]) == ("spark", "archiver")
    assert client.ask("DELETE", SPARK).status == 204
    assert client.get("/logs/courses/consumers").json == {"consumers": []}


def test_consumer_of_an_older_epoch_is_fenced(client):
    client.put(SPARK)
    client.put(SPARK)
    answer = client.post(f"{SPARK}/acknowledge", {"sequence_number": 0, "epoch": 1})
    assert (answer.status, answer.code) == (409, "consumer_fenced")
    assert (answer.json["given"], answer.json["current"]) == (1, 2)


def test_unknown_consumer_is_404(client):
    for answer in (
        client.post(f"{SPARK}/acknowledge", {"sequence_number": 0}),
        client.post(f"{SPARK}/reset", {"after": 0}),
        client.ask("DELETE", SPARK),
    ):
        assert (answer.status, answer.code, answer.json["owner"]) == (404, "consumer_not_found", "spark")


def test_position_above_the_head_is_refused_by_its_field(client):
    assert client.put(SPARK, {"after": 1}).json["path"] == "$.after"
    client.put(SPARK)
    assert client.post(f"{SPARK}/acknowledge", {"sequence_number": 1}).json["path"] == "$.sequence_number"
    assert client.post(f"{SPARK}/reset", {"after": 1}).json["path"] == "$.after"


def test_consumer_names_may_hold_slashes(client):
    assert client.put("/logs/courses/consumers/a%2Fb/%E2%82%AC").json["owner"] == "a/b"
    [consumer] = client.get("/logs/courses/consumers").json["consumers"]
    assert (consumer["owner"], consumer["component"]) == ("a/b", "€")
    answer = client.put("/logs/courses/consumers/a%01b/c")
    assert (answer.status, answer.json["parameter"]) == (400, "owner")
    assert client.put("/logs/courses/consumers/a%FF/c").status == 400


def test_nothing_is_served_elsewhere(client):
    for path in ("/", "/log", "/logs/", "/logs/courses/nothing", "/logs/courses/append/more", "/dcb", "/dcb/courses"):
        answer = client.get(path)
        assert (answer.status, answer.code) == (404, "route_not_found"), path


def test_other_method_is_told_which_are_allowed(client):
    answer = client.post("/logs/courses")
    assert (answer.status, answer.code) == (405, "method_not_allowed")
    assert answer.headers["allow"] == "DELETE, GET, HEAD, PATCH, PUT"


def test_an_acknowledgement_is_durable_when_it_is_answered():
    store = VolatileStore()
    fill(store.create("courses"), 2)
    client = Client(Application(store, OpenGuard()))
    try:
        client.put(SPARK, {"after": 0})
        assert client.post(f"{SPARK}/acknowledge", {"sequence_number": 2}).json["acknowledged"] == 2
        assert b'"acknowledged": 2' in store.volatile.kept_values("consumer")[0]
        store.volatile.failure = StorageUnavailable("the home does not answer")
        answer = client.post(f"{SPARK}/acknowledge", {"sequence_number": 2})
        assert (answer.status, answer.code) == (503, "storage_unavailable")
    finally:
        client.close()
