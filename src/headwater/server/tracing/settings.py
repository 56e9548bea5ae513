"""The settings of spans."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from ...core.limits import show
from ...formats.settings.declaration import Reader, setting, shown_as, text, whole_number


@shown_as("URL")
def collector_url(value: object) -> str:
    """Reads the URL of a collector: http or https, without user, query and fragment."""
    given = text(value)
    try:
        parts = urlsplit(given)
        is_fit = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        is_fit = is_fit and "@" not in parts.netloc and not parts.query and not parts.fragment
    except ValueError:
        is_fit = False
    if not is_fit:
        raise ValueError(f"{show(given)} given, a URL such as http://127.0.0.1:4318 is allowed")
    return given


_url: Reader[str | None] = collector_url


@dataclass(frozen=True, slots=True)
class Tracing:
    """Spans of what the server does, for a collector that takes OTLP over HTTP."""

    endpoint: str | None = setting(None, _url, "collector that gets spans by OTLP over HTTP; takes the extra [otel]")
    """The collector that gets spans by OTLP over HTTP (`http://127.0.0.1:4318`; `/v1/traces` is added). It takes the
    extra `[otel]`, and turns [spans](../guides/tracing.md) on."""
    sampled_percent: int = setting(
        100, whole_number(0, 100), "how many of the traces that begin here are sampled, of a hundred"
    )
    """How many of the traces that begin here are sampled, of a hundred. Whether one that began elsewhere is
    sampled was decided there."""
    service_name: str = setting("headwater", text, "name of this server in its spans (service.name)")
