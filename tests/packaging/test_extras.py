"""The wheel with all that a user may ask for besides: one event by each way in, and Spark beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from .environments import WAYS_IN, built_wheel, environment, run, serving

EXTRAS = "[postgres,spark]"
"""Those of users; `demo`, `dev` and `bench` are for the repository."""

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
        said = run(python, WAYS_IN, *urls.values(), cwd=tmp_path)
        assert said.split() == ["PostedOverHttp", "SentOverAmqp", *["PutOverFlight"] * 2, "ADDED"]

    told = run(headwater, "pipeline", "--help", cwd=tmp_path)
    pipelines = ["aggregate", "archive", "copy", "export", "import", "metrics", "project", "report"]
    assert [name for name in pipelines if f"  {name} " not in told] == []
    assert "--table" in run(headwater, "pipeline", "archive", "--help", cwd=tmp_path)
    assert Path(run(python, "-c", LIBRARIES, cwd=tmp_path).strip()).is_dir()
