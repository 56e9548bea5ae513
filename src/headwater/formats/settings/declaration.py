"""Declares settings, reads their values from TOML, the environment and flags, and writes them back as TOML.

A package declares its settings as the fields of a dataclass; those created by `setting` are read from the configuration
by name. If one line is not enough for a setting, the docstring below the field adds to it: the configuration's
reference page contains it.

A reader takes a TOML value (a number, a string, a list) or the string of a variable or flag, and raises ValueError with
a message that says what was given and what is allowed. It does not know where the value comes from.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, TypeVar

from ...core.errors import InvalidInput, InvalidLogName
from ...core.limits import show
from ...core.settings import check_log_name
from .local_paths import scheme_of


class InvalidConfiguration(InvalidInput):
    """A setting is unknown, malformed or out of range; `where` is the file and key, the variable, or the flag."""


def refuse(problems: Sequence[InvalidConfiguration]) -> None:
    """Raise InvalidConfiguration with a line for each problem, unless there is none."""
    if len(problems) > 1:
        raise InvalidConfiguration("\n".join(map(str, problems)))
    if problems:
        raise problems[0]


class InvalidArgument(InvalidInput):
    """An argument or option of a command is never valid, whatever the server or a file contains."""


T = TypeVar("T")
Reader = Callable[[object], T]
R = TypeVar("R", bound=Callable[[Any], Any])
_METAVARS: dict[Reader[Any], str] = {}

KIB, MIB, GIB = 2**10, 2**20, 2**30

BYTE_UNITS = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
DURATION_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_QUANTITY = re.compile(r"([0-9]+)\s*([A-Za-z]*)", re.ASCII)
_HOST_NAME = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?", re.ASCII)
_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(:[0-9]{1,5})?", re.ASCII)
_BOOLEANS = {"true": True, "false": False}


def setting(default: T, read: Reader[T], summary: str) -> T:
    """A dataclass field that is read from the configuration, with one line of documentation; `metadata` keeps both."""
    made: T = field(default=default, metadata={"read": read, "summary": summary})
    return made


def shown_as(metavar: str) -> Callable[[R], R]:
    """Decorates a reader with the placeholder of its value in the help of a flag."""

    def name(read: R) -> R:
        _METAVARS[read] = metavar
        return read

    return name


def metavar(read: Reader[Any]) -> str:
    """The placeholder of a setting's value in the help of its flag: `SIZE`."""
    return _METAVARS.get(read, "VALUE")


def whole_number(low: int, high: int) -> Reader[int]:
    """Reads a whole number from `low` to `high`."""

    @shown_as("N")
    def read(value: object) -> int:
        text = value.strip() if isinstance(value, str) else ""
        number = int(text) if text.isascii() and text.isdigit() else value
        if not isinstance(number, int) or isinstance(number, bool) or not low <= number <= high:
            raise ValueError(f"expected a whole number from {low} to {high}, got {show(value)}")
        return number

    return read


def byte_count(low: int, high: int) -> Reader[int]:
    """Reads a size in bytes: a whole number, or one with a unit (`64MiB`, `10 GB`)."""
    allowed = f"{show_bytes(low)} to {show_bytes(high)}, as a number or with a unit ({', '.join(BYTE_UNITS)})"
    return shown_as("SIZE")(_quantity(BYTE_UNITS, low, high, allowed))


def duration_ms(low: int, high: int) -> Reader[int]:
    """Reads a duration, in ms: a whole number of ms, or one with a unit (`7d`, `12h`, `30s`)."""
    units = ", ".join(DURATION_UNITS_MS)
    allowed = f"{show_duration(low)} to {show_duration(high)}, in ms or with a unit ({units})"
    return shown_as("DURATION")(_quantity(DURATION_UNITS_MS, low, high, allowed))


@shown_as("[true|false]")
def boolean(value: object) -> bool:
    """Reads true or false."""
    found = _BOOLEANS.get(value.strip().lower()) if isinstance(value, str) else value
    if not isinstance(found, bool):
        raise ValueError(f"expected true or false, got {show(value)}")
    return found


