"""Runs a pipeline: follows its query, shows progress, stops it gracefully, and reports the result.

def run(spark, options, run):                    # a pipeline: see headwater.spark.jobs
    events = spark.readStream.format("headwater").options(**run.server.options(log=options.source)).load()
    return run.follow(events.writeStream, each_batch)
"""

from __future__ import annotations

import contextlib
import queue
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ...core.errors import EventLogError, InvalidInput
from ...core.streams import STREAM_CHARS_MAX
from ...formats.clients.address import urls_of
from ..options import default_url, text_of
from .failures import cause_of, failed, is_sparks, is_transient, tells_of_end
from .progress import OFFSETS, Display, Progress, Tally, behind, display
from .stop import StopGate, StoppedAtOnce, StoppedBetweenBatches, StopRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from ...core.log import LogInfo
    from ...flight.client import BulkClient

POLL_S = 0.2
LAST_WORDS_S = 10.0
"""How long to wait for the last events of a finished query."""
GIVE_UP_S = 3.0
"""How long Spark may take to cancel work; then it is abandoned."""
TICK_S = 1.0
PAUSES_S = (1.0, 5.0, 20.0)
"""Pauses before each retry after a transient failure, for an overloaded machine; a successful batch resets the count.
"""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Server:
    """The server, as options for every source and sink of a pipeline. Its fields are those of a BulkAddress."""

    url: str = field(default_factory=default_url)
    """By default from HEADWATER_FLIGHT_URL, otherwise this machine."""
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    is_verified: bool = True

    def options(self, **others: object) -> dict[str, str]:
        """The data source's options for the server and credentials, and those of `others` that are not None."""
        mine = {"url": self.url, "user": self.user, "password": self.password, "token": self.token,
                "caFile": self.ca_file, "tlsVerify": None if self.is_verified else False}  # fmt: skip
        said = {**mine, **others}.items()
        return {name: text_of(value) for name, value in said if value is not None}

    def client(self, url: str | None = None, **how: Any) -> BulkClient:
        """A client of this server, or of another one with the same credentials; close it after use. Raises
        InvalidInput.

        `how` are further arguments of BulkClient.
        """
        from ...flight.client import BulkClient

        return BulkClient(**asdict(self) | {"url": url or self.url} | how)

    def log_line(self, info: LogInfo) -> str:
        """One of its logs, as a line of a plan."""
        return f"log {info.name!r} on {self.url}: {info.events:,} events, {info.first_retained} to {info.head}"


class Ending(StrEnum):
    """Why a run ended."""

    DONE = "done"
    """It finished the initial backlog."""
    STOPPED = "stopped"
    """It was asked to stop, and stopped between two batches."""
    INTERRUPTED = "interrupted"
    """It was asked to stop at once; the next run may repeat a batch."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The result of a run."""

    pipeline: str
    ending: Ending
    events: int
    batches: int
    seconds: float
    behind: int | None = None
    """How many sequence numbers are left, as far as the source knows."""
    details: Mapping[str, object] = field(default_factory=dict)
    """The pipeline's own results: names and JSON values."""


class Target(NamedTuple):
    """The log that a query appends to with headwater's sink: it knows what was committed, even if Spark does not."""

    url: str
    log: str

    def __str__(self) -> str:
        """Short, for people: `orders@backup:8815`."""
        return f"{self.log}@{','.join(url.partition('://')[2] for url in urls_of(self.url))}"


class _Ended(NamedTuple):
    """The end of a query: why it failed, or None."""

    problem: str | None


