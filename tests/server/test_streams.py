"""The lag of a stream on a server as users run it: told over Flight, shown over HTTP, in metrics, and in `$system`."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.core.access import Forbidden
from headwater.flight.client import BulkClient
from tests.waiting import eventually

from .bulk.test_bulk import WITH_FLIGHT
from .entities.test_registration import HASH, PASSWORD
from .running import RunningServer

USERS = "".join(
    f"[users.{name}]\npassword = '{HASH}'\ngrants = ['{grants}']\n"
    for name, grants in (("root", "all:*"), ("ann", "read:orders"), ("bob", "append:orders"))
)
SIX = pa.record_batch({"type": pa.array(["T"] * 6), "data": pa.array([b""] * 6)})


def test_a_reader_tells_its_position_and_an_operator_sees_its_lag(tmp_path: Path) -> None:
    (tmp_path / "headwater.toml").write_text(USERS)
    arguments = ("--log", "orders", "--management-keep", "--management-lag-events", "3", *WITH_FLIGHT)
    with RunningServer(*arguments, cwd=tmp_path) as server:
        url = server.further_url("grpc")

        def get(path: str, name: str = "root", body: bytes | None = None) -> tuple[int, str]:
            shown = b64encode(f"{name}:{PASSWORD}".encode()).decode()
            return server.ask(path, body, {"authorization": f"Basic {shown}"})

        def lagging() -> list[dict[str, object]]:
            query = b'{"query": {"items": [{"types": ["io.headwater.consumer.lagging"]}]}}'
            status, text = get("/logs/$system/read", body=query)
            assert status == 200, text
            return [json.loads(json.loads(line)["event"]["data"]) for line in text.splitlines()]

        with BulkClient(url, user="bob", password=PASSWORD) as bob:
            bob.append("orders", [SIX])
            with pytest.raises(Forbidden):
                bob.report_position("orders", "copy", 1)
        with BulkClient(url, user="ann", password=PASSWORD) as ann:
            ann.report_position("orders", "copy", 2)
        for name in ("root", "ann"):
            status, text = get("/management/stream/orders%2Fann%2Fcopy", name)
            assert status == 200, text
            shown = json.loads(text)
            assert [shown[key] for key in ("log", "owner", "stream", "position", "lag")] == [
                "orders", "ann", "copy", 2, 4,
            ]  # fmt: skip
        assert get("/management/stream/orders%2Fann%2Fcopy", "bob")[0] == 403
        eventually(lambda: 'headwater_stream_lag_events{log="orders",stream="copy"} 4.0' in get("/metrics")[1])
        history = "/console/history", "stream:orders/ann/copy/lag_events"
        eventually(lambda: history[1] in json.loads(get(history[0], "ann")[1])["series"])
        measured = json.loads(get("?series=".join(history))[1])["series"][history[1]]
        assert {each for each in measured if each is not None} == {4.0}
        assert json.loads(get(history[0], "bob")[1])["series"] == []
        assert get("?series=".join(history), "bob")[0] == 403
        eventually(lambda: bool(lagging()))
        [told] = lagging()
        assert [told[key] for key in ("kind", "owner", "component", "lagEvents")] == ["stream", "ann", "copy", 4]
        assert 'message="consumer lags" log=orders' in server.errors
