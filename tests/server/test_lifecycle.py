"""The server as its users run it: a process that starts, serves, and ends in order."""

from __future__ import annotations

import base64
import json
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import urllib.error
from pathlib import Path

import pytest

from .running import SILENCE_S_MAX, RunningServer, headwater
from .starting import PROGRAM

EVENT = b'{"events": [{"type": "Placed", "tags": ["order:1"], "data": "{}"}]}'


def basic(name: str, password: str) -> dict[str, str]:
    return {"authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


def test_a_server_with_no_argument_says_where_it_listens_and_has_one_log(tmp_path: Path) -> None:
    with RunningServer(cwd=tmp_path, program=PROGRAM) as server:
        assert server.line == f"headwater: listening on {server.url} (dcb, futoin, cne)\n"
        assert server.url.startswith("http://127.0.0.1:")
        assert server.ask("/health/live") == (200, '{"status": "live"}')
        assert server.ask("/health/ready") == (200, '{"status": "ready"}')
        assert server.ask("/logs/default")[0] == 200
        assert server.ask("/nowhere")[0] == 404
        metrics = server.ask("/metrics")[1]
        assert 'headwater_log_head{log="default"} 0.0' in metrics
        assert 'headwater_http_requests_total{method="GET",route="/logs/{log}",status="200"} 1.0' in metrics
        assert 'headwater_http_requests_total{method="GET",route="unmatched",status="404"} 1.0' in metrics
        assert server.terminate() == 0
    assert (tmp_path / "headwater-data").is_dir()


def test_what_was_acknowledged_is_there_after_a_restart(tmp_path: Path) -> None:
    arguments = ("--data", "d", "--log", "orders:4")
    with RunningServer(*arguments, cwd=tmp_path) as server:
        assert server.ask("/logs/orders/append", EVENT)[0] == 200
        assert server.terminate() == 0
    with RunningServer(*arguments, "--log", "audit", cwd=tmp_path) as server:
        assert json.loads(server.ask("/logs/orders/head")[1])["head"] == 1
        assert server.ask("/logs/audit/head")[0] == 200
        assert "message=started" in server.errors
        assert server.terminate() == 0


def test_sigterm_ends_subscriptions_in_order(tmp_path: Path) -> None:
    with RunningServer("--storage", "memory", cwd=tmp_path) as server:
        lines: list[bytes] = []
        first = threading.Event()

        def follow() -> None:
            with server.open("/logs/default/subscribe?query=all") as stream:
                for line in stream:
                    lines.append(line)
                    first.set()

        reader = threading.Thread(target=follow)
        reader.start()
        assert first.wait(SILENCE_S_MAX)
        assert server.terminate() == 0
        reader.join(SILENCE_S_MAX)
        assert not reader.is_alive()
        assert "message=stopped" in server.errors and "level=error" not in server.errors
        assert "traceback" not in server.errors


def half_sent_append(server: RunningServer) -> socket.socket:
    """An append that runs in the server, because all but the last byte of its body is sent."""
    host, _, port = server.url.removeprefix("http://").rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=SILENCE_S_MAX)
    head = f"POST /logs/default/append HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
    connection.sendall(f"{head}content-length: {len(EVENT)}\r\n\r\n".encode() + EVENT[:-1])
    while "headwater_http_requests_running 2.0" not in server.ask("/metrics")[1]:
        pass
    return connection


def test_sigterm_lets_a_running_append_finish_and_refuses_connections(tmp_path: Path) -> None:
    with RunningServer(cwd=tmp_path) as server:
        with half_sent_append(server) as connection:
            server.process.send_signal(signal.SIGTERM)
            server.wait_for("message=stopping")
            with pytest.raises(urllib.error.URLError):
                while True:
                    server.open("/health/ready").close()
            connection.sendall(EVENT[-1:])
            assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")
        assert server.process.wait(SILENCE_S_MAX) == 0
    with RunningServer(cwd=tmp_path) as server:
        assert json.loads(server.ask("/logs/default/head")[1])["head"] == 1


