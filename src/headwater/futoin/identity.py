"""Identifies the sender of a message by its `sec` field, otherwise by the HTTP Authorization header (FTN3 1.9; FTN8.1).

Without either, the sender is the user named by the client's certificate.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Mapping
from typing import NamedTuple

from ..core.access import ANYBODY, Credentials, Guard, LoginNotChecked, Unauthenticated, User
from ..formats.credentials import CONTROL, UNREADABLE, credentials_of
from .errors import FutoInError, invalid, security
from .messages.message import Message
from .messages.signatures import ALGORITHMS, LEGACY_ALGORITHMS, Mac, Signature, base_in_slices

ANYBODY_NAME = "anybody"
"""The owner of the consumers of an anonymous peer, if no user is configured."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", re.ASCII)
_BASIC_REFUSED = "Basic Auth Verification Failed"
_CERTIFICATE_REFUSED = "Client Certificate Names No User"
_MAC_REFUSED = "Signature Verification Failed"


class Caller(NamedTuple):
    """The caller of a function."""

    user: User
    owner: str
    """The local user id (FTN8): the first half of a consumer's identity."""
    signature: Signature | None = None
    """The signature of a signed request; its reply must be signed too."""


class _Signed(NamedTuple):
    """A `sec` that holds a message authentication code."""

    name: str
    mac: Mac
    code: bytes


async def identify(
    guard: Guard, message: Message, authorization: bytes | None, certified: str | None, peer: str
) -> Caller | None:
    """The sender of the message; None if it is missing but required. Raises FutoInError (SecurityError)."""
    shown = _shown(message.sec) if message.sec is not None else _of_header(authorization)
    if isinstance(shown, _Signed):
        return await _identify_signed(guard, message, shown, peer)
    if guard.is_open:
        return _anybody(shown)
    try:
        if shown is not None:
            user = await guard.authenticate(shown, peer)
        elif certified is not None:
            user = guard.trusted(certified, peer)
        else:
            return None
    except Unauthenticated:
        raise security(_CERTIFICATE_REFUSED if shown is None else _BASIC_REFUSED) from None
    return Caller(user, user.name or ANYBODY_NAME)


def recall(guard: Guard, sec: object, authorization: bytes | None) -> Caller | None:
    """The sender of a message with that `sec`, if known without waiting; None decides nothing.

    Raises FutoInError as `identify`.
    """
    shown = _shown(sec) if sec is not None else _of_header(authorization)
    if isinstance(shown, _Signed):
        return None
    if guard.is_open:
        return _anybody(shown)
    user = guard.recall(shown) if shown is not None else None
    return None if user is None else Caller(user, user.name or ANYBODY_NAME)


async def shown_user(guard: Guard, authorization: bytes | None, certified: str | None, peer: str) -> User | None:
    """The user of a valid login in the request's header. An invalid login is reported in the reply to each message."""
    try:
        shown = _of_header(authorization)
        if shown is None:
            return None if certified is None else guard.trusted(certified, peer)
        return await guard.authenticate(shown, peer)
    except (FutoInError, Unauthenticated, LoginNotChecked):
        return None


def _anybody(shown: Credentials | None) -> Caller:
    """The caller if no user is configured: the name is unchecked and only separates the consumers of peers."""
    claimed = shown.name if shown is not None and _NAME.fullmatch(shown.name) else ANYBODY_NAME
    return Caller(ANYBODY, claimed)


async def _identify_signed(guard: Guard, message: Message, shown: _Signed, peer: str) -> Caller:
    """The costly work is done before checking that the user exists, and is bounded: see Message.tree."""
    try:
        text = await base_in_slices(message.tree())
    except ValueError:
        text = None
    key_found = b""

    def is_right(key: bytes) -> bool:
        nonlocal key_found
        key_found = key
        try:
            return text is not None and hmac.compare_digest(shown.mac(key, text), shown.code)
        except ValueError:  # the key is too short for the algorithm
            return False

    try:
        user = await guard.authenticate_signature(shown.name, is_right, peer)
    except Unauthenticated:
        raise security(_MAC_REFUSED) from None
    return Caller(user, user.name, Signature(shown.mac, key_found))


def _shown(sec: object) -> Credentials | _Signed | None:
    """The credentials in `sec`, a string or a structure."""
    if isinstance(sec, dict):
        return _of_structure(sec)
    if not isinstance(sec, str):
        raise invalid("Invalid req.sec")
    if not sec.startswith("-"):
        name, colon, secret = sec.partition(":")
        if not colon or CONTROL.search(sec):
            raise security(_BASIC_REFUSED)
        return Credentials(name, secret)
    parts = sec.split(":")
    if len(parts) == 4 and parts[0] in ("-hmac", "-smac"):
        return _signed(parts[1], parts[2], parts[3], LEGACY_ALGORITHMS if parts[0] == "-hmac" else ALGORITHMS)
    raise security("unsupported req.sec: expected user:secret, -hmac or -smac")


def _of_structure(sec: dict[object, object]) -> Credentials | _Signed:
    values = {key: value for key, value in sec.items() if isinstance(value, str)}
    if values.keys() == sec.keys() == {"user", "secret"}:
        if CONTROL.search(values["secret"]):
            raise security(_BASIC_REFUSED)
        return Credentials(values["user"], values["secret"])
    if values.keys() == sec.keys() == {"user", "algo", "sig"}:
        return _signed(values["user"], values["algo"], values["sig"], ALGORITHMS)
    raise security("unsupported req.sec: expected user and secret, or user, algo and sig")


def _signed(name: str, algorithm: str, code: str, algorithms: Mapping[str, Mac]) -> _Signed:
    if algorithm not in algorithms:
        raise invalid(f"unsupported MAC algo: expected one of {', '.join(algorithms)}")
    try:
        return _Signed(name, algorithms[algorithm], base64.b64decode(code, validate=True))
    except (binascii.Error, ValueError):
        raise security(_MAC_REFUSED) from None


def _of_header(header: bytes | None) -> Credentials | None:
    """The credentials in the Authorization header. Raises FutoInError (SecurityError) if it is malformed."""
    shown = credentials_of(header)
    if shown is UNREADABLE:
        raise security(_BASIC_REFUSED)
    return shown
