"""Starts a Spark session configured for logs, on a laptop without Java as well as on a cluster.

    from headwater.spark import session
    spark = session()
    spark.read.format("headwater").option("log", "orders").load().show()

Nothing else has to be set. The caller's settings take precedence: `options`, the options of `spark-submit`,
`spark-defaults.conf`, and the variables JAVA_HOME, PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import EventLogError, InvalidInput
from ...formats.installing import how_to_install
from ..options import text_of
from .java import JAVA_OPTIONS, is_configured, java_home, launch, let_end_quietly, logging_by

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOR_LOGS: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Spark's default is INT96, which neither Delta nor Iceberg nor DuckDB wants.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
"""The settings of every session, on every kind of cluster."""
CONNECT = "sc://"
_LOG4J = Path(__file__).parent / "log4j2-session.properties"


class SparkNotInstalled(EventLogError):
    """The extra `spark` is not installed."""


def session(
    app_name: str = "headwater",
    master: str | None = None,
    options: Mapping[str, Any] | None = None,
    *,
    hears: Callable[[str], object] | None = None,
) -> SparkSession:
    """A session on `master` (by default the configured master, otherwise all cores of this machine).

    `master` is `local[2]`, `spark://host:7077`, `k8s://https://host:6443`, `yarn`, or `sc://host:15002` for a Spark
    Connect server. `options` are Spark's own, by name. An existing session is reused; then only those options take
    effect that a running session can change. `hears` gets the stderr of a Java started here and of its workers, line by
    line, in another thread. A Java started here logs at level WARN, unless the user has a configuration of Spark or of
    log4j. Raises SparkNotInstalled, JavaNotFound and InvalidInput (an option that is not Spark's).
    """
    given = {name: text_of(value) for name, value in (options or {}).items()}
    check_options(given)
    require_spark()
    from pyspark.sql import SparkSession

    if master is not None and master.startswith(CONNECT):
        remote = SparkSession.builder.remote(master).config(map={**FOR_LOGS, **given})
        return remote.getOrCreate()
    if (running := SparkSession.getActiveSession()) is not None:
        return _reuse(running, given)
    if master is not None:
        given["spark.master"] = master
    given["spark.app.name"] = app_name
    spark = SparkSession.builder.config(map={**_start_java(given, hears), **given}).getOrCreate()
    let_end_quietly(spark.sparkContext)
    return _with_source(spark)


def check_options(options: Mapping[str, str]) -> None:
    """Raises InvalidInput for a name that cannot be Spark's."""
    for name in options:
        if not re.fullmatch(r"spark\.\S+", name):
            raise InvalidInput(f"the name of a Spark option must start with `spark.`, got {name!r}", "options")


def require_driver(spark: SparkSession, what: str) -> None:
    """Raises InvalidInput if this is not the process of Spark's driver; `what` begins the sentence."""
    if not hasattr(spark, "_jsparkSession"):
        raise InvalidInput(f"{what} in the process of Spark's driver, not through Spark Connect", "master")


def require_spark() -> None:
    """Raises SparkNotInstalled, which says how to install it."""
    for module in ("pyspark", "pandas", "pyarrow"):
        if importlib.util.find_spec(module) is None:
            raise SparkNotInstalled(f"{module} is not installed; {how_to_install('spark')}")


def _with_source(spark: SparkSession) -> SparkSession:
    """The session, with the data source registered in any case.

    Spark finds it itself, but searches only once. If its worker is slow, on a busy machine, Spark skips it and does not
    know `headwater` until its Java ends. Registering a known source again would log a warning that it is replaced.
    """
    from pyspark_headwater import DefaultSource

    if not spark._jsparkSession.sessionState().dataSourceManager().dataSourceExists(DefaultSource.name()):
        spark.dataSource.register(DefaultSource)
    return spark


def _reuse(running: SparkSession, given: Mapping[str, str]) -> SparkSession:
    needed = "spark.sql.python.filterPushdown.enabled"  # a log's filters need it; no other source changes
    for name, value in {needed: FOR_LOGS[needed], **given}.items():
        if running.conf.isModifiable(name):
            running.conf.set(name, value)
    return running


def _start_java(given: Mapping[str, str], hears: Callable[[str], object] | None) -> dict[str, str]:
    """Start Spark's JVM, unless spark-submit did. Returns the defaults for all unset options."""
    from pyspark import SparkConf, SparkContext

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark would take the first python3 on the path
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        os.environ["JAVA_HOME"] = str(java_home())
        if _is_local(given.get("spark.master")):
            # No other machine needs to reach it, and a laptop's name often resolves to nothing.
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Spark's launcher would set this one itself.
    launched = {"spark.ui.showConsoleProgress": text_of(sys.stderr.isatty()), **given}
    is_new = SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ
    if is_new and JAVA_OPTIONS not in given and not is_configured():
        launched.update(logging_by(_LOG4J))
    asked = SparkConf(loadDefaults=False).setAll(list(launched.items()))
    # Before anything else, so that SparkConf() knows what spark-defaults.conf says.
    SparkContext._ensure_initialized(gateway=launch(asked, hears) if is_new else None, conf=asked)
    known = SparkConf()
    master = given.get("spark.master") or known.get("spark.master", "local[*]")
    return {name: value for name, value in _defaults(master).items() if not known.contains(name)}


def _is_local(master: str | None) -> bool:
    if master is None:
        return not os.environ.keys() & {"SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "MASTER"}
    return master.startswith("local")


def _defaults(master: str) -> dict[str, str]:
    defaults = dict(FOR_LOGS)
    defaults["spark.ui.enabled"] = "false"
    if found := re.match(r"local(?:\[(\d+|\*))?", master):
        # A stream of events creates this many state stores and tasks in every batch; Spark's default is 200.
        cores = (os.cpu_count() or 1) if found[1] == "*" else int(found[1] or 1)
        defaults["spark.sql.shuffle.partitions"] = str(cores)
    return defaults
