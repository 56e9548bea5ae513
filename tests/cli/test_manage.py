"""`headwater manage`, `connections`, `links` and `groups`, on a server that speaks AMQP too."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.amqp.asking import bound
from tests.server.running import RunningServer
from tests.server.test_amqp import amqp_url

from headwater.amqp.client import Client
from headwater.cli import main
from headwater.cli.main import REFUSED, USAGE


class Outcome:
    """What a command said."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with RunningServer("--storage", "memory", "--log", "orders", cwd=tmp_path_factory.mktemp("managed")) as running:
        yield running


@pytest.fixture
def run(server: RunningServer, capfd: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    return running(server, capfd)


def running(server: RunningServer, capfd: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Commands of that server."""

    def run(*arguments: str) -> Outcome:
        capfd.readouterr()
        group, *rest = arguments
        code = main.run([group, "--url", server.url, *rest])  # before the command, as of other groups
        return Outcome(code, *capfd.readouterr())

    return run


def test_a_log_is_made_read_changed_and_deleted(run: Callable[..., Outcome]) -> None:
    made = run("manage", "CREATE", "log", "clicks", "partitions=4", "retentionMs=5000", "--json")
    assert (made.json["partitions"], made.json["retentionMs"]) == (4, 5000)
    assert run("manage", "update", "log", "clicks", "retentionMs=null", "--json").json["retentionMs"] is None
    assert "partitions" in run("manage", "read", "log", "clicks").out
    found = run("manage", "query", "log", "--attributes", "name,partitions", "--filter", "partitions=4", "--json")
    assert found.json == [{"name": "clicks", "partitions": 4}]
    assert run("manage", "DELETE", "io.headwater.log", "clicks", "--yes").out == "deleted io.headwater.log clicks\n"
    gone = run("manage", "read", "log", "clicks")
    assert (gone.code, gone.out) == (REFUSED, "") and "clicks" in gone.err


def test_types_are_listed_and_what_is_none_is_told_with_those_that_are(run: Callable[..., Outcome]) -> None:
    assert "io.headwater.durableLink" in run("manage", "types").out
    assert "READ" in run("manage", "types", "--json").json["io.headwater.log"]["operations"]
    refused = run("manage", "query", "nothing")
    assert refused.code == REFUSED and "the types are org.amqp.management" in refused.err
    assert run("manage", "purge", "log", "x").code == USAGE
    refused = run("manage", "delete", "partition", "orders/0", "--yes")
    assert (refused.code, "DELETE is not allowed here; allowed: GET, HEAD" in refused.err) == (REFUSED, True)
    assert run("manage", "query", "log", "--filter", "name").code == REFUSED


def test_empty_lists_say_what_makes_an_entry(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with RunningServer("--storage", "memory", cwd=tmp_path) as server:
        run = running(server, capfd)
        for group, told in (
            ("connections", "no AMQP connections are open (on a server with users"),
            ("links", "receiver"),
            ("groups", "naming a group"),
        ):
            empty = run(group, "list")
            assert (empty.code, empty.out) == (0, "") and told in empty.err
            assert run(group, "list", "--json").json == []
        assert "no entities" in run("manage", "query", "user").err


def test_links_groups_and_connections_are_listed_and_closed(run: Callable[..., Outcome], server: RunningServer) -> None:
    with contextlib.ExitStack() as ending:
        client = Client(amqp_url(server), container_id="box")
        ending.callback(client.drop)
        receiver = client.receiver("orders", name="mine", properties=bound(group="a,b"))
        [connection] = run("connections", "list", "--json").json
        assert (connection["links"], connection["containerId"]) == (1, "box")
        assert run("connections", "list").out.split()[:4] == ["connection", "peer", "port", "user"]
        [link] = run("links", "list", "--log", "orders", "--json").json
        assert (link["linkName"], link["group"]) == ("mine", "a,b")
        assert run("links", "list", "--log", "other", "--json").json == []
        assert "mine" in run("links", "list").out
        [group] = run("groups", "list", "--json").json
        assert (group["name"], group["members"]) == ("orders/a,b", 1)
        assert run("groups", "close", "orders/a,b").out == "1 member of orders/a,b closed\n"
        client.wait(lambda: receiver.link.is_over)
        other = client.receiver("orders", name="other")
        [link] = run("links", "list", "--json").json
        assert run("links", "close", link["name"]).out == f"closed link {link['name']}\n"
        client.wait(lambda: other.link.is_over)
        assert run("connections", "close", connection["name"]).code == 0
        refused = run("connections", "close", "4711")
        assert (refused.code, "there is no connection" in refused.err) == (REFUSED, True)
