"""The context of every handler: the service and the guard that checks permissions."""

from __future__ import annotations

from .. import http
from ..core.access import ANYBODY, Forbidden, Guard, Right, Unauthenticated, User
from ..http.host import own_by_address
from .exchange import Exchange
from .notifications.records import Record
from .service import Service
from .settings import Settings

_ADDRESS = "address:"


def is_address(owner: str) -> bool:
    """Whether an owner is known only by the address of the request."""
    return owner.startswith(_ADDRESS)


class Host(http.Host):
    """The service of one front end, and its guard."""

    def __init__(self, service: Service, guard: Guard) -> None:
        super().__init__(guard)
        self.service = service

    @property
    def settings(self) -> Settings:
        """The settings of the front end."""
        return self.service.settings

    async def reader(self, exchange: Exchange) -> User:
        """The user who reads. Raises Unauthenticated, Forbidden."""
        if self.settings.public_reads or self.guard.is_open:
            return ANYBODY
        return await self._user(exchange, Right.READ)

    async def owner(self, exchange: Exchange, right: Right) -> str:
        """The owner to record for a change: the user, the certificate, or otherwise the address.

        Raises Unauthenticated, Forbidden.
        """
        if self.settings.client_certificates and not exchange.certificate:
            raise Unauthenticated("a client certificate is required")
        if not self.guard.is_open:
            return f"user:{(await self._user(exchange, right)).name}"
        own_by_address(exchange.share, exchange.peer)
        return f"certificate:{exchange.certificate}" if exchange.certificate else f"{_ADDRESS}{exchange.peer}"

    async def check_own(self, exchange: Exchange, record: Record, owner: str) -> None:
        """Raises Forbidden if a user known by name changes another owner's record.

        Users who may manage the log may do so; addresses prove nothing, so callers that are known only by an address
        are not checked."""
        if record.owner == owner or is_address(owner):
            return
        user = await self.user(exchange)
        if self.guard.is_open or not user.may(Right.MANAGE, self.settings.log):
            raise Forbidden(owner, Right.MANAGE, self.settings.log)

    async def _user(self, exchange: Exchange, right: Right) -> User:
        user = await self.user(exchange)
        self.guard.authorize(user, right, self.settings.log)
        return user
