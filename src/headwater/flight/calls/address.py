"""Where a bulk server is, and how to show who asks: plain values, which can be pickled and be keys of a cache."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from ...core.errors import InvalidInput
from ...core.limits import show
from ...formats.clients.address import authorization_of, parts_of, urls_of
from ..settings import DEFAULT_PORT

SCHEMES = ("grpc", "grpc+tls")
TIMEOUT_S = 60.0
RETRIES = 12


@dataclass(frozen=True, slots=True)
class BulkAddress:
    """All that a client is made of. Raises InvalidInput where that does not go together."""

    url: str
    """`grpc://HOST[:PORT]` or `grpc+tls://HOST[:PORT]`; several, with commas, for servers that share a home."""
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    """An API token, instead of a user and a password."""
    ca_file: str | None = None
    """The authorities to trust (PEM), instead of those of the system."""
    is_verified: bool = True
    """Whether the server's certificate is checked."""
    timeout_s: float = TIMEOUT_S
    """How long an action or a plan may take; streams may take as long as they like."""
    retries: int = RETRIES
    """How often a call that may be repeated is tried again while the server is away or busy; at each address, if there
    are several."""

    def __post_init__(self) -> None:
        for url in urls_of(self.url):
            parts_of(url, SCHEMES)
        authorization_of(self.user, self.password, self.token)
        if not self.timeout_s > 0:
            raise InvalidInput(f"{self.timeout_s!r} given, more than 0 is allowed", "timeout_s")
        if self.retries < 0:
            raise InvalidInput(f"{self.retries!r} given, 0 or more is allowed", "retries")

    @property
    def each(self) -> tuple[BulkAddress, ...]:
        """One for each URL."""
        urls = urls_of(self.url)
        return (self,) if len(urls) == 1 else tuple([replace(self, url=url) for url in urls])

    def turned(self, by: int) -> BulkAddress:
        """The same with all URLs but the last in another order, so that readers do not all begin at the same one."""
        *first, last = urls_of(self.url)
        at = by % len(first) if first else 0
        return replace(self, url=",".join([*first[at:], *first[:at], last]))

    @property
    def location(self) -> str:
        """The URL as Flight wants it, with its port; of one server."""
        parts = parts_of(self.url, SCHEMES)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        return f"{parts.scheme}://{host}:{parts.port or DEFAULT_PORT}"

    @property
    def is_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.url.startswith("grpc+tls:")

    @property
    def authorization(self) -> str | None:
        """The value of the Authorization header, or None."""
        return authorization_of(self.user, self.password, self.token)

    def ca_bytes(self) -> bytes | None:
        """The authorities to trust. Raises InvalidInput where the file cannot be read."""
        if self.ca_file is None:
            return None
        try:
            return Path(self.ca_file).read_bytes()
        except OSError as error:
            raise InvalidInput(f"{show(self.ca_file)} cannot be read: {error}", "ca_file") from None
