"""How long does it take until a log that was killed in mid-append answers again?

A process of its own appends batches of 100 to the full log and is killed with SIGKILL; then a fresh process opens it
and reads the head and a tag, which is what is timed. Every acknowledged event must be there. The second case opens it
once more, after that process closed it in order.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from functools import partial

from .. import child
from ..bench import HEADWATER, SQLITE, Bench
from ..measure import Case, Sample, WrongAnswer, expect
from ..workload import MATCHES_PER_ACCOUNT

TITLE = "Opening a full log"
ACKNOWLEDGED_LINES = 25
FRESH = 1_000_000


def cases(bench: Bench) -> Iterator[Case]:
    """After a kill, and after a close in order."""
    contenders = (HEADWATER, SQLITE)
    unclean = {name: partial(_recover, bench, name) for name in contenders}
    yield Case("after SIGKILL under load", "s", unclean, is_lower_better=True)
    clean = {name: partial(_open, bench, name, 0) for name in contenders}
    yield Case("after a close in order", "s", clean, is_lower_better=True)


def _recover(bench: Bench, name: str) -> Sample:
    acknowledged = _kill_under_load(bench, name)
    return _open(bench, name, acknowledged)


def _kill_under_load(bench: Bench, name: str) -> int:
    line = child.command("append-until-killed", name, bench.release(name), bench.workload, FRESH)
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdout is not None
        acknowledged = 0
        for _ in range(ACKNOWLEDGED_LINES):
            if not (answer := victim.stdout.readline()):
                raise WrongAnswer(f"{name}: the appending process ended by itself")
            acknowledged = json.loads(answer)["acknowledged"]
        victim.kill()
    return int(acknowledged)


def _open(bench: Bench, name: str, acknowledged: int) -> Sample:
    answer = child.run("open", name, bench.release(name), bench.workload)
    if answer["head"] < max(acknowledged, bench.workload.total):
        raise WrongAnswer(f"{name}: {acknowledged} was acknowledged, but the head is {answer['head']}")
    expect(f"{name}: events of a tag after opening", MATCHES_PER_ACCOUNT, answer["matches"])
    return Sample(answer["seconds"])
