"""Following a query: progress, stops between batches, errors in a line; without Spark as far as that goes."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from py4j import java_gateway
from pyspark.sql import DataFrame, SparkSession

from headwater.core.errors import InvalidInput
from headwater.core.local import LocalLog
from headwater.spark.pipeline import run as run_module
from headwater.spark.pipeline.failures import (
    DEAD_WORKER,
    JAVA_ENDED,
    NO_WORKER,
    PipelineFailed,
    cause_in,
    failed,
    is_sparks,
    is_transient,
)
from headwater.spark.pipeline.progress import BatchDone, Progress, Tally, behind, display
from headwater.spark.pipeline.run import Ending, Run, Server
from headwater.spark.pipeline.stop import StopGate, StoppedAtOnce, StoppedBetweenBatches, StopRequest
from headwater.spark.session.java import copy_to_stderr, is_noise, let_end_quietly
from tests.night import night
from tests.waiting import eventually

from ..conftest import SOURCES

Stream = Callable[..., DataFrame]


class Shown:
    """A display that remembers."""

    def __init__(self) -> None:
        self.batches: list[BatchDone] = []
        self.said: list[str] = []
        self.on_batch: Callable[[], object] = lambda: None

    def show(self, done: BatchDone) -> None:
        self.batches.append(done)
        self.on_batch()

    def say(self, text: str) -> None:
        self.said.append(text)

    def close(self) -> None:
        pass


# Signals


def test_the_first_signal_asks_and_the_second_is_urgent() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with StopRequest() as stop:
        assert not stop.is_asked
        os.kill(os.getpid(), signal.SIGTERM)
        assert (stop.is_asked, stop.is_urgent) == (True, False)
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.is_urgent
    assert signal.getsignal(signal.SIGTERM) is before


def test_outside_the_main_thread_signals_are_left_alone() -> None:
    before = signal.getsignal(signal.SIGTERM)
    found = []

    def elsewhere() -> None:
        with StopRequest() as stop:
            found.append(signal.getsignal(signal.SIGTERM))
            stop.ask()
            found.append(stop.is_asked)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == [before, True]


def test_a_gate_that_is_closed_lets_the_batch_end_and_none_begin() -> None:
    inside, may_end = threading.Event(), threading.Event()
    done = []

    def batch(frame: object, number: int) -> None:
        inside.set()
        may_end.wait(10)
        done.append(number)

    gate = StopGate(batch)
    thread = threading.Thread(target=gate, args=(None, 1))
    thread.start()
    assert inside.wait(10)
    assert not gate.close()
    may_end.set()
    thread.join()
    assert gate.close()
    with pytest.raises(StoppedBetweenBatches):
        gate(None, 2)
    assert done == [1]


def test_a_batch_that_fails_leaves_the_gate() -> None:
    def fail(frame: object, number: int) -> None:
        raise ValueError

    gate = StopGate(fail)
    with pytest.raises(ValueError):
        gate(None, 1)
    assert gate.close()


# Progress


def test_totals_grow_batch_by_batch() -> None:
    tally = Tally("copy")
    first, second = tally.add(7, 100, 1000, 50), tally.add(8, 50, 10, None)
    assert (first.batch, first.events_total, first.batches_total, first.behind) == (7, 100, 1, 50)
    assert (second.batch, second.events_total, second.batches_total, second.behind) == (8, 150, 2, None)
    assert first.events_per_s <= 100


@pytest.mark.parametrize(
    ("sources", "left"),
    [
        ([{"endOffset": '{"v": 1, "logs": {"a": {"incarnation": "x", "position": 5}}}',
           "latestOffset": '{"v": 1, "logs": {"a": {"incarnation": "x", "position": 12}}}'}], 7),
        ([{"endOffset": '{"v": 1, "logs": {"a": {"position": 5}}}',
           "latestOffset": '{"v": 1, "logs": {"a": {"position": 6}, "b": {"position": 4}}}'}], 5),
        ([{"endOffset": "5", "latestOffset": "9"}, {"endOffset": None, "latestOffset": None}], 4),
        ([{"endOffset": "9", "latestOffset": "5"}], 0),
        ([{"endOffset": "not JSON", "latestOffset": "5"}], None),
        ([], None),
    ],
)  # fmt: skip
def test_behind_is_the_distance_from_the_end_of_the_batch_to_the_head(
    sources: list[dict[str, str | None]], left: int | None
) -> None:
    assert behind(sources) == left


DONE = BatchDone("copy", 3, 1200, 250, 40, 4800.0, 5000, 4)


def test_without_a_terminal_progress_is_lines_of_which_the_last_is_always_there() -> None:
    stream = io.StringIO()
    shown = display(Progress.AUTO, stream)
    for batch in range(5):
        shown.show(DONE._replace(batch=batch))
    shown.close()
    lines = stream.getvalue().splitlines()
    assert lines[-1].startswith("copy: batch 4   1,200 events in 250 ms   4,800 events/s   behind 40   total 5,000 in")
    assert len(lines) < 5


def test_json_progress_is_an_object_per_batch() -> None:
    stream = io.StringIO()
    shown = display(Progress.JSON, stream)
    shown.show(DONE)
    shown.say("hello")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert first.pop("time").endswith("Z")
    assert first == DONE._asdict()
    assert second["message"] == "hello"


def test_on_a_terminal_progress_is_one_line_that_changes() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    shown = display(Progress.AUTO, stream)
    shown.say("begins")
    shown.show(DONE)
    shown.show(DONE._replace(batch=9))
    shown.say("stays")
    shown.close()
    said = stream.getvalue()
    assert "batch 3" in said and "batch 9" in said and "stays" in said and "begins" in said


# Errors

IN_A_WORKER = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted: Lost task 0.0:
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
KeyError: 'a'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "sink.py", line 9, in write
    raise LogNotFound(name)
headwater.core.errors.LogNotFound: there is no log 'orders'
 SQLSTATE: 38000

=== Streaming Query ===
Identifier: x [id = 1]
\tat org.apache.spark.Something(Something.scala:1)
Caused by: org.apache.spark.SparkException: something outside
"""