@shown_as("TEXT")
def text(value: object) -> str:
    """Reads a non-empty string."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"expected a non-empty string, got {show(value)}")
    return value.strip()


@shown_as("NAME")
def name(value: object) -> str:
    """Reads a name that is a single path segment, or an empty string."""
    if not isinstance(value, str) or "/" in value:
        raise ValueError(f"expected a string without a slash, got {show(value)}")
    return value.strip()


@shown_as("LOG")
def log_name(value: object) -> str:
    """Reads the name of a log."""
    try:
        return check_log_name(text(value))
    except InvalidLogName as error:
        raise ValueError(error.problem) from None


@shown_as("PATH")
def path(value: object) -> Path:
    """Reads the path of a file or directory; `~` is the home directory."""
    given = text(str(value) if isinstance(value, Path) else value)
    if (scheme := scheme_of(given)) is not None:
        raise ValueError(f"expected a local path, got {show(given)}; {scheme}:// is not supported")
    return Path(given).expanduser()


def one_of(*allowed: str) -> Reader[str]:
    """Reads one of a few words."""

    @shown_as(f"[{'|'.join(allowed)}]")
    def read(value: object) -> str:
        if not isinstance(value, str) or value.strip().lower() not in allowed:
            raise ValueError(f"expected one of {', '.join(allowed)}, got {show(value)}")
        return value.strip().lower()

    return read


@shown_as("TEXT,...")
def texts(value: object) -> tuple[str, ...]:
    """Reads a list of strings; a variable or flag separates them by commas."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, Sequence) or not all(isinstance(part, str) for part in parts):
        raise ValueError(f"expected a list of strings, got {show(value)}")
    return tuple(part.strip() for part in parts if part.strip())


@shown_as("HOST,...")
def hosts(value: object) -> tuple[str, ...]:
    """Reads a list of hosts: names, addresses and networks."""
    found = texts(value)
    for host in found:
        if "/" in host:
            try:
                ipaddress.ip_network(host, strict=False)
            except ValueError:
                raise ValueError(f"expected a network such as 10.0.0.0/8, got {show(host)}") from None
    return found


@shown_as("HOST,...")
def trusted_hosts(value: object) -> tuple[str, ...]:
    """Reads a list of trusted hosts.

    A network with host bits set is refused: it may have been meant as one machine.
    """
    found = hosts(value)
    for host in found:
        network = ipaddress.ip_network(host, strict=False) if "/" in host else None
        address = host.partition("/")[0]
        if network is not None and ipaddress.ip_address(address) != network.network_address:
            raise ValueError(f"expected {network} (the network) or {address} (one machine), got {show(host)}")
    return found


@shown_as("HOST,...")
def host_names(value: object) -> tuple[str, ...]:
    """Reads a list of host names, without ports; returns them in lower case."""
    found = texts(value)
    for host in found:
        if not _HOST_NAME.fullmatch(host):
            raise ValueError(f"expected a host name without scheme or port, such as log.example.org, got {show(host)}")
    return tuple(host.lower().removesuffix(".") for host in found)


@shown_as("ORIGIN,...")
def origins(value: object) -> tuple[str, ...]:
    """Reads a list of origins of web pages: scheme, host, and port; or `null`, or `*`. Returns them in lower case."""
    found = texts(value)
    for origin in found:
        if origin not in ("null", "*") and not _ORIGIN.fullmatch(origin):
            allowed = "an origin without a path such as https://app.example.org:8443, null or *"
            raise ValueError(f"expected {allowed}, got {show(origin)}")
    return tuple(origin.lower() for origin in found)


def show_bytes(count: int) -> str:
    """A size with the largest binary unit that divides it: `64MiB`."""
    binary = {unit: size for unit, size in BYTE_UNITS.items() if unit == "B" or unit.endswith("iB")}
    return _in_largest_unit(count, binary)


def show_duration(count_ms: int) -> str:
    """A duration with the largest unit that divides it: `7d`."""
    return _in_largest_unit(count_ms, DURATION_UNITS_MS)


def toml(value: Any) -> str:
    """The value as TOML: a string, number, boolean, or a list of those."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(toml, value))}]"
    return json.dumps(str(value), ensure_ascii=False)  # a TOML basic string escapes as JSON does


def _quantity(units: dict[str, int], low: int, high: int, allowed: str) -> Reader[int]:
    def read(value: object) -> int:
        count = value
        if isinstance(value, str) and (match := _QUANTITY.fullmatch(value.strip())):
            number, unit = match.groups()
            count = int(number) * units[unit] if unit in units else int(number) if not unit else None
        if not isinstance(count, int) or isinstance(count, bool) or not low <= count <= high:
            raise ValueError(f"expected {allowed}, got {show(value)}")
        return count

    return read


def _in_largest_unit(count: int, units: dict[str, int]) -> str:
    unit, size = max(
        ((u, s) for u, s in units.items() if count % s == 0 and count >= s), key=lambda x: x[1], default=("", 1)
    )
    return f"{count // size}{unit}"
