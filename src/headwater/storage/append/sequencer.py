"""The sequencer: numbers events and makes them durable, many appends per fsync.

It has two threads. The committer receives the waiting appends, judges each against everything applied before it, and
numbers and encodes one frame for all that pass. The writer writes the waiting frames, syncs once, publishes the new
head and answers. There is no linger: while one fsync runs, the next group gathers. An answer that depends on an event
(its own, or one that it conflicts with) is sent after that event is durable, because it is queued after it.

A small frame is not worth a thread switch: if no write is in progress, the committer itself writes it, syncs, publishes
and answers while the next group gathers. It does the same with a large frame if nothing waits; otherwise it hands the
frame to the writer and judges the next group in the meantime.

If the frame log refuses frames (its head moved, the disk is full), everything in flight is rolled back: refused, or
judged again on the log's new content. If another server has taken the log by then, judging stops: see `NotPrimary`. If
the frame log takes too long to answer, callers learn that the outcome is unknown; the frames stay in flight.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from queue import Empty, SimpleQueue
from typing import NamedTuple, NoReturn, Protocol

from ...core.errors import Closed, EventLogError, NotPrimary, OutcomeUnknown, Overloaded, StorageUnavailable, TooLarge
from ...core.limits import EventColumns
from ...core.local import WAITING_BYTES_MAX
from ...core.log import AppendRequest, LogStatistics
from ...core.shared_bytes import SharedBytes
from ..disk.locks import LockLostMeanwhile
from ..frames.encoding import Chain, EncodedFrame, encode
from ..frames.frame_log import FrameLog, Head, HeadMoved, NotAdopted, NotKept
from ..frames.layout import FrameMark
from ..index.backlog import Backlog, LogBacklog
from .append_memory import COPIES, held_bytes
from .prepared import PreparedColumns

logger = logging.getLogger("headwater.storage")

GROUP_EVENTS_MAX = 4096
GROUP_BYTES_MAX = 8 * 1024 * 1024
FRAMES_IN_FLIGHT_MAX = 8
SMALL_FRAME_EVENTS = 128
"""The committer writes frames of at most this many events. Judging that many takes 0.5 ms; a sync takes about 0.2
ms."""
SMALL_GROUP_BYTES = 128 * 1024
"""With SMALL_FRAME_EVENTS, the limits of a group that the loop of a lane judges."""

new = tuple.__new__
"""Builds a named tuple from all its values in half the time of a call: each group needs some."""


class Verdict(NamedTuple):
    """The result of judging a group: the events to write, and their partitions."""

    columns: EventColumns | None
    """The events of all appends that pass, in order; None if there are none to write."""
    partitions: list[int]
    """The partition of each event; may be empty if all are 0."""
    marks: Sequence[FrameMark] = ()
    """The marks of exactly-once writers, for the frame."""


class Judge(Protocol):
    """Decides appends against the state after everything applied so far. Only the holder of the turn uses it."""

    def judge_briefly(self, group: Sequence[AppendRequest], first: int) -> Verdict | None:
        """Like `judge`, if that is certainly short; otherwise None, and nothing has changed."""

    def judge(self, group: Sequence[AppendRequest], first: int) -> Verdict:
        """Decide each append in order and set its `result` or `error`. Those that pass are applied from `first` on."""

    def record(self, request: AppendRequest, head: int) -> None:
        """Decide an append that has a mark but no events; everything is durable up to that head.

        A mark that passes is durable when this returns.
        """

    def applied(self, frame: EncodedFrame, columns: EventColumns) -> None:
        """Note that these events are in that frame, which is now in flight."""

    def landed(self, head: int) -> None:
        """Release the frames up to that number: they can be read now."""

    def rollback(self, above: int) -> None:
        """Forget what was applied above that number."""

    def catch_up(self, frame_log: FrameLog, after: int) -> None:
        """Apply the frames above that number that others appended."""

    def next_recorded_at(self) -> int:
        """The time of the next frame, never earlier than the last one's."""


class Flight(NamedTuple):
    """The writer's work: a frame (or none, if only refusals are waiting) and the requests to answer after it."""

    frame: EncodedFrame | None
    requests: list[AppendRequest]