class Run:
    """One run of a pipeline: its settings and progress. Inside its `with` block, signals are stop requests."""

    def __init__(
        self,
        pipeline: str,
        *,
        server: Server | None = None,
        is_once: bool = True,
        every_s: float = 1.0,
        checkpoint: str | None = None,
        stream_name: str | None = None,
        progress: Progress | Display = Progress.NONE,
    ) -> None:
        self.pipeline = pipeline
        self.server = server or Server()
        self.is_once = is_once
        """End when the initial backlog is done; otherwise follow the log until asked to stop."""
        self.every_s = every_s
        """How often a batch begins, if there is work; 0 = at once."""
        self.checkpoint = checkpoint
        self.stream_name = stream_name
        """The name under which the server shows the stream's progress; None: see `named`."""
        self.stop = StopRequest()
        self._tally = Tally(pipeline)
        self._display = display(progress) if isinstance(progress, Progress) else progress
        self._has_told = False
        self._ticked = 0.0

    def __enter__(self) -> Run:
        self.stop.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.__exit__()
        self._display.close()

    @property
    def until(self) -> str:
        """When it ends, as a line of a plan."""
        if self.is_once:
            return "stop after the current events"
        return f"continue, with a batch every {self.every_s:g} s"

    def named(self, target: str) -> str | None:
        """The name under which the server shows the stream's progress: the given name, or by default its target.

        None for a run that ends by itself: later events do not count as lag.
        """
        if self.stream_name is not None or self.is_once:
            return self.stream_name
        return f"{self.pipeline}:{target}"[:STREAM_CHARS_MAX]

    def say(self, text: str) -> None:
        """Show a line."""
        self._display.say(text)

    def turn_to(self, what: str) -> None:
        """Show progress of this from now on, if a run does one thing after the other."""
        self._tally.pipeline = f"{self.pipeline} {what}"

    def expect(self, total: int, step: int) -> None:
        """Set the amount of work, in any unit, and the maximum of one step, for progress."""
        self._tally.expect(total, step)
        self._tick(None)

    def advance(self, events: int, batch_ms: int, behind: int | None = None, left: int | None = None) -> None:
        """For pipelines without a streaming query: a step is done. Check `stop.is_asked` before the next.

        `left` is how much of the expected work remains, by default `behind`.
        """
        self._display.show(self._tally.add(self._tally.batches, events, batch_ms, behind, left))

    def step(self, spark: SparkSession, work: Callable[[], T]) -> T:
        """Run a repeatable step in Spark, with retries after transient failures.

        It runs in another thread, while this one shows progress and checks for stop requests. Raises StoppedAtOnce
        after two of these, PipelineFailed with the cause of an error of Spark, and the errors of `work`.
        """
        return self.retrying(lambda: self.watched(spark, work))

    def watched(self, spark: SparkSession, work: Callable[[], T]) -> T:
        """Like `step`, once."""
        future = _beside(lambda: _in_session(spark, work))
        while not wait([future], POLL_S).done:
            self._tell_stop()
            self._tick(spark)
            if self.stop.is_urgent:
                _cancel(spark, future)
                raise StoppedAtOnce
        try:
            return future.result()
        except Exception as error:
            if self.stop.is_asked and _has_ended(error):
                self._say_ended()
                raise StoppedAtOnce from error
            if is_sparks(error):
                raise failed(self.pipeline, error) from error
            raise

    def retrying(self, attempt: Callable[[], T]) -> T:
        """The result of `attempt`; retried after transient failures, such as a slow worker."""
        failures, batches = 0, self._tally.batches
        while True:
            try:
                return attempt()
            except Exception as error:
                failures = 1 if self._tally.batches > batches else failures + 1
                batches = self._tally.batches
                if failures > len(PAUSES_S) or self.stop.is_asked or not is_transient(error):
                    raise
                pause_s = PAUSES_S[failures - 1]
                self.say(f"{self.pipeline}: {cause_of(error)}; trying again in {pause_s:g} s")
                if not self.pause(pause_s):
                    raise

    def pause(self, seconds: float) -> bool:
        """Wait this long, or until a stop request. Returns whether there was none."""
        until = time.monotonic() + seconds
        while not self.stop.is_asked and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, POLL_S))
        return not self.stop.is_asked

    def summary(self, ending: Ending | None = None, **details: object) -> Summary:
        """The results so far; without an ending: `stopped` if it was asked to stop, otherwise `done`."""
        tally = self._tally
        ending = ending or (Ending.STOPPED if self.stop.is_asked else Ending.DONE)
        seconds = round(tally.seconds, 3)
        return Summary(self.pipeline, ending, tally.events, tally.batches, seconds, tally.behind, details)

    def follow(
        self,
        writer: DataStreamWriter,
        each_batch: Callable[[Any, int], None] | None = None,
        *,
        needs_checkpoint: bool = True,
        target: Target | None = None,
        checkpoint: str | None = None,
        is_once: bool | None = None,
    ) -> Summary:
        """Start the query, and follow it until it is done (`is_once`), stopped or failed.

        `checkpoint` and `is_once` override those of the run for this query.

        `each_batch(frame, number)` is the function for `foreachBatch`: pass it here and not to the writer, so that a
        stop falls between two batches. Without a checkpoint directory a temporary one is used, if `needs_checkpoint` is
        False: then every run begins where the source's options say. With a `target`, its part of an interrupted batch
        counts as well.

        Raises PipelineFailed with the cause, or the log's error if that was the cause; InvalidInput if a checkpoint is
        missing.
        """
        with contextlib.ExitStack() as stack:
            known = checkpoint or self.checkpoint
            if known is None and needs_checkpoint:
                raise InvalidInput("a directory is required, where the pipeline stores its progress", "checkpoint")
            where = known or tempfile.mkdtemp(prefix="headwater-checkpoint-")
            if known is None:
                stack.callback(shutil.rmtree, where, ignore_errors=True)
            gate = None if each_batch is None or _is_remote(writer) else StopGate(each_batch)
            if each_batch is not None:
                writer = writer.foreachBatch(gate or each_batch)
            writer = writer.option("checkpointLocation", where).queryName(f"headwater-{self.pipeline}")
            if self.is_once if is_once is None else is_once:
                writer = writer.trigger(availableNow=True)
            else:
                writer = writer.trigger(processingTime=f"{round(self.every_s * 1000)} milliseconds")
            return self._follow(writer, gate, target)

    def _follow(self, writer: DataStreamWriter, gate: StopGate | None, target: Target | None) -> Summary:
        heard: queue.SimpleQueue[Mapping[str, Any] | _Ended] = queue.SimpleQueue()
        streams = getattr(writer, "_session" if _is_remote(writer) else "_spark").streams
        listener = _listener(f"headwater-{self.pipeline}", heard)
        streams.addListener(listener)
        query = None
        try:
            query = writer.start()
            committed = _Committed(self.server, target, str(query.id))
            ending = self._watch(query, gate, heard, getattr(writer, "_spark", None))
            if ending is not Ending.DONE:
                self._count(heard, committed)
        except EventLogError:
            raise
        except Exception as error:
            if query is None or not self.stop.is_asked or not _has_ended(error):
                raise failed(self.pipeline, error) from error
            self._say_ended()
            self._count(heard, committed)
            ending = Ending.INTERRUPTED
        finally:
            with contextlib.suppress(Exception):  # if Spark is gone, so is the listener
                streams.removeListener(listener)
        return self.summary(ending)

    def _watch(
        self,
        query: StreamingQuery,
        gate: StopGate | None,
        heard: queue.SimpleQueue[Mapping[str, Any] | _Ended],
        spark: SparkSession | None,
    ) -> Ending:
        self._has_told = stopped = False
        batches_before = 0
        give_up = None
        while True:
            with contextlib.suppress(queue.Empty):
                word = heard.get(timeout=POLL_S)
                if isinstance(word, _Ended):
                    return self._ending(query, stopped)
                self._progress(word)
            self._tick(spark)
            if self._tell_stop():
                batches_before = self._tally.batches
            if self.stop.is_urgent:
                wait([_beside(query.stop)], GIVE_UP_S)
                return Ending.INTERRUPTED
            if self._has_told and not stopped and self._is_between(query, gate, self._tally.batches > batches_before):
                stopped = True
                query.stop()
            if give_up is None and not query.isActive:
                give_up = time.monotonic() + LAST_WORDS_S
            if give_up is not None and time.monotonic() > give_up:
                return self._ending(query, stopped)

    def _say_ended(self) -> None:
        self.say(
            "Spark's Java process also received the signal, so the batch was not finished; the next run repeats it"
        )

    def _tell_stop(self) -> bool:
        """Report once that the stop request was received. Returns whether it did so now."""
        if self._has_told or not self.stop.is_asked:
            return False
        self._has_told = True
        self.say("stopping after this batch; repeat to stop immediately")
        return True

    def _tick(self, spark: SparkSession | None) -> None:
        """Show progress, about once a second."""
        now = time.monotonic()
        if now - self._ticked >= TICK_S:
            self._ticked = now
            if (tick := getattr(self._display, "tick", None)) is not None:
                tick(self._tally.status(_share_of_tasks(spark)))

    def _count(self, heard: queue.SimpleQueue[Mapping[str, Any] | _Ended], committed: _Committed) -> None:
        """Count batches that are done but not yet reported."""
        with contextlib.suppress(queue.Empty):
            while True:
                word = heard.get(timeout=POLL_S)
                if not isinstance(word, _Ended):
                    self._progress(word)
        if (found := committed.since(self._tally.last_batch)) is not None:
            batch, rows = found
            self._display.show(self._tally.add(batch, rows, 0, None))

    @staticmethod
    def _is_between(query: StreamingQuery, gate: StopGate | None, has_ended_one: bool) -> bool:
        """Whether stopping now costs no batch, or only a new one that can be repeated."""
        if gate is not None:
            return gate.close() and not query.status["isTriggerActive"]
        return has_ended_one or not query.status["isTriggerActive"]

    def _ending(self, query: StreamingQuery, stopped: bool) -> Ending:
        error = query.exception()
        if self.stop.is_asked and (stopped or (error and StoppedBetweenBatches.__name__ in str(error))):
            return Ending.STOPPED
        if error is not None:
            raise error
        return Ending.DONE

    def _progress(self, progress: Mapping[str, Any]) -> None:
        events, durations, left = progress["numInputRows"], progress["durationMs"], behind(progress["sources"])
        if events == 0 and not durations.get("addBatch"):
            self._tally.behind = left  # nothing was done
        else:
            self._display.show(self._tally.add(progress["batchId"], events, durations.get("triggerExecution", 0), left))


