"""Parses options as Spark passes them: looked up by name in a table, and checked once, on the driver.

Allowed values are defined here, in the words of the errors; docs/reference/spark.md explains the options.
"""

from __future__ import annotations

import difflib
import fnmatch
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from ..core.errors import InvalidInput
from ..core.limits import SEQUENCE_NUMBER_MAX, show
from ..flight.settings import DEFAULT_PORT
from ..formats.foreign import check_unambiguous
from ..formats.settings.client_variables import FLIGHT_URL

_SIGNS = "*?["
"""The characters that make a log's name a pattern; no name may contain them."""


def is_pattern(name: str) -> bool:
    """Whether it is a pattern for several logs."""
    return any(sign in name for sign in _SIGNS)


def is_meant(log: str, names: Sequence[str]) -> bool:
    """Whether one of these names and patterns matches that log."""
    own = log.startswith("$")  # the server's own logs never match a pattern by accident
    return any(fnmatch.fnmatchcase(log, name) and own == name.startswith("$") for name in names)


DEFAULT_URL = f"grpc://127.0.0.1:{DEFAULT_PORT}"
"""The default address of the server."""
URL_VARIABLE = FLIGHT_URL
"""The environment variable with the address if no option has it."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NUMBER_OR_TIME = "a number, or a time such as 2026-11-21T12:00:00Z or ms:1700000000000"
"""The values `number_or_time` accepts, for errors."""


class InvalidOption(InvalidInput):
    """An option of the data source is unknown, malformed, or conflicts with another. `where` is its name."""

    def __init__(self, problem: str, name: str) -> None:
        super().__init__(problem, f"option {name}")


@dataclass(frozen=True)
class Moment:
    """A recording time, in ms since 1970."""

    ms: int


@dataclass(frozen=True)
class Option:
    """One option: its name, its allowed values, and its parser."""

    name: str
    allowed: str
    """The allowed values, in the words of its error."""
    parse: Callable[[str], Any]
    """Raises ValueError, or InvalidInput if it can describe the problem better than `allowed`."""
    is_secret: bool = False
    """Its value is never shown."""

    def read(self, given: str) -> Any:
        """The value. Raises InvalidOption."""
        try:
            return self.parse(given)
        except InvalidInput as error:
            raise InvalidOption(error.problem, self.name) from None
        except ValueError:
            what = "something else" if self.is_secret else show(given)
            raise InvalidOption(f"expected {self.allowed}, got {what}", self.name) from None


def read_options(given: Mapping[str, str], table: Sequence[Option], purpose: str) -> dict[str, Any]:
    """The values of the given options, by their names in the table.

    Raises InvalidOption: an unknown option, with the nearest known one; an invalid value.
    """
    known = {option.name.lower(): option for option in table}
    for name in given:
        if name.lower() not in known:
            names = [option.name for option in table]
            raise InvalidOption(f"{purpose} has no such option{nearest(name, names)}", name)
    return {known[name.lower()].name: known[name.lower()].read(value) for name, value in given.items()}


def default_url() -> str:
    """The default address of the server: from the variable, or DEFAULT_URL."""
    return os.environ.get(URL_VARIABLE) or DEFAULT_URL


def nearest(given: str, names: Iterable[str]) -> str:
    """`; did you mean X?`, or all names."""
    by_lower = {name.lower(): name for name in names}
    close = difflib.get_close_matches(given.lower(), by_lower, n=1)
    return f"; did you mean {by_lower[close[0]]}?" if close else f"; expected one of {', '.join(by_lower.values())}"


def text_of(value: object) -> str:
    """A value as the text that Spark uses for it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def text(given: str) -> str:
    """Any text but the empty one."""
    return given or _no()


def boolean(given: str) -> bool:
    """`true` or `false`, in any case."""
    return choice("true", "false")(given) == "true"


def choice(*words: str) -> Callable[[str], str]:
    """One of these words, in any case."""

    def parse(given: str) -> str:
        word = given.strip().lower()
        return word if word in words else _no()

    return parse


def number(low: int, high: int = SEQUENCE_NUMBER_MAX) -> Callable[[str], int]:
    """A whole number in that range, both included."""

    def parse(given: str) -> int:
        value = int(given) if re.fullmatch(r"\d{1,19}", given.strip(), re.ASCII) else -1
        return value if low <= value <= high else _no()

    return parse


def names(given: str) -> tuple[str, ...]:
    """Words separated by commas; none of them empty."""
    found = tuple([word.strip() for word in given.split(",")])
    return found if all(found) else _no()


_SIZE = re.compile(r"(\d{1,15})\s*(|b|k|m|g|kb|mb|gb|kib|mib|gib)", re.ASCII | re.IGNORECASE)
_SHIFTS = {"": 0, "b": 0, "k": 10, "m": 20, "g": 30}


def size(given: str) -> int:
    """Bytes: `1048576`, `64m`, `64MiB`, `1g`; as everywhere in Spark, k, m and g are powers of 1024. At least 1."""
    found = _SIZE.fullmatch(given.strip())
    value = int(found[1]) << _SHIFTS[found[2][:1].lower()] if found else 0
    return value if 1 <= value < 2**63 else _no()


_DURATION = re.compile(r"(\d{1,12})\s*(ms|s|m|h|d)", re.ASCII)
_MILLISECONDS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def duration_ms(given: str) -> int:
    """Milliseconds: `500ms`, `30s`, `15m`, `2h`, `1d`. The unit is required."""
    found = _DURATION.fullmatch(given.strip())
    return int(found[1]) * _MILLISECONDS[found[2]] if found else _no()


def timestamp_ms(given: str) -> int:
    """ms since 1970 UTC: a number, or ISO 8601. Without an offset it is UTC; a fraction of a ms is rounded up, as
    recording times are whole ms.

    Raises ValueError; InvalidInput for 14 digits, which may be meant as YYYYMMDDhhmmss.
    """
    if re.fullmatch(r"\d{1,15}", given.strip(), re.ASCII):
        check_unambiguous(given.strip())
        return int(given)
    moment = datetime.fromisoformat(given.strip())
    return ceil_ms(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


_MS = re.compile(r"ms:(\d{1,15})", re.ASCII)


def number_or_time(given: str) -> int | Moment:
    """A sequence number (any number of digits), or a time (ISO 8601, or `ms:` and ms since 1970).

    Parses every option that takes both. Raises ValueError.
    """
    word = given.strip()
    if word.isascii() and word.isdigit():
        return int(word)
    if (found := _MS.fullmatch(word)) is not None:
        return Moment(int(found[1]))
    return Moment(timestamp_ms(word))


def ceil_ms(moment: datetime) -> int:
    """The first ms since 1970 not before the moment."""
    return -((EPOCH - moment) // timedelta(milliseconds=1))


def floor_ms(moment: datetime) -> int:
    """The last ms since 1970 not after the moment."""
    return (moment - EPOCH) // timedelta(milliseconds=1)


def _no() -> Any:
    raise ValueError
