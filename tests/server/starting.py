"""How tests start `headwater`: by a fork of a process that has imported it (`tests.server.template`), or for real.

A forked process has its own environment, directory, descriptors, limits, session and signal handlers. It differs in
three ways: it shares memory with the others, it has their hash seed, and a library that reads the environment when it
is imported has read the template's. A test that judges memory, threads, libraries or the start names a `program`.
"""

from __future__ import annotations

import atexit
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from . import template
from .template import INTEGER_BYTES, PACKET_BYTES_MAX, Start

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, "-c", "from headwater.cli.main import main; main()"]
"""The real command, in a process that imports it itself."""
IS_FORKED = sys.platform == "linux"
"""Elsewhere a fork without `exec` is not safe, and every command is a real one."""
READ_AT_START = ("GLIBC_", "LANG", "LC_", "LD_", "MALLOC_", "OMP_", "OPENBLAS_", "OPENSSL_", "PROMETHEUS_", "PYTHON")
"""Prefixes of variables that are read when a process starts or a library is imported, so before a fork."""
AT_START = dict(os.environ)
"""The environment before any test changed it."""

File = int | IO[Any] | None
"""As `subprocess.Popen` takes them: a descriptor, an open file, PIPE, DEVNULL; None is this process's own."""


class Forked:
    """A process that the template has forked, to be used as `subprocess.Popen` is."""

    pid = 0
    """Its process id."""
    returncode: int | None = None
    """Its exit code, once `poll` or `wait` has seen it; of a signal, negative."""
    stdin = stdout = stderr = None
    """This process's ends of its pipes."""
    _end = -1
    """Where the template reports; open as long as this object, as any thread may wait."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: File = None,
        stdout: File = None,
        stderr: File = None,
        text: bool = False,
        start_new_session: bool = False,
    ) -> None:
        """As for `subprocess.Popen`, but `inherited` without `env`. AssertionError: a variable would come too late."""
        self.args = list(arguments)
        environment = inherited() if env is None else dict(env)
        early = sorted(name for name in {*environment, *AT_START} if _is_early(name, environment))
        assert not early, f"{', '.join(early)} of a forked process cannot differ from the template's: name a program"
        start = Start(
            self.args, environment, os.path.abspath(cwd or "."), _umask(), _limits(), leads_session=start_new_session
        )
        self._lock = threading.Lock()
        self._end, end_of_template = os.pipe()
        theirs = [_theirs(given, own) for own, given in enumerate((stdin, stdout, stderr))]
        self.stdin, self.stdout, self.stderr = (_ours(pipe, own, text) for own, (_, pipe) in enumerate(theirs))
        try:
            the_template().send(start, [*(file for file, _ in theirs), end_of_template])
        finally:
            os.close(end_of_template)
            for (file, _), given in zip(theirs, (stdin, stdout, stderr), strict=True):
                if given in (subprocess.PIPE, subprocess.DEVNULL):
                    os.close(file)
        self.pid = self._read()

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        return self._await(0)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, when it has ended. Raises subprocess.TimeoutExpired after so many seconds."""
        if (code := self._await(timeout)) is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return code

    def send_signal(self, number: int) -> None:
        """Send it, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Forked:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for pipe in (self.stdin, self.stdout, self.stderr):
            if pipe is not None:
                pipe.close()
        self.wait()

    def __del__(self) -> None:
        if self.pid and self.poll() is None:
            warnings.warn(f"process {self.pid} is still running", ResourceWarning, source=self, stacklevel=2)
        if self._end >= 0:
            os.close(self._end)

    def _await(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            ended = select.poll()
            ended.register(self._end, select.POLLIN)
            if ended.poll(None if timeout is None else timeout * 1000):
                with self._lock:
                    if self.returncode is None:
                        self.returncode = self._read()
        return self.returncode

    def _read(self) -> int:
        """The next number from the template: the process id, then the exit code."""
        told = os.read(self._end, INTEGER_BYTES)
        assert told, f"the template of servers has ended: {the_template().said()}"
        return int.from_bytes(told, "little", signed=True)


Process = subprocess.Popen[Any] | Forked


def start(arguments: Sequence[str], *, program: Sequence[str | Path] | None = None, **options: Any) -> Process:
    """`headwater` with these arguments: forked, or if a program is named, a new process that runs it.

    The options are those of `Forked`.
    """
    if program is None and IS_FORKED:
        return Forked(arguments, **options)
    return subprocess.Popen([*(program or PROGRAM), *arguments], **options)


def run(
    arguments: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout: float,
    stdin: str = "",
    program: Sequence[str | Path] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `headwater` to its end. Raises subprocess.TimeoutExpired; then it is killed."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin.encode())
        given.seek(0)
        with start(arguments, program=program, cwd=cwd, env=env, stdin=given, stdout=out, stderr=err) as process:
            try:
                code = process.wait(timeout)
            except BaseException:
                process.kill()
                raise
        return subprocess.CompletedProcess(list(arguments), code, _all_of(out), _all_of(err))


def inherited() -> dict[str, str]:
    """The environment of this process, with the variables of `READ_AT_START` as they were before any test.

    `headwater serve`, which some tests run in this process, sets some of them for the processes that it starts.
    """
    later = {name: value for name, value in os.environ.items() if not name.startswith(READ_AT_START)}
    return {**{name: value for name, value in AT_START.items() if name.startswith(READ_AT_START)}, **later}


class TemplateProcess:
    """A running template, as the process sees it that started it."""

    def __init__(self) -> None:
        self.of = os.getpid()
        """The process that started it; a fork of that one starts its own."""
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        self._packets, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path = os.pathsep.join(filter(None, sys.path))
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", template.__name__, str(theirs.fileno())],
                cwd=ROOT,
                env={**AT_START, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._said,
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def send(self, start: Start, descriptors: Sequence[int]) -> None:
        """Have it fork. Any thread may ask."""
        packet = json.dumps(start).encode()
        assert len(packet) <= PACKET_BYTES_MAX, f"{len(packet)} bytes of arguments and environment are too many"
        try:
            socket.send_fds(self._packets, [packet], descriptors)
        except BrokenPipeError:
            raise AssertionError(f"the template of servers has ended: {self.said()}") from None

    def said(self) -> str:
        """What it wrote to standard error."""
        return os.pread(self._said.fileno(), 100_000, 0).decode(errors="replace")

    def close(self) -> None:
        """End it."""
        self._packets.close()
        self._process.wait()
        self._said.close()


_lock = threading.Lock()
_current: TemplateProcess | None = None


def the_template() -> TemplateProcess:
    """The template of this process, started on first use; it ends when this process ends or is killed."""
    global _current
    with _lock:
        if _current is None or _current.of != os.getpid():
            _current = TemplateProcess()
            atexit.register(_current.close)
        return _current


def _is_early(name: str, environment: Mapping[str, str]) -> bool:
    """Whether a forked process would get this variable too late."""
    return name.startswith(READ_AT_START) and name != "PYTHONPATH" and environment.get(name) != AT_START.get(name)


def _umask() -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")  # os.umask would change it, for all threads
    return int(status.partition("Umask:")[2].split()[0], 8)


def _limits() -> list[tuple[int, int, int]]:
    kinds = {getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")}
    return [(kind, *resource.getrlimit(kind)) for kind in sorted(kinds)]


def _theirs(given: File, own: int) -> tuple[int, int | None]:
    """The descriptor that the process gets as its own, and our end where it is a pipe."""
    if given is None:
        return own, None
    if given == subprocess.DEVNULL:
        return os.open(os.devnull, os.O_RDWR), None
    if given == subprocess.PIPE:
        reading, writing = os.pipe()
        return (reading, writing) if own == 0 else (writing, reading)
    return given if isinstance(given, int) else given.fileno(), None


def _ours(pipe: int | None, own: int, text: bool) -> IO[Any] | None:
    if pipe is None:
        return None
    mode = "w" if own == 0 else "r"
    return open(pipe, mode, encoding="utf-8") if text else open(pipe, f"{mode}b")


def _all_of(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()
