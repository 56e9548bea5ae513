"""Addresses of this container: `LOG` is the event log, `LOG/$info` what is to be known of it (event streams, 6)."""

from __future__ import annotations

import re
from typing import NamedTuple

from ..core.errors import InvalidLogName, LogNotFound
from ..core.limits import show
from ..core.settings import check_log_name

INFO = "$info"
_AUTHORITY = re.compile(r"amqps?://[^/]*/", re.IGNORECASE)


class Address(NamedTuple):
    """A node: a log, or its runtime information."""

    log: str
    is_info: bool = False


def parse_address(text: str) -> Address:
    """The node of an address, which some clients write as a whole URL or with a leading slash.

    Raises LogNotFound: no log could have that name.
    """
    path = _AUTHORITY.sub("", text, count=1).removeprefix("/")
    log, _, rest = path.partition("/")
    try:
        check_log_name(log)
    except InvalidLogName:
        raise LogNotFound(show(text)) from None
    if rest not in ("", INFO):
        raise LogNotFound(show(text))
    return Address(log, rest == INFO)
