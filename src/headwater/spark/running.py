"""Runs a pipeline: follows its query, shows progress, stops it gracefully, and says what it did.

def run(spark, options, run):                    # a pipeline: see headwater.spark.jobs
    events = spark.readStream.format("headwater").options(**run.server.options(log=options.source)).load()
    return run.follow(events.writeStream, each_batch)
"""

from __future__ import annotations

import contextlib
import queue
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.errors import EventLogError, InvalidInput
from .failures import failed
from .options import DEFAULT_URL, text_of
from .progress import OFFSETS, Display, Progress, Tally, behind, display
from .stopping import Gate, StoppedBetweenBatches, StopRequest

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from ..core.log import LogInfo
    from ..flight.client import BulkClient

POLL_S = 0.2
LAST_WORDS_S = 10.0
"""How long the events of a query that ended are waited for."""


@dataclass(frozen=True, slots=True)
class Server:
    """The server, as every source and sink of a pipeline is told of it. Its fields are those of a BulkAddress."""

    url: str = DEFAULT_URL
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    is_verified: bool = True

    def options(self, **others: object) -> dict[str, str]:
        """The options of the data source that say which server and who asks, and those `others` that are not None."""
        mine = {"url": self.url, "user": self.user, "password": self.password, "token": self.token,
                "caFile": self.ca_file, "tlsVerify": None if self.is_verified else False}  # fmt: skip
        said = {**mine, **others}.items()
        return {name: text_of(value) for name, value in said if value is not None}

    def client(self, url: str | None = None) -> BulkClient:
        """A client of this server, or of another one that the same user may ask; to be closed. Raises InvalidInput."""
        from ..flight.client import BulkClient

        return BulkClient(**asdict(self) | {"url": url or self.url})

    def log_line(self, info: LogInfo) -> str:
        """A log of it, as a line of a plan."""
        return f"log {info.name!r} on {self.url}: {info.events:,} events, {info.first_retained} to {info.head}"


class Ending(StrEnum):
    """Why a run ended."""

    DONE = "done"
    """All that was there at its start is through."""
    STOPPED = "stopped"
    """It was asked to, and stopped between two batches."""
    INTERRUPTED = "interrupted"
    """It was asked to stop at once; a batch may be done again by the next run."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run did."""

    pipeline: str
    ending: Ending
    events: int
    batches: int
    seconds: float
    behind: int | None = None
    """Sequence numbers that are left, as far as the source tells."""
    details: Mapping[str, object] = field(default_factory=dict)
    """What the pipeline adds: names and values that JSON can say."""


class _Ended(NamedTuple):
    """The last word of a query: why it failed, or None."""

    problem: str | None


class Run:
    """One run of a pipeline: how its caller wants it, and how far it is. Inside its `with`, signals are requests."""

    def __init__(
        self,
        pipeline: str,
        *,
        server: Server | None = None,
        is_once: bool = True,
        every_s: float = 1.0,
        checkpoint: str | None = None,
        progress: Progress | Display = Progress.NONE,
    ) -> None:
        self.pipeline = pipeline
        self.server = server or Server()
        self.is_once = is_once
        """End when all is through that is there at the start; otherwise follow the log until asked to stop."""
        self.every_s = every_s
        """How often a batch begins, where there is something to do; 0 = at once."""
        self.checkpoint = checkpoint
        self.stop = StopRequest()
        self._tally = Tally(pipeline)
        self._display = display(progress) if isinstance(progress, Progress) else progress

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
            return "end after the events that are there now"
        return f"go on, a batch every {self.every_s:g} s"

    def say(self, text: str) -> None:
        """Show a line."""
        self._display.say(text)

    def advance(self, events: int, batch_ms: int, behind: int | None = None) -> None:
        """For pipelines without a streaming query: a step is done. Look at `stop.is_asked` before the next."""
        self._display.show(self._tally.add(self._tally.batches, events, batch_ms, behind))

    def summary(self, ending: Ending | None = None, **details: object) -> Summary:
        """What the run did so far; without an ending: `stopped` if it was asked to stop, else `done`."""
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
    ) -> Summary:
        """Start the query, and follow it until it is through (`is_once`), stopped or failed.

        `each_batch(frame, number)` is what `foreachBatch` takes: give it here and not to the writer, so that a stop
        falls between two batches. Without a checkpoint directory a temporary one is used, if `needs_checkpoint` is
        False: then every run begins where the source's options say.

        Raises PipelineFailed with the cause, or the error of the log that was the cause; InvalidInput where a
        checkpoint is missing.
        """
        with contextlib.ExitStack() as stack:
            if self.checkpoint is None and needs_checkpoint:
                raise InvalidInput("a directory is needed, where the pipeline keeps how far it is", "checkpoint")
            where = self.checkpoint or tempfile.mkdtemp(prefix="headwater-checkpoint-")
            if self.checkpoint is None:
                stack.callback(shutil.rmtree, where, ignore_errors=True)
            gate = None if each_batch is None or _is_remote(writer) else Gate(each_batch)
            if each_batch is not None:
                writer = writer.foreachBatch(gate or each_batch)
            writer = writer.option("checkpointLocation", where).queryName(f"headwater-{self.pipeline}")
            if self.is_once:
                writer = writer.trigger(availableNow=True)
            else:
                writer = writer.trigger(processingTime=f"{round(self.every_s * 1000)} milliseconds")
            return self._follow(writer, gate)

    def _follow(self, writer: DataStreamWriter, gate: Gate | None) -> Summary:
        heard: queue.SimpleQueue[Mapping[str, Any] | _Ended] = queue.SimpleQueue()
        streams = getattr(writer, "_session" if _is_remote(writer) else "_spark").streams
        listener = _listener(f"headwater-{self.pipeline}", heard)
        streams.addListener(listener)
        try:
            query = writer.start()
            ending = self._watch(query, gate, heard)
        except EventLogError:
            raise
        except Exception as error:
            raise failed(self.pipeline, error) from error
        finally:
            with contextlib.suppress(Exception):  # where Spark is gone, so is the listener
                streams.removeListener(listener)
        return self.summary(ending)

    def _watch(
        self, query: StreamingQuery, gate: Gate | None, heard: queue.SimpleQueue[Mapping[str, Any] | _Ended]
    ) -> Ending:
        told = stopped = False
        batches_before = 0
        give_up = None
        while True:
            with contextlib.suppress(queue.Empty):
                word = heard.get(timeout=POLL_S)
                if isinstance(word, _Ended):
                    return self._ending(query, stopped)
                self._progress(word)
            if self.stop.is_asked and not told:
                self.say("stopping after this batch; once more stops at once")
                told, batches_before = True, self._tally.batches
            if self.stop.is_urgent and not stopped:
                query.stop()
                return Ending.INTERRUPTED
            if told and not stopped and self._is_between(query, gate, self._tally.batches > batches_before):
                stopped = True
                query.stop()
            if give_up is None and not query.isActive:
                give_up = time.monotonic() + LAST_WORDS_S
            if give_up is not None and time.monotonic() > give_up:
                return self._ending(query, stopped)

    @staticmethod
    def _is_between(query: StreamingQuery, gate: Gate | None, has_ended_one: bool) -> bool:
        """Whether a stop costs no batch, or one that has just begun and can be done again."""
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
        """Passes on what Spark says of the query of that name; it is called in another thread."""

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
