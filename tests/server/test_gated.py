"""Every way into a server ends in frames that say that their events passed the gate."""

from __future__ import annotations

import json
import re
from pathlib import Path

from headwater.storage.frames.layout import GATED_FEATURE, MAGIC, OPTIONAL_AT

from .running import RunningServer
from .test_poison import BODY, WAYS, WITH_FLIGHT, Ways, forms


def test_every_way_in_earns_the_bit(tmp_path: Path) -> None:
    with RunningServer("--data", "data", "--log", "orders", *WITH_FLIGHT, cwd=tmp_path) as server:
        ways = Ways(server)
        for way in WAYS:
            for form in forms(BODY):
                way(ways, form)
        ways.transfer(BODY, 50)
        ways.transfer(BODY[:-1] + b"\xff")
        cloudevent = {"specversion": "1.0", "id": "1", "source": "/s", "type": "T", "data": 1}
        kind = {"content-type": "application/cloudevents+json"}
        assert server.ask("/logs/orders/events", json.dumps(cloudevent).encode(), kind)[0] == 200
        call = {"f": "futoin.evt.gen:1.0:addEvent", "p": {"type": "T", "data": 1}, "sec": "anybody:secret"}
        assert "r" in json.loads(server.ask("/futoin/orders", json.dumps(call).encode())[1])
        head = ways.head
        ways.close()
    content = b"".join([path.read_bytes() for path in (tmp_path / "data" / "logs").glob("*/log/*.log")])
    frames = [found.start() for found in re.finditer(MAGIC, content)]
    assert sum(int.from_bytes(content[at + 24 : at + 28], "little") for at in frames) == head
    assert all(content[at + OPTIONAL_AT] & GATED_FEATURE for at in frames)
