"""`headwater events`: what is asked of the server, and how it is shown."""

from __future__ import annotations

import json
import subprocess
from itertools import count, islice
from pathlib import Path
from threading import Thread
from typing import Any

import click
import pytest

from headwater.amqp.client import Client
from headwater.cli.main import REFUSED, UNREACHABLE, USAGE, run
from headwater.cli.notifications import (
    NotificationListener,
    selector_of,
    show_notification,
    tls_of,
    types_of,
    with_credentials,
)
from headwater.client import connect
from headwater.core.watch.notification_types import NotificationType

from ..server.running import RunningServer, environment, headwater
from ..server.starting import PROGRAM
from ..server.test_amqp import amqp_url
from .terminal import shown_on_a_terminal


@pytest.mark.parametrize(
    ("types", "logs", "selector", "expected"),
    [
        ((), (), None, None),
        ((), (), "lagMs > 5", "(lagMs > 5)"),
        (("disk.low",), (), None, "eventType IN ('io.headwater.disk.low')"),
        (("disk.*",), (), None, "eventType IN ('io.headwater.disk.low', 'io.headwater.disk.recovered')"),
        ((), ("a", "it's"), "x OR y", "(x OR y) AND log IN ('a', 'it''s')"),
    ],
)
def test_options_become_one_selector(
    types: tuple[str, ...], logs: tuple[str, ...], selector: str | None, expected: str | None
) -> None:
    assert selector_of(types, logs, selector) == expected


def test_a_type_may_be_given_with_its_domain_or_without() -> None:
    assert types_of("io.headwater.log.created") == types_of("log.created") == ["io.headwater.log.created"]
    assert set(types_of("*")) == {type.value for type in NotificationType}
    with pytest.raises(click.UsageError, match=r"unknown type log\.made; expected one of server\.started, "):
        types_of("log.made")


def test_credentials_go_into_the_address() -> None:
    assert with_credentials("amqp://h:1", "al@x", "p:/w") == "amqp://al%40x:p%3A%2Fw@h:1"
    assert with_credentials("amqp://h:1", None, "p") == "amqp://h:1"
    assert with_credentials("amqp://bob:b@h:1", "alice", "a") == "amqp://bob:b@h:1"


@pytest.mark.parametrize(
    "url", ["http://alice:s3cret@h:1", "amqp://h:port", "amqp://h:99999", "amqp://h:0", "amqp://[::1", "amqp://", "h:1",
            "amqp://alice:s3cret/x@h:1"]
)  # fmt: skip
def test_a_url_that_is_none_is_refused_without_telling_its_password(url: str) -> None:
    with pytest.raises(click.UsageError, match=r"expected amqp://HOST:PORT or amqps://HOST:PORT") as refused:
        with_credentials(url, "alice", "x")
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(("url", "user"), [("amqp://h:1", "alice"), ("amqp://alice@h:1", None)])
def test_a_user_needs_a_password(url: str, user: str | None) -> None:
    with pytest.raises(click.UsageError, match=r"--password: alice needs a password"):
        with_credentials(url, user, None)


def test_certificates_that_cannot_be_used_are_a_wrong_option(tmp_path: Path) -> None:
    (tmp_path / "empty.pem").touch()
    for name in ("missing.pem", "empty.pem"):
        with pytest.raises(click.UsageError, match=r"--ca-file: .* cannot be loaded"):
            tls_of(str(tmp_path / name), is_verified=True)


def test_a_notification_is_shown_on_one_line(capsys: Any) -> None:
    told = {"eventType": "io.headwater.log.changed", "time": 0, "log": "orders", "settings": '{"a": 1}\n'}
    show_notification({**told, "description": "two words", "empty": ""})
    assert capsys.readouterr().out == (
        "1970-01-01 00:00:00.000  log.changed  log=orders settings='{\"a\": 1}\\n' description='two words' empty=''\n"
    )


def test_certificates_are_checked_unless_it_is_forbidden() -> None:
    assert tls_of(None, is_verified=True) is None
    unchecked = tls_of(None, is_verified=False)
    assert unchecked is not None and not unchecked.check_hostname


