"""The guard: authenticates peers and checks rights (`core.access.Guard`). Front ends call it; nothing else decides.

A correct password costs one scrypt (about 50 ms in a thread) and is then remembered while it is used. A wrong one costs
the same, whether the user exists or not, and delays the next attempt of that peer for that user. A token is found by
its hash, so a correct one never waits, and wrong ones only delay further wrong ones. The same holds for tokens of an
issuer (`oidc`), which are checked by signature.

A client that fails or tries too often slows down its own place only (`login_backoff.place_of`). An unchecked login is
TooManyLogins, never a wrong password.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from hashlib import blake2s
from typing import ParamSpec, TypeVar

from ...console.sessions import Sessions
from ...core.access import (
    ANYBODY,
    Credentials,
    Forbidden,
    Guard,
    IssuerUnavailable,
    Right,
    TooManyLogins,
    Unauthenticated,
    User,
)
from ...core.client_subnet import place_of
from ...core.loop.fair_semaphore import FairSemaphore, NoRoom
from ...core.watch.bus import Bus
from ...core.watch.notification_types import NotificationType
from ..process.log_lines import fields
from .accounts import NOBODY_PASSWORD, Account, AccountDirectory, Accounts, hash_token, is_password
from .login_backoff import WAIT_S_MAX, Attempt, LoginBackoff, WaitSlots
from .oidc.tokens import KeyUnknown, TokenLogins
from .refusals import Refusals

CHECKS_AT_ONCE = 2
"""Threads that run scrypt: bounds the cost of logins, 16 MiB and one core each."""
CHECKS_WAITING_MAX = 256
"""Passwords that may wait for those threads."""
CHECKS_WAITING_OF_PLACE_MAX = 64
"""The maximum number of them from one place: as many as the threads check in about two seconds."""

P = ParamSpec("P")
T = TypeVar("T")


class PasswordChecks:
    """Threads that check passwords, with a queue that is bounded per client address and in total.

    A check takes a core for 50 ms and 16 MiB, so few run at once and the others wait, with addresses taking turns. For
    one event loop.
    """

    def __init__(self) -> None:
        self.places = FairSemaphore(
            CHECKS_AT_ONCE, waiting_max=CHECKS_WAITING_MAX, waiting_of_payer_max=CHECKS_WAITING_OF_PLACE_MAX
        )
        """Hold one while a check runs."""
        self._threads = ThreadPoolExecutor(CHECKS_AT_ONCE, thread_name_prefix="password")

    async def run(self, check: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """The result of the check, run in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: check(*arguments, **named))


logger = logging.getLogger("headwater.security")

LOGIN_LIFETIME_S, LOGIN_LIFETIME_S_MAX = 60.0, 12 * 3600.0
"""How long a correct password is remembered after its last use, and in total."""
NAME_CHARS_MAX = 256
"""The limit of names in the table of failures. No user has a longer name, but each of 10,000 strangers may send 40
KiB.
"""
LOGINS_MAX = 10_000
RETRY_AFTER_S = 2.0
"""When to retry if too many passwords wait: the time to check as many as one place may have waiting."""
ATTEMPTS_OF_PLACE_MAX, ATTEMPTS_MAX = 32, 512
"""The maximum number of attempts that wait after earlier failures; further ones are refused unchecked."""
LOG_NAME_SHOWN = 100
"""Characters of a name in the log line of a refusal: an unauthorized client may have invented it."""


