"""What commands say of what is missing: lists without entries, queries that are none, servers that do not answer."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headwater.cli import main
from headwater.cli.main import REFUSED, UNAVAILABLE, UNREACHABLE, USAGE
from headwater.client import RemoteLog
from headwater.core import Event
from headwater.formats.clients import retry


def test_after_without_a_query_is_a_wrong_usage(headwater, log: RemoteLog) -> None:
    done = headwater("append", "orders", "--type", "A", "--after", "3")
    assert (done.code, log.head()) == (USAGE, 0)
    assert "--after requires --fail-if-match QUERY" in done.err
    assert headwater("append", "orders", "--type", "A", "--fail-if-match", "type=A", "--after", "0").code == 0


@pytest.mark.parametrize("command", ["query", "read", "tail", "export", "append"])
@pytest.mark.parametrize("text", ["typ=A", '{"items": 1}', "'", "type="])
def test_a_malformed_query_is_a_wrong_usage(headwater, log: RemoteLog, command: str, text: str) -> None:
    arguments = {
        "query": (text,),
        "read": ("--query", text),
        "tail": ("--query", text),
        "export": ("-", "--format", "csv", "--query", text),
        "append": ("--type", "A", "--fail-if-match", text),
    }[command]
    done = headwater(command, "orders", *arguments)
    assert (done.code, done.out) == (USAGE, "")
    assert "query" in done.err or "items[0]" in done.err


def test_empty_lists_say_what_makes_an_entry(headwater) -> None:
    nothing = headwater("logs", "list")
    assert (nothing.code, nothing.out) == (0, "")
    assert "no logs are visible to you; `headwater logs create NAME` creates one" in nothing.err
    headwater("logs", "create", "orders")
    nothing = headwater("consumers", "list", "orders")
    assert (nothing.code, nothing.out) == (0, "")
    assert "no consumers of orders; `headwater consumers register orders OWNER COMPONENT` registers one" in nothing.err
    assert headwater("consumers", "list", "orders", "--json").out == "[]\n"


def test_a_new_log_is_told_from_one_that_was_there(headwater) -> None:
    assert headwater("logs", "create", "orders").err == "created orders\n"
    assert headwater("logs", "create", "orders").err == "orders already exists with these settings\n"
    assert json.loads(headwater("logs", "create", "orders", "--json").out)["name"] == "orders"


def test_one_event_is_one_event(headwater, log: RemoteLog) -> None:
    log.append([Event("A")])
    assert headwater("query", "orders", "all").out.startswith("1 event matches\n")
    assert headwater("query", "orders", "type=B").out == "0 events match\n"
    assert headwater("export", "orders", "one.csv").out.startswith("1 event; ")
    assert headwater("import", "one.csv", "orders").out.startswith("1 event: 0 appended, 1 ")


@pytest.mark.parametrize("group", [("logs", "list"), ("logs",), ("consumers", "list", "orders")])
def test_a_group_takes_the_options_of_its_commands(headwater, log: RemoteLog, monkeypatch, served, group) -> None:
    monkeypatch.setenv("HEADWATER_URL", "http://127.0.0.1:1")
    name, *rest = group
    done = headwater(name, "--url", served.url, "--retry-s", "0", *rest)
    assert done.code == 0, done.err
    if rest:
        nearest = headwater(name, "--url", "http://127.0.0.1:1", rest[0], "--url", served.url, *rest[1:])
        assert nearest.code == 0, nearest.err


def test_the_help_of_serve_is_by_room(headwater) -> None:
    lines = headwater("serve", "--help").out.splitlines()
    titles = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert {"Options:", "HTTP:", "AMQP 1.0:", "Arrow Flight:", "FutoIn:"} <= set(titles)
    place = {title: lines.index(title) for title in titles}
    port = next(place for place, line in enumerate(lines) if "--amqp-port" in line)
    after = sorted(place.values())
    assert place["AMQP 1.0:"] < port < next(each for each in [*after, len(lines)] if each > place["AMQP 1.0:"])


def test_what_is_waited_for_is_told_once(headwater, monkeypatch) -> None:
    monkeypatch.setattr(retry, "WAITING_S", 0.0)
    done = headwater("logs", "--url", "http://127.0.0.1:1", "--retry-s", "0.5")
    waiting, last = done.err.splitlines()
    assert done.code == UNREACHABLE
    assert waiting.startswith("headwater: no answer from http://127.0.0.1:1: ")
    assert waiting.endswith("; trying again")
    assert last.endswith("; `headwater serve` starts a server on this machine, --url names another")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    directory = tmp_path_factory.mktemp("tls")
    files = directory / "cert.pem", directory / "key.pem"
    made = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    subprocess.run([*made.split(), "-out", str(files[0]), "-keyout", str(files[1])], check=True, capture_output=True)
    return files


@contextmanager
def secured(files: tuple[Path, Path]) -> Iterator[int]:
    """The port of a server that shakes hands by TLS, or closes the connection, and says nothing."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                with listener.accept()[0] as plain, context.wrap_socket(plain, server_side=True):
                    pass
            except ssl.SSLError:
                continue
            except OSError:
                if listener.fileno() < 0 or stopping.is_set():
                    return

    stopping = threading.Event()
    thread = threading.Thread(target=serve)
    thread.start()
    yield listener.getsockname()[1]
    stopping.set()
    listener.shutdown(socket.SHUT_RDWR)
    thread.join()
    listener.close()


