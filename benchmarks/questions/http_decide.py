"""How many commands a second - read two tags, decide, append under a condition - do 1, 8 and 64 clients get through?

A command moves something between two accounts drawn at random: it reads the events of both (20 at first, whole), and
appends one event tagged with both, unless either account has an event above the head that the read answered. A command
that meets a conflict is read and appended again until it succeeds; so every command counts once, and the head must
have moved by exactly one for each. Clients are processes on the same cores as the server, up to 8, with threads beyond.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ..bench import Bench
from ..measure import Aim, Case, Sample, expect
from ..remote_clients import Job, run_job
from ..served_bench import HEADWATER_SERVER, UMADB
from ..stores.served import Facts, Remote
from ..stores.store import Conflict
from ..workload import DATA_BYTES, MATCHES_PER_ACCOUNT, Workload

TITLE = "Over HTTP: read two tags + conditional append"
COMMANDS = {1: 2000, 8: 500, 64: 80}


def cases(bench: Bench) -> Iterator[Case]:
    """1, 8 and 64 clients."""
    for clients, commands in COMMANDS.items():
        each = bench.count(commands, least=10)
        runs = {name: partial(_command, bench, name, clients, each) for name in (HEADWATER_SERVER, UMADB)}
        yield Case(
            f"{clients} client{'s' * (clients > 1)}", "commands/s", runs, (Aim(UMADB, 2 if clients == 1 else 1.5),)
        )


def transfer(remote: Remote, job: Job) -> Iterator[int]:
    """One client: commands, one after the other."""
    workload = Workload(job.total, fresh_from=job.fresh_from)
    pairs = [_pair(number, workload.accounts) for number in workload.account_numbers(job.steps, seed=job.fresh_from)]
    commands = [(remote.prepare_query(pair), remote.prepare(workload.fresh(1, pair))) for pair in pairs]
    remote.head()
    yield 0
    for query, event in commands:
        conflicts = 0
        while True:
            facts = remote.read(query)
            _decide(facts)
            try:
                remote.append_if(event, query, facts.head)
                break
            except Conflict:
                conflicts += 1
        yield conflicts


def _pair(number: int, accounts: int) -> tuple[str, str]:
    """An account, and another one far from it."""
    return f"account:{number}", f"account:{(number + 1 + number * 7919 % (accounts - 1)) % accounts}"


def _decide(facts: Facts) -> None:
    """Each account has its 10 first events, and those of earlier commands."""
    assert len(facts.payloads) >= 2 * MATCHES_PER_ACCOUNT, "events are missing from a read"
    assert all(len(payload) == DATA_BYTES for payload in facts.payloads), "a payload is not whole"


def _command(bench: Bench, name: str, clients: int, commands: int) -> Sample:
    remote, workload = bench.served.remote(name), bench.workload
    job = Job(transfer, workload.total, workload.reserve(clients * commands), commands)
    before = remote.head()
    sample, _ = run_job(bench.served.server(name), job, clients, commands)
    expect(f"{name}: head", before + clients * commands, remote.head())
    return sample
