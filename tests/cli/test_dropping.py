"""Commands after which a log drops events say which, and ask; without a terminal they need --yes."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from tests.server.running import RunningServer

from headwater.cli import main
from headwater.cli.main import USAGE
from headwater.client import RemoteLog, Server, connect
from headwater.core import Event
from headwater.core.errors import WouldDrop
from headwater.core.settings import LogSettings

from .conftest import Outcome

WHO = ("orders", "spark", "archiver")
KEPT = LogSettings(retention_until_acknowledged=True)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    """A server with a log of ten events, whose consumer has acknowledged four of them."""
    with RunningServer("--data", "data", cwd=tmp_path) as running, connect(running.url, retry_s=0) as server:
        monkeypatch.setenv("HEADWATER_URL", running.url)
        log = server.create("orders")
        log.append([Event("Placed")] * 10)
        log.register_consumer("spark", "archiver", after=4)
        yield server


@pytest.fixture
def log(server: Server) -> RemoteLog:
    return server.log("orders")


@pytest.fixture
def headwater(server: Server, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """Runs the command with those arguments, where no terminal is there to ask on."""

    def run(*arguments: str) -> Outcome:
        monkeypatch.setattr("sys.stdin", io.StringIO())
        capfd.readouterr()
        return Outcome(main.run(arguments), *capfd.readouterr())

    return run


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is asked on a terminal, where every answer is yes."""
    asked: list[str] = []
    monkeypatch.setattr("headwater.cli.consent.has_terminal", lambda: True)
    monkeypatch.setattr(click, "confirm", lambda text, **_: asked.append(text))
    return asked


def test_settings_that_drop_events_are_asked_about(headwater, log: RemoteLog, questions: list[str]) -> None:
    assert headwater("logs", "set", "orders", "--until-acknowledged").code == 0
    (question,) = questions
    assert question.startswith("Drop 4 events of orders, numbered 1 to 4, recorded from 20")
    assert log.info().settings.retention_until_acknowledged


def test_settings_that_drop_events_need_yes_without_a_terminal(headwater, log: RemoteLog) -> None:
    done = headwater("logs", "set", "orders", "--until-acknowledged")
    assert done.code == USAGE
    assert "this drops 4 events of orders, numbered 1 to 4, recorded from" in done.err
    assert "there is no terminal for confirmation; use --yes" in done.err
    assert not log.info().settings.retention_until_acknowledged
    assert headwater("logs", "set", "orders", "--until-acknowledged", "--yes").code == 0
    assert log.info().settings.retention_until_acknowledged


@pytest.mark.parametrize(
    ("command", "drops"),
    [
        (("consumers", "reset", *WHO, "--after", "9"), 5),
        (("consumers", "skip", *WHO), 6),
        (("consumers", "skip", *WHO, "--events", "1"), 1),
        (("consumers", "unregister", *WHO), 2),
        (("manage", "update", "consumer", "orders/spark/archiver", "acknowledged=7"), 3),
    ],
)
def test_moved_consumers_that_let_events_go_are_asked_about(
    headwater, server: Server, log: RemoteLog, command: tuple[str, ...], drops: int
) -> None:
    server.change("orders", KEPT, drops_at_most=4)
    if "unregister" in command:
        log.register_consumer("alice", "Billing", after=6)
    before = log.consumers()
    done = headwater(*command)
    assert (done.code, log.consumers()) == (USAGE, before)
    assert f"this drops {drops} event{'s' if drops > 1 else ''} of orders, numbered 5 to {4 + drops}" in done.err
    assert headwater(*command, "--yes").code == 0
    assert log.consumers() != before


def test_the_first_consumer_of_a_log_is_asked_about(headwater, server: Server, log: RemoteLog) -> None:
    log.unregister_consumer("spark", "archiver")
    server.change("orders", KEPT)
    done = headwater("consumers", "register", *WHO)
    assert (done.code, log.consumers()) == (USAGE, [])
    assert "this drops 10 events of orders, numbered 1 to 10" in done.err
    assert headwater("consumers", "register", *WHO, "--yes").code == 0


def test_a_deleted_consumer_that_lets_events_go_is_asked_about(
    headwater, server: Server, log: RemoteLog, questions: list[str]
) -> None:
    log.register_consumer("alice", "Billing", after=6)
    server.change("orders", KEPT, drops_at_most=4)
    assert headwater("manage", "delete", "consumer", "orders/spark/archiver").code == 0
    assert len(questions) == 2
    assert questions[1].startswith("Drop 2 events of orders, numbered 5 to 6, ")


def test_the_client_gets_an_error_with_the_number_and_may_allow_it(server: Server, log: RemoteLog) -> None:
    with pytest.raises(WouldDrop, match="this would drop 4 events of log 'orders', numbered 1 to 4") as raised:
        server.change("orders", KEPT)
    facts = raised.value
    assert (facts.log, facts.drops, facts.first, facts.last, facts.history) == ("orders", 4, 1, 4, 0)
    assert facts.first_recorded_at is not None
    assert server.change("orders", KEPT, drops_at_most=4).settings == KEPT
    with pytest.raises(WouldDrop):
        log.reset_consumer("spark", "archiver", 10)
    assert log.reset_consumer("spark", "archiver", 10, drops_at_most=6).acknowledged == 10
