"""Authentication by the Authorization header, and the challenge for clients that send none."""

from __future__ import annotations

from ..core.access import Guard, Unauthenticated, User
from ..formats.credentials import UNREADABLE, credentials_of
from .asgi import Header

BASIC: Header = (b"www-authenticate", b'Basic realm="headwater", charset="UTF-8"')
BEARER: Header = (b"www-authenticate", b'Bearer realm="headwater"')


async def authenticate(guard: Guard, header: bytes | None, peer: str) -> User:
    """The user of an Authorization header. Raises Unauthenticated.

    The guard also refuses an unreadable header, so that the refusal is counted and logged like any other.
    """
    credentials = credentials_of(header)
    try:
        return await guard.authenticate(credentials, peer)
    except Unauthenticated:
        if credentials is UNREADABLE:
            raise Unauthenticated("the Authorization header is not well-formed Basic or Bearer") from None
        raise
