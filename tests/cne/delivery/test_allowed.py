"""Where webhooks may be: the list, and what resolving a name may not get around."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headwater.cne.delivery.allowed import AllowedHosts, HostNotAllowed
from headwater.cne.delivery.webhook import AllowedResolver, endpoint_uri
from headwater.core.errors import InvalidInput
from tests.every import every

LOOPBACK = AllowedHosts(["loopback"])


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "::ffff:127.0.0.1"])
def test_loopback_is_this_machine(host):
    assert LOOPBACK.may_permit(host) and LOOPBACK.permits_address(host)


@pytest.mark.parametrize(
    "host",
    ["10.0.0.1", "169.254.169.254", "0.0.0.0", "::", "::ffff:10.0.0.1", "fe80::1%eth0", "10.1", "2130706433", "127.1"],
)
def test_other_addresses_are_not(host):
    assert not LOOPBACK.may_permit(host)


def test_networks_and_names():
    allowed = AllowedHosts(["10.1.0.0/16", "192.0.2.7", "*.svc.cluster.local", "Consumer"])
    assert allowed.permits_address("10.1.2.3") and not allowed.permits_address("10.2.0.1")
    assert allowed.permits_address("192.0.2.7")
    assert allowed.permits_name("a.svc.cluster.local.") and not allowed.permits_name("svc.cluster.local.evil")
    assert allowed.permits_name("consumer")
    assert AllowedHosts(["*"]).permits_address("8.8.8.8")
    assert not AllowedHosts(["consumer"]).may_permit("elsewhere")


@pytest.mark.parametrize("bad", ["10.0.0.0/33", "a/b"])
def test_malformed_network_is_an_error(bad):
    with pytest.raises(ValueError):
        AllowedHosts([bad])


def resolver(allowed: AllowedHosts, *addresses: str) -> AllowedResolver:
    async def resolve(host: str) -> Sequence[str]:
        return addresses

    return AllowedResolver(allowed, resolve)


def test_name_is_judged_by_what_it_resolves_to(run):
    async def scenario() -> None:
        assert await resolver(LOOPBACK, "127.0.0.1", "10.0.0.1").resolve("localhost") == ["127.0.0.1"]
        with pytest.raises(HostNotAllowed, match=r"rebound\.example"):
            await resolver(LOOPBACK, "169.254.169.254").resolve("rebound.example")
        assert list(await resolver(AllowedHosts(["consumer"]), "10.0.0.9").resolve("consumer")) == ["10.0.0.9"]

    run(scenario())


@every(
    "uri",
    [
        "http://10.0.0.1/x",
        "http://[::ffff:169.254.169.254]/latest",
        "file:///etc/passwd",
        "http://",
        "//127.0.0.1/x",
        "http://127.0.0.1:99999/",
        "http://user@127.0.0.1/",
        "gopher://127.0.0.1/",
        "http://127.0.0.1/" + "x" * 3000,
        "127.0.0.1:80/x",
        "http://2886729728/",
        "http://0127.0.0.1/",
        "http://127.0.0.1/x\r\nHost: elsewhere",
        "http://127.0.0.1/\x00",
    ],
)
def test_uri_is_refused(uri):
    with pytest.raises(InvalidInput):
        endpoint_uri(uri, LOOPBACK, "EndpointUri")


@pytest.mark.parametrize("uri", ["http://127.0.0.1:8080/event", "https://localhost/x?y=z", "http://[::1]:9/"])
def test_uri_is_taken(uri):
    assert endpoint_uri(uri, LOOPBACK, "EndpointUri") == uri
