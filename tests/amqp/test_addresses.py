"""Addresses of logs, as AMQP clients write them."""

import pytest

from headwater.amqp.addresses import parse_address
from headwater.core.errors import LogNotFound
from headwater.core.shown import show


@pytest.mark.parametrize("address", ["no such", "orders/nonsense", "x" * 10_000])
def test_an_address_of_no_log_is_quoted_once_and_cut(address: str) -> None:
    with pytest.raises(LogNotFound) as refused:
        parse_address(address)
    assert str(refused.value) == f"there is no log {show(address)}"
    assert refused.value.name == address
