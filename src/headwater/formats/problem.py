"""Problem documents (RFC 9457): the error format of HTTP, except for front ends whose standard has its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

import msgspec

MEDIA_TYPE = "application/problem+json"
ABOUT_BLANK = "about:blank"
TYPE_PREFIX = "urn:headwater:problem:"
"""The prefix of the code in `type`; programs use the code, people read `detail`."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem: its kind (`code`, `title`), and this occurrence (`detail`, `members`)."""

    status: int
    code: str
    """Lower-case words joined by underscores; stable. Empty if the status says everything: see `of_status`."""
    title: str
    """The same for every occurrence of the code."""
    detail: str
    members: Mapping[str, object] = field(default_factory=dict)
    """Extension members (RFC 9457, 3.2); None values are left out."""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """Header fields that belong to the problem: `Retry-After`, `Allow`, `WWW-Authenticate`."""

    @staticmethod
    def of_status(status: int, detail: str, *headers: tuple[bytes, bytes]) -> Problem:
        """A problem that is only its status (RFC 9457, 4.2.1)."""
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
        # Status-only problems have always had a blank after each comma and colon, and probes compare text.
        return document if self.code else msgspec.json.format(document, indent=0)
