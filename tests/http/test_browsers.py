"""What the head of a request says of the page that sent it: names, origins, media types."""

from __future__ import annotations

import pytest

from headwater.http.browsers import NAME_BYTES_MAX, Origin, authority_of, head_of, origin_of, own_origin
from tests.every import every


@pytest.mark.parametrize(
    ("host", "name", "port"),
    [
        (b"localhost", "localhost", None),
        (b"LocalHost.:8080", "localhost", 8080),
        (b"console.localhost:1", "console.localhost", 1),
        (b"ip6-localhost", "ip6-localhost", None),
        (b"127.0.0.1:8080", "127.0.0.1", 8080),
        (b"10.1.2.3", "10.1.2.3", None),
        (b"[::1]:8080", "::1", 8080),
        (b"[FE80::1%25eth0]", "fe80::1%25eth0", None),
        (b"localhost:", "localhost", None),
    ],
)
def test_loopback_names_and_addresses_are_local(host: bytes, name: str, port: int | None) -> None:
    assert authority_of(host) == (name, port, True)


@pytest.mark.parametrize(
    "host",
    [
        b"evil.test",
        b"localhost.evil.test",
        b"notlocalhost",
        b"127.0.0.1.evil.test",
        b"evil.test:8080",
        b"",
        b":80",
        b"x_y",
    ],
)
def test_other_names_are_not_local(host: bytes) -> None:
    found = authority_of(host)
    assert found is not None and not found.is_local


@every(
    "host",
    [
        b"localhost, evil.test", b"a b", b"user@localhost", b"localhost/x", b"[::1", b"[nonsense]", b"[1.2]", b"::1",
        b"x:y", b"x:123456", b"\xfc.test", b"x" * (NAME_BYTES_MAX + 1), b"localhost#", b"http://localhost",
    ],
)  # fmt: skip
def test_what_is_no_host_is_none(host: bytes) -> None:
    assert authority_of(host) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"http://localhost:8080", ("http", "localhost", 8080)),
        (b"http://localhost", ("http", "localhost", 80)),
        (b"https://App.Example.org", ("https", "app.example.org", 443)),
        (b"http://[::1]:8080", ("http", "::1", 8080)),
        (b"chrome-extension://abcdefgh", ("chrome-extension", "abcdefgh", None)),
        (b"null", None),
        (b"*", None),
        (b"", None),
        (b"file://", None),
        (b"http://a, http://b", None),
        (b"http://a/", None),
        (b"http://user@a", None),
        (b"http://" + b"x" * NAME_BYTES_MAX, None),
    ],
)
def test_an_origin_is_a_scheme_a_name_and_a_port(text: bytes, expected: Origin | None) -> None:
    assert origin_of(text) == expected


def test_the_own_origin_is_that_of_the_host_a_websocket_is_as_its_page() -> None:
    for scheme, host, text in (
        ("http", b"localhost:8080", b"http://localhost:8080"),
        ("ws", b"localhost:80", b"http://localhost"),
        ("wss", b"[::1]", b"https://[::1]"),
    ):
        authority = authority_of(host)
        assert authority is not None
        assert own_origin(scheme, authority) == origin_of(text)


def test_of_a_head_only_what_tells_a_page_is_kept_and_fields_of_one_name_are_joined() -> None:
    head = head_of(
        [(b"host", b"a"), (b"x-more", b"1"), (b"host", b"b"), (b"content-type", b"Text/Plain ;charset=UTF-8")]
    )
    assert head.keys() == {b"host", b"content-type"}
    assert (head[b"host"], head.media_type) == (b"a, b", b"text/plain")


@pytest.mark.parametrize(
    ("headers", "has_body"),
    [
        ([], False),
        ([(b"content-length", b"0")], False),
        ([(b"content-length", b"1")], True),
        ([(b"transfer-encoding", b"chunked")], True),
    ],
)
def test_a_body_is_announced_by_its_length_or_coding(headers: list[tuple[bytes, bytes]], has_body: bool) -> None:
    assert head_of(headers).has_body is has_body


@pytest.mark.parametrize(
    ("media_type", "is_simple"),
    [
        (None, True),
        (b"", True),
        (b"text/plain", True),
        (b"text/plain;charset=UTF-8", True),
        (b"TEXT/PLAIN; application/json", True),
        (b"application/x-www-form-urlencoded", True),
        (b"multipart/form-data; boundary=x", True),
        (b"application/json", False),
        (b"application/futoin+json", False),
    ],
)
def test_three_media_types_and_none_can_be_sent_unasked(media_type: bytes | None, is_simple: bool) -> None:
    headers = [] if media_type is None else [(b"content-type", media_type)]
    assert head_of(headers).has_simple_type is is_simple
    assert not head_of([*headers, (b"ce-specversion", b"1.0")]).has_simple_type
