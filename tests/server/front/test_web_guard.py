"""A web page is not a client: which requests pass, by the headers that browsers and programs really send."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from headwater.console.settings import ConsoleSettings
from headwater.http.authentication import BASIC, BEARER
from headwater.http.browsers import HEAD, head_of
from headwater.http.errors import (
    ConsoleReadOnly,
    ForeignPage,
    HostNotServed,
    HttpError,
    InvalidParameter,
    UnsupportedMediaType,
)
from headwater.server.config.settings import Http
from headwater.server.front.web_guard import WebGuard, preflight, unchanged, varied
from tests.every import every
from tests.http.asgi import scope

HOST = "127.0.0.1:8080"
OWN, FOREIGN, LISTED = "http://127.0.0.1:8080", "http://evil.test", "https://app.example.org"

CHROME = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36"
FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
_WEBKIT = "AppleWebKit/605.1.15 (KHTML, like Gecko)"
SAFARI = f"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) {_WEBKIT} Version/16.3 Safari/605.1.15"
CURL = {"user-agent": "curl/7.88.1", "accept": "*/*"}
FORM, TEXT, JSON = "application/x-www-form-urlencoded", "text/plain;charset=UTF-8", "application/json"


def chromium(site: str, mode: str, dest: str, **more: str) -> dict[str, str]:
    """As Chromium sends them to a trustworthy address, such as loopback."""
    return {
        "connection": "keep-alive", "sec-ch-ua": '"Chromium";v="142"', "sec-ch-ua-mobile": "?0", "user-agent": CHROME,
        "accept": "*/*", "sec-fetch-site": site, "sec-fetch-mode": mode, "sec-fetch-dest": dest,
        "accept-encoding": "gzip, deflate, br, zstd", "accept-language": "en-US,en;q=0.9", **more,
    }  # fmt: skip


def firefox(site: str, mode: str, dest: str, **more: str) -> dict[str, str]:
    """As Firefox sends them."""
    return {
        "user-agent": FIREFOX, "accept": "*/*", "accept-language": "en-US,en;q=0.5", "accept-encoding": "gzip, deflate",
        "connection": "keep-alive", "sec-fetch-dest": dest, "sec-fetch-mode": mode, "sec-fetch-site": site, **more,
    }  # fmt: skip


def safari(**more: str) -> dict[str, str]:
    """As Safari before 16.4 sends them, and any browser over plain HTTP on a network: without Sec-Fetch."""
    return {"accept": "*/*", "user-agent": SAFARI, "accept-language": "en-GB", "connection": "keep-alive", **more}


def asked(
    path: str = "/logs",
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    *,
    host: str | None = HOST,
    **more: Any,
) -> dict[str, Any]:
    """A scope."""
    fields = [(name.encode(), value.encode("latin-1")) for name, value in (headers or {}).items()]
    made = scope(path, method, [(b"host", (host or "").encode()), *fields], type=more.pop("type", "http"))
    if host is None:
        made["headers"] = fields
    return {**made, "scheme": "http", "http_version": "1.1", **more}


def socket(headers: Mapping[str, str], host: str = HOST) -> dict[str, Any]:
    """The scope of a WebSocket."""
    upgrade = {"upgrade": "websocket", "sec-websocket-version": "13", "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ=="}
    return asked("/futoin/orders", "GET", {**headers, **upgrade}, host=host, type="websocket", scheme="ws")


def refusal(guard: WebGuard, given: dict[str, Any]) -> type[HttpError] | None:
    try:
        guard.judge(given)
    except HttpError as error:
        return type(error)
    return None


@pytest.fixture
def guard() -> WebGuard:
    """Of a server on loopback without users."""
    made = WebGuard()
    made.has_users = lambda: False
    return made


HOSTS = [
    "[fe80::1%eth0]:8080",
    "[fe80::1%25eth0]",
    "localhost",
    "LOCALHOST:8080",
    "x.localhost:1",
    "ip6-localhost",
    "127.0.0.1",
    "10.0.0.7:80",
    "[::1]:8080",
    "[::1]",
]
NAMES = [
    "evil.test",
    "127.0.0.1%evil.test",
    "evil.test:8080",
    "localhost.evil.test",
    "log.example.org",
    "2130706433",
    "0x7f.1",
    "",
]


@pytest.mark.parametrize("host", HOSTS)
def test_loopback_names_and_addresses_are_served(guard: WebGuard, host: str) -> None:
    assert refusal(guard, asked(host=host)) is None
    assert refusal(guard, socket({}, host)) is None


@pytest.mark.parametrize("host", NAMES)
def test_another_name_is_refused_on_loopback_health_and_metrics_as_well(guard: WebGuard, host: str) -> None:
    for path in ("/logs", "/health/ready", "/health/live", "/metrics", "/futoin/x", "/console", "/nowhere"):
        assert refusal(guard, asked(path, host=host)) is HostNotServed
    assert refusal(guard, socket({}, host)) is HostNotServed


def test_a_refused_name_is_told_with_the_setting(guard: WebGuard) -> None:
    with pytest.raises(HostNotServed, match=r"'evil.test' is not allowed.* its own address \(127.0.0.1\).*http.hosts"):
        guard.judge(asked(host="evil.test:8080"))


def test_names_that_are_configured_are_served(guard: WebGuard) -> None:
    named = WebGuard(Http(hosts=("log.example.org",)))
    assert refusal(named, asked(host="LOG.example.org.:9")) is None
    assert refusal(named, asked(host="evil.test")) is HostNotServed
    assert refusal(named, asked(host="a.log.example.org")) is HostNotServed


def test_the_name_that_it_listens_on_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.server.front.web_guard.is_loopback", lambda host: False)
    public = WebGuard(host="Log.Example.org")
    public.has_users = lambda: False
    assert refusal(public, asked(host="log.example.org:8080")) is None
    assert refusal(public, asked(host="evil.test")) is HostNotServed


def test_any_name_is_served_where_users_log_in_on_a_public_address_and_only_while_there_are_users() -> None:
    public, users = WebGuard(host="0.0.0.0"), ["alice"]
    public.has_users = lambda: bool(users)
    assert refusal(public, asked(host="anything.test")) is None
    users.clear()
    assert refusal(public, asked(host="anything.test")) is HostNotServed


def test_users_make_no_difference_on_loopback(guard: WebGuard) -> None:
    guard.has_users = lambda: True
    assert refusal(guard, asked(host="evil.test")) is HostNotServed


def test_one_host_is_needed_but_for_http_1_0(guard: WebGuard) -> None:
    assert refusal(guard, asked(host=None)) is InvalidParameter
    assert refusal(guard, asked(host=None, http_version="1.0")) is None
    twice = asked()
    for other in (b"localhost", b"evil.test"):
        assert refusal(guard, {**twice, "headers": [*twice["headers"], (b"host", other)]}) is InvalidParameter
        assert refusal(guard, {**twice, "headers": [(b"host", other), *twice["headers"]]}) is InvalidParameter
    assert refusal(guard, asked(host="local host")) is InvalidParameter
    assert refusal(guard, asked(host="evil.test", http_version="1.0")) is HostNotServed


PAGES = [
    chromium("cross-site", "no-cors", "image"),
    chromium("cross-site", "no-cors", "script"),
    chromium("cross-site", "cors", "empty", origin=FOREIGN),
    chromium("cross-site", "navigate", "iframe"),
    chromium("cross-site", "navigate", "document", **{"sec-fetch-user": "?1", "upgrade-insecure-requests": "1"}),
    chromium("same-site", "no-cors", "image"),
    chromium("same-site", "cors", "empty", origin="http://127.0.0.1:9000"),
    chromium("cross-site", "cors", "empty", origin="null"),
    firefox("cross-site", "no-cors", "image"),
    firefox("same-site", "cors", "empty", origin="http://127.0.0.1:9000"),
    safari(origin=FOREIGN),
    safari(origin="null"),
]


@pytest.mark.parametrize("page", PAGES)
def test_pages_of_other_origins_read_nothing(guard: WebGuard, page: dict[str, str]) -> None:
    for path in (
        "/logs/orders",
        "/logs/orders/subscribe",
        "/futoin/x/futoin.evt.gen/1.1/addEvent",
        "/metrics",
        "/health/live",
    ):
        assert refusal(guard, asked(path, headers=page)) is ForeignPage


@pytest.mark.parametrize("media_type", [TEXT, FORM, "multipart/form-data; boundary=x", JSON, None])
@pytest.mark.parametrize(
    "path", ["/futoin/orders", "/ocloudNotifications/v2/create/event", "/logs/x/append", "/dcb/x/append"]
)
def test_pages_of_other_origins_send_nothing(guard: WebGuard, path: str, media_type: str | None) -> None:
    body = {"content-length": "10"} | ({"content-type": media_type} if media_type else {})
    for page in (
        chromium("cross-site", "no-cors", "empty", origin=FOREIGN),
        chromium("cross-site", "navigate", "document", origin="null"),
        firefox("same-site", "no-cors", "empty", origin="http://127.0.0.1:9000"),
        safari(origin=FOREIGN),
    ):
        assert refusal(guard, asked(path, "POST", {**page, **body})) is ForeignPage


def test_websockets_of_other_origins_are_refused(guard: WebGuard) -> None:
    assert refusal(guard, socket({"user-agent": CHROME, "origin": FOREIGN})) is ForeignPage
    assert refusal(guard, socket(firefox("cross-site", "websocket", "empty", origin=FOREIGN))) is ForeignPage
    assert refusal(guard, socket(safari(origin="null"))) is ForeignPage
    assert refusal(guard, socket({"user-agent": CHROME, "origin": OWN})) is None
    assert refusal(guard, socket(firefox("same-origin", "websocket", "empty", origin=OWN))) is None
    assert refusal(guard, socket({"user-agent": "Python/3.12 websockets/15"})) is None


def test_the_own_origin_is_scheme_name_and_port_of_the_request(guard: WebGuard) -> None:
    json = {"content-type": JSON, "content-length": "2"}
    for host, origin, scheme, expected in (
        (HOST, OWN, "http", None),
        ("localhost", "http://localhost", "http", None),
        ("localhost:80", "http://localhost", "http", None),
        ("localhost:443", "https://localhost", "https", None),
        ("[::1]:8080", "http://[::1]:8080", "http", None),
        (HOST, "http://localhost:8080", "http", ForeignPage),
        (HOST, "https://127.0.0.1:8080", "http", ForeignPage),
        (HOST, "http://127.0.0.1:8081", "http", ForeignPage),
        (HOST, "http://127.0.0.1", "http", ForeignPage),
        ("evil.test", "http://evil.test", "http", HostNotServed),
    ):
        given = asked("/logs/x/append", "POST", safari(origin=origin, **json), host=host, scheme=scheme)
        assert refusal(guard, given) is expected, (host, origin)
    assert refusal(guard, asked(host=None, http_version="1.0", headers={"origin": OWN})) is ForeignPage


def test_own_pages_and_addresses_that_somebody_typed_pass(guard: WebGuard) -> None:
    for page in (
        chromium("none", "navigate", "document"),
        chromium("same-origin", "cors", "empty"),
        chromium("same-origin", "navigate", "document"),
        firefox("none", "navigate", "document"),
        safari(),
    ):
        assert refusal(guard, asked("/logs", headers=page)) is None


def test_a_link_on_any_page_may_lead_to_the_console_and_no_further(guard: WebGuard) -> None:
    link = chromium("cross-site", "navigate", "document", **{"sec-fetch-user": "?1"})
    for path in ("/", "/console", "/console/", "/console/logs"):
        assert refusal(guard, asked(path, headers=link)) is None
        assert refusal(guard, asked(path, "POST", link)) is ForeignPage
        assert refusal(guard, asked(path, headers=chromium("cross-site", "navigate", "iframe"))) is ForeignPage
        assert refusal(guard, asked(path, headers=chromium("cross-site", "no-cors", "image"))) is ForeignPage
        assert refusal(guard, asked(path, headers=link, host="evil.test")) is HostNotServed
    for path in ("/logs", "/consoles", "/metrics", "//console"):
        assert refusal(guard, asked(path, headers=link)) is ForeignPage


def test_pages_of_origins_that_are_configured_pass() -> None:
    guard = WebGuard(Http(origins=(LISTED, "http://localhost:3000")))
    json = {"content-type": JSON, "content-length": "2"}
    for page in (
        chromium("cross-site", "cors", "empty", origin=LISTED),
        firefox("same-site", "cors", "empty", origin="http://localhost:3000"),
        safari(origin="https://app.example.org"),
    ):
        assert refusal(guard, asked("/logs/x/subscribe", headers=page)) is None
        assert refusal(guard, asked("/logs/x/append", "POST", {**page, **json})) is None
        assert refusal(guard, socket(page)) is None
    for origin in ("http://app.example.org", "https://app.example.org:8443", "https://x.app.example.org", "null"):
        assert refusal(guard, asked("/logs", headers=safari(origin=origin))) is ForeignPage
    without_origin = chromium("cross-site", "no-cors", "image")
    assert refusal(guard, asked("/logs", headers=without_origin)) is ForeignPage


def test_a_page_without_an_origin_passes_only_where_null_is_listed() -> None:
    page = chromium("cross-site", "cors", "empty", origin="null")
    listing, star = WebGuard(Http(origins=("null",))), WebGuard(Http(origins=("*",)))
    star.has_users = lambda: True
    assert refusal(listing, asked(headers=page)) is None
    assert refusal(star, asked(headers=page)) is ForeignPage


def test_every_origin_passes_by_a_star_only_while_there_are_users() -> None:
    guard, users = WebGuard(Http(origins=("*",)), "0.0.0.0"), ["alice"]
    page = chromium("cross-site", "cors", "empty", origin=FOREIGN)
    assert refusal(guard, asked(headers=page)) is ForeignPage  # not known yet
    guard.has_users = lambda: bool(users)
    assert refusal(guard, asked(headers=page)) is None
    assert refusal(guard, asked(headers={**page, "origin": "http://a, http://b"})) is ForeignPage
    users.clear()
    assert refusal(guard, asked(headers=page)) is ForeignPage


def bodies() -> Iterator[dict[str, str]]:
    for media_type in (TEXT, "text/plain", FORM, "multipart/form-data; boundary=x", None):
        types = {"content-type": media_type} if media_type else {}
        yield {"content-length": "10", **types}
        yield {"transfer-encoding": "chunked", **types}


def test_a_body_that_a_page_could_send_unasked_is_refused_below_logs_and_management(guard: WebGuard) -> None:
    for body in bodies():
        for path in ("/logs/x/append", "/logs/x/trim", "/logs/x/read", "/logs/x/events", "/management/logs"):
            assert refusal(guard, asked(path, "POST", {**CURL, **body})) is UnsupportedMediaType
        assert refusal(guard, asked("/logs/x", "PUT", {**CURL, **body})) is UnsupportedMediaType
        for path in (
            "/futoin/orders",
            "/ocloudNotifications/v1/create/event",
            "/api/ocloudNotifications/v2/publishers",
        ):
            assert refusal(guard, asked(path, "POST", {**CURL, **body})) is None


def test_such_a_body_is_refused_everywhere_from_a_browser(guard: WebGuard) -> None:
    for body in bodies():
        for page in (
            safari(origin=OWN),
            chromium("same-origin", "cors", "empty", origin=OWN),
            chromium("same-origin", "cors", "empty"),
            {"accept-language": "*", "sec-fetch-mode": "cors", "user-agent": "node"},
        ):
            for path in ("/futoin/orders", "/ocloudNotifications/v1/create/event", "/dcb/x/append", "/logs/x/append"):
                assert refusal(guard, asked(path, "POST", {**page, **body})) is UnsupportedMediaType


def test_a_post_that_says_nothing_at_all_is_refused_below_logs(guard: WebGuard) -> None:
    assert refusal(guard, asked("/logs/x/trim", "POST", {**CURL, "content-length": "0"})) is UnsupportedMediaType
    assert refusal(guard, asked("/logs/x/trim", "POST", CURL)) is UnsupportedMediaType
    assert refusal(guard, asked("/logs/x", "PUT", CURL)) is None  # a page must ask before
    assert refusal(guard, asked("/logs/x", "DELETE", CURL)) is None
    assert refusal(guard, asked("/ocloudNotifications/v1/subscriptions/1/resume", "POST", CURL)) is None


def test_a_cloudevent_in_binary_mode_may_hold_text_since_a_page_must_ask_for_its_header_fields(guard: WebGuard) -> None:
    event = {"ce-specversion": "1.0", "ce-type": "T", "content-type": "text/plain", "content-length": "1"}
    assert refusal(guard, asked("/logs/x/events", "POST", {**CURL, **event})) is None
    foreign = chromium("cross-site", "cors", "empty", origin=FOREIGN, **event)
    assert refusal(guard, asked("/logs/x/events", "POST", foreign)) is ForeignPage


def test_a_missing_media_type_is_told(guard: WebGuard) -> None:
    with pytest.raises(
        UnsupportedMediaType,
        match=r"a body without a media type \(Content-Type\) is not supported here.*application/json",
    ):
        guard.judge(asked("/logs/x/trim", "POST", {"content-length": "10"}))


def test_a_get_that_may_change_something_needs_a_browser_that_says_whose_page_it_is(guard: WebGuard) -> None:
    path = "/futoin/orders/futoin.evt.gen/1.1/addEvent"
    assert refusal(guard, asked(path, headers=CURL)) is None
    assert refusal(guard, asked(path, headers={"user-agent": "python-requests/2.32"})) is None
    assert refusal(guard, asked(path, headers=chromium("none", "navigate", "document"))) is None
    assert refusal(guard, asked(path, headers=chromium("same-origin", "cors", "empty"))) is None
    assert refusal(guard, asked(path, headers=safari())) is ForeignPage
    assert refusal(guard, asked("/logs", headers=safari())) is None


def test_answers_are_changed_only_where_origins_are_configured(guard: WebGuard) -> None:
    assert guard.judge(asked(headers=CURL)) is unchanged
    assert WebGuard(Http(origins=(LISTED,))).judge(asked(headers=CURL)) is varied


def test_a_known_head_is_judged_again_only_where_the_answer_may_change() -> None:
    def known(host: str) -> dict[str, Any]:
        given = asked(host=host)
        return {**given, HEAD: head_of(given["headers"])}

    guard = WebGuard(host="192.0.2.1")
    own, other = known("192.0.2.1:8080"), known("log.test:8080")
    guard.has_users = lambda: True
    assert [guard.judge(each) for each in (own, other, own, other)] == [unchanged] * 4
    guard.has_users = lambda: False
    assert guard.judge(own) is unchanged
    assert refusal(guard, other) is HostNotServed
    strict = WebGuard(Http(origins=(LISTED,)), host="192.0.2.1")
    assert strict.judge(own) is varied  # what one guard has allowed, another one judges


CONSOLE = {"headwater-console": "1", "content-type": JSON, "content-length": "2"}


@every(
    ("method", "path"),
    [
        ("POST", "/logs/orders/append"), ("PUT", "/logs/orders"), ("PATCH", "/logs/orders"), ("DELETE", "/logs/orders"),
        ("POST", "/logs/orders/trim"), ("POST", "/logs/orders/events"), ("PUT", "/logs/orders/consumers/a/b"),
        ("POST", "/logs/orders/consumers/a/b/reset"), ("DELETE", "/management/connection/1"),
        ("PUT", "/management/user/eve"), ("PATCH", "/management/consumer/a"), ("POST", "/futoin/orders"),
        ("GET", "/futoin/orders/futoin.evt.gen/1.1/addEvent"), ("POST", "/dcb/orders/append"),
        ("POST", "/ocloudNotifications/v2/subscriptions/1/resume"), ("POST", "/logs/orders/read/append"),
    ],
)  # fmt: skip
def test_a_console_that_may_only_look_changes_nothing(method: str, path: str) -> None:
    looking, acting = WebGuard(console=ConsoleSettings(read_only=True)), WebGuard()
    with pytest.raises(ConsoleReadOnly):
        looking.judge(asked(path, method, CONSOLE))
    acting.judge(asked(path, method, CONSOLE))
    others = {name: value for name, value in CONSOLE.items() if name != "headwater-console"}
    looking.judge(asked(path, method, others))


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/logs"), ("POST", "/logs/orders/read"), ("POST", "/logs/orders/count"), ("HEAD", "/console/"),
        ("POST", "/logs/orders/histogram"), ("POST", "/logs/orders/event-histogram"),
        ("POST", "/console/session"), ("DELETE", "/console/session"),
        ("POST", "/management/org.amqp.management/self/GET-TYPES"), ("GET", "/console/stream"),
    ],
)  # fmt: skip
def test_a_console_that_may_only_look_looks_and_logs_in(method: str, path: str) -> None:
    WebGuard(console=ConsoleSettings(read_only=True)).judge(asked(path, method, CONSOLE))


def test_a_page_of_the_console_is_not_asked_for_basic_credentials() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    fields = [BASIC, BEARER, (b"content-type", b"application/problem+json")]
    for given in ({"headwater-console": "1"}, {}):
        answering = WebGuard().judge(asked("/logs", "GET", given))
        asyncio.run(_sent(answering(send), {"type": "http.response.start", "status": 401, "headers": fields}))
    assert [message["headers"] for message in sent] == [fields[1:], fields]


def test_a_preflight_has_no_body_in_one_message_or_two() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    start = {"type": "http.response.start", "status": 405, "headers": [(b"allow", b"GET")]}
    for messages in ([{**start, "body": b"no"}], [start, {"type": "http.response.body", "body": b"no"}]):
        granting = preflight(b"http://a.example", b"")(send)
        for message in messages:
            asyncio.run(_sent(granting, message))
    assert [message.get("body") for message in sent] == [b"", None, b""]
    assert [message["status"] for message in sent[:2]] == [204, 204] and sent[0]["headers"] == sent[1]["headers"]


async def _sent(send: Any, message: Any) -> None:
    await send(message)
