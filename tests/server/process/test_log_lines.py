"""Log lines: one happening, one line, whatever is in its fields."""

from __future__ import annotations

import logging

import pytest

from headwater.server.process.log_lines import LineFormatter, configure_logging, fields


def line(**values: object) -> str:
    record = logging.LogRecord("headwater.x", logging.WARNING, "file", 1, "login refused", None, None)
    record.created, record.msecs = 0.007, 7
    record.__dict__.update(fields(**values))
    return LineFormatter().format(record)


def test_a_line_has_time_level_message_and_fields() -> None:
    expected = 'time=1970-01-01T00:00:00.007Z level=warning logger=headwater.x message="login refused" user=bob'
    assert line(user="bob") == expected


@pytest.mark.parametrize("name", ['bob" level=info', "bob\nlevel=info", "bob level", "", "b\x1bob"])
def test_a_name_cannot_forge_a_field_or_a_line(name: str) -> None:
    value = line(user=name).partition(" user=")[2]
    assert value.startswith('"') and value.endswith('"') and value.isprintable()
    assert "\n" not in line(user=name)


def test_libraries_tell_only_warnings() -> None:
    loggers = root, _ = [logging.getLogger(name) for name in ("", "headwater")]
    handlers, levels = root.handlers[:], [each.level for each in loggers]
    try:
        configure_logging("debug")
        assert logging.getLogger("asyncio").getEffectiveLevel() == logging.WARNING
        assert logging.getLogger("websockets.server").getEffectiveLevel() == logging.WARNING
        assert logging.getLogger("headwater.server").getEffectiveLevel() == logging.DEBUG
    finally:
        root.handlers[:] = handlers
        for each, level in zip(loggers, levels, strict=True):
            each.setLevel(level)