def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    arguments = ("--storage", "memory", "--limits-stop-ms", "10m")
    with RunningServer(*arguments, cwd=tmp_path, program=PROGRAM) as server, half_sent_append(server):
        server.process.send_signal(signal.SIGTERM)
        server.wait_for("message=stopping")
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(SILENCE_S_MAX) == -signal.SIGTERM


def test_a_data_directory_is_one_process_s(tmp_path: Path) -> None:
    with RunningServer(cwd=tmp_path):
        second = headwater("serve", "--http-port", "0", "--amqp-port", "0", "--flight-enabled", "false", cwd=tmp_path)
        assert second.returncode == 4
        assert "in use by another process" in second.stderr and "choose another directory with --data" in second.stderr
        assert "Traceback" not in second.stderr


def test_listening_for_others_without_users_needs_a_word(tmp_path: Path) -> None:
    refused = headwater(
        "serve", "--http-port", "0", "--amqp-port", "0", "--flight-enabled", "false", "--host", "0.0.0.0", cwd=tmp_path
    )
    assert refused.returncode == 2
    assert "--insecure" in refused.stderr and "headwater user add" in refused.stderr
    with RunningServer("--host", "0.0.0.0", "--insecure", cwd=tmp_path) as server:
        assert server.url.startswith("http://0.0.0.0:")
        assert server.terminate() == 0


def test_users_added_beside_the_running_server_count_within_a_second(tmp_path: Path) -> None:
    with RunningServer(cwd=tmp_path) as server:
        assert server.ask("/logs/default/head")[0] == 200
        added = headwater(
            "user", "add", "alice", "--grant", "read:*", "--password-stdin", cwd=tmp_path, stdin="correct horse\n"
        )
        assert added.returncode == 0, added.stderr
        while server.ask("/logs/default/head")[0] == 200:
            pass
        assert server.ask("/logs/default/head", headers=basic("alice", "correct horse"))[0] == 200
        assert server.ask("/metrics", headers=basic("alice", "correct horse"))[0] == 200
        assert server.ask("/metrics")[0] == 401
        assert server.ask("/health/ready")[0] == 200
        assert server.ask("/logs/default/append", EVENT, basic("alice", "correct horse"))[0] == 403
        assert server.ask("/logs/default/head", headers=basic("alice", "wrong horse"))[0] == 401
        assert 'message="login refused" reason=wrong user=alice peer=127.0.0.1' in server.errors
        assert "wrong horse" not in server.errors


def test_a_user_added_before_the_first_start_lets_the_server_listen_for_others(tmp_path: Path) -> None:
    add = ("user", "add", "robot", "--data", "d", "--grant", "all:*", "--token")
    token = headwater(*add, cwd=tmp_path).stdout.partition("token: ")[2].strip()
    with RunningServer("--data", "d", "--host", "0.0.0.0", cwd=tmp_path) as server:
        assert server.ask("/logs/default/head")[0] == 401
        assert server.ask("/logs/default/head", headers={"authorization": f"Bearer {token}"})[0] == 200
        assert "passwords are sent unencrypted" in server.errors
        assert headwater("user", "remove", "robot", "--data", "d", cwd=tmp_path).returncode == 0
        while server.ask("/logs/default/head", headers={"authorization": f"Bearer {token}"})[0] == 200:
            pass
        assert server.ask("/logs/default/head")[0] == 401, "without users nobody gets in from elsewhere"


def test_a_full_disk_is_told_by_readiness(tmp_path: Path) -> None:
    with RunningServer("--limits-disk-reserve-bytes", "512TiB", cwd=tmp_path) as server:
        status, problem = server.ask("/health/ready")
        assert status == 503 and "the disk is full" in problem
        assert server.ask("/logs/default/append", EVENT)[0] == 507
        assert server.ask("/logs/default/head")[0] == 200


