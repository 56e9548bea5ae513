"""What every handler needs: the service, and who may do what."""

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
    """Whether nothing is known of an owner but the address that he called from."""
    return owner.startswith(_ADDRESS)


class Host(http.Host):
    """The service of one front end, and its guard."""

    def __init__(self, service: Service, guard: Guard) -> None:
        super().__init__(guard)
        self.service = service

    @property
    def settings(self) -> Settings:
        """How the front end is set."""
        return self.service.settings

    async def reader(self, exchange: Exchange) -> User:
        """Who reads. Raises Unauthenticated, Forbidden."""
        if self.settings.public_reads or self.guard.is_open:
            return ANYBODY
        return await self._user(exchange, Right.READ)

    async def owner(self, exchange: Exchange, right: Right) -> str:
        """Who changes something, as what is made remembers it: the user, or the certificate, or else the address.

        Raises Unauthenticated, Forbidden.
        """
        if self.settings.client_certificates and not exchange.certificate:
            raise Unauthenticated("a client certificate is needed")
        if not self.guard.is_open:
            return f"user:{(await self._user(exchange, right)).name}"
        own_by_address(exchange.share, exchange.peer)
        return f"certificate:{exchange.certificate}" if exchange.certificate else f"{_ADDRESS}{exchange.peer}"

    async def check_own(self, exchange: Exchange, record: Record, owner: str) -> None:
        """Raises Forbidden if somebody whom the server knows by name meddles with what is another's.

        Who may manage the log may do so; addresses are no proof of anything, and keep nobody out.
        """
        if record.owner == owner or is_address(owner):
            return
        user = await self.user(exchange)
        if self.guard.is_open or not user.may(Right.MANAGE, self.settings.log):
            raise Forbidden(owner, Right.MANAGE, self.settings.log)

    async def _user(self, exchange: Exchange, right: Right) -> User:
        user = await self.user(exchange)
        self.guard.authorize(user, right, self.settings.log)
        return user