FROM_PY4J = """Traceback (most recent call last):
  File "protocol.py", line 327, in get_return_value
    raise Py4JJavaError(
py4j.protocol.Py4JJavaError: An error occurred while calling o95.save.
: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/x. SQLSTATE: 58030
\tat org.apache.spark.Something(Something.scala:1)
Caused by: java.io.IOException: No space left on device
\tat java.base/sun.nio.ch.FileDispatcherImpl.write0(Native Method)
\t... 12 more
"""


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (IN_A_WORKER, "there is no log 'orders'"),
        ("It failed: Traceback (most recent call last):\n  File x\n    y\nValueError: bad\nworse\n\n\tat a.b(c)",
         "ValueError: bad worse"),
        ("it failed\n\tat a.b\nCaused by: java.io.IOException: outer\n\tat c\nCaused by: java.net.Failure: inner",
         "inner"),
        ("[PATH_NOT_FOUND] There is no file:/x. SQLSTATE: 42K03;\nmore", "[PATH_NOT_FOUND] There is no file:/x"),
        ("\n\nplain. SQLSTATE: 42K03", "plain"),
        ("", ""),
        (FROM_PY4J, "No space left on device"),
        ("An error occurred while calling o5.save.\n: java.io.IOException: No space left on device\n\tat a.b(c)",
         "No space left on device"),
        ("Job aborted: Task 0 in stage 1.0 failed 1 times, most recent failure: Lost task 0.0 in stage 1.0 (TID 1) "
         "(host executor driver): java.io.IOException: No space left on device\n\tat a.b(c)\n\nDriver stacktrace:",
         "No space left on device"),
    ],
)  # fmt: skip
def test_the_cause_is_found_in_what_spark_says(text: str, cause: str) -> None:
    assert cause_in(text) == cause


def test_a_server_is_told_to_sources_and_sinks_without_what_is_not_set() -> None:
    server = Server("grpc://h:1", user="u", password="secret", is_verified=False)
    assert server.options(log="orders", query=None, includeMetadata=False) == {
        "url": "grpc://h:1", "user": "u", "password": "secret", "tlsVerify": "false", "log": "orders",
        "includeMetadata": "false",
    }  # fmt: skip
    assert "secret" not in repr(server)


