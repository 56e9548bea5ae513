"""Problem documents (RFC 9457): how every HTTP front end says what went wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:headwater:problem:"
"""What comes before the code in `type`; programs decide by the code, people read `detail`."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem: a kind of its own (`code`, `title`), and what happened this time (`detail`, `members`)."""

    status: int
    code: str
    """Lower-case words joined by underscores; stable."""
    title: str
    """The same for every occurrence of the code."""
    detail: str
    members: Mapping[str, object] = field(default_factory=dict)
    """Extension members (RFC 9457, 3.2); those that are None are left out."""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """Header fields that belong to the problem: `Retry-After`, `Allow`, `WWW-Authenticate`."""

    def to_json(self) -> bytes:
        """The document."""
        present = {name: value for name, value in self.members.items() if value is not None}
        known = {
            "type": TYPE_PREFIX + self.code,
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
        }
        return msgspec.json.encode(known | present)
