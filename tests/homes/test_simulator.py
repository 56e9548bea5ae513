"""Servers of a shared home keep every promise in each schedule of faults, and each rule is one that is needed."""

from __future__ import annotations

import pytest

from headwater.homes.roles.lease import LeaseTimes

from .mutants import MUTANTS
from .simulator import run

SCHEDULES = 1500
PARTS = 4
"""So that several processes share them."""
SEEN_WITHIN = 2000
"""Schedules in which a broken rule is seen."""


@pytest.mark.parametrize("part", range(PARTS))
def test_every_promise_is_kept_in_every_schedule(part):
    findings = {seed: found for seed in range(part, SCHEDULES, PARTS) if (found := run(seed).findings)}
    assert findings == {}, "python -m tests.homes --seed ... runs one again"


@pytest.mark.parametrize("kind", ["forgets", "silent", "witness"])
def test_what_a_home_forgets_is_noticed(kind):
    results = [run(seed, kind=kind) for seed in range(SCHEDULES // PARTS)]
    assert {result.seed: result.findings for result in results if result.findings} == {}
    assert sum(result.forgot for result in results) > 50


def test_what_was_answered_is_kept_when_commits_do_not_wait_any_more():
    results = [run(seed, kind="weakened") for seed in range(SCHEDULES // PARTS)]
    assert {result.seed: result.findings for result in results if result.findings} == {}
    assert sum(result.counts.get("unknown", 0) for result in results) > 100


@pytest.mark.parametrize("kind", ["", "weakened"])
def test_no_promise_depends_on_how_soon_a_request_is_repeated(kind, monkeypatch):
    monkeypatch.setattr(LeaseTimes, "patience_s", property(lambda times: times.held_s / 2))
    assert {seed: found for seed in (*range(50), 300) if (found := run(seed, kind=kind).findings)} == {}


def test_schedules_have_in_them_what_they_are_for():
    results = [run(seed) for seed in range(200)]
    counts = {name: sum(result.counts.get(name, 0) for result in results) for name in ("zombies", "two zombies")}
    assert counts["zombies"] > 50 and counts["two zombies"] > 0
    assert sum(result.counts.get("takeovers", 0) for result in results) > 500
    assert sum(result.counts.get("stored", 0) for result in results) > 5000
    assert sum(result.forgot for result in results) > 10


def test_a_seed_is_the_whole_schedule():
    assert run(11) == run(11)
    assert run(11).counts != run(12).counts


@pytest.mark.parametrize("name", [name for name, mutant in MUTANTS.items() if mutant.seen_as])
def test_a_broken_rule_is_seen(name):
    mutant, broken = MUTANTS[name], frozenset({name})
    assert any(
        mutant.seen_as in run(seed, broken, mutant.kind).findings
        for seed in range(mutant.since, mutant.since + SEEN_WITHIN)
    )
