"""Who gets in: hashes, tokens, remembered logins, the login back-off, refusals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import pytest

from headwater.core.access import ANYBODY, Credentials, Forbidden, Grant, Right, TooManyLogins, Unauthenticated
from headwater.core.client_subnet import place_of
from headwater.core.errors import InvalidInput
from headwater.core.watch.bus import Bus, Notification
from headwater.core.watch.notification_types import NotificationType
from headwater.server.users import accounts as accounts_module
from headwater.server.users import guard as guard_module
from headwater.server.users import login_backoff as backoff_module
from headwater.server.users.accounts import (
    KIND,
    NEWEST_S,
    NOBODY_PASSWORD,
    Account,
    AccountDirectory,
    encode_account,
    hash_password,
    hash_token,
    is_password,
    new_token,
    read_grant,
    show_grant,
)
from headwater.server.users.guard import AccountGuard
from headwater.server.users.login_backoff import WAIT_S_MAX, LoginBackoff
from headwater.storage.memory import MemoryState
from tests import passwords

PASSWORD = "correct horse"
HASH = hash_password(PASSWORD)
ALL = (Grant("*", frozenset(Right)),)
ALICE = Account("alice", ALL, password=HASH)
RIGHT, WRONG = Credentials("alice", PASSWORD), Credentials("alice", "battery staple")


class Clock:
    """A clock that only sleeping and `pass_` move."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)
        self.now += seconds

    def pass_(self, seconds: float) -> None:
        self.now += seconds


