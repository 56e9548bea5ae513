"""Nothing that matches is missing among what the index finds; and it finds little where little matches."""

from __future__ import annotations

import random

import pytest

from headwater.cne.notifications.addresses import Pattern, Place, parse
from headwater.cne.notifications.segment_index import FEW, AddressIndex, PatternIndex

SEGMENTS = (".", "c", "n1", "n2", "sync", "redfish", "ptp-status", "x")
PLACES = (Place(), Place("c", "", "n1"), Place("", "n2", ""), Place("c", "x", "n2"))


def _texts(seed: int, *, wild: bool) -> list[str]:
    dice = random.Random(seed)
    segments = (*SEGMENTS, "*", "n*") if wild else SEGMENTS
    made = {"".join(f"/{dice.choice(segments)}" for _ in range(dice.randint(1, 6))) for _ in range(400)}
    return [text for text in sorted(made) if parse(text).resource]


@pytest.mark.parametrize("own", PLACES)
@pytest.mark.parametrize("seed", range(3))
def test_addresses_that_a_pattern_matches_are_candidates(own: Place, seed: int) -> None:
    addresses = {text: parse(text) for text in _texts(seed, wild=False)}
    index = AddressIndex()
    for text, address in addresses.items():
        index.add(address, text)
    for asked in _texts(seed + 100, wild=True):
        pattern = Pattern(asked, own)
        found = index.candidates(pattern)
        if found is not None:
            assert {text for text, address in addresses.items() if pattern.matches(address)} <= set(found), asked


@pytest.mark.parametrize("own", PLACES)
@pytest.mark.parametrize("seed", range(3))
def test_patterns_that_match_an_address_are_candidates_in_their_order(own: Place, seed: int) -> None:
    patterns = {text: Pattern(text, own) for text in _texts(seed, wild=True)}
    index = PatternIndex[str]()
    for text, pattern in patterns.items():
        index.add(text, pattern, text)
    for each in map(parse, _texts(seed + 100, wild=False)):
        found = [text for pattern, text in index.candidates([each]) if pattern.matches(each)]
        assert found == [text for text, pattern in patterns.items() if pattern.matches(each)]


def test_what_matches_almost_nothing_has_few_candidates() -> None:
    addresses, patterns = AddressIndex(), PatternIndex[int]()
    for number in range(1000):
        text = f"/./n{number}/sync/ptp-status/lock-state"
        addresses.add(parse(text), text)
        patterns.add(text, Pattern(f"/./n{number}/sync", Place()), number)
    assert addresses.candidates(Pattern("/*/n7/sync", Place())) == {"/./n7/sync/ptp-status/lock-state"}
    assert addresses.candidates(Pattern("/./*/sync/none", Place())) == set()
    assert [number for _, number in patterns.candidates([parse("/c/n7/sync/ptp-status")])] == [7]


def test_what_is_removed_is_gone_and_leaves_nothing() -> None:
    addresses, patterns = AddressIndex(), PatternIndex[int]()
    texts = [f"/c/n{number}/sync/x" for number in range(FEW * 3)]
    for number, text in enumerate(texts):
        addresses.add(parse(text), text)
        patterns.add(text, Pattern(text, Place()), number)
        patterns.add(text, Pattern(text, Place()), -number)
    for text in texts:
        addresses.remove(parse(text), text)
        patterns.remove(text)
    assert (len(patterns), addresses._filed, patterns._filed, patterns._marks) == (0, {}, {}, {})
