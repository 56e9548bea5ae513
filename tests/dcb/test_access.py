"""Who may do what: credentials in, rights per route, refusals out."""

from __future__ import annotations

import base64

import pytest

from headwater.core import Forbidden, Grant, Right, TooManyLogins, Unauthenticated, User


class Doorkeeper:
    """A guard with one user per right: each user's name is its right, and its secret too."""

    is_open = False

    async def authenticate(self, credentials, peer):
        assert peer == "127.0.0.1"
        if not credentials or not credentials.secret or credentials.name not in ("", credentials.secret):
            raise Unauthenticated("credentials are missing or wrong")
        return User(credentials.secret, (Grant("courses", frozenset({Right(credentials.secret)})),))

    def authorize(self, user, right, log):
        if not user.may(right, log):
            raise Forbidden(user.name, right, log)

    def key(self, name):
        return None


@pytest.fixture
def guarded(client_of, store):
    store.create("courses")
    store.create("other")
    return client_of(Doorkeeper())


def basic(name, secret):
    return {"authorization": "Basic " + base64.b64encode(f"{name}:{secret}".encode()).decode()}


class Crowded(Doorkeeper):
    """A guard who looks at nobody."""

    async def authenticate(self, credentials, peer):
        raise TooManyLogins(2.5)


def test_a_login_that_was_not_looked_at_is_to_come_again(client_of, store):
    store.create("courses")
    answer = client_of(Crowded()).ask("GET", "/logs/courses/head", headers=basic("read", "read"))
    assert (answer.status, answer.headers["retry-after"]) == (429, "3")
    assert answer.json["type"] == "urn:headwater:problem:too_many_logins"
    assert "www-authenticate" not in answer.headers


CONSUMER = "/logs/courses/consumers/o/c"
WORKER = "/logs/courses/groups/g/workers/w"
ROUTES = [
    ("GET", "/logs/courses", Right.READ), ("PUT", "/logs/courses", Right.MANAGE),
    ("PATCH", "/logs/courses", Right.MANAGE), ("POST", "/logs/courses/append", Right.APPEND),
    ("POST", "/logs/courses/events", Right.APPEND), ("POST", "/logs/courses/read", Right.READ),
    ("POST", "/logs/courses/count", Right.READ), ("POST", "/logs/courses/histogram", Right.READ),
    ("POST", "/logs/courses/event-histogram", Right.READ),
    ("GET", "/logs/courses/terms", Right.READ), ("GET", "/logs/courses/position", Right.READ),
    ("GET", "/logs/courses/segments", Right.READ), ("GET", "/logs/courses/events/1", Right.READ),
    ("GET", "/logs/courses/head", Right.READ), ("GET", "/logs/courses/subscribe", Right.READ),
    ("POST", "/logs/courses/trim", Right.MANAGE), ("GET", "/logs/courses/consumers", Right.READ),
    ("PUT", CONSUMER, Right.MANAGE), ("POST", f"{CONSUMER}/acknowledge", Right.MANAGE),
    ("POST", f"{CONSUMER}/reset", Right.MANAGE), ("DELETE", CONSUMER, Right.MANAGE),
    ("PUT", WORKER, Right.READ), ("POST", f"{WORKER}/acknowledge", Right.READ), ("DELETE", WORKER, Right.READ),
    ("GET", "/dcb/courses/read", Right.READ), ("POST", "/dcb/courses/append", Right.APPEND),
    ("DELETE", "/logs/courses", Right.MANAGE),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "right"), ROUTES)
def test_each_route_needs_its_right(guarded, method, path, right):
    for given in Right:
        answer = guarded.ask(method, path, headers={"authorization": f"Bearer {given.value}"})
        assert (answer.status == 403) is (given is not right), (given, answer.body)
    assert answer.status != 401


def test_every_route_on_a_log_is_in_the_table(guarded):
    served = {(method, path) for method, path in guarded.app.routes.patterns if "{log}" in path}
    filled = {
        (method, path.format(log="courses", owner="o", component="c", number=1, group="g", worker="w"))
        for method, path in served
    }
    assert filled == {(method, path) for method, path, _ in ROUTES}


def test_missing_or_wrong_credentials_are_401_with_both_challenges(guarded):
    async def challenges():
        connection = guarded.connect("GET", "/logs/courses")
        await connection.end()
        return [value for name, value in connection.messages[0]["headers"] if name == b"www-authenticate"]

    assert [value.split()[0] for value in guarded.run(challenges())] == [b"Basic", b"Bearer"]
    for headers in ({}, basic("read", "wrong"), {"authorization": "Basic %"}, {"authorization": "Digest x"},
                    {"authorization": "Bearer \xff"}, {"authorization": "Basic eA=="}):  # fmt: skip
        answer = guarded.get("/logs/courses", headers=headers)
        assert (answer.status, answer.code) == (401, "unauthenticated"), headers
    assert "not well-formed Basic or Bearer" in answer.json["detail"]
    assert guarded.get("/logs/courses", headers=basic("read", "read")).status == 200


def test_refusal_names_the_right_and_the_log(guarded):
    answer = guarded.get("/logs/other", headers=basic("read", "read"))
    assert (answer.status, answer.code) == (403, "forbidden")
    assert (answer.json["right"], answer.json["log"]) == ("read", "other")


def test_refusal_does_not_tell_whether_the_log_is_there(guarded):
    assert guarded.get("/logs/nowhere", headers=basic("read", "read")).status == 403


def test_list_has_only_logs_that_the_user_may_read(guarded, client):
    assert guarded.get("/logs", headers=basic("read", "read")).json == {"logs": ["courses"]}
    assert guarded.get("/logs", headers=basic("append", "append")).json == {"logs": []}
    assert client.get("/logs").json == {"logs": ["courses", "other"]}
