"""A few seconds of each hostile client: nobody else loses an event, or a connection. `make hostile` takes longer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .attacks import ATTACKS, Attack, kinds
from .street import Street

SECONDS = 3.0
FILES_MORE = 60
"""Files that may be open more than before: those of segments, and of connections of the neighbours."""
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def street(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Street]:
    with Street(tmp_path_factory.mktemp("hostile")) as street:
        yield street


@pytest.mark.parametrize("protocol", ATTACKS)
def test_a_hostile_client_costs_no_other_its_connection_or_an_event(street: Street, protocol: str) -> None:
    files = street.open_files()
    done = street.attack(protocol, SECONDS)
    attack: Attack = ATTACKS[protocol](street.bad, 1)
    told = {name.partition(":")[0] for name in done}
    assert told >= kinds(attack).keys(), f"not all was tried: {done}"
    assert sum(done.get(name, 0) for name in kinds(attack)) > 0, f"nothing was taken: {done}"
    print(f"\n{protocol}: {done}; {street.memory_mib()} MiB")
    street.until(lambda: street.open_files() <= files + FILES_MORE, "what the hostile client held to be let go")
    assert street.faults_told() == []


def test_what_was_acknowledged_is_there_once_and_in_order_for_each_protocol(street: Street) -> None:
    """The last one: of all that happened before."""
    street.finish()
    print(f"\n{street.table()}")
