"""Concurrent clients of a server, in processes of their own: up to 8 processes, and threads in them beyond that.

The same for every contender. A job is a generator: what comes before its first `yield` is preparation and not timed;
each further step is one unit of work that is timed, and yields how many conflicts it met.
"""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event as Start

from .measure import Sample, Stopwatch, WrongAnswer
from .stores.served import Remote, Server

PROCESSES_MAX = 8


@dataclass(frozen=True, slots=True)
class Job:
    """What one client is to do. It must be importable by name: it travels to another process."""

    work: Callable[[Remote, Job], Iterator[int]]
    total: int
    """How many events the log was filled with."""
    fresh_from: int
    """Where this client's fresh events start."""
    steps: int
    client: int = 0


@dataclass(slots=True)
class Report:
    """What the clients of one process did."""

    latencies: list[float]
    conflicts: int
    ended_at: float
    error: str = ""


def run_job(server: Server, job: Job, clients: int, fresh_each: int, units_per_step: int = 1) -> tuple[Sample, int]:
    """Run so many clients to their end; their joint sample (CPU: the server's), and how many conflicts they met."""
    context = multiprocessing.get_context("spawn")
    start = context.Event()
    jobs = [replace(job, client=n, fresh_from=job.fresh_from + n * fresh_each) for n in range(clients)]
    processes, pipes = [], []
    for number in range(min(clients, PROCESSES_MAX)):
        ours, theirs = context.Pipe()
        arguments = (type(server), server.url, jobs[number::PROCESSES_MAX], theirs, start)
        processes.append(context.Process(target=_client_process, args=arguments, daemon=True))
        processes[-1].start()
        theirs.close()
        pipes.append(ours)
    try:
        for pipe in pipes:
            _receive(pipe)
        watch = Stopwatch([server.pid])
        with watch:
            began = time.perf_counter()
            start.set()
            reports = [_receive(pipe) for pipe in pipes]
        for process in processes:
            process.join()
    finally:
        for process in processes:
            process.kill()
    watch.seconds = max(report.ended_at for report in reports) - began
    latencies = [latency for report in reports for latency in report.latencies]
    sample = watch.rate(clients * job.steps * units_per_step, latencies)
    return sample, sum(report.conflicts for report in reports)


def _receive(pipe: Connection) -> Report:
    try:
        report: Report = pipe.recv()
    except EOFError:
        raise WrongAnswer("a client process ended without an answer") from None
    if report.error:
        raise WrongAnswer(f"a client failed: {report.error}")
    return report


def _client_process(kind: type[Server], url: str, jobs: list[Job], pipe: Connection, start: Start) -> None:
    reports = [Report([], 0, 0.0) for _ in jobs]
    is_ready = threading.Barrier(len(jobs) + 1)
    arguments = [(kind, url, job, report, is_ready, start) for job, report in zip(jobs, reports, strict=True)]
    threads = [threading.Thread(target=_client, args=its) for its in arguments]
    for thread in threads:
        thread.start()
    is_ready.wait()
    pipe.send(_joint(reports))
    for thread in threads:
        thread.join()
    pipe.send(_joint(reports))


def _client(kind: type[Server], url: str, job: Job, report: Report, is_ready: threading.Barrier, start: Start) -> None:
    is_waited_for = True
    try:
        remote = kind.connect(url)
        work = job.work(remote, job)
        next(work)
        is_waited_for = False
        is_ready.wait()
        start.wait()
        _step_through(work, report)
        remote.close()
    except Exception as error:  # whatever it is, the parent process reports it
        report.error = repr(error)
        if is_waited_for:
            is_ready.wait()


def _step_through(work: Iterator[int], report: Report) -> None:
    began = time.perf_counter()
    for conflicts in work:
        ended = time.perf_counter()
        report.latencies.append(ended - began)
        report.conflicts += conflicts
        report.ended_at = began = ended


def _joint(reports: list[Report]) -> Report:
    return Report(
        [latency for report in reports for latency in report.latencies],
        sum(report.conflicts for report in reports),
        max(report.ended_at for report in reports),
        "; ".join(report.error for report in reports if report.error),
    )