def test_settings_of_a_log_in_the_file_are_imposed_and_those_fixed_refused(tmp_path: Path) -> None:
    file = tmp_path / "headwater.toml"
    file.write_text("[logs.orders]\npartitions = 2\nretention_ms = '1d'\n", encoding="utf-8")
    with RunningServer(cwd=tmp_path) as server:
        assert server.terminate() == 0
    file.write_text("[logs.orders]\nretention_ms = '2d'\n", encoding="utf-8")
    with RunningServer(cwd=tmp_path) as server:
        settings = json.loads(server.ask("/logs/orders")[1])["settings"]
        assert (settings["partitions"], settings["retention_ms"]) == (2, 2 * 86_400_000)
        assert server.terminate() == 0
    file.write_text("[logs.orders]\npartitions = 3\n", encoding="utf-8")
    refused = headwater("serve", "--http-port", "0", "--amqp-port", "0", "--flight-enabled", "false", cwd=tmp_path)
    assert (refused.returncode, refused.stderr.strip().splitlines()[-1]) == (
        2,
        "headwater: logs.orders.partitions: cannot change after creation: expected 2, got 3",
    )


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    if shutil.which("openssl") is None:
        pytest.skip("the program openssl makes the certificate, and is not here")
    directory = tmp_path_factory.mktemp("tls")
    files = directory / "cert.pem", directory / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-out", str(files[0]), "-keyout", str(files[1])]
    subprocess.run([*command.split(), *names], check=True, capture_output=True)
    return files


def test_tls_by_two_settings(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    context = ssl.create_default_context(cafile=certificate[0])
    arguments = ("--tls-certificate", str(certificate[0]), "--tls-key", str(certificate[1]), "--storage", "memory")
    with RunningServer(*arguments, cwd=tmp_path, context=context) as server:
        assert server.url.startswith("https://127.0.0.1:")
        assert server.ask("/health/ready")[0] == 200
        assert server.ask("/logs/default/append", EVENT)[0] == 200
        assert server.terminate() == 0


def test_a_backup_of_a_running_server_restores_and_checks(tmp_path: Path) -> None:
    with RunningServer("--data", "d", cwd=tmp_path) as server:
        assert server.ask("/logs/default/append", EVENT)[0] == 200
        made = headwater("backup", "saved", "--data", "d", "--json", cwd=tmp_path)
        assert (made.returncode, json.loads(made.stdout)["logs"]) == (0, {"default": 1})
        again = headwater("backup", "saved", "--data", "d", cwd=tmp_path)
        assert again.returncode == 4 and "not empty" in again.stderr
        assert server.terminate() == 0
    assert headwater("restore", "saved", "d2", cwd=tmp_path).returncode == 0
    checked = headwater("check", "--data", "d2", "--json", cwd=tmp_path)
    assert checked.returncode == 0
    report = json.loads(checked.stdout)
    assert report["is_sound"] and [log["events"] for log in report["logs"]] == [1]
    assert "d2 is sound" in headwater("check", "--data", "d2", cwd=tmp_path).stdout
    with RunningServer("--data", "d2", cwd=tmp_path) as server:
        assert server.ask("/logs/default/append", EVENT)[0] == 200
        assert json.loads(server.ask("/logs/default/head")[1])["head"] > 2
        assert server.terminate() == 0


def test_a_damaged_directory_is_told_by_exit_code(tmp_path: Path) -> None:
    with RunningServer("--data", "d", cwd=tmp_path) as server:
        for _ in range(3):
            assert server.ask("/logs/default/append", EVENT)[0] == 200
        assert server.terminate() == 0
    (segment,) = (tmp_path / "d" / "logs").glob("*/log/*.log")
    content = bytearray(segment.read_bytes())
    found = content.find(b"Placed")
    content[found] ^= 0xFF
    segment.write_bytes(content)
    checked = headwater("check", "--data", "d", cwd=tmp_path)
    assert checked.returncode == 5 and "d is damaged" in checked.stdout
    with RunningServer("--data", "d", "--log", "default:1", "--log", "sound", cwd=tmp_path) as server:
        assert server.ask("/health/ready")[0] == 200
        assert server.ask("/logs/sound/head")[0] == 200
        assert server.ask("/logs/default/head")[0] >= 500
        assert 'message="cannot use the log" log=default' in server.errors
        assert server.terminate() == 0
    accepted = headwater("check", "--data", "d", "--accept-loss", "default", cwd=tmp_path)
    assert accepted.returncode == 0 and "default: events 1 to 1 were discarded" in accepted.stderr
