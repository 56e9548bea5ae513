import base64
import ssl

import pytest

from headwater.client import connect
from headwater.client.protocol.address import address_of
from headwater.core.errors import InvalidInput


def address(url: str, **options: str | None):
    given = {"user": None, "password": None, "token": None, "ca_file": None} | options
    return address_of(url, given["user"], given["password"], given["token"], given["ca_file"], True)


def test_ports_have_their_schemes_defaults() -> None:
    assert address("http://example").port == 80
    assert address("https://example/").port == 443
    assert address("http://[::1]:8080").host == "::1"


def test_a_path_before_logs_is_kept() -> None:
    assert address("http://example/headwater/").path == "/headwater"


def test_https_checks_certificates_unless_told_otherwise() -> None:
    tls = address("https://example").tls
    assert tls is not None
    assert tls.verify_mode is ssl.CERT_REQUIRED
    unchecked = address_of("https://example", None, None, None, None, False).tls
    assert unchecked is not None
    assert unchecked.verify_mode is ssl.CERT_NONE


def test_credentials_become_a_header() -> None:
    basic = address("http://example", user="ann", password="sécret").authorization
    assert base64.b64decode(basic.removeprefix("Basic ")).decode() == "ann:sécret"
    assert address("http://example", token="abc").authorization == "Bearer abc"


@pytest.mark.parametrize(
    ("url", "options", "message"),
    [
        ("example:8080", {}, r"http://HOST\[:PORT\]"),
        ("ftp://example", {}, r"http://HOST\[:PORT\]"),
        ("http://example:port", {}, "url: Port could not be cast"),
        ("http://[::1", {}, "url: Invalid IPv6 URL"),
        ("http://ann:secret@example", {}, "separately, not in the URL"),
        ("http://example", {"user": "ann"}, "one of them is missing"),
        ("http://example", {"user": "ann", "token": "x"}, "not both"),
        ("http://example", {"token": "x\ny"}, "printable"),
        ("https://example", {"ca_file": "/nowhere.pem"}, "cannot be read as certificates"),
    ],
)
def test_what_is_wrong_is_said(url: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        connect(url, **options)  # type: ignore[arg-type]