def test_a_certificate_that_is_not_trusted_is_told_at_once(headwater, certificate, monkeypatch) -> None:
    monkeypatch.setattr(retry.Attempts, "failed", lambda *_: pytest.fail("it was tried again"))
    with secured(certificate) as port:
        done = headwater("logs", "--url", f"https://127.0.0.1:{port}")
        listened = headwater("events", "--amqp-url", f"amqps://127.0.0.1:{port}")
    for each in (done, listened):
        assert each.code == UNREACHABLE
        assert "its certificate is not trusted: self-signed certificate" in each.err
        assert "--ca-file" in each.err


def test_http_where_tls_is_spoken_and_the_other_way_round_are_told_at_once(
    headwater, served, certificate, monkeypatch
) -> None:
    monkeypatch.setattr(retry.Attempts, "failed", lambda *_: pytest.fail("it was tried again"))
    with secured(certificate) as port:
        done = headwater("logs", "--url", f"http://127.0.0.1:{port}")
    assert done.code == UNREACHABLE
    assert done.err.endswith("the server expects TLS on that port; use the scheme https://\n")
    done = headwater("logs", "--url", served.url.replace("http://", "https://"))
    assert done.code == UNREACHABLE
    assert "the server does not use TLS on that port; use the scheme http://" in done.err


def test_users_are_kept_in_no_directory_of_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.png").touch()
    add = ["user", "add", "alice", "--token", "--grant", "all:*", "--data"]
    assert main.run([*add, str(tmp_path / "photos")]) == UNAVAILABLE
    assert (
        f"{tmp_path}/photos: not a data directory (it contains 'cat.png'); specify a data directory"
        in capsys.readouterr().err
    )
    assert [each.name for each in (tmp_path / "photos").iterdir()] == ["cat.png"]
    (tmp_path / "data").mkdir()
    assert main.run([*add, str(tmp_path / "data")]) == 0
    assert "is a new data directory" in capsys.readouterr().err
    assert main.run([*add, str(tmp_path / "data"), "--replace"]) == 0
    assert "is a new data directory" not in capsys.readouterr().err


def test_a_trim_says_what_it_would_drop_and_asks(headwater, log: RemoteLog, monkeypatch) -> None:
    log.append([Event("A")] * 10)
    log.register_consumer("spark", "archiver", after=4)
    done = headwater("logs", "trim", "orders", "--below", "8")
    assert (done.code, log.info().first_retained) == (USAGE, 1)
    assert "this drops the events 1 to 4 of orders, and there is no terminal for confirmation; use --yes" in done.err
    for answer, first in (("n\n", 1), ("y\n", 5)):
        monkeypatch.setattr("click.confirm", lambda text, answer=answer, **_: answers(text, answer))
        monkeypatch.setattr("headwater.cli.consent.has_terminal", lambda: True)
        done = headwater("logs", "trim", "orders", "--below", "8")
        assert log.info().first_retained == first
    assert done.out == "orders now starts at 5\n"
    assert done.err.startswith("held back by the consumer spark archiver, which has acknowledged 4; ")


def answers(text: str, answer: str) -> None:
    import click

    assert text == "Drop the events 1 to 4 of orders?"
    if answer == "n\n":
        raise click.Abort


def test_a_trim_that_drops_nothing_does_not_ask(headwater, log: RemoteLog) -> None:
    log.append([Event("A")])
    assert headwater("logs", "trim", "orders", "--below", "1").out == "orders now starts at 1\n"
    assert headwater("logs", "trim", "orders", "--below", "9").code == REFUSED
