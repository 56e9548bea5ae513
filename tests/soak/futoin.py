"""FutoIn adds and pushes while the server is killed, again and again: acknowledged ids = received ids, in order.

    python -m tests.soak.futoin [SECONDS]

Every addition carries an idempotency key and is repeated until it is acknowledged. A reliable consumer gets everything
pushed, over as many connections as it takes; a group that was not acknowledged comes again, and nothing else does.
"""

from __future__ import annotations

import json
import random
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection, connect

from tests.server.running import RunningServer

ADDERS = 8
COMPONENT = "Soak"
LOST = (OSError, WebSocketException, EOFError, TimeoutError)
"""How a connection ends whose server is killed."""
KILLS_MIN = 2
QUIET_S = 60.0
"""How long the consumer may take to catch up at the end."""


class Soak:
    """One run: the server, the adders and the consumer."""

    def __init__(self, directory: Path, seconds: float, seed: int = 0) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self._port: int = listener.getsockname()[1]
        self._directory, self._seconds = directory, seconds
        self._chance = random.Random(seed)
        self.acknowledged: dict[str, int] = {}
        """Id by key, of every addition that was answered."""
        self.received: list[tuple[int, str]] = []
        """Id and key, as they were pushed, repeats included."""
        self.kills = 0
        self._is_adding = True
        self._is_receiving = True
        self.faults: list[str] = []

    def run(self) -> None:
        """Run, and check. Raises AssertionError."""
        server = self._serve()
        threads = [threading.Thread(target=self._add, args=(number,)) for number in range(ADDERS)]
        threads.append(threading.Thread(target=self._receive))
        try:
            for thread in threads:
                thread.start()
            until = time.monotonic() + self._seconds
            while time.monotonic() < until or self.kills < KILLS_MIN:
                time.sleep(self._chance.uniform(0.5, 2.5))
                with server:  # SIGKILL
                    self.kills += 1
                server = self._serve()
            self._is_adding = False
            for thread in threads[:-1]:
                thread.join()
            self._await_rest()
        finally:
            self._is_adding = self._is_receiving = False
            for thread in threads:
                thread.join()
            with server:
                pass
        self.check()

    def check(self) -> None:
        """Raises AssertionError unless the consumer saw each acknowledged addition, in order."""
        assert not self.faults, self.faults
        last, distinct = 0, {}
        for id, key in self.received:
            if id in distinct:
                assert distinct[id] == key, f"event {id} changed"
                continue
            assert id > last, f"event {id} was first pushed after {last}"
            last = id
            distinct[id] = key
        missing = set(self.acknowledged.values()) - distinct.keys()
        assert not missing, f"acknowledged and never pushed: {sorted(missing)[:10]}"
        surplus = distinct.keys() - set(self.acknowledged.values())
        assert not surplus, f"pushed and never acknowledged: {sorted(surplus)[:10]}"
        assert len(set(self.acknowledged.values())) == len(self.acknowledged), "two additions have one id"

    def _serve(self) -> RunningServer:
        return RunningServer("--data", "data", "--http-port", str(self._port), cwd=self._directory)

    def _connect(self) -> ClientConnection:
        return connect(f"ws://127.0.0.1:{self._port}/futoin/default", compression=None, close_timeout=1)

    def _add(self, number: int) -> None:
        turn = 0
        while self._is_adding:
            try:
                with self._connect() as connection:
                    while self._is_adding:
                        key = f"{number}-{turn}"
                        asked = {"type": "SOAK", "data": key, "key": key}
                        reply = _ask(connection, "headwater.evt.gen:1.0:addEvent", asked)
                        if "r" not in reply:
                            if "stopping" not in reply.get("edesc", ""):
                                self.faults.append(f"{key}: {reply}")
                            continue
                        self.acknowledged[key] = int(reply["r"])
                        turn += 1
            except LOST:
                time.sleep(0.05)
        self._finish(number, turn)

    def _finish(self, number: int, turn: int) -> None:
        """The addition that was under way at the end: it is in the log, or not; repeating it settles that."""
        key = f"{number}-{turn}"
        with self._connect() as connection:
            asked = {"type": "SOAK", "data": key, "key": key}
            self.acknowledged[key] = int(_ask(connection, "headwater.evt.gen:1.0:addEvent", asked)["r"])

    def _receive(self) -> None:
        while self._is_receiving:
            try:
                with self._connect() as connection:
                    _ask(connection, "futoin.evt.push:1.1:registerConsumer", {"component": COMPONENT})
                    connection.send(_message("futoin.evt.push:1.1:readyToReceive", {"component": COMPONENT}))
                    expected = 0
                    while self._is_receiving:
                        expected = self._take(connection, expected)
            except LOST:
                time.sleep(0.05)

    def _take(self, connection: ClientConnection, expected: int) -> int:
        try:
            message = json.loads(connection.recv(timeout=0.2))
        except TimeoutError:
            return expected
        if "f" not in message:
            return expected
        if message["p"]["seq"] != expected:
            self.faults.append(f"seq {message['p']['seq']} came, {expected} was due")
        self.received += [(int(event["id"]), event["data"]) for event in message["p"]["events"]]
        if self._chance.random() < 0.02:
            connection.send(json.dumps({"e": "Refused", "rid": message["rid"]}).encode())
            return expected
        connection.send(json.dumps({"r": True, "rid": message["rid"]}).encode())
        return expected + 1

    def _await_rest(self) -> None:
        until = time.monotonic() + QUIET_S
        last = max(self.acknowledged.values())
        while not self.received or self.received[-1][0] < last:
            assert time.monotonic() < until, f"event {last} was not pushed within {QUIET_S:g} s"
            time.sleep(0.05)


def _message(f: str, p: Any) -> bytes:
    return json.dumps({"f": f, "p": p, "rid": "C1"}).encode()


def _ask(connection: ClientConnection, f: str, p: Any) -> Any:
    connection.send(_message(f, p))
    return json.loads(connection.recv(timeout=30))


def main(seconds: float = 60.0) -> None:
    """Run in a directory of its own, and tell."""
    with tempfile.TemporaryDirectory(prefix="headwater-soak-") as directory:
        soak = Soak(Path(directory), seconds, seed=int(time.time()))
        soak.run()
    repeats = len(soak.received) - len({id for id, _ in soak.received})
    print(
        f"{len(soak.acknowledged):,} additions acknowledged, {len(soak.received):,} events pushed "
        f"({repeats} of them again), {soak.kills} times kill -9: each acknowledged id was received, in order"
    )


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))