class Lane(Protocol):
    """Commits beside the committer: see `loop_commits`."""

    def yield_turn(self) -> list[AppendRequest]:
        """Land its flight and hand over its waiting appends: the caller has the turn, and answers the result."""

    def close(self) -> None:
        """Land or hand over everything."""


_WAKE = object()
"""An inbox item that wakes the committer without an append."""


class Sequencer:
    """The single writer of one log."""

    def __init__(
        self,
        name: str,
        frame_log: FrameLog,
        judge: Judge,
        statistics: LogStatistics,
        publish: Callable[[int], None],
        *,
        waiting: SharedBytes | None = None,
        backlog: LogBacklog | None = None,
        fatal: Callable[[str], None] | None = None,
    ) -> None:
        """`publish` gets each new durable head, on the writer thread. `fatal` ends the process.

        `waiting` is the budget for the waiting appends of all logs (None for a separate budget).

        `backlog` admits appends while the index keeps up (None for a separate backlog).

        It writes only in the current term of the frame log.
        """
        self.name = name
        self._frame_log, self._judge, self._statistics, self._publish = frame_log, judge, statistics, publish
        self._term = frame_log.term
        self._nonce = self._term.nonce
        """Makes this writer's frames different from all others, and from each other."""
        self._stepped_down: NotPrimary | None = None
        """Why nothing is appended: another server has the log, and this one may `follow` it."""
        self._waiting = (waiting or SharedBytes(WAITING_BYTES_MAX)).part()
        """The memory that waiting appends hold; guarded by `admission`."""
        self._backlog = Backlog().share(name) if backlog is None else backlog
        self._fatal = fatal or end_process
        self._inbox: SimpleQueue[object] = SimpleQueue()
        """AppendRequests; None means to stop after everything accepted before it."""
        self._flights: SimpleQueue[Flight | None] = SimpleQueue()
        """None means to stop."""
        self._held: AppendRequest | None = None
        """A request taken from the inbox but too large for the group before it."""
        self._again: deque[list[AppendRequest]] = deque()
        """Groups to judge again, before anything new."""
        self._flights_sent = self._flights_done = 0
        """Flights handed to the writer (counted by the committer) and finished (counted by the writer)."""
        self._slots = threading.Semaphore(FRAMES_IN_FLIGHT_MAX)
        self.admission = threading.Lock()
        self._is_closed = False
        self._grounded: list[Flight] = []
        self._refusal: EventLogError | HeadMoved | None = None
        """Why the frame log refused the grounded flights; handed from the writer to the committer."""
        self._resume = threading.Event()
        self._answering = threading.Lock()
        """Guards answering: the flights below, in order, their requests, which are removed once answered, and
        `_held`."""
        self._unanswered: deque[Flight] = deque()
        self._applied_head = frame_log.head
        self._last_crc = frame_log.last_crc
        self.durable_head = frame_log.head
        self._durable_crc = frame_log.last_crc
        self._threads: list[threading.Thread] = []
        self.turn = threading.Lock()
        """Held while appends are judged, by the committer or by the event loop of the lane."""
        self.lane: Lane | None = None

    def submit(self, request: AppendRequest, waiting: deque[AppendRequest] | None = None) -> None:
        """Queue an append, in `waiting` if it is for the lane.

        Raises Overloaded, TooLarge (it can never fit), Closed, NotPrimary, StorageUnavailable.
        """
        size = request.held_bytes = held_bytes(request.columns)
        with self.admission:
            if self._is_closed:
                raise self._frame_log.unavailable or Closed(self.name)
            if self._stepped_down is not None:
                raise NotPrimary(self.name)
            if (refusal := self._frame_log.unavailable) is not None:
                raise refusal.with_traceback(None)  # it may be kept, and each raise adds frames to its traceback
            if not self._waiting.take(size):
                self._statistics.refused += 1
                raise self._no_room(request.columns, size)
            if (count := request.columns.count) != 0:  # a mark without events is not counted
                try:
                    self._backlog.reserve(count, is_bulk=request.is_bulk)
                except (Overloaded, StorageUnavailable):
                    self._waiting.give(size)
                    self._statistics.refused += 1
                    raise
            self._statistics.queued_bytes = self._waiting.bytes
            self._statistics.queued_requests += 1
            if waiting is not None:
                waiting.append(request)
                return
            if not self._threads:
                self._start()
            self._inbox.put(request)

    def _no_room(self, columns: EventColumns, size: int) -> EventLogError:
        if size > (largest := self._waiting.largest) and not isinstance(columns, PreparedColumns):
            return TooLarge(columns.bytes, largest // COPIES, "bytes", "events")
        return self._waiting.refusal(size, "events")

    # For the lane, which has the turn

    def judged_briefly(self, waiting: deque[AppendRequest], unanswered: int) -> Flight | None:
        """Take a small group of the lane's waiting appends; return it, judged, with its frame, which is applied.

        None, with nothing taken, if judging may take long or anything else is under way. `unanswered`: how many appends
        of the lane have landed and are not answered.
        """
        group: list[AppendRequest] = []
        events = size = 0
        with self.admission:
            left = len(waiting) + unanswered
            is_idle = left == self._statistics.queued_requests and not (self._refusal or self._stepped_down)
            while waiting and is_idle:
                columns = waiting[0].columns
                events += columns.count
                size += columns.bytes
                if events > SMALL_FRAME_EVENTS or size > SMALL_GROUP_BYTES or isinstance(columns, PreparedColumns):
                    break
                group.append(waiting.popleft())
        if not group:
            return None
        recorded_at = self._judge.next_recorded_at()
        verdict = self._judge.judge_briefly(group, self._applied_head + 1)
        if verdict is None:
            waiting.extendleft(reversed(group))
            return None
        return self._flight_of(group, verdict, recorded_at)

    def hand_to_writer(self, flight: Flight) -> None:
        """Have the writer write a flight."""
        with self.admission:
            if not self._threads:
                self._start()
        with self._answering:
            self._unanswered.append(flight)
        self._hand_over(flight)

    def take_over(self, waiting: deque[AppendRequest]) -> None:
        """Have the committer take these appends, which were submitted for the lane."""
        with self.admission:
            if waiting and not self._threads:
                self._start()
            while waiting:
                self._inbox.put(waiting.popleft())

    def fail(self, error: OSError) -> NoReturn:
        """End the process after a failed write."""
        logger.critical("log %s: a write failed and the content of the disk is unknown: %s", self.name, error)
        self._fatal(f"log {self.name}: writing failed: {error}")
        raise error

    def step_aside(self) -> None:
        """Refuse appends until `begin_term`, because another server appends. Call it before the first append."""
        self._stepped_down = NotPrimary(self.name)

    def follow(self) -> None:
        """Apply the frames that others have put into the log.

        One thread at a time, and only between `step_aside` and `begin_term`, while there is no committer.
        """
        assert self._stepped_down is not None and not self._threads
        self._judge.catch_up(self._frame_log, self.durable_head)
        self._stand_at_end()
        self._publish(self.durable_head)

    def begin_term(self) -> None:
        """Accept appends in the current term of the frame log, whose frames have all been followed."""
        assert not self._threads
        self._term = self._frame_log.term
        self._nonce = self._term.nonce
        self._stand_at_end()
        with self.admission:
            self._stepped_down = None

    def _stand_at_end(self) -> None:
        self._applied_head = self.durable_head = self._frame_log.head
        self._last_crc = self._durable_crc = self._frame_log.last_crc

    def close(self) -> None:
        """Accept no more appends; everything accepted is answered before this returns."""
        with self.admission:
            if self._is_closed:
                return
            self._is_closed = True
        if self.lane is not None:
            self.lane.close()
        self._inbox.put(None)
        for thread in self._threads:
            thread.join()

    def _start(self) -> None:
        for role, target in (("committer", self._commit_all), ("writer", self._write_all)):
            thread = threading.Thread(target=self._guarded, args=(target,), name=f"{self.name}-{role}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _guarded(self, target: Callable[[], None]) -> None:
        try:
            target()
        except BaseException as error:
            self.broken(error)

    def broken(self, error: BaseException) -> None:
        """End the process, because judging or writing raised an error and callers would wait forever."""
        logger.critical("log %s: the sequencer failed", self.name, exc_info=error)
        self._fatal(f"log {self.name}: {error!r}")

    # The committer.

    def _commit_all(self) -> None:
        is_stopping = False
        while True:
            with self.turn:
                if self._refusal is not None:
                    self._reground()
                self._judge.landed(self.durable_head)
            if is_stopping and not self._again and self._has_settled():
                self._flights.put(None)
                return
            if self._again:
                group = self._again.popleft()
            elif not is_stopping:
                group, is_stopping = self._take()
            else:
                continue
            if not group:
                continue
            with self.turn:
                if self.lane is not None and (landed := self.lane.yield_turn()):
                    self.answer(landed)
                self._decide(group)
            del group  # keep nothing alive until the next append

    def _decide(self, group: list[AppendRequest]) -> None:
        if self._stepped_down is not None:
            self._refuse(group, self._stepped_down)
        elif not group[0].columns.count:
            self._record(group)
        elif self._refusal is None:
            self._commit(group)
        else:  # refused groups come first
            self._again.appendleft(group)

    def _take(self) -> tuple[list[AppendRequest], bool]:
        """Wait for appends; return those that fit one group, and whether to stop after them."""
        group: list[AppendRequest] = []
        events = size = 0
        request = (self._held and self._take_held()) or self._inbox.get()  # only this thread sets it
        while isinstance(request, AppendRequest):
            columns = request.columns
            events += columns.count
            size += columns.bytes
            is_alone = not columns.count or isinstance(columns, PreparedColumns)  # a mark without events, or a segment
            if group and (is_alone or events > GROUP_EVENTS_MAX or size > GROUP_BYTES_MAX):
                self._held = request
                break
            group.append(request)
            if is_alone:
                break
            try:
                request = self._inbox.get_nowait()
            except Empty:
                break
        return group, request is None

    def _take_held(self) -> AppendRequest | None:
        with self._answering:
            held, self._held = self._held, None
        return held

    def _commit(self, group: list[AppendRequest]) -> None:
        """Judge a group, encode one frame of the appends that pass, and hand it to the writer."""
        recorded_at = self._judge.next_recorded_at()
        verdict = self._judge.judge(group, self._applied_head + 1)
        self._send(self._flight_of(group, verdict, recorded_at))

    def _flight_of(self, group: list[AppendRequest], verdict: Verdict, recorded_at: int) -> Flight:
        columns, partitions, marks = verdict
        frame = None
        if columns is not None:
            first, term, log = self._applied_head + 1, self._term.number, self._frame_log
            prepared = columns if isinstance(columns, PreparedColumns) else None
            self._nonce += 1 if prepared is None else len(marks)
            link = new(Chain, (log.crc_seed, term, self._last_crc, self.durable_head, self._nonce))
            if prepared is None:
                frame = encode(columns, partitions, first, recorded_at, link, marks)
            else:
                frame = prepared.encode(first, recorded_at, link, marks)
            self._judge.applied(frame, columns)
            self._applied_head, self._last_crc = frame.last, frame.crc
        return new(Flight, (frame, group))

    def _record(self, group: list[AppendRequest]) -> None:
        """Store a mark without events. That is rare, so it waits until everything before it is durable."""
        if not self._has_settled():
            self._again.appendleft(group)
            return
        (request,) = group
        self._judge.next_recorded_at()
        self._judge.record(request, self.durable_head)
        self.answer(group)

    def _send(self, flight: Flight) -> None:
        """Write the frame here if no write is in progress and it is small or nothing waits; else hand it to the writer.

        The check for a refusal comes last: the writer sets it before it reports that it is done.
        """
        with self._answering:
            self._unanswered.append(flight)
        frame = flight.frame
        if (
            (frame is None or frame.last - frame.first < SMALL_FRAME_EVENTS or self._nothing_waits())
            and self._flights_sent == self._flights_done
            and self._refusal is None
        ):
            if (refusal := self._write([flight])) is not None:
                self.ground([flight], refusal)
        else:  # even on top of a refused frame: both are rolled back
            self._hand_over(flight)

    def _hand_over(self, flight: Flight) -> None:
        self._slots.acquire()
        self._flights_sent += 1
        self._flights.put(flight)

    def _nothing_waits(self) -> bool:
        return self._held is None and self._inbox.empty() and not self._again

    def _reground(self) -> None:
        """After a refusal of the frame log, roll back all frames in flight; refuse their appends or judge them again.

        The writer waits meanwhile, so that nothing else changes.
        """
        refusal, grounded = self._refusal, [*self._grounded]
        while not self._flights.empty():  # encoded on top of the refused frames
            flight = self._flights.get()
            assert flight is not None
            grounded.append(flight)
            self._flights_sent -= 1
            self._slots.release()
        with self._answering:
            self._unanswered.clear()
        self._judge.rollback(self.durable_head)
        if isinstance(refusal, HeadMoved) and refusal.head.term != self._term:
            refusal = self._step_down(refusal.head)
        if isinstance(refusal, HeadMoved):
            self._judge.catch_up(self._frame_log, self.durable_head)
            self.durable_head, self._durable_crc = self._frame_log.head, self._frame_log.last_crc
            self._publish(self.durable_head)
            self._judge_again(grounded)
        elif isinstance(refusal, NotAdopted):  # of the first one: its error must not fail other appends
            self._refuse(grounded[0].requests, refusal)
            self._judge_again(grounded[1:])
        elif refusal is not None:
            for flight in grounded:
                self._refuse(flight.requests, refusal)
        self._applied_head, self._last_crc = self._frame_log.head, self._frame_log.last_crc
        self._grounded, self._refusal = [], None
        self._resume.set()

    def _judge_again(self, flights: list[Flight]) -> None:
        for flight in flights:
            for request in flight.requests:
                request.result = request.error = None
        self._again.extendleft([flight.requests for flight in reversed(flights)])

    def _refuse(self, requests: list[AppendRequest], refusal: EventLogError) -> None:
        for request in requests:
            request.result, request.error = None, refusal
        self._statistics.refused += len(requests)
        self.answer(requests)

    def _step_down(self, head: Head) -> NotPrimary:
        """Stop judging, because another server has the log: the end known here may not be the real one."""
        return self._stop_appending(f"another server appends to it now (term {head.term.number})")

    def _stop_appending(self, why: str) -> NotPrimary:
        logger.error("log %s: %s, so this server stops", self.name, why)
        refusal = NotPrimary(self.name)
        with self.admission:
            self._stepped_down = refusal
        return refusal

    def _has_settled(self) -> bool:
        """Wait until the writer has finished everything or refuses part of it; returns whether it refused nothing."""
        held = 0
        while held < FRAMES_IN_FLIGHT_MAX and self._refusal is None:  # a refusal returns only some of the slots
            self._slots.acquire()
            held += 1
        for _ in range(held):
            self._slots.release()
        return self._refusal is None

    # The writer.

    def _write_all(self) -> None:
        while (flight := self._flights.get()) is not None:
            flights = [flight]
            while not self._flights.empty() and (flight := self._flights.get()) is not None:
                flights.append(flight)
            refusal = self._write(flights)
            if refusal is not None:
                self.ground(flights, refusal)
            self._flights_done += len(flights)
            if self._inbox.empty():  # wake the committer to release what it holds
                self._inbox.put(_WAKE)
            for _ in flights:
                self._slots.release()
            if refusal is not None:
                self._resume.wait()
            if flight is None:
                return
            del flights, flight  # as the committer does

    def _write(self, flights: list[Flight]) -> EventLogError | HeadMoved | None:
        """Write, sync, publish and answer. Frames that the frame log refuses stay unanswered."""
        frames = [flight.frame for flight in flights if flight.frame is not None]
        if frames:
            begin = time.monotonic()
            expected = Head(self.durable_head, self._durable_crc, self._term)
            try:
                self._frame_log.append_frames(frames, expected, self._tell_unknown)
            except (LockLostMeanwhile, OutcomeUnknown):  # a home knows only the log's key
                self._taken(flights)
                return OutcomeUnknown(self.name)
            except (EventLogError, HeadMoved) as refusal:
                self._taken(flights)
                return refusal
            except NotKept as error:
                self.answer(self._taken(flights))
                for flight in flights:
                    flight.requests.clear()
                return self._stop_appending(f"new events can no longer be read here ({error})")
            except OSError as error:
                self.fail(error)
            self.landed(frames[-1], begin)
        self.answer(self._taken(flights))
        return None

    def landed(self, newest: EncodedFrame, began: float, *, has_turn: bool = False) -> None:
        """Publish a frame that is durable, as all before it. `began`: when its write began, by `monotonic`."""
        now = time.monotonic()
        seconds = now - began
        statistics = self._statistics
        statistics.commits += 1
        statistics.fsync_seconds += seconds
        if seconds > statistics.fsync_seconds_max:
            statistics.fsync_seconds_max = seconds
        statistics.fsync_peaks.add(int(now), seconds)
        self.durable_head, self._durable_crc = newest.last, newest.crc
        self._publish(self.durable_head)
        if has_turn:  # otherwise the committer does it
            self._judge.landed(self.durable_head)

    def _taken(self, flights: Sequence[Flight]) -> list[AppendRequest]:
        """Take the requests of the first flights to answer; no other thread answers them from now on."""
        with self._answering:
            for _ in flights:
                self._unanswered.popleft()
            return [request for flight in flights for request in flight.requests]

    def _tell_unknown(self) -> None:
        """Report an unknown outcome for everything in flight, and refuse what was not sent.

        Called on a thread of the frame log.
        """
        with self._answering:
            overdue = [request for flight in self._unanswered for request in flight.requests]
            for flight in self._unanswered:
                flight.requests.clear()
        for request in overdue:
            request.result, request.error = None, OutcomeUnknown(self.name)
        self.answer(overdue)
        if (refusal := self._frame_log.unavailable) is not None:
            self._refuse(self._not_begun(), refusal)

    def _not_begun(self) -> list[AppendRequest]:
        """Take the appends not judged yet; other items stay in the inbox."""
        found = [held] if (held := self._take_held()) is not None else []
        for _ in range(self._inbox.qsize()):
            try:
                each = self._inbox.get_nowait()
            except Empty:
                break
            if isinstance(each, AppendRequest):
                found.append(each)
            else:
                self._inbox.put(each)
        return found

    def ground(self, flights: list[Flight], refusal: EventLogError | HeadMoved) -> None:
        """Hand flights that are not durable back to the committer, which rolls back while the writer waits."""
        head, landed = self._frame_log.head, 0
        if isinstance(refusal, EventLogError):  # the first frames may have been written
            for flight in flights:
                if flight.frame is not None:
                    if flight.frame.last > head:
                        break
                    self.durable_head, self._durable_crc = flight.frame.last, flight.frame.crc
                    self._publish(self.durable_head)
                self.answer(flight.requests)
                landed += 1
        self._resume.clear()
        self._grounded = flights[landed:]
        self._refusal = refusal
        with self.admission:
            if not self._threads:
                self._start()
        self._inbox.put(_WAKE)

    def answer(self, requests: Iterable[AppendRequest]) -> None:
        """Deliver requests to their callers, with one call per caller."""
        by_caller: dict[Callable[[list[AppendRequest]], None], list[AppendRequest]] = {}
        size = count = appends = events = appended = reserved = 0
        for request in requests:
            columns, result = request.columns, request.result
            size += request.held_bytes
            reserved += columns.count
            count += 1
            if request.error is None:
                appends += 1
                assert result is not None
                if not result.was_stored:
                    events += columns.count
                    appended += columns.bytes
            if (finished := by_caller.get(request.deliver)) is None:
                by_caller[request.deliver] = [request]
            else:
                finished.append(request)
        statistics = self._statistics
        statistics.appends += appends
        statistics.events_appended += events
        statistics.bytes_appended += appended
        with self.admission:
            self._waiting.give(size)
            statistics.queued_bytes = self._waiting.bytes
            statistics.queued_requests -= count
        self._backlog.give_back(reserved)
        for deliver, finished in by_caller.items():
            deliver(finished)


def end_process(reason: str) -> None:
    """End the process at once: acknowledged events are on disk, and nothing more can be promised."""
    os.write(2, f"headwater: {reason}; exiting; restart to recover\n".encode())
    os.abort()
