"""The console's login: what a cookie opens, and when it does not; how a session ends; what it says of its user."""

from __future__ import annotations

import pytest

from headwater.console import server as console
from headwater.console.sessions import IDLE_S, OF_USER_MAX, SESSION_S, SESSIONS_MAX, Sessions
from headwater.core import Event, OpenGuard
from headwater.core.access import ANYBODY, Credentials, Grant, Right, User
from headwater.dcb import Application
from headwater.http.sessions import both_secrets, secret_of
from headwater.server.app import by_room
from headwater.server.users.accounts import KIND, Account, AccountDirectory, encode_account, hash_token
from headwater.server.users.guard import AccountGuard
from headwater.storage.memory import MemoryState, MemoryStore
from tests.dcb.conftest import Client
from tests.passwords import HASH, OTHER_HASH, PASSWORD

from .hosting import console_host

TOKEN, OTHER_TOKEN = "hw_" + "t" * 43, "hw_" + "u" * 43
READER = (Grant("orders*", frozenset({Right.READ})),)
OWN = {"host": "localhost:8380", "sec-fetch-site": "same-origin", "headwater-console": "1"}


class Clock:
    """It stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


class Setting:
    """A server of one user, whose account is in the data directory, as another process sees and changes it."""

    def __init__(self) -> None:
        self.clock, self.state = Clock(), MemoryState()
        self.keep(Account("alice", READER, password=HASH, tokens=(hash_token(TOKEN), hash_token(OTHER_TOKEN))))
        directory = AccountDirectory((), self.state, self.clock)
        self.guard = AccountGuard(directory, allows_anybody=False, clock=self.clock, sleep=self.clock.sleep)
        store = MemoryStore()
        for log in ("orders", "secret"):
            store.create(log).append([Event("T", b"{}")])
        data, session = Application(store, self.guard), console.Application(console_host(store, self.guard))

        async def closing(scope, receive, send):
            await by_room({"console": session}, data)(scope, receive, send)

        closing.close = data.close
        self.client = Client(closing)
        self.fields = dict[str, str]()
        """By cookie, what its page sends beside it."""

    def keep(self, account: Account) -> None:
        self.state.put(KIND, account.name, encode_account(account))

    def log_in(self, given=None, **headers):
        body = {"name": "alice", "password": PASSWORD} if given is None else given
        answer = self.client.post("/console/session", body, headers={**OWN, **headers})
        if "set-cookie" in answer.headers:
            self.fields[cookie_of(answer)] = answer.json["session"]["secret"]
        return answer

    def ask(self, method, path, cookie=None, **headers):
        """As a page that logged in last, or by that very cookie."""
        field = self.fields.get(cookie, ([None, *self.fields.values()])[-1])
        beside = {} if cookie is None else {"cookie": cookie, "headwater-console": field}
        shown = {**OWN, **beside, **headers}
        return self.client.ask(method, path, headers={name: value for name, value in shown.items() if value})

    def is_in(self, cookie, **headers):
        status = self.ask("GET", "/logs/orders", cookie, **headers).status
        assert status in (200, 401)
        return status == 200


@pytest.fixture
def setting():
    made = Setting()
    yield made
    made.client.close()


def cookie_of(answer):
    assert answer.status == 200, answer.body
    return answer.headers["set-cookie"].partition(";")[0]


@pytest.mark.parametrize("given", [{"name": "alice", "password": PASSWORD}, {"token": TOKEN}])
def test_a_login_opens_a_session_with_the_rights_of_its_user(setting, given):
    answer = setting.log_in(given)
    assert answer.headers["cache-control"] == "no-store"
    assert answer.json == {
        "user": "alice", "has_users": True, "grants": [{"logs": "orders*", "rights": ["read"]}], "server": [],
        "console": {"read_only": False, "lag_events": 0, "lag_ms": 0, "ports": {}},
        "session": {"idle_ms": 1_800_000, "left_ms": 43_200_000, "secret": setting.fields[cookie_of(answer)]},
    }  # fmt: skip
    cookie = cookie_of(answer)
    assert setting.is_in(cookie)
    assert setting.ask("GET", "/logs/secret", cookie).code == "forbidden"
    assert setting.ask("DELETE", "/logs/orders", cookie).code == "forbidden"
    own = {**OWN, "cookie": cookie, "headwater-console": answer.json["session"]["secret"]}
    asked = setting.client.get("/console/session", headers=own, parameters={"log": "orders-1"})
    without = {"session": {"idle_ms": 1_800_000, "left_ms": 43_200_000}}
    assert asked.json == answer.json | {"on": {"log": "orders-1", "rights": ["read"]}} | without, "it is told once"


def test_the_cookie_is_for_this_server_and_no_script(setting):
    fields = setting.log_in().headers["set-cookie"].split("; ")
    name, _, secret = fields[0].partition("=")
    assert name == "headwater-8380" and len(secret) == 43
    assert fields[1:] == ["Path=/", "HttpOnly", "SameSite=Strict"]
    other = setting.fields[fields[0]]
    assert len(other) == 43 and other != secret
    assert not any(each in repr(vars(setting.guard.sessions)) for each in (secret, other))


def test_servers_on_other_ports_of_a_host_have_sessions_of_their_own(setting):
    cookie, other = cookie_of(setting.log_in()), cookie_of(setting.log_in(host="localhost:9999"))
    assert other.startswith("headwater-9999=") and setting.is_in(other, host="localhost:9999")
    both = f"{cookie}; {other}"
    assert setting.is_in(both, **{"headwater-console": setting.fields[cookie]})
    assert not setting.is_in(both, **{"headwater-console": setting.fields[other]})
    assert cookie_of(setting.log_in(host="localhost")).startswith("headwater-80=")


def test_over_tls_the_cookie_is_of_this_host_alone(setting):
    scope = {"scheme": "https", "headers": [
        (b"headwater-console", b"own"), (b"sec-fetch-site", b"same-origin"),
        (b"cookie", b"a=b; __Host-headwater-443=xyz"),
    ]}  # fmt: skip
    assert secret_of(scope) == "xyz.own"
    assert secret_of(scope | {"scheme": "http"}) is None


@pytest.mark.parametrize("headers", [
    {"headwater-console": ""}, {"headwater-console": "1"}, {"headwater-console": "x" * 43},
    {"headwater-console": "x" * 10_000}, {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "none"}, {"sec-fetch-site": ""},
    {"sec-fetch-site": "", "origin": "http://evil.example"}, {"sec-fetch-site": "", "origin": "null"},
    {"sec-fetch-site": "", "origin": "http://localhost:8381"}, {"sec-fetch-site": "", "origin": "https://localhost:8380"},
])  # fmt: skip
def test_a_cookie_alone_opens_nothing(setting, headers):
    cookie = cookie_of(setting.log_in())
    assert not setting.is_in(cookie, **headers)
    assert setting.is_in(cookie)


def test_a_page_of_this_origin_may_say_so_by_origin(setting):
    assert setting.is_in(cookie_of(setting.log_in()), **{"sec-fetch-site": "", "origin": "http://localhost:8380"})


@pytest.mark.parametrize("cookie", [
    "", "headwater-8380", "headwater-8380=", "headwater-8380=x", "other=1; headwater-8380=; a",
    "headwater-8380=" + "x" * 10_000, "=;=;;", "__Host-headwater-8380={}", "Headwater-8380={}", "headwater-8380={}x",
    "headwater-8380=\u00e9", "headwater={}", "headwater-8381={}",
])  # fmt: skip
def test_other_cookies_open_nothing(setting, cookie):
    secret = cookie_of(setting.log_in()).partition("=")[2]
    assert not setting.is_in(cookie.format(secret))


def test_credentials_of_the_request_itself_count_before_a_cookie(setting):
    cookie = cookie_of(setting.log_in())
    assert setting.ask("GET", "/logs/orders", cookie, authorization="Bearer hw_wrong").status == 401
    shown = setting.ask("GET", "/console/session", cookie, authorization=f"Bearer {TOKEN}").json
    assert shown["user"] == "alice" and "session" not in shown


def test_a_logout_ends_it_for_good(setting):
    cookie, other = cookie_of(setting.log_in()), cookie_of(setting.log_in())
    answer = setting.ask("DELETE", "/console/session", cookie)
    assert answer.status == 204
    assert answer.headers["set-cookie"] == "headwater-8380=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0"
    assert answer.headers["clear-site-data"] == '"cache", "storage"'
    assert not setting.is_in(cookie) and setting.is_in(other)
    assert setting.ask("DELETE", "/console/session").status == 204
    assert setting.ask("DELETE", "/console/session", other, **{"headwater-console": ""}).status == 204
    assert setting.is_in(other)


def test_a_session_ends_where_it_is_not_used(setting):
    cookie = cookie_of(setting.log_in())
    for _ in range(3):
        setting.clock.now += IDLE_S - 1
        assert setting.is_in(cookie)
    setting.clock.now += IDLE_S
    assert not setting.is_in(cookie)
    assert len(setting.guard.sessions) == 0


def test_a_session_ends_at_last_however_much_it_is_used(setting):
    cookie = cookie_of(setting.log_in())
    begun = setting.clock.now
    while setting.clock.now + IDLE_S / 2 < begun + SESSION_S:
        setting.clock.now += IDLE_S / 2
        assert setting.is_in(cookie)
    setting.clock.now = begun + SESSION_S
    assert not setting.is_in(cookie)


@pytest.mark.parametrize("change", [
    Account("alice", READER, password=OTHER_HASH, tokens=(hash_token(TOKEN), hash_token(OTHER_TOKEN))),
    Account("alice", READER, password=HASH, tokens=(hash_token(OTHER_TOKEN),)),
    None,
])  # fmt: skip
def test_what_it_was_right_by_ends_it_within_a_second(setting, change):
    setting.keep(Account("bob", READER, password=HASH))  # so that there is always a user
    cookie = cookie_of(setting.log_in({"token": TOKEN}))
    if change is None:
        setting.state.delete(KIND, "alice")
    else:
        setting.keep(change)
    setting.clock.now += 1.0
    assert not setting.is_in(cookie)
    if change is not None:  # and does not come back with it
        setting.keep(Account("alice", READER, password=HASH, tokens=(hash_token(TOKEN), hash_token(OTHER_TOKEN))))
        setting.clock.now += 1.0
        assert not setting.is_in(cookie)


def test_rights_are_those_of_the_moment(setting):
    cookie = cookie_of(setting.log_in())
    setting.keep(Account("alice", (), password=HASH, tokens=(hash_token(TOKEN), hash_token(OTHER_TOKEN))))
    setting.clock.now += 1.0
    assert setting.ask("GET", "/logs/orders", cookie).code == "forbidden"
    assert setting.ask("GET", "/console/session", cookie).json["grants"] == []


@pytest.mark.parametrize("given", [
    {"name": "alice", "password": "wrong"}, {"name": "nobody", "password": PASSWORD}, {"token": "hw_wrong"},
    {"token": PASSWORD}, {"name": "'; rm -rf ~", "password": "\u202e🛫\x00"},
])  # fmt: skip
def test_a_wrong_login_opens_nothing_and_is_counted(setting, given):
    answer = setting.log_in(given)
    assert (answer.status, answer.code) == (401, "unauthenticated")
    assert "set-cookie" not in answer.headers and len(setting.guard.sessions) == 0
    assert setting.guard.refusals["wrong"] == 1


def test_wrong_logins_are_held_up_as_any_other(setting):
    for _ in range(6):
        setting.log_in({"name": "alice", "password": "wrong"})
    assert setting.clock.slept and setting.clock.slept == sorted(setting.clock.slept)


@pytest.mark.parametrize(("given", "path"), [
    ({}, "$.name"), ({"name": "alice"}, "$.password"), ({"password": "x"}, "$.name"),
    ({"token": TOKEN, "name": "alice"}, "$.token"), ({"token": ""}, "$.token"),
    ({"name": "", "password": "x"}, "$.name"),
    ({"name": "x" * 257, "password": "x"}, "$.name"), ({"token": "x" * 8193}, "$.token"),
    ({"name": "alice", "password": 5}, "$.password"), ({"user": "alice"}, None),
])  # fmt: skip
def test_bad_logins_are_refused_unchecked(setting, given, path):
    answer = setting.log_in(given)
    assert (answer.status, answer.code) == (400, "invalid_request")
    assert path is None or answer.json["path"] == path
    assert not setting.guard.refusals.total()


def test_a_login_takes_the_field_and_a_short_body(setting):
    answer = setting.log_in(**{"headwater-console": "2"})
    assert (answer.status, answer.json["parameter"]) == (400, "headwater-console")
    assert setting.log_in({"token": "x" * 20_000}).status == 413
    assert setting.ask("PUT", "/console/session").status == 405
    assert setting.ask("GET", "/console/other").status == 404


def test_a_user_has_so_many_sessions_and_the_newest_of_them(setting):
    cookies = [cookie_of(setting.log_in()) for _ in range(OF_USER_MAX)]
    assert setting.is_in(cookies[0])  # so that the second was used longest ago
    newest = cookie_of(setting.log_in())
    assert len(setting.guard.sessions) == OF_USER_MAX
    assert [setting.is_in(cookie) for cookie in (*cookies, newest)] == [True, False, *[True] * (OF_USER_MAX - 1)]


def test_all_users_together_have_so_many():
    sessions = Sessions(OpenGuard(), Clock())
    first = both_secrets(*sessions.open(User("u0", ()), "seal"))
    for number in range(SESSIONS_MAX):
        sessions.open(User(f"u{number + 1}", ()), "seal")
    assert len(sessions) == SESSIONS_MAX
    assert sessions.find(first) is None


class Sealed(OpenGuard):
    """A guard whose seals never change."""

    def seal(self, name):
        return "seal"


def test_a_session_ends_with_the_login_that_it_was_opened_by():
    wall = Clock()
    sessions = Sessions(Sealed(), Clock(), wall)
    secret = both_secrets(*sessions.open(User("alice", (), expires_at=wall.now + 60), "seal"))
    session = sessions.find(secret)
    assert session is not None and sessions.left_ms(session) == 60_000
    assert sessions.user(secret, "") is ANYBODY
    wall.now += 60
    assert sessions.find(secret) is None


def test_where_nobody_has_to_log_in_everybody_may_do_everything():
    guard = OpenGuard()
    application = console.Application(console_host(MemoryStore(), guard))
    client = Client(application)
    for answer in (
        client.get("/console/session"),
        client.post("/console/session", {"name": "x", "password": "y"}, headers=OWN),
    ):
        assert answer.status == 200 and "set-cookie" not in answer.headers
        assert answer.json == {
            "user": "", "has_users": False, "grants": [{"logs": "*", "rights": list(Right)}], "server": list(Right),
            "console": {"read_only": False, "lag_events": 0, "lag_ms": 0, "ports": {}},
        }  # fmt: skip
    assert client.get("/console/session", parameters={"log": "$system"}).json["on"]["rights"] == ["read", "manage"]
    client.close()


def test_a_password_that_changes_while_it_is_checked_opens_nothing_that_stays(setting):
    """The seal is taken before the check."""
    before = setting.guard.authenticate

    async def authenticate(credentials: Credentials, peer):
        user = await before(credentials, peer)
        setting.keep(Account("alice", READER, password=OTHER_HASH))
        setting.clock.now += 1.0
        return user

    setting.guard.authenticate = authenticate
    answer = setting.log_in()
    assert answer.status == 401
