"""The address of a bulk server and the credentials for it: plain values that can be pickled and used as cache keys."""

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
    """Everything needed to create a client. Raises InvalidInput for a contradictory combination."""

    url: str
    """`grpc://HOST[:PORT]` or `grpc+tls://HOST[:PORT]`; several, separated by commas, for servers that share a home."""
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    """An API token, instead of user and password."""
    ca_file: str | None = None
    """The certificate authorities to trust (PEM), instead of the system's."""
    is_verified: bool = True
    """Whether the server's certificate is checked."""
    timeout_s: float = TIMEOUT_S
    """Timeout of an action or a plan; streams have none."""
    retries: int = RETRIES
    """How often an idempotent call is retried while the server is unreachable or busy; with several addresses, at each
    one."""

    def __post_init__(self) -> None:
        for url in urls_of(self.url):
            parts_of(url, SCHEMES)
        authorization_of(self.user, self.password, self.token)
        if not self.timeout_s > 0:
            raise InvalidInput(f"expected more than 0, got {self.timeout_s!r}", "timeout_s")
        if self.retries < 0:
            raise InvalidInput(f"expected 0 or more, got {self.retries!r}", "retries")

    @property
    def each(self) -> tuple[BulkAddress, ...]:
        """One address per URL."""
        urls = urls_of(self.url)
        return (self,) if len(urls) == 1 else tuple([replace(self, url=url) for url in urls])

    def turned(self, by: int) -> BulkAddress:
        """The same address with all URLs except the last rotated, so that readers do not all start at the same one."""
        *first, last = urls_of(self.url)
        at = by % len(first) if first else 0
        return replace(self, url=",".join([*first[at:], *first[:at], last]))

    @property
    def location(self) -> str:
        """The URL of a single server as Flight expects it, with its port."""
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
        """The authorities to trust. Raises InvalidInput if the file cannot be read."""
        if self.ca_file is None:
            return None
        try:
            return Path(self.ca_file).read_bytes()
        except OSError as error:
            raise InvalidInput(f"{show(self.ca_file)} cannot be read: {error}", "ca_file") from None
