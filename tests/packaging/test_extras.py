"""The wheel with all that a user may ask for besides: one event by each way in, and Spark beside them."""

from __future__ import annotations

import re
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

from .environments import PIPELINES, ROOT, WAYS_IN, built_wheel, environment, run, serving

EXTRAS = "[mysql,oidc,postgres,spark]"
"""Those of users."""
OF_REPOSITORY = {"demo", "dev", "bench"}

PIPELINES_S_MAX = 600
LIBRARIES = """
import cryptography, deltalake, google.protobuf, jwt, pandas, psycopg, pymysql, pyspark
from headwater.spark import java_home
from headwater.spark.archive import snapshot
print(java_home())
"""


@pytest.mark.timeout(1200)
def test_every_way_in_and_every_pipeline_works_in_an_environment_with_all_extras(tmp_path: Path) -> None:
    programs = environment(tmp_path / "environment", f"{built_wheel(tmp_path / 'dist')}{EXTRAS}")
    python, headwater = programs / "python", programs / "headwater"
    with serving(programs, tmp_path) as urls:
        said = run(python, WAYS_IN, *urls.values(), cwd=tmp_path)
        assert said.split() == ["PostedOverHttp", "SentOverAmqp", *["PutOverFlight"] * 2, "ADDED"]
        done = [line.split() for line in run(python, PIPELINES, urls["http"], urls["grpc"], cwd=tmp_path,
                                             seconds_max=PIPELINES_S_MAX).splitlines()]  # fmt: skip
    told = run(headwater, "pipeline", "--help", cwd=tmp_path)
    assert [name for name, _, _ in done if f"  {name} " not in told] == []
    assert [(name, ending) for name, ending, events in done if ending != "done" or events == "0"] == []
    assert Path(run(python, "-c", LIBRARIES, cwd=tmp_path).strip()).is_dir()


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
