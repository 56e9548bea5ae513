"""Starts Spark's Java so that nobody but its driver stops it, and what it says goes where the driver says things.

A terminal sends Ctrl-C to all processes of its foreground, Java's Python workers among them: they would end in the
middle of a batch, each with a traceback. So Java gets a session of its own. It still ends with the driver: the pipe to
it breaks.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any

_NOISE = re.compile(
    r"WARNING: (?:Using incubator modules|A terminally deprecated|A restricted method|An illegal|Please consider|"
    r"Use --|package [\w.]+ not in |Restricted methods|Illegal|All illegal|Unable to load native-hadoop|"
    r".* has been called by |(?:sun|java|jdk)\.[\w.]+::)|Picked up |Using Spark's default log4j|"
    r"Setting default log level|To adjust logging|(?:Starting )?Streaming \w+ Python worker "
)
"""What Java and Spark say of themselves whenever they start."""
LINE_BYTES_MAX = 64 * 1024
"""So much of a line without its end is held back on its way to stderr."""
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
USERS_OWN = frozenset({
    "SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS",
    "LOG4J_CONFIGURATION_FILE",
})  # fmt: skip
"""Variables by which a user may have said how Java logs."""


def logging_by(file: Path) -> dict[str, str]:
    """The setting with which the Java of Spark's driver has that configuration of log4j."""
    return {JAVA_OPTIONS: f"-Dlog4j2.configurationFile={file.as_uri()}"}


def is_configured() -> bool:
    """Whether the user may have set Java's options, or log4j's: for a Spark of their own, or for each start."""
    if os.environ.keys() & USERS_OWN:
        return True
    from pyspark.find_spark_home import _find_spark_home

    return (Path(_find_spark_home()) / "conf").exists()


def launch(conf: Any, hears: Callable[[str], object] | None = None) -> Any:
    """The gateway to a new Java with that configuration.

    `hears` gets each line that it and its workers say, but for those that every start has; it is called in another
    thread. Without it they go to stderr. Raises PySparkRuntimeError where Java ends at once.
    """
    from pyspark import java_gateway

    launch_gateway: Callable[..., Any] = java_gateway.launch_gateway
    reading, writing = os.pipe()
    if hears is None:
        listen = partial(copy_to_stderr, os.fdopen(reading, "rb", buffering=0))
    else:
        listen = partial(_pass_on, os.fdopen(reading, encoding="utf-8", errors="replace"), hears)
    threading.Thread(target=listen, name="headwater-java", daemon=True).start()
    try:
        return launch_gateway(conf, {"start_new_session": True, "stderr": writing})
    finally:
        os.close(writing)


def let_end_quietly(context: Any) -> None:
    """Keep the driver's part of that SparkContext from telling on stderr that Java has ended.

    Java sends what its tasks count to a little server of PySpark, which prints a traceback when the connection ends:
    whoever asks Java for something is told that it has ended, and says so once.
    """
    server = getattr(context, "_accumulatorServer", None)
    if server is None:
        return
    told = server.handle_error

    def handle_error(request: Any, address: Any) -> None:
        if not isinstance(sys.exception(), EOFError | ConnectionError):
            told(request, address)

    server.handle_error = handle_error


def is_noise(line: str) -> bool:
    """Whether it says nothing about what is done."""
    return not line.strip() or _NOISE.match(line) is not None


def copy_to_stderr(said: IO[bytes]) -> None:
    """Copy a stream to stderr until its end, as it comes, but for lines that every start has.

    Spark's bar of progress ends no line, and is not held back.
    """
    rest = b""
    with said:
        while piece := said.read(LINE_BYTES_MAX):
            *lines, rest = (rest + piece).split(b"\n")
            kept = b"".join(line + b"\n" for line in lines if not _NOISE.match(line.decode(errors="replace")))
            if b"\r" in rest or len(rest) > LINE_BYTES_MAX:
                kept, rest = kept + rest, b""
            _write_to_stderr(kept)
    _write_to_stderr(rest)


def _write_to_stderr(text: bytes) -> None:
    with contextlib.suppress(OSError):  # it is closed, and there is no other place to say so; Java must not wait
        while text:
            try:
                text = text[os.write(2, text) :]
            except BlockingIOError:
                select.select([], [2], [])


def _pass_on(lines: IO[str], hears: Callable[[str], object]) -> None:
    with lines:
        for line in lines:
            if not is_noise(line):
                hears(line.rstrip("\n"))
