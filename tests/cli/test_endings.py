"""How commands end: by which exit code, where nobody reads what they write, and where there is no terminal."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from tests.client.served_memory import ServedMemory
from tests.server.running import SILENCE_S_MAX, environment
from tests.server.starting import PROGRAM, start

from headwater.client import RemoteLog
from headwater.core.event import Event

from .terminal import shown_on_a_terminal


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("read", "orders", "--url", "ftp://x"), 2),
        (("read", "orders", "--url", "nohost"), 2),
        (("read", "bad name"), 2),
        (("read", "orders", "--from", "3", "--after", "3"), 2),
        (("append", "orders", "--type", "T", "--attribute", "foo"), 2),
        (("logs", "delete", "orders"), 2),
        (("manage", "delete", "log", "orders"), 2),
        (("export", "orders", "there.csv"), 1),
        (("read", "gone"), 1),
        (("read", "orders", "--url", "http://127.0.0.1:1", "--retry-s", "0"), 3),
    ],
)
def test_exit_codes_are_those_of_the_reference(
    log: RemoteLog, headwater, arguments: tuple[str, ...], code: int
) -> None:
    Path("there.csv").touch()
    done = headwater(*arguments)
    assert (done.code, done.out) == (code, "")
    assert "Traceback" not in done.err and done.err


def test_a_command_whose_output_nobody_reads_ends_as_cat_does(
    log: RemoteLog, served: ServedMemory, tmp_path: Path
) -> None:
    log.append([Event("Placed", b"x" * 1000)] * 500)
    for arguments in (("read", "orders"), ("read", "orders", "--json"), ("logs", "list"), ("--help",)):
        reading, writing = os.pipe()
        os.close(reading)
        with open(tmp_path / "stderr.txt", "w+", encoding="utf-8") as errors:
            variables = environment(HEADWATER_URL=served.url)
            process = start(arguments, cwd=tmp_path, env=variables, stdout=writing, stderr=errors)
            os.close(writing)
            with process:
                assert process.wait(SILENCE_S_MAX) == -signal.SIGPIPE, arguments
            errors.seek(0)
            assert errors.read() == ""


def test_a_closed_standard_output_is_no_traceback(log: RemoteLog, served: ServedMemory, tmp_path: Path) -> None:
    log.append([Event("Placed")])
    closed = ["sh", "-c", 'exec "$@" <&- >&-', "sh", *PROGRAM, "read", "orders"]
    variables = environment(HEADWATER_URL=served.url)
    done = subprocess.run(closed, env=variables, cwd=tmp_path, stderr=subprocess.PIPE, timeout=SILENCE_S_MAX)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(("variables", "is_colored"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_no_color_is_heeded_on_a_terminal(
    log: RemoteLog, served: ServedMemory, tmp_path: Path, variables: dict[str, str], is_colored: bool
) -> None:
    log.append([Event("Placed", tags=("order:1",))])
    for arguments in (("read", "orders"), ("tail", "orders"))[: 1 if is_colored else 2]:
        shown = shown_on_a_terminal(arguments, cwd=tmp_path, HEADWATER_URL=served.url, **variables)
        assert b"Placed" in shown and (b"\x1b[" in shown) is is_colored, arguments


def test_what_was_nearly_typed_is_suggested(headwater) -> None:
    assert "No such command 'sevre'. Did you mean 'serve'?" in headwater("sevre").err
    assert "Did you mean '--limit'?" in headwater("read", "orders", "--limt", "3").err


def test_the_help_says_what_a_setting_takes(headwater) -> None:
    lines = [line.split()[:2] for line in headwater("serve", "--help").out.splitlines() if line.startswith("  --")]
    shown = dict(each for each in lines if len(each) == 2)
    assert "VALUE" not in shown.values()
    wanted = {"--data": "PATH", "--storage": "[disk|memory]", "--http-port": "N", "--home-lease-ms": "DURATION",
              "--limits-disk-reserve-bytes": "SIZE", "--oidc-issuer": "URL"}  # fmt: skip
    assert {flag: shown[flag] for flag in wanted} == wanted


@pytest.mark.parametrize(
    ("command", "url"), [(("read",), "--url"), (("logs", "list"), "--url"), (("events",), "--amqp-url")]
)
def test_the_help_says_what_an_option_of_a_client_takes_as_the_reference_does(
    headwater, command: tuple[str, ...], url: str
) -> None:
    shown = dict(re.findall(r"^  (--\S+) ([A-Z]\S*)", headwater(*command, "--help").out, re.MULTILINE))
    wanted = {url: "URL", "--user": "NAME", "--ca-file": "FILE", "--retry-s": "SECONDS"}
    assert {flag: shown[flag] for flag in wanted} == wanted