def _is_remote(writer: DataStreamWriter) -> bool:
    """Whether Spark Connect runs the function elsewhere."""
    return ".connect." in type(writer).__module__


def _listener(name: str, heard: queue.SimpleQueue[Mapping[str, Any] | _Ended]) -> Any:
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Listener(StreamingQueryListener):
        """Passes on Spark's events of the query of that name; it is called in another thread."""

        run_id: str | None = None

        def onQueryStarted(self, event: Any) -> None:
            if event.name == name:
                self.run_id = str(event.runId)

        def onQueryProgress(self, event: Any) -> None:
            if str(event.progress.runId) == self.run_id:
                heard.put(_plain(event.progress))

        def onQueryIdle(self, event: Any) -> None:
            pass

        def onQueryTerminated(self, event: Any) -> None:
            if str(event.runId) == self.run_id:
                heard.put(_Ended(event.exception))

    return Listener()


def _plain(progress: Any) -> Mapping[str, Any]:
    return {
        "batchId": progress.batchId,
        "numInputRows": progress.numInputRows,
        "durationMs": dict(progress.durationMs),
        "sources": [{name: getattr(source, name) for name in OFFSETS} for source in progress.sources],
    }


class _Committed:
    """The target's part of a query's newest batch. The query's id is the writer's name: see `sink.data_sink`."""

    def __init__(self, server: Server, target: Target | None, query: str) -> None:
        self._server, self._target, self._query = server, target, query
        self._before = self._newest()

    def since(self, last_batch: int | None) -> tuple[int, int] | None:
        """The batch after the last one counted, and how many of its rows are appended; None if none is."""
        newest, before = self._newest(), self._before
        if newest is None or (last_batch is not None and newest[0] <= last_batch):
            return None
        rows = newest[1] - before[1] if before is not None and before[0] == newest[0] else newest[1]
        return (newest[0], rows) if rows else None

    def _newest(self) -> tuple[int, int] | None:
        if self._target is None:
            return None
        try:
            with self._server.client(self._target.url, retries=0, timeout_s=GIVE_UP_S) as client:
                state = client.writer(self._target.log, self._query)
        except EventLogError:  # the query reports its error, and better
            return None
        return None if state is None else (state.batch, state.rows)


