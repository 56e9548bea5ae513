"""The wheel with all that a user may ask for besides: one event by each way in, and Spark beside them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .environments import built_wheel, environment, run, serving

EXTRAS = "[postgres,spark]"
"""Those of users; `demo`, `dev` and `bench` are for the repository."""

OVER_AMQP = """
import sys
from headwater.amqp.client import Client
from headwater.amqp.protocol.message import DATA, Message, Properties

with Client(sys.argv[1]) as client:
    client.sender("orders").send(Message([b"{}"], DATA, properties=Properties(subject="SentOverAmqp")))
"""
OVER_FLIGHT = """
import sys
import pyarrow
from headwater.flight.client import BulkClient

with BulkClient(sys.argv[1]) as bulk:
    list(bulk.append("orders", pyarrow.table({"type": ["PutOverFlight"], "data": ["{}"]})))
"""
LIBRARIES = """
import deltalake, pandas, psycopg, pyspark
from headwater.spark import java_home
from headwater.spark.archive import snapshot
print(java_home())
"""


@pytest.mark.timeout(1200)
def test_every_way_in_and_the_pipelines_work_in_an_environment_with_all_extras(tmp_path: Path) -> None:
    programs = environment(tmp_path / "environment", f"{built_wheel(tmp_path / 'dist')}{EXTRAS}")
    python, headwater = programs / "python", programs / "headwater"
    with serving(programs, tmp_path) as urls:
        run(headwater, "append", "orders", "--type", "PostedOverHttp", "--url", urls["http"], cwd=tmp_path)
        run(python, "-c", OVER_AMQP, urls["amqp"], cwd=tmp_path)
        run(python, "-c", OVER_FLIGHT, urls["grpc"], cwd=tmp_path)
        read = run(headwater, "read", "orders", "--json", "--url", urls["http"], cwd=tmp_path)
    types = [json.loads(line)["event"]["type"] for line in read.splitlines()]
    assert types == ["PostedOverHttp", "SentOverAmqp", "PutOverFlight"]

    told = run(headwater, "pipeline", "--help", cwd=tmp_path)
    pipelines = ["aggregate", "archive", "copy", "export", "import", "metrics", "project", "report"]
    assert [name for name in pipelines if f"  {name} " not in told] == []
    assert "--table" in run(headwater, "pipeline", "archive", "--help", cwd=tmp_path)
    assert Path(run(python, "-c", LIBRARIES, cwd=tmp_path).strip()).is_dir()
