"""The worker process: seals segments, merges postings and verifies files without using the server's core.

Each job is one line of JSON on input, and each answer one line on output. A dead worker is replaced and its job
repeated: jobs write whole files or none.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import msgspec

from ...core.errors import Closed, StorageUnavailable
from ...formats.decoders import json_decoder
from ..index.builder import index_part, merge, merge_ids, seal
from .file_proof import FileProver, FileToProve, Proof

logger = logging.getLogger("headwater.storage")

JOB_ATTEMPTS = 3
_prover = FileProver()
"""The worker's verifier, which works on one file over many jobs."""


class Job(msgspec.Struct, omit_defaults=True):
    """Seal a log's segment, up to its last number, with `parts` already in files; or index its events from `first` on.

    Or merge the postings, or the ids, of some ranges in a directory. Or continue proving a file.
    """

    directory: str = ""
    segment: str = ""
    last: int = 0
    first: int = 0
    parts: list[tuple[int, int]] = []
    merge: list[tuple[int, int]] = []
    merge_ids: list[tuple[int, int]] = []
    proving: FileToProve | None = None


class Answer(msgspec.Struct, omit_defaults=True):
    """`problem` is empty if the job was done."""

    problem: str = ""
    proof: Proof = msgspec.field(default_factory=Proof)


class IndexWorker:
    """The server's side: starts the process with the first job. Jobs run one at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._is_closed = False

    def run(self, job: Job) -> str:
        """Do a job; blocks. Returns the problem, or an empty string. A dead worker is replaced, at most twice.

        Raises Closed: the worker was closed meanwhile.
        """
        return self._answered(job).problem

    def prove(self, file: FileToProve) -> Proof:
        """Continue proving a file. Raises Closed, and StorageUnavailable if it cannot be proved."""
        answer = self._answered(Job(proving=file))
        if answer.problem:
            raise StorageUnavailable(answer.problem)
        return answer.proof

    def _answered(self, job: Job) -> Answer:
        with self._lock:
            for _ in range(JOB_ATTEMPTS):
                try:
                    if not self._is_closed:
                        return self._ask(job)
                except (OSError, msgspec.DecodeError) as error:
                    if not self._is_closed:
                        logger.warning("the worker process died (%s); starting another", error)
                    self._end()
                if self._is_closed:
                    raise Closed("worker")
            return Answer("the worker process died repeatedly")

    def rest(self) -> None:
        """End the process, because there is no work for a while; the next job starts another one."""
        with self._lock:
            self._end()

    def close(self) -> None:
        """End the process; a running job is abandoned (and repeated at the next start)."""
        self._is_closed = True
        if (process := self._process) is not None:
            process.terminate()
        with self._lock:
            self._end()

    def _ask(self, job: Job) -> Answer:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-c", "from headwater.storage.maintenance.worker import main; main()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(msgspec.json.encode(job) + b"\n")
        process.stdin.flush()
        return json_decoder(Answer).decode(process.stdout.readline())

    def _end(self) -> None:
        if (process := self._process) is None:
            return
        self._process = None
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):  # it did not accept the job
                    pipe.close()


def main() -> None:
    """The worker's side: do jobs until standard input ends. It ignores the server's signals."""
    import signal

    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.nice(5)
    for line in sys.stdin.buffer:
        answer = msgspec.json.encode(do(json_decoder(Job).decode(line)))
        try:
            sys.stdout.buffer.write(answer + b"\n")
            sys.stdout.buffer.flush()
        except BrokenPipeError:  # the server was killed meanwhile
            os._exit(0)  # a normal exit would complain about the unread answer


def do(job: Job) -> Answer:
    """Do one job."""
    try:
        if job.proving:
            return Answer(proof=_prover.step(job.proving))
        if job.merge:
            merge(Path(job.directory), job.merge)
        elif job.merge_ids:
            merge_ids(Path(job.directory), job.merge_ids)
        elif job.first:
            index_part(Path(job.directory), job.segment, job.first, job.last)
        else:
            seal(Path(job.directory), job.segment, job.last, job.parts)
        return Answer()
    except Exception as error:  # sent to the server, which logs it and continues
        return Answer(f"{type(error).__name__}: {error}")
