"""Where peers are sent that come to a server that is not the primary, and what they are told if nobody knows."""

from __future__ import annotations

import pytest

from headwater.amqp.protocol import conditions
from headwater.amqp.redirect import Elsewhere, connection_redirect, link_redirect


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("amqp://a.example:1234", "a.example", 1234),
        ("amqp://a.example", "a.example", 5672),
        ("amqps://a.example/", "a.example", 5671),
        ("amqp://[::1]:7", "::1", 7),
    ],
)
def test_an_error_names_the_host_and_the_port_of_the_primary(url: str, host: str, port: int) -> None:
    place = {"hostname": host, "network-host": host, "port": port}
    assert connection_redirect(url).info == place
    fault = link_redirect(Elsewhere(lambda: url, lambda log: None), "not here", "orders")
    assert (fault.condition, fault.info) == (conditions.LINK_REDIRECT, place | {"address": "orders"})
    assert fault.description == f"not here: attach it at the primary, {url}"


def test_where_the_primary_is_not_known_that_is_told() -> None:
    connection, link = (
        connection_redirect(None),
        link_redirect(Elsewhere(lambda: None, lambda log: None), "not here", None),
    )
    assert (connection.condition, link.condition) == (conditions.CONNECTION_FORCED, conditions.NOT_ALLOWED)
    for fault in (connection, link):
        assert "it does not advertise an AMQP address" in fault.description and fault.info is None
