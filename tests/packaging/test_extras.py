"""The wheel with all that a user may ask for besides: one event by each way in, and Spark beside them."""

from __future__ import annotations

import re
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

from tests.night import IS_NIGHT
from tests.server.monitoring.collector import Collector

from .environments import HEALTH, PIPELINES, ROOT, TOKENS, WAYS_IN, built_wheel, environment, run, serving

EXTRAS = "[eventsourcing,mysql,oidc,otel,postgres,spark]"
"""Those of users."""
OF_REPOSITORY = {"demo", "dev", "bench", "site"}

PIPELINES_S_MAX = 600
LIBRARIES = """
import cryptography, deltalake, google.protobuf, jwt, opentelemetry.sdk.trace, pandas, psycopg, pymysql, pyspark
from headwater.spark import java_home
from headwater.spark.archive import snapshot
print(java_home())
"""
RECORDER = """
from eventsourcing.dcb.api import DCBEvent
from eventsourcing.dcb.application import DCBApplication
env = {"PERSISTENCE_MODULE": "headwater.eventsourcing", "HEADWATER_URL": "file:recorded"}
with DCBApplication(env) as application:
    print(application.recorder.append([DCBEvent("Recorded", b"1")]))
"""


@pytest.mark.timeout(1200)
def test_every_way_in_and_every_pipeline_works_in_an_environment_with_all_extras(tmp_path: Path) -> None:
    """Pipelines by night; by day `tests/spark` runs them with the versions that are pinned."""
    programs = environment(tmp_path / "environment", f"{built_wheel(tmp_path / 'dist')}{EXTRAS}")
    python, headwater = programs / "python", programs / "headwater"
    with Collector() as collector, serving(programs, tmp_path, "--tracing-endpoint", collector.url) as urls:
        said = run(python, WAYS_IN, *urls.values(), cwd=tmp_path)
        assert said.split() == ["PostedOverHttp", "SentOverAmqp", *["PutOverFlight"] * 2, "ADDED"]
        collector.named("append orders")
        done = [line.split() for line in run(python, PIPELINES, urls["http"], urls["grpc"], cwd=tmp_path,
                                             seconds_max=PIPELINES_S_MAX).splitlines()] if IS_NIGHT else []  # fmt: skip
    told = run(headwater, "pipeline", "--help", cwd=tmp_path)
    assert [name for name, _, _ in done if f"  {name} " not in told] == []
    assert [(name, ending) for name, ending, events in done if ending != "done" or events == "0"] == []
    assert run(python, "-c", RECORDER, cwd=tmp_path) == "1\n"
    assert Path(run(python, "-c", LIBRARIES, cwd=tmp_path).strip()).is_dir()
    with serving(programs, tmp_path, *TOKENS) as urls:
        assert "live" in run(python, "-c", HEALTH, urls["http"], cwd=tmp_path)


def test_all_extras_of_users_are_installed_together() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert sorted(EXTRAS.strip("[]").split(",")) == sorted(set(project["optional-dependencies"]) - OF_REPOSITORY)


def test_protobuf_is_bounded_by_what_spark_was_generated_with() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    [required] = [each for each in project["optional-dependencies"]["spark"] if each.startswith("protobuf")]
    bounds = re.fullmatch(r"protobuf>=([\d.]+),<(\d+)", required)
    assert bounds is not None, required
    generated = files("pyspark.sql.streaming.proto").joinpath("StateMessage_pb2.py").read_text(encoding="utf-8")
    version = re.search(r"Protobuf Python Version: ([\d.]+)", generated)
    assert version is not None
    lowest, code = ([int(part) for part in each.split(".")] for each in (bounds[1], version[1]))
    assert lowest >= code and int(bounds[2]) <= code[0] + 2, (
        "a runtime serves code of its own major version and the last"
    )