class LateWorker(Exception):
    """As Spark says it."""

    def __init__(self) -> None:
        super().__init__(
            "Job aborted\nCaused by: org.apache.spark.SparkException: Python worker failed to connect back."
        )


def test_what_failed_as_a_worker_was_late_is_tried_again_and_a_batch_starts_the_count_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_module, "PAUSES_S", (0.01, 0.02))
    shown, tries = Shown(), iter(range(100))
    with Run("copy", progress=shown) as run:

        def attempt() -> int:
            if (number := next(tries)) in (2, 4):
                run.advance(1, 1)
            if number < 6:
                raise LateWorker
            return number

        assert run.retrying(attempt) == 6
        with pytest.raises(LateWorker):
            run.retrying(lambda: [next(tries), attempt_late()])
        with pytest.raises(ValueError):
            run.retrying(lambda: int("x"))
    assert next(tries) == 10
    assert shown.said[:2] == [f"copy: {NO_WORKER}; trying again in {pause_s} s" for pause_s in (0.01, 0.02)]
    assert len(shown.said) == 8
    assert str(failed("copy", LateWorker())) == f"pipeline copy: {NO_WORKER}"


class WritingFailed(Exception):
    """As PySpark tells of a batch whose worker ended, and so did the one that should have given the batch up."""

    def __init__(self) -> None:
        super().__init__("Writing job failed.\n=== Streaming Query ===")
        self._cause = Exception("org.apache.spark.SparkException: Writing job failed.")
        vars(self._cause)["_cause"] = Exception(
            "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times, "
            "most recent failure: Lost task 0.0 in stage 3.0 (TID 3) (host executor driver): "
            "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"
        )


def test_a_dead_worker_is_seen_where_the_batch_could_not_be_given_up() -> None:
    assert is_transient(WritingFailed())
    assert str(failed("copy", WritingFailed())) == f"pipeline copy: {DEAD_WORKER}"


def attempt_late() -> None:
    raise LateWorker


def test_nobody_who_wants_the_end_waits_for_another_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "PAUSES_S", (3600.0,))
    shown = Shown()
    with Run("copy", progress=shown) as run:
        asking = threading.Thread(target=lambda: (eventually(lambda: shown.said), run.stop.ask()))
        asking.start()
        with pytest.raises(LateWorker):
            run.retrying(attempt_late)
        asking.join()
    assert len(shown.said) == 1


def test_a_java_that_does_not_answer_is_told_as_such_and_no_server_is() -> None:
    connection = java_gateway.GatewayConnection(java_gateway.GatewayParameters(port=1))
    with pytest.raises(Exception) as caught:
        connection.start()
    connection.socket.close()  # py4j leaves it open
    assert is_sparks(caught.value)
    assert str(failed("copy", caught.value)) == f"pipeline copy: {JAVA_ENDED}"
    assert not is_sparks(ConnectionRefusedError(111, "Connection refused"))


def test_a_step_ends_at_once_where_it_is_asked_twice() -> None:
    shown, inside, ended = Shown(), threading.Event(), threading.Event()

    class Spark:
        _jsparkSession = None

        class sparkContext:
            @staticmethod
            def cancelAllJobs() -> None:
                ended.set()

    def work() -> None:
        inside.set()
        ended.wait(60)
        raise ValueError("what is cancelled fails")

    with Run("import", progress=shown) as run:

        def signals() -> None:
            inside.wait(60)
            run.stop.ask()
            eventually(lambda: shown.said)
            run.stop.ask()

        asking = threading.Thread(target=signals)
        asking.start()
        with pytest.raises(StoppedAtOnce):
            run.step(Spark(), work)
        asking.join()
    assert shown.said == ["stopping after this batch; repeat to stop immediately"]


def test_progress_says_how_far_it_is_from_the_first_second() -> None:
    for kind, said in ((Progress.LINES, "0 %"), (Progress.JSON, '"percent": 0.0')):
        stream = io.StringIO()
        with Run("copy", progress=display(kind, stream)) as run:
            run.expect(1000, 100)
            assert said in stream.getvalue()
    tally = Tally("copy")
    tally.expect(1000, 100)
    assert tally.status(0.5).percent == 5  # of its tasks
    done = tally.add(0, 250, 10, None, left=750)
    assert (done.percent, done.behind) == (25, None) and done.remaining_s is not None
    assert tally.add(1, 750, 10, 0)[-2:] == (100, 0)
    assert Tally("copy").status()[1:3] == (None, None)