class Checks:
    """Counts the password checks that are done."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.encoded: list[str] = []
        monkeypatch.setattr(guard_module, "is_password", self._check)

    def _check(self, password: str, encoded: str) -> bool:
        self.encoded.append(encoded)
        return is_password(password, encoded)


class Setting:
    """A guard with its clock and state."""

    def __init__(self, configured: Iterable[Account] = (ALICE,), allows_anybody: bool = True) -> None:
        self.clock, self.state = Clock(), MemoryState()
        directory = AccountDirectory(configured, self.state, self.clock)
        self.bus = Bus()
        self.guard = AccountGuard(
            directory, allows_anybody=allows_anybody, clock=self.clock, sleep=self.clock.sleep, bus=self.bus
        )

    async def is_in(self, credentials: Credentials | None, peer: str = "10.0.0.1") -> bool:
        try:
            await self.guard.authenticate(credentials, peer)
        except Unauthenticated:
            return False
        return True

    async def outcome(self, credentials: Credentials | None, peer: str = "10.0.0.1") -> str:
        """How a login ends."""
        try:
            return (await self.guard.authenticate(credentials, peer)).name
        except Unauthenticated:
            return "refused"
        except TooManyLogins as error:
            assert error.retry_after_s > 0
            return "later"


def test_a_password_hash_says_its_parameters_and_never_the_password() -> None:
    assert HASH.startswith("$scrypt$ln=14,r=8,p=1$") and PASSWORD not in HASH
    assert hash_password(PASSWORD) != HASH
    assert is_password(PASSWORD, HASH) and not is_password(PASSWORD + " ", HASH)


def test_the_hashes_of_tests_are_of_their_passwords() -> None:
    assert is_password(passwords.PASSWORD, passwords.HASH)
    assert is_password(passwords.OTHER_PASSWORD, passwords.OTHER_HASH)


def test_a_password_is_the_same_in_both_unicode_spellings() -> None:
    assert is_password("cafe\u0301 noir", hash_password("caf\u00e9 noir"))


@pytest.mark.parametrize("password", ["correct\thorse", "correct horse\0", "\x85orrect horse"])
def test_a_password_has_no_control_characters(password: str) -> None:
    with pytest.raises(InvalidInput, match="cannot contain control characters"):
        hash_password(password)


@pytest.mark.parametrize("password", ["short", "x" * 1025])
def test_a_password_has_a_sane_length(password: str) -> None:
    with pytest.raises(InvalidInput, match="expected 8 to 1024 characters"):
        hash_password(password)


def test_an_account_survives_its_outward_form() -> None:
    grants = (Grant("orders-*", frozenset({Right.READ, Right.APPEND})), Grant("*", frozenset(Right)))
    account = Account("bob", grants, password=HASH, tokens=(hash_token(new_token()),), key=b"k" * 32)
    assert Account.of_table("bob", account.table) == account
    assert [show_grant(grant) for grant in grants] == ["read,append:orders-*", "all:*"]
    assert read_grant("manage:*") == Grant("*", frozenset({Right.MANAGE}))


@pytest.mark.parametrize("name", ["", "a:b", "a b", "-x", "x" * 65])
def test_a_user_name_fits_every_protocol(name: str) -> None:
    with pytest.raises(InvalidInput, match="user name"):
        Account.of_table(name, {})


@pytest.mark.parametrize("hashed", ["$scrypt$ln=30,r=8,p=1$" + "A" * 22 + "$" + "A" * 43, "$scrypt$ln=14,r=8,p=1$A$A"])
def test_a_hash_that_would_cost_too_much_or_is_cut_is_refused(hashed: str) -> None:
    with pytest.raises(InvalidInput, match="password"):
        Account.of_table("bob", {"password": hashed})


async def _no_user_means_anybody() -> None:
    setting = Setting(configured=())
    assert setting.guard.is_open
    assert await setting.guard.authenticate(None, "127.0.0.1") is ANYBODY
    closed = Setting(configured=(), allows_anybody=False)
    assert not closed.guard.is_open
    assert not await closed.is_in(None) and not await closed.is_in(RIGHT)


def test_no_user_means_anybody_but_only_where_that_is_allowed() -> None:
    asyncio.run(_no_user_means_anybody())


def test_right_credentials_let_in_and_others_do_not() -> None:
    async def scenario() -> None:
        setting = Setting()
        assert (await setting.guard.authenticate(RIGHT, "10.0.0.1")).name == "alice"
        others = (WRONG, Credentials("nobody", PASSWORD), None, Credentials("", PASSWORD), Credentials("alice", ""))
        assert [await setting.is_in(other, f"10.0.1.{n}") for n, other in enumerate(others)] == [False] * 5
        assert setting.guard.refusals == {"missing": 1, "wrong": 4, "hasty": 0, "unchecked": 0, "forbidden": 0}

    asyncio.run(scenario())


def test_a_token_lets_in_without_name() -> None:
    async def scenario() -> None:
        token = new_token()
        setting = Setting([Account("robot", ALL, tokens=(hash_token(token),))])
        assert (await setting.guard.authenticate(Credentials("", token), "10.0.0.1")).name == "robot"
        assert not await setting.is_in(Credentials("robot", token))

    asyncio.run(scenario())


def test_an_unknown_user_costs_what_a_known_one_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        setting, checks = Setting([ALICE, Account("robot", ALL)]), Checks(monkeypatch)
        for name in ("alice", "robot", "nobody"):
            assert not await setting.is_in(Credentials(name, "wrong password"))
        assert checks.encoded == [HASH, NOBODY_PASSWORD, NOBODY_PASSWORD]

    asyncio.run(scenario())


def test_digests_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(left: bytes, right: bytes) -> bool:
        compared.append((left, right))
        return left == right

    monkeypatch.setattr(accounts_module.hmac, "compare_digest", compare)
    assert is_password(PASSWORD, HASH) and not is_password("another one", HASH)
    assert len(compared) == 2 and all(len(left) == len(right) == 32 for left, right in compared)


def test_a_login_is_remembered_for_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        setting, checks = Setting(), Checks(monkeypatch)
        for _ in range(3):
            assert await setting.is_in(RIGHT)
        assert len(checks.encoded) == 1
        setting.clock.pass_(61)
        assert await setting.is_in(RIGHT)
        assert len(checks.encoded) == 2

    asyncio.run(scenario())


def test_many_connections_at_once_cost_one_check(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        setting, checks = Setting(), Checks(monkeypatch)
        assert await asyncio.gather(*(setting.is_in(RIGHT) for _ in range(20))) == [True] * 20
        assert len(checks.encoded) == 1 and setting.clock.slept == []

    asyncio.run(scenario())


def test_one_caller_that_goes_away_does_not_end_the_check_of_the_others() -> None:
    async def scenario() -> None:
        setting = Setting()
        first, second = (asyncio.create_task(setting.is_in(RIGHT)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        assert await second

    asyncio.run(scenario())


def test_a_removed_user_is_out_within_a_second_in_spite_of_remembered_logins() -> None:
    async def scenario() -> None:
        setting = Setting(configured=(), allows_anybody=False)
        setting.state.put(KIND, "alice", encode_account(ALICE))
        assert await setting.is_in(RIGHT)
        setting.state.delete(KIND, "alice")
        setting.clock.pass_(1)
        assert not await setting.is_in(RIGHT)

    asyncio.run(scenario())


def test_a_user_who_was_just_added_can_log_in_however_lately_the_accounts_were_read() -> None:
    async def scenario() -> None:
        token, key = new_token(), b"k" * 32
        eve = Account("eve", ALL, password=HASH, tokens=(hash_token(token),), key=key)
        for credentials in (Credentials("eve", PASSWORD), Credentials("", token), None):
            setting = Setting()
            assert await setting.is_in(RIGHT)
            setting.state.put(KIND, "eve", encode_account(eve))
            setting.clock.pass_(2 * NEWEST_S)
            if credentials:
                found = await setting.guard.authenticate(credentials, "10.0.0.1")
            else:
                found = await setting.guard.authenticate_signature("eve", lambda given: given == key, "10.0.0.1")
            assert found.name == "eve"
            assert setting.clock.slept == []

    asyncio.run(scenario())


def test_who_was_just_added_or_changed_is_known_by_certificate_and_by_what_is_kept_from_before_a_login() -> None:
    for is_known in (False, True):
        setting, now = Setting(), Account("eve", ALL, password=HASH)
        guard = setting.guard
        if is_known:
            setting.state.put(KIND, "eve", encode_account(Account("eve", (), tokens=(hash_token("t"),))))
        before = guard.seal("eve")
        setting.state.put(KIND, "eve", encode_account(now))
        setting.clock.pass_(2 * NEWEST_S)
        assert guard.seal("eve") == before and (before != "") is is_known
        if not is_known:
            assert guard.trusted("eve", "10.0.0.1") == now.user
        assert guard.seal("eve", is_login=True) == guard.seal("eve") != before


def test_users_that_take_long_to_read_are_not_read_for_each_who_may_be_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    setting, ticks = Setting(), iter(range(1000))
    monkeypatch.setattr(accounts_module.time, "perf_counter", lambda: next(ticks) * 0.02)
    directory = setting.guard.directory
    first = directory.newest()
    setting.state.put(KIND, "eve", encode_account(Account("eve", ALL)))
    setting.clock.pass_(2 * NEWEST_S)
    assert directory.newest() is first, "reading them takes 20 ms, so they are 400 ms old"
    setting.clock.pass_(0.4)
    assert "eve" in directory.newest().by_name


def test_changed_rights_count_within_a_second() -> None:
    async def scenario() -> None:
        setting = Setting(configured=())
        setting.state.put(KIND, "alice", encode_account(ALICE))
        setting.clock.pass_(1)
        assert (await setting.guard.authenticate(RIGHT, "10.0.0.1")).may(Right.MANAGE, "x")
        setting.state.put(KIND, "alice", encode_account(Account("alice", (), password=HASH)))
        setting.clock.pass_(1)
        assert not (await setting.guard.authenticate(RIGHT, "10.0.0.1")).may(Right.READ, "x")

    asyncio.run(scenario())


def test_the_configured_user_counts_where_the_data_directory_has_one_of_that_name() -> None:
    state = MemoryState()
    state.put(KIND, "alice", encode_account(Account("alice", (), tokens=(hash_token("t"),))))
    current = AccountDirectory([ALICE], state).current()
    assert current.by_name == {"alice": ALICE} and current.by_token == {}


def test_failures_make_the_next_attempt_of_that_peer_at_that_user_wait() -> None:
    async def scenario() -> None:
        setting = Setting()
        for _ in range(4):
            assert not await setting.is_in(WRONG)
        assert setting.clock.slept == [0.25, 0.5, 1.0]
        assert not await setting.is_in(WRONG, "10.0.0.2")  # another peer does not wait
        assert await setting.is_in(RIGHT)  # the right password waits setting turn
        assert setting.clock.slept == [0.25, 0.5, 1.0, 2.0]
        setting.clock.pass_(61)
        assert await setting.is_in(RIGHT)  # and cleared the login back-off
        assert len(setting.clock.slept) == 4

    asyncio.run(scenario())


def test_attempts_at_once_are_braked_too_and_in_the_end_refused_unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        checks = Checks(monkeypatch)
        setting = Setting()
        guesses = [Credentials("alice", f"guess number {n}") for n in range(30)]
        assert set(await asyncio.gather(*map(setting.outcome, guesses))) == {"refused", "later"}
        assert setting.guard.refusals["hasty"] > 20 and len(checks.encoded) < 10

    asyncio.run(scenario())


def test_the_brake_forgets_and_stays_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    backoff = LoginBackoff(clock)
    waits = [backoff.begin(("peer", "user")) for _ in range(10)]
    assert waits[0] == 0 and waits == sorted(waits) and waits[-1] > WAIT_S_MAX
    clock.pass_(10_000)
    assert backoff.begin(("peer", "user")) == 0
    monkeypatch.setattr(backoff_module, "FAILURES_MAX", 10)
    for number in range(50):
        backoff.begin(("peer", f"user{number}"))
    assert len(backoff._failures) <= 11


TOKEN = new_token()
ROBOT = Account("robot", ALL, tokens=(hash_token(TOKEN),))


def test_wrong_tokens_of_an_address_never_hold_up_a_right_one_from_there() -> None:
    async def scenario() -> None:
        setting = Setting([ROBOT])
        for number in range(3):
            assert await setting.outcome(Credentials("", f"stale {number}")) == "refused"
        floods = [asyncio.create_task(setting.outcome(Credentials("", new_token()))) for _ in range(24)]
        await asyncio.sleep(0)
        before = list(setting.clock.slept)
        assert await setting.outcome(Credentials("", TOKEN)) == "robot"
        assert setting.guard.recall(Credentials("", TOKEN)) == ROBOT.user, "without a wait, so without one of the loop"
        assert setting.clock.slept == before
        assert set(await asyncio.gather(*floods)) == {"refused", "later"}
        assert await setting.outcome(Credentials("", TOKEN)) == "robot"

    asyncio.run(scenario())


def test_wrong_tokens_are_counted_and_wait_longer_each_time_by_address() -> None:
    async def scenario() -> None:
        setting = Setting([ROBOT])
        assert [await setting.outcome(Credentials("", f"stale {n}")) for n in range(4)] == ["refused"] * 4
        assert setting.clock.slept == [0.25, 0.5, 1.0]
        assert await setting.outcome(Credentials("", "stale"), "10.0.0.2") == "refused"
        assert setting.clock.slept == [0.25, 0.5, 1.0], "another address has not failed yet"
        assert setting.guard.refusals["wrong"] == 5

    asyncio.run(scenario())


def test_a_revoked_token_is_out_within_a_second() -> None:
    async def scenario() -> None:
        setting = Setting(configured=(), allows_anybody=False)
        setting.state.put(KIND, "robot", encode_account(ROBOT))
        assert await setting.outcome(Credentials("", TOKEN)) == "robot"
        setting.state.delete(KIND, "robot")
        setting.clock.pass_(1)
        assert setting.guard.recall(Credentials("", TOKEN)) is None
        assert await setting.outcome(Credentials("", TOKEN)) == "refused"

    asyncio.run(scenario())


class HeldChecks:
    """Password checks that end when they are told to, and the order in which they were begun."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun: list[str] = []
        self.held: list[asyncio.Future[None]] = []
        monkeypatch.setattr(guard_module.PasswordChecks, "run", self._run)

    async def _run(self, check: Callable[..., bool], secret: str, encoded: str) -> bool:
        held = asyncio.get_running_loop().create_future()
        self.begun.append(secret)
        self.held.append(held)
        await held
        return secret == PASSWORD

    async def finish(self, tasks: Iterable[asyncio.Task[str]]) -> list[str]:
        """Let all of them end, one by one."""
        everything = asyncio.gather(*tasks)
        while not everything.done():
            if self.held:
                self.held.pop(0).set_result(None)
            await asyncio.sleep(0)
        return everything.result()


