"""Says errors of Spark in one line: the cause that a person can act on."""

from __future__ import annotations

import re
from itertools import dropwhile, takewhile

from ..core.errors import EventLogError

_CHARS_MAX = 2000
_TRACE = "Traceback (most recent call last):"
_NOT_OF_IT = ("\t", _TRACE, " SQLSTATE:", "===", "JVM stacktrace:")
"""What Spark puts below the message of an error."""
_JAVA_CAUSE = re.compile(r"Caused by: (?:[\w$]+\.)*[\w$]+: (.*)")


class PipelineFailed(EventLogError):
    """A pipeline ended with an error; `cause` is its last one, and `__cause__` what Spark raised, if that was it."""

    def __init__(self, pipeline: str, cause: str) -> None:
        self.pipeline, self.cause = pipeline, cause
        super().__init__(f"pipeline {pipeline}: {cause}")


def failed(pipeline: str, error: BaseException) -> PipelineFailed:
    """The error of a pipeline, for one that Spark raised."""
    return PipelineFailed(pipeline, cause_of(error))


def cause_of(error: BaseException) -> str:
    """The innermost cause that the error tells of, in one line."""
    if type(error).__module__.startswith("py4j") and "Network" in type(error).__name__:
        return "the Java process of Spark ended"
    return cause_in(str(error)) or type(error).__name__


def cause_in(text: str) -> str:
    """The innermost cause in what Spark says: the last error of a Python trace, else of Java's, else the first line."""
    lines = text.splitlines()
    raised = [_raised_after(lines, at) for at, line in enumerate(lines) if _TRACE in line]
    caused = [found[1] for line in lines if (found := _JAVA_CAUSE.match(line))]
    first = [line for line in lines if line.strip()]
    words = next((words for words in (*raised[::-1], *caused[::-1], *first) if words), "").split()
    return re.sub(r"[. ]*\bSQLSTATE: \w{5};?$", "", " ".join(words))[:_CHARS_MAX]


def _raised_after(lines: list[str], trace: int) -> str:
    """What the Python trace that begins at that line ends with; a name of our own errors is left out."""
    rest = list(dropwhile(lambda line: line.startswith(" ") or not line, lines[trace + 1 :]))
    message = "\n".join(takewhile(lambda line: line.strip() and not line.startswith(_NOT_OF_IT), rest))
    return re.sub(
        r"^(?:headwater\.[\w.]+|(?:\w+\.)*(\w+)): ", lambda found: f"{found[1]}: " if found[1] else "", message
    )