def test_a_server_that_is_not_there_is_told(capsys: Any) -> None:
    assert run(["events", "--amqp-url", "amqp://127.0.0.1:1", "--retry-s", "0"]) == UNREACHABLE
    assert "no answer from amqp://127.0.0.1:1" in capsys.readouterr().err
    assert run(["events", "--type", "nonsense"]) == USAGE


def listening(*arguments: str, url: str, cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*PROGRAM, "events", "--amqp-url", url, *arguments],
        cwd=cwd,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_it_follows_what_happens(tmp_path: Path) -> None:
    with RunningServer("--storage", "memory", cwd=tmp_path) as server:
        url = amqp_url(server)
        with Client(url) as client:
            witness = client.receiver("$events")
            process = listening("--type", "log.*", "--log", "orders", "--json", "--count", "2", url=url, cwd=tmp_path)
            try:
                wait_for_listener(witness)
                with connect(server.url) as remote:
                    remote.create("other")
                    remote.create("orders")
                    remote.delete("orders")
                out, err = process.communicate(timeout=60)
            finally:
                process.kill()
                process.communicate()
    assert process.returncode == 0, err
    created, deleted = map(json.loads, out.splitlines())
    assert (created["eventType"], created["log"]) == ("io.headwater.log.created", "orders")
    assert deleted["eventType"] == "io.headwater.log.deleted" and isinstance(deleted["time"], int)


def test_no_color_is_heeded_on_a_terminal(tmp_path: Path) -> None:
    with RunningServer("--storage", "memory", cwd=tmp_path) as server, connect(server.url) as remote:
        url = amqp_url(server)
        for variables in ({}, {"NO_COLOR": "1"}):
            with Client(url) as client:
                witness = client.receiver("$events")

                def happen(witness: Any = witness, log: str = f"log-{len(variables)}") -> None:
                    wait_for_listener(witness)
                    remote.create(log)

                arguments = ("events", "--amqp-url", url, "--type", "log.created", "--count", "1")
                shown = shown_on_a_terminal(arguments, cwd=tmp_path, meanwhile=happen, **variables)
            assert b"log.created" in shown and (b"\x1b[" in shown) is (not variables), variables


def test_a_connection_that_is_lost_is_made_again(tmp_path: Path, capsys: Any) -> None:
    seen: list[object] = []
    with RunningServer("--storage", "memory", cwd=tmp_path) as server:
        url = amqp_url(server)
        listener = NotificationListener(url, selector_of(("log.created",), (), None), None, retry_s=20)
        thread = Thread(target=lambda: seen.extend(each["log"] for each in islice(listener, 2)), daemon=True)
        with Client(url) as client:
            witness = client.receiver("$events")
            thread.start()
            wait_for_listener(witness)
            with connect(server.url) as remote:
                remote.create("before")
    port = url.rpartition(":")[2]
    options = ("--storage", "memory", "--amqp-port", port)
    with RunningServer(*options, cwd=tmp_path) as server, connect(server.url) as remote:
        for number in count():
            remote.create(f"after-{number}")
            thread.join(0.2)
            if not thread.is_alive():
                break
    first, second = seen
    assert first == "before" and str(second).startswith("after-")
    assert "; notifications sent in the meantime were missed" in capsys.readouterr().err


def wait_for_listener(receiver: Any) -> None:
    """Until another link from `$events` is attached."""
    while True:
        for delivery in receiver.take(1, 60):
            delivery.settle()
            told = delivery.message.application_properties
            if told["eventType"] == "io.headwater.link.attached" and told["address"] == "$events":
                return


def test_a_selector_that_is_none_is_refused_with_the_reason(tmp_path: Path) -> None:
    with RunningServer("--storage", "memory", cwd=tmp_path) as server:
        done = headwater("events", "--amqp-url", amqp_url(server), "--filter", "lagMs >", cwd=tmp_path)
    assert done.returncode == REFUSED and "amqp:invalid-field" in done.stderr and "Traceback" not in done.stderr