def made_up(number: int) -> Credentials:
    """A name that nobody has."""
    return Credentials(f"user{number}", f"made up {number}")


def test_a_flood_of_made_up_names_is_never_a_wrong_password_for_anybody(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        setting, checks = Setting(), HeldChecks(monkeypatch)
        flood = [asyncio.create_task(setting.outcome(made_up(n), "10.0.0.9")) for n in range(400)]
        await asyncio.sleep(0)
        own = asyncio.create_task(setting.outcome(RIGHT, "10.0.0.1"))
        beside = asyncio.create_task(setting.outcome(RIGHT, "10.0.0.9"))
        outcomes = await checks.finish([*flood, own, beside])
        assert outcomes[-2] == "alice", "another address has its own queue"
        assert outcomes[-1] in ("alice", "later"), "the same address is asked to come again"
        assert checks.begun.index(PASSWORD) <= 4, "it is the next but one whose turn it is"
        looked_at = guard_module.CHECKS_AT_ONCE + guard_module.CHECKS_WAITING_OF_PLACE_MAX
        assert outcomes[:-2].count("refused") == looked_at
        assert outcomes[:-2].count("later") == 400 - looked_at
        assert setting.guard.refusals["hasty"] >= 400 - looked_at

    asyncio.run(scenario())


def test_what_is_not_looked_at_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(guard_module, "CHECKS_WAITING_OF_PLACE_MAX", 0)
        setting, checks = Setting(), HeldChecks(monkeypatch)
        flood = [asyncio.create_task(setting.outcome(made_up(n))) for n in range(2)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [await setting.outcome(RIGHT) for _ in range(10)] == ["later"] * 10
        assert await checks.finish(flood) == ["refused"] * 2
        (outcome,) = await checks.finish([asyncio.create_task(setting.outcome(RIGHT))])
        assert outcome == "alice" and setting.clock.slept == []

    asyncio.run(scenario())


def test_a_user_who_was_let_in_lately_passes_whatever_comes_from_his_address(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        setting = Setting()
        assert await setting.outcome(RIGHT) == "alice"
        checks = HeldChecks(monkeypatch)
        flood = [asyncio.create_task(setting.outcome(made_up(n))) for n in range(400)]
        flood += [asyncio.create_task(setting.outcome(Credentials("alice", f"guess {n}"))) for n in range(10)]
        await asyncio.sleep(0)
        for _ in range(5):
            assert setting.guard.recall(RIGHT) == ALICE.user
            assert await setting.outcome(RIGHT) == "alice"
            setting.clock.pass_(50)  # in use, it is not forgotten
        await checks.finish(flood)

    asyncio.run(scenario())


def test_a_login_in_use_is_remembered_for_half_a_day_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        setting, checks = Setting(), Checks(monkeypatch)
        for _ in range(12 * 60 + 1):
            assert await setting.is_in(RIGHT)
            setting.clock.pass_(59)
        assert len(checks.encoded) == 1
        for _ in range(20):
            assert await setting.is_in(RIGHT)
            setting.clock.pass_(59)
        assert len(checks.encoded) == 2

    asyncio.run(scenario())


def test_a_new_user_ends_no_login_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        setting, checks = Setting(), Checks(monkeypatch)
        assert await setting.is_in(RIGHT)
        setting.state.put(KIND, "bob", encode_account(Account("bob", (), password=HASH)))
        setting.clock.pass_(1)
        assert await setting.is_in(RIGHT) and len(checks.encoded) == 1

    asyncio.run(scenario())


def test_a_right_password_passes_from_one_address_while_it_waits_at_another() -> None:
    async def scenario() -> None:
        setting = Setting()
        guesses = [Credentials("alice", f"guess number {n}") for n in range(30)]
        flood = [asyncio.create_task(setting.outcome(guess, "10.0.0.9")) for guess in guesses]
        await asyncio.sleep(0)
        assert await setting.outcome(RIGHT, "10.0.0.9") == "later", "too many have failed there"
        assert await setting.outcome(RIGHT, "10.0.0.1") == "alice"
        await asyncio.gather(*flood)

    asyncio.run(scenario())


def test_where_no_peer_is_known_nothing_waits_for_the_failures_of_others() -> None:
    async def scenario() -> None:
        setting = Setting()
        assert await setting.outcome(WRONG, "") == "refused"
        assert await setting.outcome(RIGHT, "") == "later"
        assert await setting.outcome(RIGHT, "10.0.0.1") == "alice"
        assert await setting.outcome(RIGHT, "") == "alice"
        assert setting.clock.slept == []

    asyncio.run(scenario())


def test_a_password_that_many_places_show_at_once_is_checked_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        setting, checks = Setting(), HeldChecks(monkeypatch)
        tasks = [asyncio.create_task(setting.outcome(RIGHT, f"10.0.0.{n}")) for n in range(100)]
        assert await checks.finish(tasks) == ["alice"] * 100
        assert len(checks.begun) <= guard_module.CHECKS_AT_ONCE + 1

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("peer", "place"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("", ""),
        ("unknown", "unknown"),
    ],
)
def test_a_network_that_one_customer_has_is_one_place(peer: str, place: str) -> None:
    assert place_of(peer) == place


def test_a_missing_right_is_refused_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    setting = Setting()
    user = Account("bob", (Grant("orders-*", frozenset({Right.READ})),)).user
    setting.guard.authorize(user, Right.READ, "orders-1")
    with pytest.raises(Forbidden, match="user 'bob' has no right to append log 'orders-1'"):
        setting.guard.authorize(user, Right.APPEND, "orders-1")
    with pytest.raises(Forbidden):
        setting.guard.authorize(user, Right.READ, "audit")
    assert setting.guard.refusals["forbidden"] == 2
    with pytest.raises(Forbidden):
        setting.guard.authorize(user, Right.READ, "x" * 1_000_000)
    assert [record.getMessage() for record in caplog.records] == ["access refused"] * 3
    assert "x" * 1000 not in repr([vars(record) for record in caplog.records])


def test_a_refused_login_is_told_without_its_secret() -> None:
    told: list[Notification] = []

    async def scenario() -> None:
        setting = Setting()
        setting.bus.subscribe(told.append)
        await setting.is_in(WRONG)

    asyncio.run(scenario())
    (notification,) = told
    assert notification.type is NotificationType.AUTHENTICATION_FAILED
    expected = {"reason": "wrong", "user": "alice", "peer": "10.0.0.1"}
    assert dict(notification.attributes) == {"eventType": notification.type, "time": notification.time, **expected}
    assert WRONG.secret not in repr(notification)


def test_keys_are_given_for_signing_protocols() -> None:
    setting = Setting([Account("bob", (), key=b"k" * 32)])
    assert setting.guard.key("bob") == b"k" * 32
    assert setting.guard.key("nobody") is None


def test_a_signature_is_judged_by_the_users_key_and_refusals_are_counted() -> None:
    key = b"k" * 32
    setting = Setting([ALICE, Account("robot", ALL, key=key)])
    judged: list[bytes] = []

    def judge(given: bytes) -> bool:
        judged.append(given)
        return given == key

    async def test() -> None:
        guard = setting.guard
        assert (await guard.authenticate_signature("robot", judge, "10.0.0.1")).name == "robot"
        for name in ("alice", "nobody"):
            with pytest.raises(Unauthenticated):
                await guard.authenticate_signature(name, lambda given: judge(given) or True, "10.0.0.1")
        with pytest.raises(Unauthenticated):
            await guard.authenticate_signature("robot", lambda given: False, "10.0.0.1")

    asyncio.run(test())
    assert judged[0] == key
    assert len(judged) == 3, "who has no key costs the same"
    assert setting.guard.refusals["wrong"] == 3


def test_a_login_is_recalled_without_waiting_only_after_it_was_right() -> None:
    setting = Setting()

    async def test() -> None:
        assert setting.guard.recall(RIGHT) is None
        assert await setting.is_in(RIGHT)
        assert setting.guard.recall(RIGHT) == ALICE.user
        assert setting.guard.recall(WRONG) is None
        setting.clock.pass_(61)
        assert setting.guard.recall(RIGHT) is None

    asyncio.run(test())


def test_long_names_of_strangers_take_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> list[str]:
        desk = Setting()
        for number in range(3):
            assert not await desk.is_in(Credentials(f"{number}" + "x" * 100_000, "wrong"), f"10.0.{number}.1")
        return [name for _, name in desk.guard._backoff._failures]

    assert [len(name) for name in asyncio.run(run())] == 3 * [guard_module.NAME_CHARS_MAX]
