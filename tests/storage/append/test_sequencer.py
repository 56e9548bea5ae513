"""The sequencer over a frame log that does what it is told: loses races, fills up, breaks, hesitates."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Iterator, Sequence

import pytest

from headwater.core import AppendCondition, AppendRequest, AppendResult, Event, LogSettings, LogStatistics, Query
from headwater.core.errors import (
    AppendConditionFailed,
    Closed,
    DiskFull,
    DuplicateEventId,
    EventLogError,
    NotPrimary,
    OutcomeUnknown,
    Overloaded,
    SequenceExhausted,
    StorageUnavailable,
    TooLarge,
)
from headwater.core.limits import SEQUENCE_NUMBER_MAX, EventColumns
from headwater.core.mark import Mark
from headwater.core.shared_bytes import SharedBytes
from headwater.storage.append import sequencer as module
from headwater.storage.append.judge import LogJudge, Numbering
from headwater.storage.append.sequencer import Sequencer, Verdict
from headwater.storage.append.writer_table import WriterTable
from headwater.storage.frames.encoding import Chain, EncodedFrame
from headwater.storage.frames.frame import Frame
from headwater.storage.frames.frame_log import Head, HeadMoved, NotKept, Term, new_term, nobody
from headwater.storage.index.index import Index

from ...waiting import eventually
from ..builders import SEED, Fatal, columns, content, encoded, event, unless

PATIENCE_S = 20.0


class ScriptedLog:
    """Frames in a list. Each append first does the next thing of the script; without one it succeeds."""

    crc_seed = SEED

    def __init__(self) -> None:
        self.frames: list[EncodedFrame] = []
        self.floor = 0
        self.term = new_term(1)
        self.script: list[Callable[[Sequence[EncodedFrame]], None]] = []
        self.appends: list[int] = []
        """How many frames each successful append had."""
        self.writers: list[str] = []
        """The threads that wrote them."""
        self.may_write = threading.Event()
        self.may_write.set()
        self.is_writing = threading.Event()
        self.unavailable: StorageUnavailable | None = None

    @property
    def head(self) -> int:
        return self.frames[-1].last if self.frames else self.floor

    @property
    def last_crc(self) -> int:
        return self.frames[-1].crc if self.frames else 0

    def append_frames(
        self, frames: Sequence[EncodedFrame], expected: Head, on_overdue: Callable[[], None] = nobody
    ) -> None:
        self.on_overdue = on_overdue
        self.is_writing.set()
        assert self.may_write.wait(PATIENCE_S)
        if self.script:
            self.script.pop(0)(frames)
        if expected != (found := Head(self.head, self.last_crc, self.term)):
            raise HeadMoved(found)
        self.keep(frames)
        self.writers.append(threading.current_thread().name)

    def keep(self, frames: Sequence[EncodedFrame]) -> None:
        for frame in frames:
            assert frame.first == self.head + 1
            assert self._decoded(frame).previous_crc == self.last_crc
            self.frames.append(frame)
        self.appends.append(len(frames))

    def by_another(self, *events: Event) -> None:
        """Somebody else appends."""
        chain = Chain(SEED, 9, self.last_crc, self.head, 99)
        self.keep([encoded(events, self.head + 1, chain=chain)])

    def read(self, after: int) -> Iterator[Frame]:
        return (self._decoded(frame) for frame in self.frames if frame.last > after)

    def trim(self, below: int) -> None:
        raise NotImplementedError

    def at(self, number: int) -> Frame | None:
        return next((self._decoded(each) for each in self.frames if each.first <= number <= each.last), None)

    def types(self) -> list[str]:
        return [each.type for frame in self.read(0) for each in frame.events()]

    @staticmethod
    def _decoded(frame: EncodedFrame) -> Frame:
        return Frame(memoryview(content(frame)), 0, SEED)


class Desk:
    """A sequencer on a scripted log, and what came back from it."""

    def __init__(self, floor: int = 0, waiting: SharedBytes | None = None) -> None:
        self.log = ScriptedLog()
        self.log.floor = floor
        self.statistics = LogStatistics()
        self.index = Index(floor, has_partitions=False)
        self.settings = LogSettings(event_bytes_max=64 * 1024 * 1024)
        self.fatal = Fatal()
        self.published: list[int] = []
        self.answered: list[AppendRequest] = []
        self.deliveries: list[int] = []
        self._all = threading.Condition()
        judge = LogJudge(
            self.index, lambda: self.settings, Numbering(floor + 1, floor + 1, floor + 1), self.statistics, self.log.at,
            WriterTable(), id_seed=1, recorded_at=0, clock=lambda: 1000,
        )  # fmt: skip
        self.sequencer = Sequencer(
            "orders", self.log, judge, self.statistics, self.published.append, fatal=self.fatal, waiting=waiting
        )

    def deliver(self, requests: list[AppendRequest]) -> None:
        with self._all:
            self.deliveries.append(len(requests))
            self.answered += requests
            self._all.notify_all()

    def submit(self, *events: Event, condition: AppendCondition | None = None) -> AppendRequest:
        request = AppendRequest(columns(events), condition, None, self.deliver)
        self.sequencer.submit(request)
        return request

    def wait(self, count: int) -> None:
        with self._all:
            assert self._all.wait_for(lambda: len(self.answered) >= count, PATIENCE_S), self.answered

    def outcome(self, request: AppendRequest) -> AppendResult | EventLogError:
        with self._all:
            assert self._all.wait_for(lambda: request in self.answered, PATIENCE_S)
        found = request.error or request.result
        assert found is not None
        return found


@pytest.fixture
def desk() -> Iterator[Desk]:
    found = Desk()
    yield found
    found.log.may_write.set()
    found.sequencer.close()


def hold(desk: Desk) -> AppendRequest:
    """Let the writer hang in a write of one event, so that what follows gathers behind it."""
    desk.log.is_writing.clear()
    desk.log.may_write.clear()
    desk.sequencer._flights_sent += 1  # as if something were under way: nothing is written without the writer
    first = desk.submit(event("Held"))
    assert desk.log.is_writing.wait(PATIENCE_S)
    return first


def full(frames: Sequence[EncodedFrame]) -> None:
    raise DiskFull("/data", 1, 2)


def test_appends_are_answered_in_the_order_in_which_they_came(desk: Desk) -> None:
    requests = [desk.submit(event(f"E{number}")) for number in range(200)]
    desk.wait(200)
    assert desk.answered == requests
    assert [request.result and request.result.first for request in requests] == list(range(1, 201))
    assert desk.published == sorted(set(desk.published))


def test_what_waits_during_a_write_goes_out_together(desk: Desk) -> None:
    hold(desk)
    for number in range(50):
        desk.submit(event(f"E{number}"))
    desk.log.may_write.set()
    desk.wait(51)
    assert len(desk.log.appends) <= 1 + module.FRAMES_IN_FLIGHT_MAX
    assert sum(desk.deliveries) == 51
    assert len(desk.deliveries) == len(desk.log.appends)


def test_each_caller_is_called_once_per_commit(desk: Desk) -> None:
    hold(desk)
    calls: dict[str, list[int]] = {"one": [], "two": []}
    done = threading.Event()
    callers = {name: (lambda got, name=name: calls[name].append(len(got))) for name in calls}
    last = AppendRequest(columns([event("last")]), None, None, lambda _: done.set())
    for number in range(20):
        caller = callers["one" if number % 2 else "two"]
        desk.sequencer.submit(AppendRequest(columns([event()]), None, None, caller))
    desk.sequencer.submit(last)
    desk.log.may_write.set()
    assert done.wait(PATIENCE_S)
    assert sum(calls["one"]) == sum(calls["two"]) == 10
    assert max(map(len, calls.values())) <= len(desk.log.appends) - 1


def test_a_group_is_bounded_in_events(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GROUP_EVENTS_MAX", 10)
    hold(desk)
    for _ in range(6):
        desk.submit(*[event() for _ in range(4)])
    large = desk.submit(*[event() for _ in range(25)])
    desk.log.may_write.set()
    assert desk.outcome(large) == AppendResult(26, 50)
    sizes = [frame.last - frame.first + 1 for frame in desk.log.frames]
    assert (sizes[0], sizes[-1], sum(sizes)) == (1, 25, 50)
    assert set(sizes[1:-1]) <= {4, 8}


def test_an_append_that_changes_nothing_writes_no_frame(desk: Desk) -> None:
    first = desk.submit(event("E", id="1"))
    again = desk.submit(event("E", id="1"))
    assert desk.outcome(first) == AppendResult(1, 1)
    assert desk.outcome(again) == AppendResult(1, 1, was_stored=True)
    assert len(desk.log.frames) == 1
    assert isinstance(desk.outcome(desk.submit(event("Other", id="1"))), DuplicateEventId)


def test_a_refusal_waits_until_what_it_conflicts_with_is_durable(desk: Desk) -> None:
    hold(desk)
    winner = desk.submit(event("Booked", "seat:1", id="1"))
    loser = desk.submit(event("Booked", "seat:1"), condition=unless(tags=["seat:1"]))
    repeat = desk.submit(event("Booked", "seat:1", id="1"))
    duplicate = desk.submit(event("Other", id="1"))
    assert desk.answered == []
    desk.log.may_write.set()
    assert desk.outcome(winner) == AppendResult(2, 2)
    failure = desk.outcome(loser)
    assert isinstance(failure, AppendConditionFailed) and failure.conflict == 2
    assert desk.outcome(repeat) == AppendResult(2, 2, was_stored=True)
    assert isinstance(desk.outcome(duplicate), DuplicateEventId)


def test_a_lost_race_judges_again_on_what_the_winner_appended(desk: Desk) -> None:
    desk.log.script = [lambda _: desk.log.by_another(event("Booked", "seat:1", id="theirs"))]
    hold_condition = unless(tags=["seat:1"])
    loser = desk.submit(event("Booked", "seat:1"), condition=hold_condition)
    failure = desk.outcome(loser)
    assert isinstance(failure, AppendConditionFailed) and failure.conflict == 1
    other = desk.submit(event("Booked", "seat:2"), condition=unless(tags=["seat:2"]))
    assert desk.outcome(other) == AppendResult(2, 2)
    repeat = desk.submit(event("Booked", "seat:1", id="theirs"))
    assert desk.outcome(repeat) == AppendResult(1, 1, was_stored=True)


def test_races_lost_again_and_again_lose_nothing_and_keep_the_order(desk: Desk) -> None:
    hold(desk)
    desk.log.script = [lambda _, n=n: desk.log.by_another(event(f"Theirs{n}")) for n in range(5)]
    requests = [desk.submit(event(f"E{number}"), condition=unless(types=[f"E{number}"])) for number in range(60)]
    desk.log.may_write.set()
    desk.wait(61)
    ours = [kind for kind in desk.log.types() if kind.startswith("E")]
    assert ours == [f"E{number}" for number in range(60)]
    numbers = [request.result.first for request in requests if request.result]
    assert numbers == sorted(numbers) and len(numbers) == 60
    assert [desk.log.types()[number - 1] for number in numbers] == ours
    assert len(desk.log.types()) == 66
    assert desk.sequencer.durable_head == desk.log.head


def test_a_log_that_is_anothers_now_is_appended_to_no_more(desk: Desk) -> None:
    """Not even what would still pass: nothing is judged on what is not the end of the log any more."""
    before = desk.submit(event("Before"))
    assert desk.outcome(before) == AppendResult(1, 1)
    hold(desk)

    def taken_over(_: Sequence[EncodedFrame]) -> None:
        desk.log.term = new_term(2)
        desk.log.by_another(event("Theirs"))

    desk.log.script = [taken_over]
    waiting = [desk.submit(event(f"E{number}")) for number in range(20)]
    desk.log.may_write.set()
    desk.wait(22)
    for request in waiting:
        refusal = desk.outcome(request)
        assert isinstance(refusal, NotPrimary) and "append at the primary" in str(refusal)
    depths = set[int]()
    for _ in range(3):
        with pytest.raises(NotPrimary, match="no longer the primary of log 'orders'") as refused:
            desk.submit(event("After"))
        depths.add(len(traceback.extract_tb(refused.value.__traceback__)))
    assert len(depths) == 1, "a refusal that is kept must not collect the frames of its callers"
    assert desk.log.types() == ["Before", "Theirs"]
    assert desk.sequencer.durable_head == desk.published[-1] == 1
    assert desk.statistics.queued_bytes == desk.statistics.queued_requests == 0
    desk.sequencer.close()


def test_the_number_of_a_term_given_twice_is_a_foreign_term(desk: Desk) -> None:
    def taken_over(_: Sequence[EncodedFrame]) -> None:
        desk.log.term = Term(desk.log.term.number, desk.log.term.nonce ^ 1)

    desk.log.script = [taken_over]
    assert isinstance(desk.outcome(desk.submit(event("Mine"))), NotPrimary)
    assert desk.log.types() == []


def test_a_mark_without_events_is_refused_too(desk: Desk) -> None:
    def taken_over(_: Sequence[EncodedFrame]) -> None:
        desk.log.term = new_term(2)

    hold(desk)
    desk.log.script = [taken_over]
    mark = AppendRequest(EventColumns.none(), None, None, desk.deliver, mark=Mark("w", 1, 1, True))
    desk.sequencer.submit(mark)
    desk.log.may_write.set()
    assert isinstance(desk.outcome(mark), NotPrimary)


def test_a_full_disk_refuses_all_in_flight_and_is_recovered_from(desk: Desk) -> None:
    hold(desk)
    desk.log.script = [full] * 100
    waiting = [desk.submit(event("Lost", f"n:{number}", id=str(number))) for number in range(40)]
    desk.log.may_write.set()
    desk.wait(41)
    desk.log.script.clear()
    assert all(isinstance(desk.outcome(request), DiskFull) for request in waiting)
    assert desk.log.head == 0
    for number in range(40):  # ids and postings are forgotten
        again = desk.submit(event("Kept", f"n:{number}", id=str(number)), condition=unless(tags=[f"n:{number}"]))
        assert desk.outcome(again) == AppendResult(number + 1, number + 1)
    assert set(desk.log.types()) == {"Kept"}
    assert desk.statistics.queued_bytes == desk.statistics.queued_requests == 0


def test_what_found_room_before_the_disk_was_full_is_answered_with_success(desk: Desk) -> None:
    hold(desk)
    taken: list[int] = []

    def half_full(frames: Sequence[EncodedFrame]) -> None:
        desk.log.keep(frames[:2])
        taken.append(frames[1].last)
        raise DiskFull("/data", 1, 2)

    first_write: Callable[[Sequence[EncodedFrame]], None] = lambda _: None  # noqa: E731
    desk.log.script = [first_write, half_full]
    requests = []
    for number in range(30):
        requests.append(desk.submit(event(f"E{number}")))
        threading.Event().wait(0.002)  # so that there are several frames
    desk.log.may_write.set()
    desk.wait(31)
    outcomes = [desk.outcome(request) for request in requests]
    landed = [outcome.last for outcome in outcomes if isinstance(outcome, AppendResult)]
    assert landed == list(range(2, 2 + len(landed)))  # what came after the refusal goes on where it stopped
    assert len(landed) == desk.log.head - 1
    if taken:
        assert len(landed) >= taken[0] - 1
    assert all(isinstance(outcome, AppendResult | DiskFull) for outcome in outcomes)
    assert desk.published[-1] == desk.log.head == desk.sequencer.durable_head
    assert desk.outcome(desk.submit(event("after"))) == AppendResult(desk.log.head, desk.log.head)


def test_nobody_is_told_of_a_conflict_with_what_a_full_disk_refused(desk: Desk) -> None:
    hold(desk)
    desk.log.script = [lambda _: None, full]
    winner = desk.submit(event("Booked", "seat:1"))
    loser = desk.submit(event("Booked", "seat:1"), condition=unless(tags=["seat:1"]))
    desk.log.may_write.set()
    assert isinstance(desk.outcome(winner), DiskFull)
    assert isinstance(desk.outcome(loser), DiskFull | AppendResult)  # in the same write, or judged after it


@pytest.mark.parametrize("rounds", [30])
def test_closing_during_a_refusal_answers_everything(rounds: int) -> None:
    for refuse in (full, None):
        for _ in range(rounds):
            desk = Desk()
            desk.log.script = [refuse] if refuse else [lambda _, desk=desk: desk.log.by_another(event("Theirs"))]
            hold(desk)
            requests = [desk.submit(event()) for _ in range(5)]
            closer = threading.Thread(target=desk.sequencer.close, daemon=True)
            closer.start()
            desk.log.may_write.set()
            closer.join(PATIENCE_S)
            assert not closer.is_alive(), "close() hangs"
            assert all(request in desk.answered for request in requests)
            assert desk.fatal.reasons == []


def test_a_failed_write_ends_the_process_and_answers_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    desk = Desk()

    def broken(frames: Sequence[EncodedFrame]) -> None:
        raise OSError(5, "input/output error")

    desk.log.script = [broken]
    ended = threading.Event()
    desk.sequencer._fatal = lambda reason: (desk.fatal(reason), ended.set())  # type: ignore[assignment, func-returns-value]
    desk.submit(event())
    assert ended.wait(PATIENCE_S)
    assert "input/output error" in desk.fatal.reasons[0]
    assert desk.answered == []


def test_close_answers_everything_taken_and_takes_nothing_more(desk: Desk) -> None:
    hold(desk)
    requests = [desk.submit(event()) for _ in range(300)]
    closer = threading.Thread(target=desk.sequencer.close)
    closer.start()
    desk.log.may_write.set()
    closer.join(PATIENCE_S)
    assert not closer.is_alive()
    assert all(request.result is not None for request in requests)
    with pytest.raises(Closed):
        desk.submit(event())
    desk.sequencer.close()


def test_an_idle_sequencer_closes_at_once_and_starts_no_thread() -> None:
    before = threading.active_count()
    desk = Desk()
    assert threading.active_count() == before
    desk.sequencer.close()


def test_admission_is_bounded_by_the_budget_of_all_logs_and_what_never_fits_is_too_large() -> None:
    waiting = SharedBytes(1024 * 1024)
    desk, other = Desk(waiting=waiting), Desk(waiting=waiting)
    try:
        hold(desk)
        taken = 0
        with pytest.raises(Overloaded) as refused:
            while taken < 100:
                desk.submit(event(data=bytes(32_768 - 64)))
                taken += 1
        assert refused.value.allowed_bytes < refused.value.waiting_bytes == 2 * 32_769
        assert desk.statistics.refused == waiting.refused == 1
        assert taken == 8, "64 KiB beside the budget, and half of it; each counts twice"
        assert waiting.largest - 65_536 < desk.statistics.queued_bytes <= waiting.largest
        hold(other)
        other.submit(event(data=bytes(100_000)))  # others have room left, and half of it is theirs
        with pytest.raises(TooLarge) as never:
            desk.submit(event(data=bytes(400_000)))
        assert never.value.given > 400_000 and never.value.allowed == waiting.largest // 2
        for each in (desk, other):
            each.log.may_write.set()
        desk.wait(9)
        other.wait(2)
        assert desk.statistics.queued_bytes == waiting.bytes == 0
        assert isinstance(desk.outcome(desk.submit(event(data=bytes(200_000)))), AppendResult)
    finally:
        for each in (desk, other):
            each.log.may_write.set()
            each.sequencer.close()


def test_numbers_end_at_the_largest_one() -> None:
    desk = Desk(floor=SEQUENCE_NUMBER_MAX - 3)
    try:
        assert desk.outcome(desk.submit(event(), event())) == AppendResult(
            SEQUENCE_NUMBER_MAX - 2, SEQUENCE_NUMBER_MAX - 1
        )
        assert isinstance(desk.outcome(desk.submit(event(), event())), SequenceExhausted)
        assert desk.outcome(desk.submit(event())) == AppendResult(SEQUENCE_NUMBER_MAX, SEQUENCE_NUMBER_MAX)
        assert isinstance(desk.outcome(desk.submit(event())), SequenceExhausted)
    finally:
        desk.sequencer.close()


def test_many_threads_give_every_append_a_number_of_its_own(desk: Desk) -> None:
    def produce() -> None:
        for _ in range(100):
            desk.submit(event(), event())

    threads = [threading.Thread(target=produce) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    desk.wait(800)
    firsts = [request.result.first for request in desk.answered if request.result]
    assert sorted(firsts) == list(range(1, 1601, 2))
    assert desk.log.head == 1600
    assert desk.statistics.events_appended == 1600


def test_one_of_many_racing_appends_wins(desk: Desk) -> None:
    condition = AppendCondition(Query.where(tags=["gate:7"]))
    requests = [desk.submit(event("Taken", "gate:7"), condition=condition) for _ in range(100)]
    desk.wait(100)
    assert [request.error is None for request in requests] == [True] + [False] * 99
    assert desk.statistics.conditions_failed == 99


def test_a_columns_object_is_not_changed_by_being_refused(desk: Desk) -> None:
    desk.log.script = [full]
    request = desk.submit(event("E", "a:1", id="x"))
    before: EventColumns = request.columns
    assert isinstance(desk.outcome(request), DiskFull)
    again = AppendRequest(before, None, None, desk.deliver)
    desk.sequencer.submit(again)
    assert desk.outcome(again) == AppendResult(1, 1)


def test_what_was_judged_on_top_of_refused_frames_is_never_written(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer is refused while the committer judges the next group, and is done with it before that is sent."""
    judge, later, is_judging = desk.sequencer._judge, list[AppendRequest](), threading.Event()
    original = judge.judge

    def slowly(group: Sequence[AppendRequest], first: int) -> Verdict:
        verdict = original(group, first)
        if not later:
            later.append(desk.submit(event("Second")))  # so that the writer gets the first
        else:
            is_judging.set()
            eventually(lambda: desk.sequencer._flights_done == desk.sequencer._flights_sent)
        return verdict

    def full_meanwhile(frames: Sequence[EncodedFrame]) -> None:
        assert is_judging.wait(PATIENCE_S)
        full(frames)

    monkeypatch.setattr(judge, "judge", slowly)
    desk.log.script = [full_meanwhile]
    large = desk.submit(*[event("First") for _ in range(module.SMALL_FRAME_EVENTS + 1)])
    assert isinstance(desk.outcome(large), DiskFull)
    assert isinstance(desk.outcome(later[0]), DiskFull | AppendResult)
    assert desk.fatal.reasons == []
    assert desk.outcome(desk.submit(event("Third"))) == AppendResult(desk.log.head, desk.log.head)


