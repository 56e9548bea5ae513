"""A few seconds of each hostile client: nobody else loses an event, or a connection. `make hostile` takes longer."""

from __future__ import annotations

from array import array
from pathlib import Path

import pytest

from ..run import Faulty, stored_in
from ..server import MortalServer
from .attacks import ATTACKS
from .street import PATIENCE_S, Street

SECONDS = 2.0
FILES_MORE = 60
"""Files that may be open more than before: those of segments, and of connections of the neighbours."""


@pytest.mark.timeout(900)
def test_a_hostile_client_of_each_protocol_in_turn_costs_no_other_an_event_or_a_connection(tmp_path: Path) -> None:
    server = MortalServer(tmp_path, retry_ms_max=None)
    with Street(server) as street:
        for protocol in ATTACKS:
            files = server.open_files()
            done = street.attack(protocol, SECONDS)
            webhooks = 0
            if protocol == "cne":  # they outlive the client; most are in this server, at both ends
                webhooks = sum(
                    done.get(f"{kind}: tried", 0) for kind in ("subscriptions", "black_holes", "endless_continue")
                )
            allowed = files + FILES_MORE + 3 * webhooks
            street.until(lambda n=allowed: server.open_files() <= n, PATIENCE_S, "what it held to be let go")
            print(f"{protocol}: {done}")
        street.finish()
        print(street.table())
        assert street.all_faults() == []


@pytest.mark.timeout(300)
def test_an_event_that_a_neighbour_missed_or_lost_would_be_noticed(tmp_path: Path) -> None:
    with Street(MortalServer(tmp_path)) as street:
        street.finish()
        stored = stored_in(street.server.place)
        for reader in street.readers:
            seen, reader.page.numbers = reader.page.numbers, reader.page.numbers[1:]
            street.compare(stored)
            assert [fault for fault in street.faults if f"{reader.page.name} missed 1 events" in fault], reader.name
            street.faults, reader.page.numbers = [], array("q", seen)
        del stored[max(stored)]
        street.compare(stored)
        with pytest.raises(Faulty):
            street.check()
        assert any("acknowledged and not there" in fault for fault in street.faults)
