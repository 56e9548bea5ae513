"""Users as configured and stored: hashed passwords, hashed tokens, secret keys, grants.

An account has one external form, a table, in the configuration and (as JSON) in the data directory:

    [users.alice]
    password = "$scrypt$ln=14,r=8,p=1$...$..."    # PHC string format
    tokens = ["sha256:..."]                        # of tokens that `headwater user add` made: long and random
    key = "base64..."                              # in the clear, because signatures are computed with it
    grants = ["read,append:orders-*", "manage:*"]
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import logging
import math
import re
import secrets
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec

from ...core.access import Grant, Right, User
from ...core.errors import InvalidInput
from ...core.limits import show
from ...core.state import USER_KIND, StateEntry, StateStore
from ...core.watch.bus import Bus
from ...core.watch.notification_types import NotificationType

logger = logging.getLogger("headwater.security")

KIND = USER_KIND
"""The kind of user entries in the StateStore, keyed by name."""
EVERYBODY = ("access", "everybody")
"""The entry that records since when all requests are allowed although there were users; its value is JSON."""
USER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", re.ASCII)
PASSWORD_CHARS_MIN, PASSWORD_CHARS_MAX = 8, 1024
KEY_BYTES_MIN = 16
REREAD_S = 1.0
"""How long until a user added, changed or removed by another process is noticed."""
NEWEST_S = 0.05
"""The maximum age of the accounts used to refuse credentials, so that a new user can log in."""
READS_SHARE = 20
"""After a read of the users for unknown credentials, the next such read waits this many times its duration."""
_PHC = re.compile(
    r"\$scrypt\$ln=(\d{1,2}),r=(\d{1,2}),p=(\d{1,2})\$([A-Za-z0-9+/]{11,86})\$([A-Za-z0-9+/]{22,86})", re.ASCII
)
_TOKEN_HASH = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)
_COST_LOG2, _BLOCK, _LANES = 14, 8, 1
"""16 MiB and about 50 ms for each check."""
_COST_LOG2_MAX, _BLOCK_MAX, _LANES_MAX = 18, 16, 4


class AccessToken(NamedTuple):
    """The stored form of a token with a label."""

    hashed: str
    label: str
    created_at: int
    """In ms since 1970."""
    expires_at: int | None = None
    """In ms since 1970; None if never."""

    def is_over(self, now_ms: int) -> bool:
        """Whether it has expired."""
        return self.expires_at is not None and now_ms >= self.expires_at


@dataclass(frozen=True, slots=True)
class Account:
    """The stored form of one user. `password` and `tokens` are hashes; `key` is the key itself."""

    name: str
    grants: tuple[Grant, ...]
    password: str | None = None
    tokens: tuple[str, ...] = ()
    key: bytes | None = None
    access_tokens: tuple[AccessToken, ...] = ()
    """Tokens with a label, in addition to `tokens`. Only users of the data directory have them."""
    revision: int = 0
    """How often a token was removed. It changes the value that logins are checked against."""

    @property
    def user(self) -> User:
        """The user as the front ends see it."""
        return User(self.name, self.grants)

    @property
    def table(self) -> dict[str, object]:
        """The external form; see the module."""
        table: dict[str, object] = {"grants": [show_grant(grant) for grant in self.grants]}
        if self.password is not None:
            table["password"] = self.password
        if self.tokens:
            table["tokens"] = list(self.tokens)
        if self.key is not None:
            table["key"] = base64.b64encode(self.key).decode()
        return table

    @staticmethod
    def of_table(name: str, table: Mapping[str, object]) -> Account:
        """The account of an external form. Raises InvalidInput that names the invalid part."""
        check_user_name(name)
        if unknown := sorted(set(table) - set(ACCOUNT_KEYS)):
            raise InvalidInput(f"unknown key; allowed: {', '.join(ACCOUNT_KEYS)}", unknown[0])
        return Account(
            name,
            tuple(read_grant(text) for text in _texts("grants", table.get("grants", ()))),
            _checked_password_hash(table.get("password")),
            tuple(_checked_token_hash(text) for text in _texts("tokens", table.get("tokens", ()))),
            _checked_key(table.get("key")),
        )


CHANGEABLE: Mapping[str, Callable[[Account], object]] = {
    "grants": lambda account: account.grants,
    "password": lambda account: account.password,
    "tokens": lambda account: (account.tokens, account.access_tokens),
    "key": lambda account: account.key,
}
"""The parts of an account whose changes are reported."""
ACCOUNT_KEYS = ("password", "tokens", "key", "grants")


def check_user_name(name: str) -> str:
    """The name, if it is valid. Raises InvalidInput."""
    if not USER_NAME.fullmatch(name):
        raise InvalidInput(f"{show(name)} does not match {USER_NAME.pattern}", "user name")
    return name


def read_grant(text: str) -> Grant:
    """Parses `RIGHT[,RIGHT...]:PATTERN` as a grant; `all` stands for every right. Raises InvalidInput."""
    names, colon, logs = text.partition(":")
    rights = set(Right) if names == "all" else {name.strip() for name in names.split(",")}
    if not colon or not logs or not rights <= set(Right):
        allowed = f"RIGHTS:PATTERN with RIGHTS from {', '.join(Right)} (or all), like read,append:orders-*"
        raise InvalidInput(f"expected {allowed}, got {show(text)}", "grants")
    if Right.METRICS in rights and names != "all" and logs != "*":
        raise InvalidInput(f"expected metrics:*, got {show(text)}, because metrics cover the whole server", "grants")
    return Grant(logs, frozenset(map(Right, rights)))


def show_grant(grant: Grant) -> str:
    """The grant in the form that `read_grant` parses."""
    rights = "all" if grant.rights == set(Right) else ",".join(right for right in Right if right in grant.rights)
    return f"{rights}:{grant.logs}"


def hash_password(password: str) -> str:
    """The password, salted and hashed with scrypt, as a PHC string. Takes about 50 ms.

    Raises InvalidInput if it is shorter than 8 or longer than 1024 characters, or has a control character: HTTP Basic
    cannot carry that (RFC 7617, 2).
    """
    if not PASSWORD_CHARS_MIN <= len(password) <= PASSWORD_CHARS_MAX:
        allowed = f"{PASSWORD_CHARS_MIN} to {PASSWORD_CHARS_MAX} characters"
        raise InvalidInput(f"expected {allowed}, got {len(password)}", "password")
    if any(unicodedata.category(character) == "Cc" for character in password):
        raise InvalidInput("a password cannot contain control characters", "password")
    salt = secrets.token_bytes(16)
    digest = _scrypt(password, salt, _COST_LOG2, _BLOCK, _LANES, 32)
    return f"$scrypt$ln={_COST_LOG2},r={_BLOCK},p={_LANES}${_unpadded(salt)}${_unpadded(digest)}"


def is_password(password: str, encoded: str) -> bool:
    """Whether the password matches the hash. Takes about 50 ms in either case."""
    match = _PHC.fullmatch(encoded)
    assert match is not None, "encoded hashes are checked when they are read"
    cost_log2, block, lanes = (int(number) for number in match.groups()[:3])
    salt, digest = _padded(match[4]), _padded(match[5])
    return hmac.compare_digest(_scrypt(password, salt, cost_log2, block, lanes, len(digest)), digest)


NOBODY_PASSWORD = f"$scrypt$ln={_COST_LOG2},r={_BLOCK},p={_LANES}${'A' * 22}${'A' * 43}"
"""A hash of an unknown password. An unknown user's password is compared with it, so that the check takes equally
long.
"""


def new_token() -> str:
    """A new bearer token: 256 random bits. Only its hash is stored."""
    return f"hw_{secrets.token_urlsafe(32)}"


def hash_token(token: str) -> str:
    """The stored hash of a token. One fast hash suffices, because tokens are random."""
    return f"sha256:{hashlib.sha256(token.encode('utf-8', 'surrogatepass')).hexdigest()}"


class Accounts:
    """All accounts at one moment, by name and by token hash."""

    def __init__(self, accounts: Iterable[Account]) -> None:
        self.by_name = {account.name: account for account in accounts}
        self.by_token: dict[str, tuple[Account, AccessToken | None]] = {}
        """The account; and the token, if more than its hash is known."""
        for account in self.by_name.values():
            self.by_token.update((hashed, (account, None)) for hashed in account.tokens)
            self.by_token.update((token.hashed, (account, token)) for token in account.access_tokens)


class AccountDirectory:
    """The configured accounts and those in the data directory; a configured account takes precedence over a stored one
    of the same name.
    """

    def __init__(
        self,
        configured: Iterable[Account],
        state: StateStore,
        clock: Callable[[], float] = time.monotonic,
        bus: Bus | None = None,
    ) -> None:
        """`bus` is notified of users added, changed and removed in the data directory, by any process."""
        self._bus, self._changed_by = bus or Bus(), dict[str, str | None]()
        self._configured, self._state, self.clock = tuple(configured), state, clock
        self._stored: list[tuple[str, StateEntry]] = []
        self._kept: dict[str, Account] = {}
        """The stored accounts."""
        self._accounts = Accounts(self._configured)
        self._had_users: bool | None = None
        self.never_had_any = False
        """Whether there were no users and never had been, when they were read last: only then are requests allowed
        without credentials.

        If the last user was removed, or all were lost, every request is refused until an operator decides otherwise
        (`headwater user allow-everybody`).
        """
        self.due_at = -math.inf
        """When the accounts must be read again (`current`) before anything is decided by them, by `clock`."""
        self._was_read = False
        self._read_s = 0.0

    def remember(self, *, has_issuer: bool = False) -> None:
        """Record in the state that users are configured: a server without them then refuses every request."""
        if (self._configured or has_issuer) and not self._state.had_users():
            self._state.keep_had_users(True)

    @property
    def configured(self) -> frozenset[str]:
        """The names of the configured users."""
        return frozenset(account.name for account in self._configured)

    @contextmanager
    def changing(self, name: str, by: str | None) -> Iterator[None]:
        """Marks a change of that user, so that its notification names `by` even if another reader notices the change
        first.
        """
        self._changed_by[name] = by
        try:
            yield
        except BaseException:
            self._changed_by.pop(name, None)
            raise
        self.refresh()

    def refresh(self) -> None:
        """The stored accounts have changed: read them again at the next use."""
        self.due_at = -math.inf

    def newest(self) -> Accounts:
        """Like `current`, but at most `NEWEST_S` old: for unknown credentials, which may be of a user just created.

        Anyone can cause this repeatedly, so if reading takes long, the accounts may be older.
        """
        return self.current(min(REREAD_S, max(NEWEST_S, READS_SHARE * self._read_s)))

    def current(self, age_s_max: float = REREAD_S) -> Accounts:
        """The accounts, at most a second old; the same object until something changes."""
        now = self.clock()
        if now >= self.due_at - REREAD_S + age_s_max:
            self.due_at = now + REREAD_S
            began = time.perf_counter()
            stored = list(self._state.items(KIND))
            had_users = self._state.had_users()
            self._read_s = time.perf_counter() - began
            if self._had_users and not had_users:
                logger.warning("requests without credentials are allowed again, on loopback only")
            self._had_users, self.never_had_any = had_users, not (had_users or stored or self._configured)
            if stored != self._stored:
                before, self._stored = dict(self._stored), stored
                accounts = self._kept
                # Few of thousands of users change at a time, and decoding each takes long on an event loop.
                self._kept = {
                    name: accounts[name]
                    if name in accounts and before.get(name) == entry
                    else decode_entry((name, entry))
                    for name, entry in stored
                }
                self._accounts = Accounts((*self._kept.values(), *self._configured))
                if self._was_read:
                    self._notify(accounts, self._kept.values())
            self._was_read = True
        return self._accounts

    def _notify(self, before: dict[str, Account], kept: Iterable[Account]) -> None:
        for account in kept:
            known = before.pop(account.name, None)
            if known is account or known == account:
                continue
            by = self._changed_by.pop(account.name, None)
            about = {"account": account.name, "grants": json.dumps([show_grant(grant) for grant in account.grants])}
            if known is None:
                self._bus.emit(NotificationType.USER_CREATED, **about, user=by)
            else:
                names = [name for name, part in CHANGEABLE.items() if part(known) != part(account)]
                self._bus.emit(NotificationType.USER_CHANGED, **about, changed=",".join(names), user=by)
        for name in before:
            self._bus.emit(NotificationType.USER_DELETED, account=name, user=self._changed_by.pop(name, None))


def decode_entry(item: tuple[str, StateEntry]) -> Account:
    """The account in an entry of kind `user`."""
    name, entry = item
    table = msgspec.json.decode(entry.value, type=dict[str, object])
    more = msgspec.convert({key: table.pop(key) for key in _KEPT_KEYS if key in table}, _Kept)
    return replace(Account.of_table(name, table), access_tokens=more.access_tokens, revision=more.revision)


def encode_account(account: Account) -> bytes:
    """The value of an account's entry."""
    more = {"access_tokens": account.access_tokens, "revision": account.revision}
    return msgspec.json.encode(account.table | {key: value for key, value in more.items() if value})


