"""Addresses of this container: `LOG` is the event log, `LOG/$info` the information on it (event streams, 6).

`LOG/$earliest` and `LOG/$latest` also address the log, and specify where a receiver without a position starts.
`LOG/$group/NAME` is the log as one consumer group receives it; NAME is percent-encoded.
`queue://LOG` and `topic://LOG`, the form of ActiveMQ clients, also mean the log, which is served as either.
`$management` and `$events` belong to the server as a whole, `$reply/...` are created on demand.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote

from ...core.errors import InvalidLogName, LogNotFound
from ...core.settings import EARLIEST, LATEST, check_log_name

INFO = "$info"
_STARTS = {f"${start}": start for start in (EARLIEST, LATEST)}
_GROUP = re.compile(r"\$group/((?:[^/%]|%[0-9A-Fa-f]{2})+)")
"""The rest of a consumer group's address, after the log. In the name, `/` and `%` must be escaped; other characters may
be.
"""
MANAGEMENT, EVENTS = "$management", "$events"
CLAIMS = "$cbs"
"""Where clients of Azure's services send tokens (claims-based security). Not supported."""
REPLY = "$reply/"
"""Prefix of reply node addresses; a client may make one up, or request one (dynamic)."""
_PREFIX = re.compile(r"^(?:amqps?://[^/]*/|queue://|topic://)", re.IGNORECASE)
_USER_INFORMATION = re.compile(r"(amqps?://)[^/]*@", re.IGNORECASE)


class Address(NamedTuple):
    """A node: a log, its runtime information, or a consumer group of it."""

    log: str
    is_info: bool = False
    start: str | None = None
    """EARLIEST or LATEST if the address says so: where a receiver without a position starts."""
    group: str | None = None
    """The consumer group that the address names, decoded; `streams.link_properties.check_group` validates it."""


def server_node(text: str | None) -> str | None:
    """The address of a node of the server itself; None for any other, most likely a log."""
    path = _path(text or "")
    return path if path in (MANAGEMENT, EVENTS) or path.startswith(REPLY) else None


def is_claims(text: str | None) -> bool:
    """Whether an address is that of claims-based security."""
    return _path(text or "") == CLAIMS


def shown_address(text: str | None) -> str:
    """An address that is safe to show: without the name and password that a URL may contain. Empty if there is no
    address.
    """
    return _USER_INFORMATION.sub(r"\1", text or "", count=1)


def parse_address(text: str) -> Address:
    """The node of an address, which some clients write as a URL, with the kind of node, or with a leading slash.

    Raises LogNotFound if it is not a valid log name.
    """
    log, _, rest = _path(text).partition("/")
    try:
        check_log_name(log)
    except InvalidLogName:
        raise LogNotFound(shown_address(text)) from None
    group = _group(rest)
    if group is None and rest not in ("", INFO, *_STARTS):
        raise LogNotFound(shown_address(text))
    return Address(log, rest == INFO, _STARTS.get(rest), group)


def _group(rest: str) -> str | None:
    """The consumer group that follows the log in an address; None for anything else."""
    found = _GROUP.fullmatch(rest)
    try:
        return None if found is None else unquote(found[1], errors="strict")
    except UnicodeDecodeError:
        return None


def _path(text: str) -> str:
    """An address without the prefixes that some clients add."""
    return _PREFIX.sub("", text, count=1).removeprefix("/")