def while_judging(desk: Desk, monkeypatch: pytest.MonkeyPatch, append: Callable[[], object]) -> None:
    """Something is appended while the first group is judged, so that it waits when the group's frame is made."""
    judge, left = desk.sequencer._judge, [append]
    original = judge.judge

    def judged(group: Sequence[AppendRequest], first: int) -> Verdict:
        if left:
            left.pop()()
        return original(group, first)

    monkeypatch.setattr(judge, "judge", judged)


def test_a_small_frame_is_written_by_who_judged_it_though_more_waits(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    while_judging(desk, monkeypatch, lambda: desk.submit(event("Second")))
    desk.submit(event("First"))
    desk.wait(2)
    assert desk.log.types() == ["First", "Second"]
    assert desk.log.writers == ["orders-committer"] * 2


def test_a_large_frame_is_left_to_the_writer_where_more_waits(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the next group is judged while it is written."""
    while_judging(desk, monkeypatch, lambda: desk.submit(event("Second")))
    desk.submit(*[event("First") for _ in range(module.SMALL_FRAME_EVENTS + 1)])
    desk.wait(2)
    assert desk.log.types()[-1] == "Second"
    assert desk.log.writers[0] == "orders-writer"


def test_frames_that_landed_are_not_looked_for(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who appends knows how far the log is durable: no frame has to be found to know that it is there."""
    looked: list[int] = []
    monkeypatch.setattr(desk.sequencer._judge, "_frame_at", looked.append)
    for _ in range(5):
        desk.outcome(desk.submit(event()))
    assert looked == []
    eventually(lambda: not desk.sequencer._judge._in_flight)  # type: ignore[attr-defined]


# A log that does not answer


def test_who_waits_for_a_silent_log_is_told_that_it_is_unknown_once(desk: Desk) -> None:
    first = hold(desk)
    behind = desk.submit(event("Behind"))
    eventually(lambda: desk.sequencer._inbox.empty())
    desk.log.on_overdue()
    assert {type(desk.outcome(each)) for each in (first, behind)} == {OutcomeUnknown}
    assert desk.statistics.queued_requests == desk.statistics.queued_bytes == 0
    desk.log.may_write.set()
    third = desk.submit(event("Third"))
    assert desk.outcome(third) == AppendResult(3, 3)
    assert desk.log.types() == ["Held", "Behind", "Third"]
    assert desk.answered == [first, behind, third]


def test_what_was_not_sent_is_refused_while_a_log_is_away() -> None:
    desk = Desk(waiting=SharedBytes(2**31))
    first = hold(desk)
    flights = [desk.submit(event(f"E{number}", data=b"x" * 9_000_000)) for number in range(12)]
    desk.log.unavailable = StorageUnavailable("away")
    eventually(lambda: desk.log.on_overdue() or len(desk.answered) == 13)
    outcomes = [type(desk.outcome(each)) for each in (first, *flights)]
    assert outcomes[0] is OutcomeUnknown
    assert outcomes == sorted(outcomes, key=[OutcomeUnknown, StorageUnavailable].index)
    assert outcomes[-1] is StorageUnavailable
    with pytest.raises(StorageUnavailable):
        desk.submit(event("Late"))
    desk.log.unavailable = None
    desk.log.may_write.set()
    assert isinstance(desk.outcome(desk.submit(event("After"))), AppendResult)
    assert len(desk.log.types()) == outcomes.count(OutcomeUnknown) + 1
    desk.sequencer.close()


def test_an_unknown_append_that_turns_out_to_be_refused_is_not_judged_again(desk: Desk) -> None:
    def another(frames: Sequence[EncodedFrame]) -> None:
        desk.log.on_overdue()
        desk.log.by_another(event("Theirs"))

    desk.log.script.append(another)
    assert isinstance(desk.outcome(desk.submit(event("Mine"))), OutcomeUnknown)
    assert isinstance(desk.outcome(desk.submit(event("Next"))), AppendResult)
    assert desk.log.types() == ["Theirs", "Next"]


def test_what_is_in_the_log_and_cannot_be_read_is_answered_and_nothing_more_is_taken(desk: Desk) -> None:
    def not_kept(frames: Sequence[EncodedFrame]) -> None:
        raise NotKept("no room")

    first = hold(desk)
    desk.log.script.append(not_kept)
    behind = desk.submit(event("Behind"))
    desk.log.may_write.set()
    assert isinstance(desk.outcome(first), AppendResult)
    assert isinstance(desk.outcome(behind), NotPrimary)
    with pytest.raises(NotPrimary):
        desk.submit(event("Late"))
    assert desk.published == []
