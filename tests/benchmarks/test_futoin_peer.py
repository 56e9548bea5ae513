"""The raw FutoIn peer of the benchmarks does what it is asked, against Headwater."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.futoin.servers import HeadwaterServer


@pytest.mark.timeout(120)
def test_the_peer_adds_polls_receives_and_measures(tmp_path: Path) -> None:
    server = HeadwaterServer(tmp_path / "futoin")
    try:
        added = server.ask("add", 4, 0.2)
        assert added["count"] > 0 and added["p50_ms"] <= added["max_ms"]
        events = int(added["count"]) + 4 + int(server.ask("fill", 640)["events"])
        assert server.ask("poll", "P", events, server.poll_interface)["per_s"] > 0
        assert server.ask("push", "Q", events)["per_s"] > 0
        pushed = server.ask("latency", "L", 50, 0.2)
        assert pushed["received"] == pushed["added"] == 10
    finally:
        server.close()
