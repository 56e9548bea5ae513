"""Problem documents (RFC 9457): how HTTP says what went wrong, but for rooms whose standard has another form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

import msgspec

MEDIA_TYPE = "application/problem+json"
ABOUT_BLANK = "about:blank"
TYPE_PREFIX = "urn:headwater:problem:"
"""What comes before the code in `type`; programs decide by the code, people read `detail`."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem: a kind of its own (`code`, `title`), and what happened this time (`detail`, `members`)."""

    status: int
    code: str
    """Lower-case words joined by underscores; stable. Empty where the status says it all: see `of_status`."""
    title: str
    """The same for every occurrence of the code."""
    detail: str
    members: Mapping[str, object] = field(default_factory=dict)
    """Extension members (RFC 9457, 3.2); those that are None are left out."""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """Header fields that belong to the problem: `Retry-After`, `Allow`, `WWW-Authenticate`."""

    @staticmethod
    def of_status(status: int, detail: str, *headers: tuple[bytes, bytes]) -> Problem:
        """A problem that is no more than its status (RFC 9457, 4.2.1)."""
        return Problem(status, "", HTTPStatus(status).phrase, detail, headers=headers)

    def to_json(self) -> bytes:
        """The document."""
        present = {name: value for name, value in self.members.items() if value is not None}
        known = {
            "type": TYPE_PREFIX + self.code if self.code else ABOUT_BLANK,
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
        }
        document = msgspec.json.encode(known | present)
        # Those of a status alone have always had a blank after each comma and colon, and probes compare text.
        return document if self.code else msgspec.json.format(document, indent=0)
