"""The server's log on stderr: one line per entry, as `key=value` pairs for people and programs.

A caller logs a constant message and adds fields: `logger.warning("login refused", extra=fields(user=u))`.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Mapping
from typing import TextIO

_BARE = re.compile(r"[^\s\"=]+")


def fields(**values: object) -> dict[str, Mapping[str, object]]:
    """The `extra` of a logging call: the fields of the line."""
    return {"fields": values}


class LineFormatter(logging.Formatter):
    """`time=2026-01-31T12:00:00.000Z level=warning logger=headwater.server message="login refused" user=bob`."""

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        pairs: dict[str, object] = {
            "time": f"{stamp}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            pairs["traceback"] = self.formatException(record.exc_info)
        return " ".join(f"{key}={_quoted(str(value))}" for key, value in pairs.items())


def configure_logging(level: str, stream: TextIO | None = None) -> None:
    """Send all records from that level on to `stream` (stderr), but only warnings from libraries."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(LineFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("headwater").setLevel(level.upper())


def _quoted(text: str) -> str:
    """The text, as a JSON string if it is ambiguous, so that a line break or quote in a name cannot forge a line."""
    return text if _BARE.fullmatch(text) and text.isprintable() else json.dumps(text)
