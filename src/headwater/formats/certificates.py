"""The user whom a client's certificate names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def common_name(certificate: Mapping[str, Any] | None) -> str | None:
    """The common name in what `ssl` says of a peer's verified certificate; None without one."""
    names = [value for names in (certificate or {}).get("subject", ()) for key, value in names if key == "commonName"]
    return names[0] if names else None
