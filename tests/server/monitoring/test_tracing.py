"""Spans are an extra: without it nothing is missing, and where it is asked for it is said how to install it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.formats.installing import how_to_install
from headwater.server.config.settings import Tracing, collector_url
from headwater.server.monitoring.tracing import open_spans
from tests.server.running import RunningServer, environment

PROGRAM = [sys.executable, "-c", "import sys; sys.modules['opentelemetry'] = None; "
           "from headwater.cli.main import main; main()"]  # fmt: skip
EVENTS = json.dumps({"events": [{"type": "A", "data": "{}"}]}).encode()


def test_a_server_that_collects_none_imports_nothing_of_it(tmp_path: Path) -> None:
    assert open_spans(Tracing()) is None
    with RunningServer("--log", "a", cwd=tmp_path, program=PROGRAM) as server:
        assert server.ask("/logs/a/append", EVENTS)[0] == 200


def test_without_the_extra_it_is_said_how_to_install_it(tmp_path: Path) -> None:
    given = ["serve", "--http-port", "0", "--amqp-port", "0", "--flight-enabled", "false"]
    done = subprocess.run(
        [*PROGRAM, *given, "--tracing-endpoint", "http://127.0.0.1:4318"],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2 and "tracing.endpoint: spans require the extra [otel]" in done.stderr
    assert how_to_install("otel") in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "given", ["collector:4318", "ftp://a", "http://", "http://me:pw@a", "http://a?x=1", "http://[", 7]
)
def test_a_collector_is_named_by_a_url_of_http(given: object) -> None:
    with pytest.raises(ValueError, match=r"http://127\.0\.0\.1:4318, got|string"):
        collector_url(given)
