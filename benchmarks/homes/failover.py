"""How long is nobody there to append when the primary of a home ends? `python -m benchmarks.homes.failover`

Two servers, one PostgreSQL, all on this machine. The primary is killed, paused or stopped in order; from that moment on
one append after the other is tried at the other server, until one is answered. Then the first one begins again, and it
is the other's turn. With one log, and with 1,000, each of which has an event.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from rich.console import Console
from rich.table import Table
from tests.homes.postgres_server import fast_folder, fresh_home
from tests.load.chaos.members import Member
from tests.waiting import eventually

from headwater.client import connect
from headwater.core.event import Event

from ..measure import WrongAnswer

LEASE_MS = 5000
TRY_S = 0.01
PATIENCE_S = 120.0
LOGS = (1, 1000)
_BODY = b'{"events": [{"type": "E", "data": "1"}]}'
ENDS: dict[str, Callable[[Member], object]] = {
    "killed (SIGKILL)": Member.kill,
    "paused (SIGSTOP)": Member.pause,
    "stopped in order": lambda member: os.kill(member.process.pid, 15),
}


def main() -> None:
    """Print a table, as text or as Markdown."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.homes.failover")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--logs", type=int, nargs="+", default=LOGS)
    parser.add_argument("--lease-ms", type=int, nargs="+", default=[LEASE_MS])
    given = parser.parse_args()
    table = Table("lease", "the primary is", "logs", "p50", "p99", "longest", title=f"{given.rounds} rounds")
    for lease_ms in given.lease_ms:
        for logs in given.logs:
            for how, times in measured(logs, given.rounds, lease_ms).items():
                shown = (f"{value:.2f} s" for value in (*percentiles(times), max(times)))
                table.add_row(f"{lease_ms / 1000:g} s", how, f"{logs:,}", *shown)
    Console().print(table)


def measured(logs: int, rounds: int, lease_ms: int = LEASE_MS) -> dict[str, list[float]]:
    """How long it took, in seconds: `rounds` times for each way to end."""
    with _servers(lease_ms) as servers:
        primary, other = servers
        with connect(primary.url) as client:
            for number in range(1, logs):
                client.create(f"log-{number}").append([Event("E", b"1")])
        found: dict[str, list[float]] = {how: [] for how in ENDS}
        for _ in range(rounds):
            for how, end in ENDS.items():
                began = time.monotonic()
                end(primary)
                _append(other)
                found[how].append(time.monotonic() - began)
                _begin_again(primary)
                primary, other = other, primary
        return found


def percentiles(times: list[float]) -> tuple[float, float]:
    """p50 and p99."""
    ordered = sorted(times)
    return statistics.median(ordered), ordered[min(len(ordered) - 1, round(0.99 * (len(ordered) - 1)))]


@contextmanager
def _servers(lease_ms: int) -> Iterator[tuple[Member, Member]]:
    home = fresh_home()
    configuration = f"home_lease_ms = {lease_ms}\n[flight]\nenabled = false\n[logs.orders]\n"
    with tempfile.TemporaryDirectory(prefix="headwater-failover-", dir=fast_folder()) as directory:
        members: list[Member] = []
        try:
            for name in ("a", "b"):
                members.append(Member(Path(directory), name, home, configuration))
                if name == "a":
                    eventually(lambda: members[0].is_primary)
            eventually(members[1].stands_by)
            yield members[0], members[1]
        finally:
            for member in members:
                member.close()


def _append(member: Member) -> None:
    """Try until an append is answered."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        connection = HTTPConnection("127.0.0.1", member.ports["http"], timeout=PATIENCE_S)
        try:
            connection.request("POST", "/logs/orders/append", _BODY, {"content-type": "application/json"})
            if connection.getresponse().status == 200:
                return
        except (OSError, HTTPException):
            pass
        finally:
            connection.close()
        time.sleep(TRY_S)
    raise WrongAnswer(f"server {member.name} did not go on within {PATIENCE_S:g} s")


def _begin_again(member: Member) -> None:
    """However it was ended, it stands by when this returns."""
    if member.runs:
        member.go_on()
        member.kill()
    member.start()
    eventually(member.stands_by)


if __name__ == "__main__":
    try:
        main()
    finally:
        from tests.homes.postgres_server import close_shared

        close_shared()
