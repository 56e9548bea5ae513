"""A group of appends is judged as if they had come one by one; but where they do not concern each other, at once."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from headwater.core import AppendCondition, AppendRequest, Event, LogSettings, LogStatistics, Query, QueryItem
from headwater.core.errors import AppendConditionFailed
from headwater.core.limits import EventColumns
from headwater.storage.append.judge import RUN_EVENTS_MAX, LogJudge, Numbering
from headwater.storage.append.writer_table import WriterTable
from headwater.storage.index.index import Index

from ..builders import columns, event

TAGS = ("a:1", "a:2", "b:1", "b:2", "a", "c")
TYPES = ("A", "B")


class CountingIndex(Index):
    """Counts how often events are entered into the postings."""

    entered = 0

    def apply_columns(self, first: int, columns: EventColumns, partitions: Sequence[int]) -> None:
        self.entered += 1
        super().apply_columns(first, columns, partitions)


def judge_on(index: Index) -> LogJudge:
    return LogJudge(
        index, LogSettings, Numbering(1, 1, 1), LogStatistics(), lambda _: None, WriterTable(), id_seed=1,
        recorded_at=0, clock=lambda: 1000,
    )  # fmt: skip


def request(events: Sequence[Event], condition: AppendCondition | None) -> AppendRequest:
    return AppendRequest(columns(events), condition, None, lambda _: None)


def outcomes(requests: Sequence[AppendRequest]) -> list[object]:
    return [
        (type(each.error), getattr(each.error, "conflict", None)) if each.error else each.result for each in requests
    ]


def one_by_one(requests: Sequence[AppendRequest]) -> list[object]:
    judge, head = judge_on(Index(0, has_partitions=False)), 0
    for each in requests:
        verdict = judge.judge([each], head + 1)
        head += verdict.columns.count if verdict.columns is not None else 0
    return outcomes(requests)


def few(values: Sequence[str], least: int = 0) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(values), min_size=least, max_size=2, unique=True).map(tuple)


items = st.builds(QueryItem, few(TYPES), few(TAGS), few(TAGS)).filter(lambda item: item.count > 0)
queries = st.lists(items, min_size=1, max_size=2).map(lambda drawn: Query(tuple(drawn))) | st.just(Query.all())
conditions = st.none() | st.builds(AppendCondition, queries, st.integers(0, 12), st.booleans())
events = st.lists(st.builds(event, st.sampled_from(TYPES)) | few(TAGS).map(lambda tags: event("A", *tags)), min_size=1,
                  max_size=RUN_EVENTS_MAX + 1)  # fmt: skip


@given(st.lists(st.tuples(events, conditions), min_size=1, max_size=8))
def test_a_group_is_judged_as_if_its_appends_had_come_one_by_one(
    drawn: list[tuple[list[Event], AppendCondition | None]],
) -> None:
    expected = one_by_one([request(*each) for each in drawn])
    group = [request(*each) for each in drawn]
    judge_on(Index(0, has_partitions=False)).judge(group, 1)
    assert outcomes(group) == expected


def test_appends_that_do_not_concern_each_other_are_entered_together() -> None:
    index = CountingIndex(0, has_partitions=False)
    group = [request([event("A", f"n:{n}")], AppendCondition(Query.where(tags=[f"n:{n}"]), 0)) for n in range(64)]
    judge_on(index).judge(group, 1)
    assert [each.result and each.result.first for each in group] == list(range(1, 65))
    assert index.entered == 1


def test_a_condition_sees_the_appends_before_it_in_its_group() -> None:
    group = [request([event("A", f"n:{n // 2}")], AppendCondition(Query.where(tags=[f"n:{n // 2}"]))) for n in range(6)]
    judge_on(Index(0, has_partitions=False)).judge(group, 1)
    assert [each.error is None for each in group] == [True, False] * 3
    errors = [each.error for each in group if isinstance(each.error, AppendConditionFailed)]
    assert [error.conflict for error in errors] == [1, 2, 3]