class _Kept(msgspec.Struct):
    """Parts of an account that the configuration does not contain."""

    access_tokens: tuple[AccessToken, ...] = ()
    revision: int = 0


_KEPT_KEYS = ("access_tokens", "revision")


def _scrypt(password: str, salt: bytes, cost_log2: int, block: int, lanes: int, length: int) -> bytes:
    normal = unicodedata.normalize("NFC", password).encode("utf-8", "surrogatepass")
    memory = 128 * block * (2**cost_log2 + lanes + 2) + 1024
    return hashlib.scrypt(normal, salt=salt, n=2**cost_log2, r=block, p=lanes, maxmem=memory, dklen=length)


def _checked_password_hash(value: object) -> str | None:
    if value is None:
        return None
    match = _PHC.fullmatch(value) if isinstance(value, str) else None
    cost_log2, block, lanes = (int(number) for number in match.groups()[:3]) if match else (0, 0, 0)
    is_affordable = 1 <= cost_log2 <= _COST_LOG2_MAX and 1 <= block <= _BLOCK_MAX and 1 <= lanes <= _LANES_MAX
    if match is None or not is_affordable or 1 in (len(match[4]) % 4, len(match[5]) % 4):
        problem = "expected a hash from `headwater user add NAME --print` ($scrypt$ln=...,r=...,p=...$SALT$HASH)"
        raise InvalidInput(problem, "password")
    assert isinstance(value, str)
    return value


def _checked_token_hash(value: str) -> str:
    if not _TOKEN_HASH.fullmatch(value):
        raise InvalidInput("expected a hash from `headwater user add NAME --token --print` (sha256:...)", "tokens")
    return value


def _checked_key(value: object) -> bytes | None:
    if value is None:
        return None
    try:
        key = base64.b64decode(value, validate=True) if isinstance(value, str) else b""
    except (binascii.Error, ValueError):
        key = b""
    if len(key) < KEY_BYTES_MIN:
        raise InvalidInput(f"expected at least {KEY_BYTES_MIN} bytes in base64", "key")
    return key


def _texts(where: str, value: object) -> list[str]:
    if not isinstance(value, list | tuple) or not all(isinstance(text, str) for text in value):
        raise InvalidInput(f"expected a list of strings, got {show(value)}", where)
    return list(value)


def _unpadded(value: bytes) -> str:
    return base64.b64encode(value).decode().rstrip("=")


def _padded(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4))
