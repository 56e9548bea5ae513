"""AMQP of the server as its users run it: another door to the same logs, with the same users, TLS and end."""

from __future__ import annotations

import base64
import json
import signal
import ssl
from pathlib import Path

import pytest

from headwater.amqp.client import Client
from headwater.amqp.protocol import conditions
from headwater.amqp.protocol.conditions import AmqpError
from headwater.amqp.protocol.performatives import Accepted
from tests.amqp.asking import DURABLE, EARLIEST, drained, message, numbers, payloads
from tests.amqp.certificates import Authority

from .running import RunningServer, headwater


def amqp_url(server: RunningServer) -> str:
    """Where the server says that it speaks AMQP, in its second line."""
    assert server.process.stdout is not None
    line = server.process.stdout.readline()
    assert line.startswith("headwater: listening on amqp"), line
    return line.split()[3]


def test_amqp_and_http_are_doors_to_one_log(tmp_path: Path) -> None:
    with RunningServer(cwd=tmp_path) as server, Client(amqp_url(server)) as client:
        receiver = client.receiver("default")
        assert client.sender("default").send(message(b"over AMQP")) == Accepted()
        event = {"type": "Placed", "tags": ["order:1"], "data": base64.b64encode(b"over HTTP").decode()}
        assert server.ask("/logs/default/append", json.dumps({"events": [event]}).encode())[0] == 200
        first, second = receiver.take(2)
        assert payloads([first]) == [b"over AMQP"]
        assert second.message.application_properties["cloudEvents:tags"] == "order:1"
        status, text = server.ask("/logs/default/read", b'{"query": "all"}')
        assert status == 200, text
        assert [json.loads(line)["event"]["type"] for line in text.splitlines()] == ["OrderPlaced", "Placed"]


def test_sigterm_closes_connections_and_keeps_what_was_accepted(tmp_path: Path) -> None:
    with RunningServer(cwd=tmp_path) as server:
        client = Client(amqp_url(server))
        sender = client.sender("default")
        assert sender.send_all([message(b"%d" % number) for number in range(50)]) == [Accepted()] * 50
        server.process.send_signal(signal.SIGTERM)
        with pytest.raises(AmqpError) as ended:
            client.wait(lambda: False, 30)
        assert ended.value.condition == conditions.CONNECTION_FORCED
        client.close()
        assert server.process.wait(30) == 0
        assert "Traceback" not in server.errors
    with RunningServer(cwd=tmp_path) as server, Client(amqp_url(server)) as client:
        assert numbers(drained(client, client.receiver("default", credit=0, filter=EARLIEST))) == list(range(50))


def test_what_was_accepted_and_remembered_outlives_a_kill(tmp_path: Path) -> None:
    with RunningServer(cwd=tmp_path) as server:
        client = Client(amqp_url(server), container_id="shop")
        sender = client.sender("default")
        assert sender.send_all([message(b"%d" % number) for number in range(50)]) == [Accepted()] * 50
        link = {"credit": 0, "name": "subscription", "filter": EARLIEST, "source": DURABLE}
        epoch = {"event-streams-consumer-group": "G", "event-streams-partition": "0", "event-streams-epoch": 7}
        client.receiver("default", **link)
        client.receiver("default", properties=epoch)
        client.drop()
        server.process.kill()
    with RunningServer(cwd=tmp_path) as server, Client(amqp_url(server), container_id="shop") as client:
        assert numbers(drained(client, client.receiver("default", **link))) == list(range(50))
        with pytest.raises(AmqpError) as refused:
            client.receiver("default", properties={**epoch, "event-streams-epoch": 6})
        assert refused.value.condition == conditions.RESOURCE_LOCKED


def test_users_and_tls_are_those_of_http(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    own = authority.issue("server", "IP:127.0.0.1")
    user = ("user", "add", "alice", "--grant", "append:default", "--data", "d", "--password-stdin")
    added = headwater(*user, cwd=tmp_path, stdin="correct horse\n")
    assert added.returncode == 0, added.stderr
    arguments = ("--data", "d", "--tls-certificate", str(own.file), "--tls-key", str(own.key))
    context: ssl.SSLContext = authority.context()
    with RunningServer(*arguments, cwd=tmp_path, context=context) as server:
        url = amqp_url(server)
        assert url.startswith("amqps://127.0.0.1:")
        with pytest.raises(AmqpError):
            Client(url, tls=context)
        with Client(url.replace("://", "://alice:correct%20horse@"), tls=context) as client:
            assert client.sender("default").send(message()) == Accepted()
            with pytest.raises(AmqpError) as refused:
                client.receiver("default")
            assert refused.value.condition == conditions.UNAUTHORIZED_ACCESS
        assert server.terminate() == 0
