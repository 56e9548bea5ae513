"""A forked command behaves as a new process does: output, exit codes, logs, surroundings. Its template ends, too."""

from __future__ import annotations

import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import eventually

from . import starting, template
from .running import SILENCE_S_MAX, RunningServer, environment
from .starting import PROGRAM, Forked, run, start, the_template

pytestmark = pytest.mark.skipif(not starting.IS_FORKED, reason="commands are forked on Linux only")

IN_MEMORY = ("serve", "--storage", "memory", "--http-port", "0", "--amqp-port", "0", "--flight-enabled", "false")
_CHANGES = re.compile(r"time=\S+|incarnation=\S+|:\d+\b|\b0x[0-9a-f]+")
"""What of a log line is another with each start."""
_SAME = ("Umask", "SigBlk", "SigIgn", "SigCgt", "Seccomp", "NoNewPrivs", "CapEff")
"""Lines of /proc/PID/status."""
IN_TURN = f"""
import sys
sys.path[:] = {[str(starting.ROOT), *sys.path]!r}
from tests.server.starting import Forked, the_template
server = Forked({list(IN_MEMORY)!r}, stdout=sys.stderr)
print(the_template().pid, server.pid, flush=True)
sys.stdin.read()
"""
"""A process that starts a server, and ends when its standard input does."""


def surroundings(pid: int) -> dict[str, Any]:
    """What a process has of the one that started it."""
    place = Path(f"/proc/{pid}")
    status: dict[str, str] = {}

    def is_at_rest() -> bool:
        status.update(_status(place))
        return not status["SigBlk"].startswith("ff")  # as it is while a thread is started

    eventually(is_at_rest)
    numbers = (place / "stat").read_text().rpartition(")")[2].split()
    return {
        "group": int(numbers[2]),
        "session": int(numbers[3]),
        "directory": os.readlink(place / "cwd"),
        "limits": (place / "limits").read_text(),
        "standard": [os.readlink(place / "fd" / str(number)).partition(":")[0] for number in range(3)],
        "descriptors": sorted(os.readlink(each).partition(":")[0] for each in (place / "fd").iterdir()),
        **{name: status[name] for name in _SAME},
    }


def _status(place: Path) -> dict[str, str]:
    return dict(line.split(":\t", 1) for line in (place / "status").read_text().splitlines())


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        (0, ["--version"]),
        (0, ["config"]),
        (2, ["serve", "--http-port", "much"]),
        (3, ["logs", "list", "--url", "http://127.0.0.1:1", "--retry-s", "0"]),
        (4, ["check", "--data", "file"]),
    ],
    ids=lambda each: each[0] if isinstance(each, list) else None,
)
def test_a_command_says_the_same_and_has_the_same_exit_code(tmp_path: Path, code: int, arguments: list[str]) -> None:
    (tmp_path / "file").touch()
    given = {"cwd": tmp_path, "env": environment(HEADWATER_AMQP_PORT="5699"), "timeout": SILENCE_S_MAX}
    forked, real = (run(arguments, program=program, **given) for program in (None, PROGRAM))
    assert (forked.returncode, forked.stdout, forked.stderr) == (real.returncode, real.stdout, real.stderr)
    assert forked.returncode == code
    assert arguments != ["config"] or "5699" in forked.stdout


def test_a_server_logs_the_same_from_start_to_stop(tmp_path: Path) -> None:
    logged = []
    for program in (None, PROGRAM):
        place = tmp_path / ("forked" if program is None else "real")
        place.mkdir()
        with RunningServer("--log", "orders", cwd=place, program=program) as server:
            assert server.ask("/health/ready") == (200, '{"status": "ready"}')
            assert server.ask("/logs/nowhere")[0] == 404
            assert server.terminate() == 0
            assert server.process.stdout is not None
            said = server.line + server.process.stdout.read() + server.errors
        logged.append([_CHANGES.sub("", line) for line in said.splitlines()])
    assert logged[0] == logged[1]
    assert any("message=stopped" in line or "message=stopping" in line for line in logged[0])


