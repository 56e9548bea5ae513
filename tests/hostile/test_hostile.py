"""A few seconds of each hostile client: nobody else loses an event, or a connection. `make hostile` takes longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from .attacks import ATTACKS
from .readers import READERS
from .street import Street, seen_once

SECONDS = 2.0
FILES_MORE = 60
"""Files that may be open more than before: those of segments, and of connections of the neighbours."""


@pytest.mark.timeout(900)
def test_a_hostile_client_of_each_protocol_in_turn_costs_no_other_an_event_or_a_connection(tmp_path: Path) -> None:
    with Street(tmp_path) as street:
        for protocol in ATTACKS:
            files = street.open_files()
            done = street.attack(protocol, SECONDS)
            webhooks = 0
            if protocol == "cne":  # they outlive the client; most are in this server, at both ends
                webhooks = done.get("subscriptions: tried", 0) + done.get("black_holes: tried", 0)
                webhooks += done.get("endless_continue: tried", 0)
            allowed = files + FILES_MORE + 3 * webhooks
            street.until(lambda n=allowed: street.open_files() <= n, "what it held to be let go")
            assert street.faults_told() == []
            print(f"{protocol}: {done}; {street.memory_mib()} MiB")
        street.finish()
        print(street.table())


@pytest.mark.timeout(900)
def test_a_lost_a_repeated_or_a_misplaced_event_would_be_noticed(tmp_path: Path) -> None:
    with Street(tmp_path) as street:
        street.until(lambda: all(len(seen_once(each)) > 1 for each in street.readers), "two events to be seen by all")
        street.finish()
        for reader in street.readers:
            seen = list(seen_once(reader))
            hurt = [seen[1:], [seen[1], seen[0], *seen[2:]]]
            if reader.name != "cne":
                hurt.append([*seen, seen[-1]])
            for each in hurt:
                reader.seen = each
                with pytest.raises(AssertionError, match=f"{reader.name} did not see"):
                    street.compare()
            reader.seen = seen
        street.compare()
        assert {reader.name for reader in street.readers} == {kind.name for kind in READERS}
