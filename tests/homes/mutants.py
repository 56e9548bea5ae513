"""Each rule, broken on purpose: what the simulator must see to fail, and what it does not see.

    .venv/bin/python -m tests.homes.mutants SCHEDULES [NAME...]

counts, for each, in how many schedules something was found.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import NamedTuple

from .simulator import run


class Mutant(NamedTuple):
    """A rule that is broken."""

    what: str
    seen_as: str
    """What the judge finds."""
    kind: str = ""
    """Of schedules: any, or those with a home that forgets."""
    since: int = 0
    """It is seen seldom: look from that seed on."""


MUTANTS = {
    "lease-only": Mutant("nothing is compared at the home: the lease is all there is", "doubled"),
    "number-only": Mutant("a commit compares the head's number alone", "fenced"),
    "no-term": Mutant("a commit compares number and checksum, and no term", "fenced"),
    "journal-not-compared": Mutant("the journal is appended to without comparing: the last writer wins", "positions"),
    "unknown-is-failure": Mutant("a lost answer is taken for a failure", "failed"),
    "old-frame-new-head": Mutant("after a conflict the same frame is put on the new head", "fenced"),
    "judges-again": Mutant("after a conflict with a foreign term appends are judged again under it", "fenced"),
    "logs-before-journal": Mutant("the logs are fenced before the journal", "whole fence"),
    "fence-by-anyone": Mutant("a fence does not look whether a newer one was there", "whole fence"),
    "no-catch-up": Mutant("a new primary accepts as soon as it has fenced", "positions"),
    "local-positions": Mutant("positions are kept by each server", "positions"),
    "trim-first": Mutant("a trim goes before the positions that justify it", "positions"),
    "marks-in-memory": Mutant("marks of exactly-once writers are in memory", "batch doubled"),
    "trimmed-is-failure": Mutant("a frame that may have been trimmed since is told to have failed", "failed"),
    "found-without-waiting": Mutant("who finds its own frame at the home takes it for committed at once", "lost"),
    "serves-unconfirmed": Mutant("a copy takes what no standby is known to have", "false alarm"),
    "compares-with-now": Mutant("a copy is compared with an answer to what it asked before it grew", "false alarm"),
    "no-timeline": Mutant("a home whose history changed gives leases", "fenced", "forgets", 270),
    "commit-on-any-timeline": Mutant("a commit does not ask which history it lands in", "fenced", "forgets", 230),
    "went-back-unseen": Mutant("a copy does not see that it is ahead of its home", "forgotten in silence", "silent"),
    "accepted-at-once": Mutant(
        "a loss is accepted without waiting for the other history's lease", "overlap", "forgets", 3740
    ),
    "full-lease": Mutant("the holder counts on the whole lease, by its own clock", "overlap"),
    "counts-from-answer": Mutant("the holder counts from the answer to its renewal", "overlap"),
    "acts-unasked": Mutant("a coordinator does not ask before each act whether it may", "overlap"),
    "ends-untold": Mutant("a server whose time is over ends by itself, and its role goes on", ""),
    "release-of-any-term": Mutant("a release does not say of which term", "overlap", since=760),
    "any-until": Mutant("a lease that would last longer than any lease is believed", "live"),
    "any-clock": Mutant("a server whose clock is off takes the lease", "time"),
    "clock-once": Mutant("clocks are compared before the first lease, and not again", "time"),
    "judges-unasked": Mutant("appends are judged without asking before whether the server may", "time", since=130),
    "missing-unasked": Mutant("a home is believed though a copy was not compared with it", "one order", "witness"),
    "holder-unasked": Mutant("a home is believed without the copy of its last primary", "one order", "witness", 180),
    "held-through-crashes": Mutant(
        "a copy that lost frames in a crash goes on as a witness", "one order", "witness", 180
    ),
    "wiped-unnoticed": Mutant(
        "a copy that begins again goes on as the witness that it replaces", "one order", "witness", 130
    ),
    "replaced-when-changed": Mutant(
        "another copy of a server takes the place of its row in a home that changed", "", "witness"
    ),
    "ahead-unasked": Mutant("a home is believed though a copy is ahead of it", "", "forgets"),
    "terms-unasked": Mutant(
        "a home is believed that does not know a term which a copy has seen", "known term", "silent"
    ),
    "names-uncompared": Mutant("a commit does not compare the standbys that are named", "lost", "weakened"),
    "names-unread": Mutant("the standbys that are named are not read again behind a commit", "lost", "weakened"),
    "follows-weakened": Mutant(
        "a copy takes what is there while commits do not wait as declared", "read and lost", "weakened"
    ),
    "no-mark": Mutant("who is ahead of its home does not say so in the home", "", "silent"),
    "lease-by-name": Mutant("the home knows the holder by its server's name, not by the nonce", ""),
    "reached-by-any-answer": Mutant(
        "a takeover is caught up by an answer to what was asked before its fence", "false alarm"
    ),
    "term-number": Mutant("a commit compares the term's number, and not its nonce", "", "silent"),
    "no-crc": Mutant("a commit compares number and term, and no checksum", "", "silent"),
}
"""What `broken` may name. Those that nothing is seen of, or too little, are told so in the decision record."""


def count(name: str, schedules: int) -> tuple[int, int | None, Counter[str]]:
    """In how many schedules something was found, the first of them, and what."""
    found: Counter[str] = Counter()
    failed, first = 0, None
    kind = MUTANTS[name].kind if name in MUTANTS else name
    for seed in range(schedules):
        findings = run(seed, frozenset({name}) & MUTANTS.keys(), kind).findings
        found.update(findings.keys())
        failed += bool(findings)
        first = seed if findings and first is None else first
    return failed, first, found


def main(schedules: int, names: list[str]) -> None:
    """Print a line for each."""
    for name in names or ["forgets", "silent", "witness", "weakened", *MUTANTS]:
        failed, first, found = count(name, schedules)
        what = ", ".join(f"{rule} {times}" for rule, times in found.most_common())
        print(f"{name}: {failed} of {schedules}, first {first}: {what}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