@pytest.mark.parametrize("leads_session", [False, True])
def test_it_has_the_surroundings_that_a_new_process_would_have(tmp_path: Path, leads_session: bool) -> None:
    """With a limit, a umask and a directory that are not the template's, and an open file that is not passed on."""
    limit = resource.getrlimit(resource.RLIMIT_CORE)
    found = []
    the_template()
    umask = os.umask(0o027)
    resource.setrlimit(resource.RLIMIT_CORE, (0, limit[1]))
    try:
        with (tmp_path / "open").open("w") as kept:
            os.set_inheritable(kept.fileno(), True)
            for program in (None, PROGRAM):
                with start(
                    IN_MEMORY,
                    program=program,
                    cwd=tmp_path,
                    env=environment(),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    start_new_session=leads_session,
                ) as server:
                    assert server.stdout.readline().startswith(b"headwater: listening on http://")
                    assert server.stdout.readline().startswith(b"headwater: listening on amqp://")
                    found.append(surroundings(server.pid))
                    if leads_session:
                        assert found[-1].pop("session") == found[-1].pop("group") == server.pid
                    server.terminate()
                    assert server.wait(SILENCE_S_MAX) == 0
    finally:
        os.umask(umask)
        resource.setrlimit(resource.RLIMIT_CORE, limit)
    assert found[0] == found[1]
    assert found[0]["Umask"] == "0027"


def test_its_environment_is_the_given_one_alone(tmp_path: Path) -> None:
    """As the process sees it that the server starts itself."""
    found = []
    flight = ("--flight-enabled", "true", "--flight-port", "0", "--flight-start", "at_once")
    variables = {"OF_THIS_TEST": "ü", "HEADWATER_LOG_LEVEL": "error"}
    for program in (None, PROGRAM):
        with RunningServer("--data", "data", *flight, cwd=tmp_path, program=program, variables=variables) as server:
            server.further_url("grpc")
            [bulk] = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
            given = Path(f"/proc/{bulk}/environ").read_bytes().decode().rstrip("\0").split("\0")
            found.append(dict(each.split("=", 1) for each in given))
            assert server.terminate() == 0
            assert server.errors == ""
    assert found[0] == found[1]
    assert found[0]["OF_THIS_TEST"] == "ü"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGUSR1, signal.SIGUSR2])
def test_the_end_by_a_signal_is_reported(tmp_path: Path, number: signal.Signals) -> None:
    given = ["events", "--amqp-url", "amqp://127.0.0.1:1", "--retry-s", "3600"]
    with start(given, cwd=tmp_path, env=environment(), stderr=subprocess.DEVNULL) as process:
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.send_signal(number)
        assert process.wait(SILENCE_S_MAX) == process.poll() == process.returncode == -number
        process.kill()  # does nothing, as there is none any more
        assert not Path(f"/proc/{process.pid}").exists()


def test_an_interrupt_ends_a_server_in_order(tmp_path: Path) -> None:
    """The template ignores it, and what it forks does not."""
    with RunningServer(cwd=tmp_path) as server:
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(SILENCE_S_MAX) == 0


def test_what_would_come_too_late_is_refused(tmp_path: Path) -> None:
    for name in ("PYTHONWARNINGS", "MALLOC_ARENA_MAX", "LD_PRELOAD"):
        with pytest.raises(AssertionError, match=f"{name} .*name a program"):
            Forked(["--version"], cwd=tmp_path, env=environment(**{name: "1"}))


def test_what_a_server_in_this_process_has_set_is_not_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")
    monkeypatch.setenv("OF_THIS_TEST", "ü")
    assert "MALLOC_ARENA_MAX" not in environment()
    assert environment()["OF_THIS_TEST"] == "ü"
    with Forked(["--version"], stdout=subprocess.DEVNULL) as process:
        assert process.wait(SILENCE_S_MAX) == 0


def test_a_process_with_threads_is_not_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("it was forked"))
    is_over = threading.Event()
    other = threading.Thread(target=is_over.wait)
    other.start()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        with ours, theirs:
            socket.send_fds(ours, [b"[]"], [0, 1, 2, 2])
            with pytest.raises(AssertionError, match=r"\d threads"):
                template.Template(theirs).run()
    finally:
        is_over.set()
        other.join()


@pytest.mark.parametrize("is_killed", [False, True])
def test_the_template_and_its_servers_end_with_the_process_of_the_tests(is_killed: bool) -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", IN_TURN], stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin is not None and process.stdout is not None
        pids = [int(each) for each in process.stdout.readline().split()]
        assert len(pids) == 2 and all(Path(f"/proc/{pid}").exists() for pid in pids)
        if is_killed:
            process.kill()
        process.stdin.close()
        process.wait(SILENCE_S_MAX)
    eventually(lambda: not any(is_alive(pid) for pid in pids))


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended may wait for whoever takes its exit code."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
