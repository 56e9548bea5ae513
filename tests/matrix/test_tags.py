"""Odd tags are found by every protocol that can ask for tags, as keys and exactly. (That all carry them, and Spark's
source finds them, is in `test_matrix` here and in `tests/spark`.)"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from headwater.core import AppendCondition, Event, Query
from headwater.core.errors import AppendConditionFailed
from tests.odd_tags import ODD_TAGS, matching

from .asking import ASKED, sql
from .tagged import TAGS, write
from .world import World

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def tagged(world: World) -> tuple[World, Mapping[str, int]]:
    """Each tag on an event of its own, and tags of which those are the keys."""
    return world, write(world)


@pytest.mark.parametrize("name", ASKED)
def test_events_are_found_by_tag_and_by_exact_tag(tagged: tuple[World, Mapping[str, int]], name: str) -> None:
    world, numbers = tagged
    for tag in ODD_TAGS:
        assert list(ASKED[name](world, tag, False)) == sorted(numbers[each] for each in matching(tag, TAGS)), tag
        assert list(ASKED[name](world, tag, True)) == [numbers[tag]], tag


def test_events_are_found_by_the_sql_filter_of_amqp(tagged: tuple[World, Mapping[str, int]]) -> None:
    world, numbers = tagged
    for tag in ODD_TAGS:
        assert list(sql(world, tag)) == [numbers[tag]], tag


def test_condition_sees_a_tag_exactly(tagged: tuple[World, Mapping[str, int]]) -> None:
    world, numbers = tagged
    for tag in ODD_TAGS:
        query = Query.where(types=["Tagged"], exact_tags=[tag])
        with pytest.raises(AppendConditionFailed) as failed:
            world.log.append([Event("Decided")], AppendCondition(query, numbers[tag] - 1))
        assert failed.value.conflict == numbers[tag]
        world.log.append([Event("Decided")], AppendCondition(query, numbers[tag]))