def test_what_java_says_of_itself_is_no_news() -> None:
    assert is_noise("WARNING: Using incubator modules: jdk.incubator.vector\n")
    assert is_noise("WARNING: package sun.security.action not in java.base\n")
    assert is_noise("WARNING: sun.misc.Unsafe::objectFieldOffset has been called by x\n")
    assert is_noise("Streaming TransformWithStateInPandas Python worker received parameters for UDF. State server")
    assert not is_noise("WARNING: the price of order 17 is missing\n")


def test_what_java_says_is_copied_without_the_noise_and_a_bar_of_progress_as_it_comes(
    capfd: pytest.CaptureFixture[str],
) -> None:
    reading, writing = os.pipe()
    copying = threading.Thread(target=copy_to_stderr, args=(os.fdopen(reading, "rb", buffering=0),))
    copying.start()
    os.write(writing, b"WARNING: Using incubator modules: ")
    os.write(writing, b"jdk.incubator.vector\n26/11/27 ERROR Executor: failed\n\n")
    os.write(writing, b"\r[Stage 0:>  (0 + 2) / 4]")
    said: list[str] = []
    eventually(lambda: said.append(capfd.readouterr().err) or "Stage 0" in "".join(said))
    os.write(writing, b"\nthe end")
    os.close(writing)
    copying.join()
    said.append(capfd.readouterr().err)
    assert "".join(said) == "26/11/27 ERROR Executor: failed\n\n\r[Stage 0:>  (0 + 2) / 4]\nthe end"


def test_the_end_of_java_is_not_told_by_the_server_that_counts_for_it() -> None:
    told = []

    class Context:
        class _accumulatorServer:
            @staticmethod
            def handle_error(request: object, address: object) -> None:
                told.append(sys.exception())

    let_end_quietly(Context)
    for error in (EOFError(), ConnectionResetError(), ValueError()):
        try:
            raise error
        except Exception:
            Context._accumulatorServer.handle_error(None, None)
    assert told == [error]
    let_end_quietly(object())


