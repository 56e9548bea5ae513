"""A FutoIn consumer as a process of its own, to be killed: it writes down each event that is pushed to it.

    python -m demo.consumer WS_URL FILE TYPE...

A line is the event's id and when it came (ms since 1970). It is written before the push is acknowledged.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from websockets.sync.client import connect

COMPONENT = "Departures"
PUSH = "futoin.evt.push:1.1"


def main(url: str, path: str, *types: str) -> None:
    """Receive until killed."""
    with connect(url, compression=None, max_size=None) as connection, open(path, "ab", buffering=0) as file:
        connection.send(_message(f"{PUSH}:registerConsumer", "C1", {"component": COMPONENT}))
        assert json.loads(connection.recv()) == {"r": True, "rid": "C1"}
        connection.send(_message(f"{PUSH}:readyToReceive", "C2", {"component": COMPONENT, "want": list(types)}))
        for body in connection:
            message = json.loads(body)
            if "f" in message:
                now = time.time_ns() // 1_000_000
                file.write(b"".join(b"%s %d\n" % (event["id"].encode(), now) for event in message["p"]["events"]))
                connection.send(json.dumps({"r": True, "rid": message["rid"]}).encode())
            elif "e" in message:
                raise SystemExit(f"refused: {message}")


def _message(f: str, rid: str, p: dict[str, Any]) -> bytes:
    return json.dumps({"f": f, "p": p, "rid": rid, "sec": "airport:none"}).encode()


if __name__ == "__main__":
    main(*sys.argv[1:])
