"""The guard: who a peer is and what it may do (`core.access.Guard`). Front ends call it; nothing else decides.

A right password costs one scrypt (about 50 ms in a thread) and is then remembered for a minute. A wrong one costs
the same, whether the user exists or not, and makes the next attempt of that peer at that user wait.
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

from ..core.access import ANYBODY, Credentials, Forbidden, Right, Unauthenticated, User
from ..core.bus import Bus
from ..core.notification_types import NotificationType
from .accounts import NOBODY_PASSWORD, AccountDirectory, Accounts, hash_token, is_password
from .log_lines import fields

logger = logging.getLogger("headwater.security")

CHECKS_AT_ONCE = 2
"""Threads that run scrypt: bounds what logins take of the machine, 16 MiB and one core each."""
CHECKS_WAITING_MAX = 256
"""Passwords that may wait for those threads; attempts beyond are refused unchecked."""
LOGIN_LIFETIME_S = 60.0
LOGINS_MAX = 10_000
PAUSE_S, PAUSE_S_MAX = 0.25, 8.0
WAIT_S_MAX = 15.0
"""An attempt that would have to wait longer is refused unchecked."""
FAILURES_FORGOTTEN_S = 600.0
FAILURES_MAX = 10_000
LOG_NAME_SHOWN = 100
"""Characters of a name in the line that logs a refusal: who has no right to it may have made it up."""


class AccountGuard:
    """Guards by the accounts of a directory. To be used on one event loop."""

    def __init__(
        self,
        directory: AccountDirectory,
        *,
        allows_anybody: bool,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        bus: Bus | None = None,
    ) -> None:
        """`allows_anybody`: whether everything is allowed while there is no account, and never was one.

        `bus` is notified of refused logins.
        """
        self._bus = bus or Bus()
        self._directory, self._allows_anybody, self._sleep = directory, allows_anybody, sleep
        self._logins = Logins(clock)
        self._brake = Brake(clock)
        self._running: dict[bytes, asyncio.Task[User | None]] = {}
        """Checks under way: the connections that a client opens at once with one password cost one scrypt."""
        self._threads = ThreadPoolExecutor(CHECKS_AT_ONCE, thread_name_prefix="password")
        self._waiting = 0
        self._no_key = secrets.token_bytes(32)
        """What a message is checked with that claims to be signed by a user without a key; known to nobody else."""
        self.refusals: Counter[str] = Counter(missing=0, wrong=0, hasty=0, forbidden=0)
        """Refusals by reason: no credentials, wrong ones, too many attempts, a right that the user lacks."""

    @property
    def directory(self) -> AccountDirectory:
        """The accounts."""
        return self._directory

    @property
    def is_open(self) -> bool:
        """See Guard."""
        return self._allows_anybody and self._directory.never_had_any

    async def authenticate(self, credentials: Credentials | None, peer: str) -> User:
        """See Guard."""
        accounts = self._directory.current()
        if not accounts.by_name and self.is_open:
            return ANYBODY
        if credentials is None:
            raise self._refusal("missing", "", peer)
        digest = self._logins.digest(credentials)
        if (user := self._logins.get(digest, accounts)) is not None:
            return user
        if (task := self._running.get(digest)) is None:
            task = asyncio.create_task(self._check(credentials, digest, peer))
            self._running[digest] = task
            task.add_done_callback(lambda _: self._running.pop(digest, None))
        user = await asyncio.shield(task)  # one caller that goes away must not end the check of the others
        if user is None:
            raise self._refusal("wrong", credentials.name, peer)
        return user

    def trusted(self, name: str, peer: str) -> User:
        """See Guard."""
        if self.is_open:
            return ANYBODY
        account = self._directory.current().by_name.get(name)
        if account is None:
            raise self._refusal("wrong", name, peer)
        return account.user

    def seal(self, name: str) -> str:
        """See Guard."""
        account = self._directory.current().by_name.get(name)
        if account is None:
            return ""
        secrets_of = "\n".join((account.password or "", *account.tokens))
        return hmac.new(self._no_key, secrets_of.encode(), "sha256").hexdigest()

    def refused(self, name: str, peer: str) -> Unauthenticated:
        """See Guard."""
        return self._refusal("wrong", name, peer)

    def recall(self, credentials: Credentials) -> User | None:
        """See Guard."""
        return self._logins.get(self._logins.digest(credentials), self._directory.current())

    def authorize(self, user: User, right: Right, log: str) -> None:
        """See Guard."""
        if not user.may(right, log):
            self.refusals["forbidden"] += 1
            refused = fields(user=user.name, right=right.value, log=log[:LOG_NAME_SHOWN])
            logger.warning("access refused", extra=refused)
            raise Forbidden(user.name, right, log)

    async def authenticate_signature(self, name: str, is_right: Callable[[bytes], bool], peer: str) -> User:
        """See Guard. Keys are random and long, so that a wrong signature need not make the next one wait."""
        account = self._directory.current().by_name.get(name)
        key = account.key if account else None
        if not is_right(key or self._no_key) or account is None or key is None:
            raise self._refusal("wrong", name, peer)
        return account.user

    def key(self, name: str) -> bytes | None:
        """See Guard."""
        account = self._directory.current().by_name.get(name)
        return account.key if account else None

    async def _check(self, credentials: Credentials, digest: bytes, peer: str) -> User | None:
        attempt = (peer, credentials.name)
        wait_s = self._brake.begin(attempt)
        if wait_s > WAIT_S_MAX:
            raise self._refusal("hasty", credentials.name, peer)
        if wait_s > 0:
            await self._sleep(wait_s)
        accounts = self._directory.current()
        if credentials.name:
            user = await self._user_of_password(accounts, credentials, peer)
        else:
            # Looked up by its hash: what the time of that could give away is the hash of a random token.
            account = accounts.by_token.get(hash_token(credentials.secret))
            user = account.user if account else None
        if user is not None:
            self._brake.release(attempt)
            self._logins.put(digest, user, accounts)
        return user

    async def _user_of_password(self, accounts: Accounts, credentials: Credentials, peer: str) -> User | None:
        account = accounts.by_name.get(credentials.name)
        encoded = account.password if account else None
        if self._waiting >= CHECKS_WAITING_MAX:
            raise self._refusal("hasty", credentials.name, peer)
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            checked = (credentials.secret, encoded or NOBODY_PASSWORD)
            is_right = await loop.run_in_executor(self._threads, is_password, *checked)
        finally:
            self._waiting -= 1
        return account.user if account and encoded and is_right else None

    def _refusal(self, reason: str, name: str, peer: str) -> Unauthenticated:
        self.refusals[reason] += 1
        self._bus.emit(NotificationType.AUTHENTICATION_FAILED, reason=reason, user=name, peer=peer)
        return Unauthenticated("valid credentials are needed: a user's name and password, or a token")


class Logins:
    """Credentials that were found right a short while ago, known by a keyed digest, never by themselves."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._secret = secrets.token_bytes(32)
        self._users: OrderedDict[bytes, tuple[User, float]] = OrderedDict()
        self._accounts: Accounts | None = None

    def digest(self, credentials: Credentials) -> bytes:
        """What stands for the credentials here; it means nothing outside this process."""
        name = credentials.name.encode("utf-8", "surrogatepass")
        secret = credentials.secret.encode("utf-8", "surrogatepass")
        return hmac.digest(self._secret, len(name).to_bytes(4, "big") + name + secret, "sha256")

    def get(self, digest: bytes, accounts: Accounts) -> User | None:
        """The user, if these credentials were right lately and no account has changed since."""
        if accounts is not self._accounts:
            self._users.clear()
            self._accounts = accounts
        user, until = self._users.get(digest, (None, 0.0))
        return user if self._clock() < until else None

    def put(self, digest: bytes, user: User, accounts: Accounts) -> None:
        """Remember that these credentials are right, as judged by those accounts."""
        if accounts is not self._accounts:
            return
        self._users[digest] = (user, self._clock() + LOGIN_LIFETIME_S)
        self._users.move_to_end(digest)
        if len(self._users) > LOGINS_MAX:
            self._users.popitem(last=False)


class Brake:
    """Makes attempts that follow failures wait, longer each time, per peer and user; the table is bounded.

    An attempt counts as a failure until it is released, so that opening many connections at once gains nothing.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failures: OrderedDict[tuple[str, str], tuple[int, float]] = OrderedDict()
        """How many, and when the next attempt may be checked; the one not heard of for longest comes first."""

    def begin(self, attempt: tuple[str, str]) -> float:
        """How long this attempt must wait, in seconds; its turn is reserved unless that is over WAIT_S_MAX."""
        now = self._clock()
        count, next_at = self._failures.get(attempt, (0, now))
        if now - next_at > FAILURES_FORGOTTEN_S:
            count, next_at = 0, now
        wait_s = max(0.0, next_at - now)
        if wait_s <= WAIT_S_MAX:
            pause_s = min(PAUSE_S * 2**count, PAUSE_S_MAX)
            self._failures[attempt] = (min(count + 1, 32), now + wait_s + pause_s)
        self._failures.move_to_end(attempt)
        if len(self._failures) > FAILURES_MAX:
            self._failures.popitem(last=False)
        return wait_s

    def release(self, attempt: tuple[str, str]) -> None:
        """The attempt succeeded: forget the failures."""
        self._failures.pop(attempt, None)
