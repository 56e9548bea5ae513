"""Reports Spark's errors in one line: the cause that a user can act on."""

from __future__ import annotations

import re
import traceback
from itertools import dropwhile, takewhile

from ...core.errors import EventLogError

_CHARS_MAX = 2000
_TRACE = "Traceback (most recent call last):"
_NOT_OF_IT = ("\t", _TRACE, " SQLSTATE:", "===", "JVM stacktrace:")
"""What Spark appends to the message of an error."""
_JAVA_CAUSE = re.compile(r"(?:Caused by)?: (?:[\w$]+\.)+[\w$]+: (.*)")
"""The form of a cause in Java, and of a Java exception in py4j."""
_MACHINES = re.compile(r"^Caused by: java\.n?io\.(?:\w+\.)*\w+: (.+)", re.MULTILINE)
"""The machine's own errors in Java traces, which PySpark leaves out of its error texts."""
_LOST_TASK = re.compile(r".*\bLost task [\d.]+ in stage .*?: (?:[\w$]+\.)+[\w$]+: (.*)")
_PY4J = ("Py4JJavaError: ", "An error occurred while calling ")
"""Python's prefixes for a Java failure; the reason follows."""
_NO_WORKER = ("Python worker failed to connect back", "Timed out while waiting for the Python worker to connect back")
_DEAD_WORKER = ("Python worker exited unexpectedly", "ExecutorLostFailure")
_JAVA_ENDS = ("SparkContext was shut down", "stopped SparkContext", "SparkContext has been shutdown")
JAVA_ENDED = "the Java process of Spark ended"
DEAD_WORKER = "a Spark worker died; it may have been killed for lack of memory"
NO_WORKER = "a Python worker of Spark did not start within 10 s; the machine may be overloaded"


class PipelineFailed(EventLogError):
    """A pipeline ended with an error; `cause` is its last one, and `__cause__` Spark's exception, if any."""

    def __init__(self, pipeline: str, cause: str) -> None:
        self.pipeline, self.cause = pipeline, cause
        super().__init__(f"pipeline {pipeline}: {cause}")


def failed(pipeline: str, error: BaseException) -> PipelineFailed:
    """The error of a pipeline, for an exception of Spark."""
    return PipelineFailed(pipeline, cause_of(error))


def is_sparks(error: BaseException) -> bool:
    """Whether the error came from Spark, or from the connection to its Java."""
    return type(error).__module__.partition(".")[0] in ("pyspark", "py4j") or is_of_connection(error)


def is_of_connection(error: BaseException) -> bool:
    """Whether Java no longer answers. py4j raises its socket's error, which looks like a refused connection to a
    server.
    """
    if type(error).__module__.startswith("py4j"):
        return "Network" in type(error).__name__
    frames = (frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__))
    return isinstance(error, OSError) and any(name.startswith("py4j.") for name in frames)


def is_transient(error: BaseException) -> bool:
    """Whether a retry is likely to succeed."""
    return _tells(error, (*_NO_WORKER, *_DEAD_WORKER))


def tells_of_end(error: BaseException) -> bool:
    """Whether it failed because Java was ending, or had ended."""
    return any(is_of_connection(each) or any(words in _said(each) for words in _JAVA_ENDS) for each in _chain(error))


def cause_of(error: BaseException) -> str:
    """The innermost cause in the error, in one line."""
    if is_of_connection(error):
        return JAVA_ENDED
    if _tells(error, _NO_WORKER):
        return NO_WORKER
    if _tells(error, _DEAD_WORKER):
        return DEAD_WORKER
    machines = _MACHINES.findall(getattr(error, "_stackTrace", None) or "")
    said = "\n".join(_said(each) for each in _chain(error))
    return machines[-1] if machines else cause_in(said) or type(error).__name__


def _tells(error: BaseException, of: tuple[str, ...]) -> bool:
    """Whether the error, or one of its causes, contains one of these words."""
    return any(words in _said(each) for each in _chain(error) for words in of)


def _chain(error: BaseException | None) -> list[BaseException]:
    """The error and its causes; PySpark keeps Java's as `_cause`."""
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or getattr(error, "_cause", None)
    return found


def _said(error: BaseException) -> str:
    """The text of an error of Spark."""
    if is_of_connection(error):  # py4j would ask Java for the text
        return ""
    return str(error)


def cause_in(text: str) -> str:
    """The innermost cause in Spark's text.

    This is the last error of a Python trace, otherwise the last error of Java, otherwise the first line. If Python only
    says that Java failed, it is Java's.
    """
    lines = text.splitlines()
    raised = [_raised_after(lines, at) for at, line in enumerate(lines) if _TRACE in line]
    caused = [found[1] for line in lines if (found := _LOST_TASK.match(line) or _JAVA_CAUSE.match(line))]
    first = [line for line in lines if line.strip()]
    is_javas = bool(raised) and raised[-1].startswith(_PY4J)
    innermost = [*caused[::-1], *raised[::-1]] if is_javas else [*raised[::-1], *caused[::-1]]
    words = next((words for words in (*innermost, *first) if words), "").split()
    return re.sub(r"[. ]*\bSQLSTATE: \w{5};?$", "", " ".join(words))[:_CHARS_MAX]


def _raised_after(lines: list[str], trace: int) -> str:
    """The error at the end of the Python trace that begins at that line; our own error names are left out."""
    rest = list(dropwhile(lambda line: line.startswith(" ") or not line, lines[trace + 1 :]))
    message = "\n".join(takewhile(lambda line: line.strip() and not line.startswith(_NOT_OF_IT), rest))
    return re.sub(
        r"^(?:headwater\.[\w.]+|(?:\w+\.)*(\w+)): ", lambda found: f"{found[1]}: " if found[1] else "", message
    )