def test_a_java_that_ends_while_it_answers_is_an_error_and_no_traceback_in_the_log() -> None:
    program = """
import logging, socket, sys, threading
from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JError
from headwater.spark.session.java import keep_py4j_quiet

def ends_while_it_answers(java):
    with java.accept()[0] as connection:
        connection.recv(1)

keep_py4j_quiet()
with socket.create_server(("127.0.0.1", 0)) as java:
    threading.Thread(target=ends_while_it_answers, args=(java,), daemon=True).start()
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=java.getsockname()[1], read_timeout=0.5))
    try:
        gateway.jvm.System.currentTimeMillis()
    except Py4JError:
        print("raised")
logging.warning("the program's own")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout, done.stderr) == ("raised\n", "WARNING:root:the program's own\n")


# Queries


@pytest.fixture
def stream(spark: SparkSession, orders: LocalLog, url: str) -> Stream:
    def read(**options: str) -> DataFrame:
        given = {"url": url, "log": "orders", "maxEventsPerTrigger": "40", **options}
        return spark.readStream.format("headwater").options(**given).load()

    return read


@pytest.fixture(autouse=True)
def _no_query_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "spark" in request.fixturenames:
        assert request.getfixturevalue("spark").streams.active == []


def test_a_run_ends_when_all_is_through_and_says_so(stream: Stream, tmp_path: Path) -> None:
    shown = Shown()
    with Run("count", checkpoint=str(tmp_path), progress=shown) as run:
        summary = run.follow(stream().writeStream.format("noop"))
    assert (summary.ending, summary.events, summary.batches, summary.behind) == (Ending.DONE, 100, 3, 0)
    assert [(done.batch, done.events, done.behind) for done in shown.batches] == [(0, 40, 60), (1, 40, 20), (2, 20, 0)]


def test_a_stop_falls_between_two_batches_of_a_function(stream: Stream, tmp_path: Path) -> None:
    begun, ended = [], []
    run = Run("each", is_once=False, every_s=0, checkpoint=str(tmp_path), progress=Shown())

    def each(frame: DataFrame, number: int) -> None:
        begun.append(number)
        if number == 1:
            run.stop.ask()
        assert frame.count() <= 40
        ended.append(number)

    with run:
        summary = run.follow(stream().writeStream, each)
    assert summary.ending is Ending.STOPPED
    assert begun == ended == [0, 1]
    with Run("each", checkpoint=str(tmp_path)) as again:
        assert again.follow(stream().writeStream, each).events == 20


def test_a_stop_of_a_plain_query_comes_after_its_batch(stream: Stream, tmp_path: Path) -> None:
    shown = Shown()
    with Run("noop", is_once=False, every_s=0, checkpoint=str(tmp_path), progress=shown) as run:
        shown.on_batch = run.stop.ask
        summary = run.follow(stream().writeStream.format("noop"))
    assert summary.ending in (Ending.STOPPED, Ending.INTERRUPTED)  # the third batch asks once more
    assert summary.events >= 40
    assert shown.said == ["stopping after this batch; repeat to stop immediately"]


def test_what_fails_in_a_function_is_told_in_one_line(stream: Stream, tmp_path: Path) -> None:
    def each(frame: DataFrame, number: int) -> None:
        raise ValueError("no room\nfor events")

    with Run("each", checkpoint=str(tmp_path)) as run, pytest.raises(PipelineFailed) as caught:
        run.follow(stream().writeStream, each)
    assert str(caught.value) == "pipeline each: ValueError: no room for events"


def test_what_fails_at_the_start_is_told_in_one_line(stream: Stream, url: str, tmp_path: Path) -> None:
    writer = stream().writeStream.format("headwater").options(url=url, log="orders", onDuplicates="skip")
    with Run("copy", checkpoint=str(tmp_path)) as run, pytest.raises(PipelineFailed, match="did you mean onDuplicate"):
        run.follow(writer)


def test_a_checkpoint_is_asked_for_or_a_temporary_one_is_made(stream: Stream) -> None:
    with Run("noop") as run:
        with pytest.raises(InvalidInput, match="checkpoint"):
            run.follow(stream().writeStream.format("noop"))
        assert run.follow(stream().writeStream.format("noop"), needs_checkpoint=False).events == 100


def test_a_run_without_a_query_counts_its_steps() -> None:
    shown = Shown()
    with Run("export", progress=shown) as run:
        run.advance(10, 5, behind=3)
        run.advance(3, 5, behind=0)
        summary = run.summary(file="x.parquet")
    assert (summary.ending, summary.events, summary.batches, summary.behind) == (Ending.DONE, 13, 2, 0)
    assert summary.details == {"file": "x.parquet"}
    assert [done.batch for done in shown.batches] == [0, 1]


SLOW = """
import sys, time
from headwater.spark import session
from headwater.spark.pipeline.run import Progress, Run
spark = session(master="local[2]", options={"spark.driver.memory": "512m", "spark.log.level": "OFF"})
ticks = spark.readStream.format("rate").option("rowsPerSecond", 5).load()
def each(frame, number):
    print("begun", number, flush=True)
    frame.count()
    time.sleep(1)
    print("ended", number, flush=True)
with Run("slow", is_once=False, every_s=0.1, checkpoint=sys.argv[1], progress=Progress.JSON) as run:
    print(run.follow(ticks.writeStream, each).ending, flush=True)
spark.stop()
"""


@night
def test_control_c_lets_the_batch_end_though_all_processes_get_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SLOW, str(tmp_path / "checkpoint")]
    with (tmp_path / "errors").open("wb") as errors:
        process = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(SOURCES)}, start_new_session=True,
                                   stdout=subprocess.PIPE, stderr=errors, text=True)  # fmt: skip
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line.split())
            if line == "begun 1\n":
                os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        assert process.wait(60) == 0, (tmp_path / "errors").read_text()
        process.stdout.close()
    assert lines == [["begun", "0"], ["ended", "0"], ["begun", "1"], ["ended", "1"], ["stopped"]]