def _beside(work: Callable[[], T]) -> Future[T]:
    """Run it in another thread, without waiting for it."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="headwater-step", daemon=True).start()
    return future


def _in_session(spark: SparkSession, work: Callable[[], T]) -> T:
    """Run it with that session active: a thread of Java has no active session, and would not find the data source."""
    if (java_session := getattr(spark, "_jsparkSession", None)) is not None:
        spark._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(java_session)  # type: ignore[union-attr]
    return work()


def _cancel(spark: SparkSession, future: Future[Any]) -> None:
    """Cancel Spark's running work, including work that has just begun. Does not wait long for its end."""
    give_up = time.monotonic() + GIVE_UP_S
    while not future.done() and time.monotonic() < give_up:
        with contextlib.suppress(Exception):  # if Spark is gone, so is its work
            if hasattr(spark, "_jsparkSession"):
                spark.sparkContext.cancelAllJobs()
            else:
                spark.interruptAll()
        wait([future], POLL_S)


def _has_ended(error: BaseException) -> bool:
    """Whether Java has ended or is ending: in the meantime, failures vary."""
    if tells_of_end(error):
        return True
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process is None or not is_sparks(error):
        return False
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GIVE_UP_S)
    return process.poll() is not None


def _share_of_tasks(spark: SparkSession | None) -> float:
    """The part (0 to 1) of Spark's current tasks that is done; 0 if unknown."""
    if spark is None or not hasattr(spark, "_jsparkSession"):
        return 0.0
    try:
        tracker = spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    except Exception:  # it is about to be stopped
        return 0.0
    known = [stage for stage in stages if stage is not None]
    return sum(stage.numCompletedTasks for stage in known) / max(sum(stage.numTasks for stage in known), 1)
