"""Starts Spark's Java so that nobody but its driver stops it, and what it says goes where the driver says things.

A terminal sends Ctrl-C to all processes of its foreground, Java's Python workers among them: they would end in the
middle of a batch, each with a traceback. So Java gets a session of its own. It still ends with the driver: the pipe to
it breaks.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable
from typing import IO, Any

_NOISE = re.compile(
    r"WARNING: (?:Using incubator modules|A terminally deprecated|A restricted method|An illegal|Please consider|"
    r"Use --|Restricted methods|Illegal|All illegal|Unable to load native-hadoop|.* has been called by |"
    r"(?:sun|java|jdk)\.[\w.]+::)|Picked up |Using Spark's default log4j|Setting default log level|To adjust logging|"
    r"(?:Starting )?Streaming \w+ Python worker "
)
"""What Java and Spark say of themselves whenever they start."""


def launch(conf: Any, hears: Callable[[str], object] | None = None) -> Any:
    """The gateway to a new Java with that configuration.

    `hears` gets each line that it and its workers say, but for those that every start has; it is called in another
    thread. Without it they go to stderr, as they are. Raises PySparkRuntimeError where Java ends at once.
    """
    from pyspark import java_gateway

    launch_gateway: Callable[..., Any] = java_gateway.launch_gateway
    if hears is None:
        return launch_gateway(conf, {"start_new_session": True})
    reading, writing = os.pipe()
    lines = os.fdopen(reading, encoding="utf-8", errors="replace")
    threading.Thread(target=_pass_on, args=(lines, hears), name="headwater-java", daemon=True).start()
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


def _pass_on(lines: IO[str], hears: Callable[[str], object]) -> None:
    with lines:
        for line in lines:
            if not is_noise(line):
                hears(line.rstrip("\n"))
