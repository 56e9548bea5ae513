"""A few seconds of each hostile client: nobody else loses an event, or a connection. `make hostile` takes longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..run import Faulty, stored_in
from ..server import MortalServer
from .street import Street

SECONDS = 2.0


@pytest.mark.timeout(900)
def test_a_hostile_client_of_each_protocol_in_turn_costs_no_other_an_event_or_a_connection(tmp_path: Path) -> None:
    street = Street(MortalServer(tmp_path, retry_ms_max=None), SECONDS, 0, print)
    assert street.run() == []
    print(*street.report(), sep="\n")


@pytest.mark.timeout(300)
def test_an_event_that_a_neighbour_missed_or_lost_would_be_noticed(tmp_path: Path) -> None:
    with Street(MortalServer(tmp_path), 0) as street:
        street.begin()
        street.finish()
        stored = stored_in(street.server.place)
        for reader in street.readers:
            del reader.page.numbers[0]
        del stored[max(stored)]
        street.compare(stored)
        with pytest.raises(Faulty):
            street.check()
        assert any("acknowledged and not there" in fault for fault in street.faults)
        assert sum("missed 1 events" in fault for fault in street.faults) == len(street.readers)