class AccountGuard(Guard):
    """A guard that uses the accounts of a directory. For one event loop."""

    def __init__(
        self,
        directory: AccountDirectory,
        *,
        allows_anybody: bool,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        bus: Bus | None = None,
        tokens: TokenLogins | None = None,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """`allows_anybody`: whether everything is allowed while there is no account, and never was one.

        `bus` is notified of refused logins. `tokens` are those of an issuer: if there is one, everyone must log in.
        """
        self._tokens, self._wall_clock = tokens, wall_clock
        self._bus = bus or Bus()
        self.directory, self._allows_anybody, self._sleep = directory, allows_anybody, sleep
        self._logins = Logins(clock)
        self._backoff = LoginBackoff(clock)
        self._wait_slots = WaitSlots(ATTEMPTS_OF_PLACE_MAX, ATTEMPTS_MAX)
        self._running: dict[tuple[str, bytes], asyncio.Task[User | None]] = {}
        """Running checks: concurrent connections of a client with one password cost one scrypt."""
        self._checks = PasswordChecks()
        self._no_key = secrets.token_bytes(32)
        """A random key that checks a message claimed to be signed by a user without a key."""
        self.refusals: Counter[str] = Counter(missing=0, wrong=0, hasty=0, unchecked=0, forbidden=0)
        """Refusals by reason: no credentials, wrong ones, too many attempts, tokens whose issuer does not answer, a
        right that the user lacks.
        """

        self.refused_lately = Refusals()
        """The refused accesses, and other refusals that callers note there."""
        self.sessions = Sessions(self, clock)
        """Console sessions."""

    @property
    def is_open(self) -> bool:
        directory = self.directory
        if directory.clock() >= directory.due_at:
            directory.current()
        return directory.never_had_any and self._allows_anybody and self._tokens is None

    @property
    def takes_tokens(self) -> bool:
        return self._tokens is not None

    @property
    def has_users(self) -> bool:
        """Whether there is any account, or an issuer of tokens."""
        return self._tokens is not None or bool(self.directory.current().by_name)

    async def authenticate(self, credentials: Credentials | None, peer: str) -> User:
        accounts = self.directory.current()
        if not accounts.by_name and self.is_open:
            return ANYBODY
        if credentials is None:
            raise self._refusal("missing", "", peer)
        if (user := self._recalled(credentials, accounts)) is not None:
            return user
        if self._tokens is not None and self._tokens.concern(credentials, accounts.by_name):
            user = await self._token_checked(self._tokens, credentials, peer)
            if user is not None:
                return user
        elif is_token(credentials):
            if (user := await self._token_looked_up(credentials, peer)) is not None:
                return user
        elif (user := await self._checked(credentials, peer)) is not None:
            return user
        raise self._refusal("wrong", credentials.name, peer)

    def trusted(self, name: str, peer: str) -> User:
        if self.is_open:
            return ANYBODY
        account = self.directory.current().by_name.get(name) or self.directory.newest().by_name.get(name)
        user = account.user if account else self._tokens.user(name) if self._tokens else None
        if user is None:
            raise self._refusal("wrong", name, peer)
        return user

    def seal(self, name: str, *, is_login: bool = False) -> str:
        accounts = self.directory.newest() if is_login else self.directory.current()
        account = accounts.by_name.get(name)
        if account is None:
            user = self._tokens.user(name) if self._tokens else None
            return "" if user is None else hmac.new(self._no_key, b"token\n" + name.encode(), "sha256").hexdigest()
        secrets_of = "\n".join((account.password or "", *account.tokens, f"revision {account.revision}"))
        return hmac.new(self._no_key, secrets_of.encode(), "sha256").hexdigest()

    def refused(self, name: str, peer: str) -> Unauthenticated:
        return self._refusal("wrong", name, peer)

    def recall(self, credentials: Credentials) -> User | None:
        return self._recalled(credentials, self.directory.current())

    def session_user(self, secret: str, peer: str) -> User | None:
        return self.sessions.user(secret, peer)

    def authorize(self, user: User, right: Right, log: str) -> None:
        if not user.may(right, log):
            self.refusals["forbidden"] += 1
            self.refused_lately.note("access", "forbidden", user=user.name, right=right.value, log=log)
            refused = fields(user=user.name, right=right.value, log=log[:LOG_NAME_SHOWN])
            logger.warning("access refused", extra=refused)
            raise Forbidden(user.name, right, log)

    async def authenticate_signature(self, name: str, is_right: Callable[[bytes], bool], peer: str) -> User:
        """See Guard. Keys are random and long, so a wrong signature need not delay the next one."""
        accounts = self.directory.current()
        user = self._signer(name, is_right, accounts)
        if user is None and (newest := self.directory.newest()) is not accounts:
            user = self._signer(name, is_right, newest)
        if user is None:
            raise self._refusal("wrong", name, peer)
        return user

    def _signer(self, name: str, is_right: Callable[[bytes], bool], accounts: Accounts) -> User | None:
        account = accounts.by_name.get(name)
        key = account.key if account else None
        is_signed = is_right(key or self._no_key)
        return account.user if is_signed and account is not None and key is not None else None

    def key(self, name: str) -> bytes | None:
        account = self.directory.current().by_name.get(name)
        return account.key if account else None

    def _recalled(self, credentials: Credentials, accounts: Accounts) -> User | None:
        """The user, if known without waiting: from a token, or from recently accepted credentials."""
        if self._tokens is not None and self._tokens.concern(credentials, accounts.by_name):
            user = self._tokens.recall(credentials)
            if user is not None and user.name not in accounts.by_name:
                return user
            return None
        if not is_token(credentials):
            return self._logins.get(self._logins.digest(credentials), accounts)
        # Looked up by hash: timing could reveal only the hash of a random token.
        account, token = accounts.by_token.get(hash_token(credentials.secret), (None, None))
        if account is None or token is None or token.expires_at is None:
            return account.user if account else None
        if token.is_over(round(self._wall_clock() * 1000)):
            return None
        return replace(account.user, expires_at=token.expires_at / 1000)

    async def _token_looked_up(self, credentials: Credentials, peer: str) -> User | None:
        """The user of a token created a moment ago."""
        attempt = place_of(peer), ""
        await self._wait(attempt, peer)
        if (user := self._recalled(credentials, self.directory.newest())) is not None:
            self._backoff.release(attempt)
        return user

    async def _token_checked(self, tokens: TokenLogins, credentials: Credentials, peer: str) -> User | None:
        """The user of an issuer's token. A correct one waits only for its key, if the key is new."""
        attempt = place_of(peer), ""
        names = self.directory.current().by_name
        try:
            user = tokens.check(credentials, names)
        except KeyUnknown:
            user = await self._with_new_keys(tokens, credentials, attempt, peer)
        else:
            if user is None:
                await self._wait(attempt, peer)
        return user

    async def _with_new_keys(
        self, tokens: TokenLogins, credentials: Credentials, attempt: Attempt, peer: str
    ) -> User | None:
        await self._wait(attempt, peer)
        try:
            await tokens.keys.refresh()
        except IssuerUnavailable:
            self._backoff.take_back(attempt)
            self._count("unchecked", credentials.name, peer)
            raise
        try:
            user = tokens.check(credentials, self.directory.current().by_name)
        except KeyUnknown:
            return None
        if user is not None:
            self._backoff.release(attempt)
        return user

    async def _checked(self, credentials: Credentials, peer: str) -> User | None:
        """The user with that password. Equal attempts from one place share one check."""
        key = place, digest = place_of(peer), self._logins.digest(credentials)
        if (task := self._running.get(key)) is None:
            task = asyncio.create_task(self._check(credentials, digest, place, peer))
            self._running[key] = task

            def ended(task: asyncio.Task[User | None]) -> None:
                self._running.pop(key, None)
                if not task.cancelled():
                    task.exception()  # not needed after all callers have disconnected

            task.add_done_callback(ended)
        return await asyncio.shield(task)  # a caller that disconnects must not end the check of the others

    async def _check(self, credentials: Credentials, digest: bytes, place: str, peer: str) -> User | None:
        if not self._checks.places.has_room(place):  # so that no failure is forgotten for one that is not checked
            raise self._hasty(credentials.name, peer)
        attempt = place, credentials.name[:NAME_CHARS_MAX]
        await self._wait(attempt, peer)
        try:
            async with self._checks.places.place(place):
                accounts = self.directory.newest()
                user = self._logins.get(digest, accounts)  # another place may have logged in meanwhile
                if user is None and (account := await self._account_of_password(accounts, credentials)) is not None:
                    self._logins.put(digest, account, accounts)
                    user = account.user
        except NoRoom:
            self._backoff.take_back(attempt)
            raise self._hasty(credentials.name, peer) from None
        if user is not None:
            self._backoff.release(attempt)
        return user

    async def _account_of_password(self, accounts: Accounts, credentials: Credentials) -> Account | None:
        account = accounts.by_name.get(credentials.name)
        encoded = account.password if account else None
        is_right = await self._checks.run(is_password, credentials.secret, encoded or NOBODY_PASSWORD)
        return account if account and encoded and is_right else None

    async def _wait(self, attempt: Attempt, peer: str) -> None:
        """Wait as long as earlier failures require. Raises TooManyLogins, at once if no peer is known."""
        place, name = attempt
        wait_s = self._backoff.begin(attempt)
        if wait_s > WAIT_S_MAX:
            raise self._hasty(name, peer, wait_s)
        if wait_s > 0:
            if not place or not self._wait_slots.take(place):
                self._backoff.take_back(attempt)
                raise self._hasty(name, peer, wait_s)
            try:
                await self._sleep(wait_s)
            finally:
                self._wait_slots.leave(place)

    def _hasty(self, name: str, peer: str, retry_after_s: float = RETRY_AFTER_S) -> TooManyLogins:
        self._count("hasty", name, peer)
        return TooManyLogins(retry_after_s)

    def _refusal(self, reason: str, name: str, peer: str) -> Unauthenticated:
        self._count(reason, name, peer)
        return Unauthenticated("valid credentials are required: user and password, or a token")

    def _count(self, reason: str, name: str, peer: str) -> None:
        self.refusals[reason] += 1
        self._bus.emit(NotificationType.AUTHENTICATION_FAILED, reason=reason, user=name, peer=peer)


def is_token(credentials: Credentials) -> bool:
    """Whether the credentials are a bearer token."""
    return not credentials.name


@dataclass(slots=True)
class _Login:
    account: Account
    user: User
    until: float
    until_max: float


class Logins:
    """Recently accepted credentials, stored by a keyed digest only."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._secret = secrets.token_bytes(32)
        self._logins: OrderedDict[bytes, _Login] = OrderedDict()
        self._accounts: Accounts | None = None

    def digest(self, credentials: Credentials) -> bytes:
        """The key of the credentials here; it means nothing outside this process."""
        name = credentials.name.encode("utf-8", "surrogatepass")
        secret = credentials.secret.encode("utf-8", "surrogatepass")
        return blake2s(len(name).to_bytes(4, "big") + name + secret, key=self._secret).digest()

    def get(self, digest: bytes, accounts: Accounts) -> User | None:
        """The user, if these credentials were recently accepted or used and the account has not changed since."""
        if accounts is not self._accounts:
            self._keep_unchanged(accounts)
        login = self._logins.get(digest)
        if login is None or (now := self._clock()) >= login.until:
            return None
        login.until = min(now + LOGIN_LIFETIME_S, login.until_max)
        return login.user

    def put(self, digest: bytes, account: Account, accounts: Accounts) -> None:
        """Remember the credentials of that account, which were checked against those accounts."""
        if accounts is not self._accounts:
            return
        now = self._clock()
        self._logins[digest] = _Login(account, account.user, now + LOGIN_LIFETIME_S, now + LOGIN_LIFETIME_S_MAX)
        self._logins.move_to_end(digest)
        if len(self._logins) > LOGINS_MAX:
            self._logins.popitem(last=False)

    def _keep_unchanged(self, accounts: Accounts) -> None:
        """The accounts changed: end the logins of changed users only."""
        for digest, login in list(self._logins.items()):
            if accounts.by_name.get(login.account.name) != login.account:
                del self._logins[digest]
        self._accounts = accounts
