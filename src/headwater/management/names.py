"""Names of entities that are made of several parts: `LOG/OWNER/COMPONENT`."""

from __future__ import annotations

from urllib.parse import unquote


def joined(*parts: str) -> str:
    """The parts as one name: a slash within a part is written as %2F, a percent sign as %25."""
    return "/".join(part.replace("%", "%25").replace("/", "%2F") for part in parts)


def parted(name: str, count: int) -> tuple[str, ...] | None:
    """The parts of a name, or None if it does not have so many."""
    parts = tuple(unquote(part) for part in name.split("/"))
    return parts if len(parts) == count else None
